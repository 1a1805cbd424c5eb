"""The request rules: every violation, where it is reported, and in which order."""

from __future__ import annotations

import json
import pickle
from collections import OrderedDict
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrbot_tool_guard.core.errors import ToolMessageProtocolError
from astrbot_tool_guard.core.messages import pairing
from astrbot_tool_guard.core.messages.pairing import (
    check_messages,
    effective_messages,
    find_violations,
)
from tests.conftest import cases
from tests.core.messages.histories import (
    absurd_lists,
    anything,
    call,
    damaged_lists,
    declares,
    healthy_lists,
    result,
    user,
)
from tests.support.strictness import refusal

Place = tuple[str, int | None, int | None]


def places(messages: object) -> list[Place]:
    return [(v.rule, v.message_index, v.call_index) for v in find_violations(messages)]


@pytest.mark.parametrize("case", cases("req-"))
def test_each_case_of_the_corpus_has_exactly_its_violations(case: dict[str, Any]) -> None:
    found = find_violations(effective_messages(case["input"]))

    expected = case["expect"]["violations"]
    assert [
        {key: v.to_dict()[key] for key in ("rule", "message_index", "call_index")} for v in found
    ] == expected
    assert case["expect"]["valid"] is (not found)


RULES: list[tuple[str, object, list[Place]]] = [
    # The list and its messages.
    ("null is no list", None, [("messages_not_a_list", None, None)]),
    ("text is no list", "[]", [("messages_not_a_list", None, None)]),
    ("an object is no list", {}, [("messages_not_a_list", None, None)]),
    ("a tuple is no list", (), [("messages_not_a_list", None, None)]),
    ("an empty list is paired", [], []),
    (
        "each message that is no object",
        [None, "text", 7, [], user("hi")],
        [("message_not_an_object", index, None) for index in range(4)],
    ),
    (
        "a message that is no object closes the group",
        [declares("a"), None, result("a")],
        [("unanswered_call", 0, 0), ("message_not_an_object", 1, None), ("orphan_result", 2, None)],
    ),
    # What opens a group.
    ("null declares nothing", [{"role": "assistant", "tool_calls": None}], []),
    ("an empty list declares nothing", [{"role": "assistant", "tool_calls": []}], []),
    *(
        (
            f"{value!r} as tool_calls is no list",
            [{"role": "assistant", "tool_calls": value}],
            [("tool_calls_not_a_list", 0, None)],
        )
        for value in ("", 0, False, {}, "[]", call("a"), (call("a"),))
    ),
    (
        "tool_calls that are no list close the group",
        [declares("a"), {"role": "assistant", "tool_calls": {}}, result("a")],
        [("unanswered_call", 0, 0), ("tool_calls_not_a_list", 1, None), ("orphan_result", 2, None)],
    ),
    ("only an assistant declares", [{"role": "user", "tool_calls": "text"}], []),
    ("a message without a role declares nothing", [{"tool_calls": [call("a")]}], []),
    ("a role of another type declares nothing", [{**declares("a"), "role": ["assistant"]}], []),
    (
        "a call that is no object",
        [{"role": "assistant", "tool_calls": [None, "text", call("a"), []]}, result("a")],
        [
            ("tool_call_not_an_object", 0, 0),
            ("tool_call_not_an_object", 0, 1),
            ("tool_call_not_an_object", 0, 3),
        ],
    ),
    # Declared ids.
    (
        "an absent, null or empty id is missing, and not unanswered besides",
        [declares(..., None, "")],
        [("missing_call_id", 0, 0), ("missing_call_id", 0, 1), ("missing_call_id", 0, 2)],
    ),
    (
        "an id that is not a string is invalid, also where it equals one",
        [declares(7, True, 1.5, ["a"], {"a": 1}, "7"), result("7")],
        [("invalid_call_id", 0, index) for index in range(5)],
    ),
    ("an id of blanks is a string like any other", [declares(" "), result(" ")], []),
    (
        "the second declaration of an id, which its one result has answered",
        [declares("a", "a"), result("a")],
        [("duplicate_call_id", 0, 1)],
    ),
    (
        "the first declaration of a repeated id is the one left open",
        [declares("a", "b", "a", "a"), result("b")],
        [("unanswered_call", 0, 0), ("duplicate_call_id", 0, 2), ("duplicate_call_id", 0, 3)],
    ),
    ("separate groups may use an id again", [declares("a"), result("a")] * 3, []),
    # Results.
    (
        "an absent, null or empty result id is missing",
        [result(...), result(None), result("")],
        [("missing_result_id", index, None) for index in range(3)],
    ),
    (
        "a result id that is not a string is invalid",
        [declares("1"), result(1), result(True), result([]), result({}), result("1")],
        [("invalid_result_id", index, None) for index in range(1, 5)],
    ),
    (
        "a second result for an answered call",
        [declares("a", "b"), result("a"), result("a"), result("b"), result("a")],
        [("duplicate_result", 2, None), ("duplicate_result", 4, None)],
    ),
    (
        "a repetition behind the group is an orphan",
        [declares("a"), result("a"), user("hi"), result("a")],
        [("orphan_result", 3, None)],
    ),
    (
        "ids compare exactly",
        [declares("a"), result(" a")],
        [("unanswered_call", 0, 0), ("orphan_result", 1, None)],
    ),
    ("results come in any order", [declares("a", "b"), result("b"), result("a")], []),
    (
        "any other message closes the group, one without a role too",
        [declares("a"), {}, result("a")],
        [("unanswered_call", 0, 0), ("orphan_result", 2, None)],
    ),
    (
        "the next declaration closes the group",
        [declares("a"), declares("b"), result("b"), result("a")],
        [("unanswered_call", 0, 0), ("orphan_result", 3, None)],
    ),
    ("the end closes the group", [declares("a", "b"), result("b")], [("unanswered_call", 0, 0)]),
    (
        "violations come by message, then by call, wherever they were noticed",
        [result("x"), declares("a", "", "b"), result("y"), user("hi"), result("")],
        [
            ("orphan_result", 0, None),
            ("unanswered_call", 1, 0),
            ("missing_call_id", 1, 1),
            ("unanswered_call", 1, 2),
            ("orphan_result", 2, None),
            ("missing_result_id", 4, None),
        ],
    ),
    # Outside the contract.
    (
        "legacy functions are not looked at",
        [{"role": "assistant", "function_call": {"name": "f"}}, {"role": "function", "name": "f"}],
        [],
    ),
]


@pytest.mark.parametrize(
    ("messages", "expected"), [pytest.param(m, e, id=name) for name, m, e in RULES]
)
def test_rule(messages: object, expected: list[Place]) -> None:
    assert places(messages) == expected


def test_the_id_involved_is_named_only_when_it_is_a_usable_one() -> None:
    messages = [declares("a", "", 7), result("b"), result(None), result(["c"])]

    assert [v.tool_call_id for v in find_violations(messages)] == ["a", None, None, "b", None, None]


def test_details_name_types_and_never_content() -> None:
    secret = "sk-secret"
    messages = [secret, {"role": "assistant", "tool_calls": secret}, result({secret: secret})]
    messages += [{"role": "assistant", "tool_calls": [secret]}]

    details = [v.detail for v in find_violations(messages)]

    assert details == [
        "the message is a string, not an object",
        "tool_calls is a string, not a list",
        "the tool message's tool_call_id is an object, not a string",
        "the call is a string, not an object",
    ]


class TestCheckMessages:
    def test_passes_a_paired_list(self) -> None:
        check_messages([declares("a"), result("a")])

    def test_raises_with_everything_that_was_found(self) -> None:
        messages = [declares("a"), user("hi"), result("b")]

        with pytest.raises(ToolMessageProtocolError) as caught:
            check_messages(messages)

        assert caught.value.violations == find_violations(messages)
        assert str(caught.value) == (
            "tool calls and tool results do not pair: unanswered_call at message 0, call 0; "
            "orphan_result at message 2"
        )

    def test_the_error_survives_a_pickle(self) -> None:
        error = ToolMessageProtocolError(find_violations([result("a")]))

        assert pickle.loads(pickle.dumps(error)).violations == error.violations


BASE = [user("base")]
OVERRIDE = [user("override")]


class TestEffectiveMessages:
    @pytest.mark.parametrize("extra_body", [None, {}, {"temperature": 1}, "messages", ["messages"]])
    def test_are_the_base_messages_without_an_override(self, extra_body: object) -> None:
        request = {"messages": BASE, "extra_body": extra_body}

        assert effective_messages(request) is BASE

    def test_are_the_override_where_there_is_one(self) -> None:
        request = {"messages": BASE, "extra_body": {"messages": OVERRIDE}}

        assert effective_messages(request) is OVERRIDE

    def test_are_null_where_the_override_is_null(self) -> None:
        request = {"messages": BASE, "extra_body": {"messages": None}}

        assert effective_messages(request) is None


class Model:
    """Stands in for an SDK response model, which the SDK takes as a message."""

    def __init__(self, **fields: object) -> None:
        self._fields = fields

    def model_dump(self) -> dict[str, object]:
        return self._fields


class Unreadable:
    def model_dump(self) -> dict[str, object]:
        raise RuntimeError("no")


class TestObjectsThatAreNoDicts:
    def test_mappings_and_response_models_are_read(self) -> None:
        declaration = Model(role="assistant", tool_calls=[Model(id="a"), OrderedDict(id="b")])
        messages = [declaration, MappingProxyType(result("a")), OrderedDict(result("b"))]

        assert find_violations(messages) == ()
        assert places(messages[:-1]) == [("unanswered_call", 0, 1)]

    @pytest.mark.parametrize("value", [Unreadable(), Model, object(), ..., {1}, b"{}"])
    def test_anything_else_is_no_object(self, value: object) -> None:
        assert places([value]) == [("message_not_an_object", 0, None)]
        assert places([{"role": "assistant", "tool_calls": [value]}]) == [
            ("tool_call_not_an_object", 0, 0)
        ]

    def test_cyclic_values_are_read_like_any_other(self) -> None:
        knot: dict[str, Any] = {"role": "tool"}
        knot["tool_call_id"] = knot["content"] = knot
        ring: list[Any] = []
        ring.append(ring)

        assert places([knot]) == [("invalid_result_id", 0, None)]
        assert places(ring) == [("message_not_an_object", 0, None)]


@given(absurd_lists)
@settings(max_examples=200)
def test_no_value_in_any_field_raises(messages: list[Any]) -> None:
    found = find_violations(messages)

    assert found == tuple(
        sorted(found, key=lambda v: (v.message_index, -1 if v.call_index is None else v.call_index))
    )
    assert len({(v.message_index, v.call_index) for v in found}) == len(found)
    for violation in found:
        json.dumps(violation.to_dict())


@given(st.one_of(absurd_lists, healthy_lists(), damaged_lists()))
@settings(max_examples=200)
def test_the_quick_walk_skips_nothing_that_the_reader_faults(messages: list[Any]) -> None:
    declarations: list[Any] = []
    found: list[Any] = []
    position = 0
    while position < len(messages):
        position = pairing._read_section(messages, position, declarations, found)

    groups = pairing.read_groups(messages)

    assert set(groups.violations) == set(found)
    assert groups.declarations == declarations


@given(healthy_lists())
def test_healthy_lists_are_paired(messages: list[Any]) -> None:
    assert find_violations(messages) == ()


@given(st.one_of(absurd_lists, damaged_lists()).filter(bool))
@settings(max_examples=200)
def test_a_strict_provider_refuses_exactly_what_has_a_violation(messages: list[Any]) -> None:
    refused = refusal({"messages": messages})

    assert bool(find_violations(messages)) is (refused is not None and refused.kind == "pairing")


@given(anything)
def test_messages_of_any_type_are_judged(messages: object) -> None:
    if not isinstance(messages, list):
        assert places(messages) == [("messages_not_a_list", None, None)]
