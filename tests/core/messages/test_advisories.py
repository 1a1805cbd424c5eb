"""What pairs and is refused all the same: found always, mended on request."""

from __future__ import annotations

import copy
import json
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrbot_tool_guard.core.messages.advisories import (
    AdvisoryAction,
    find_advisories,
    mend_advisories,
)
from astrbot_tool_guard.core.messages.pairing import effective_messages, find_violations
from tests.conftest import cases
from tests.core.messages.histories import (
    absurd_lists,
    call,
    damaged_lists,
    declares,
    healthy_lists,
    result,
    says,
    user,
)
from tests.support.strictness import refusal

LONG = "call_" + "a1" * 30


def calling(function: object, call_id: str = "a") -> list[dict[str, Any]]:
    """Return a paired list with one call of this function object."""
    calls = [{"id": call_id, "type": "function", "function": function}]
    return [
        user("hi"),
        {"role": "assistant", "content": None, "tool_calls": calls},
        result(call_id),
    ]


def function_of(messages: object) -> Any:
    assert isinstance(messages, list)
    return messages[1]["tool_calls"][0]["function"]


ARGUMENTS: list[tuple[str, object, str, str]] = [
    # what is stored, what it becomes, and whether that kept everything
    ("malformed text", '{"city": ', "{}", "arguments_emptied"),
    ("text of something else", "[1]", "{}", "arguments_emptied"),
    ("a list", [1], "{}", "arguments_emptied"),
    ("a number no JSON has", '{"x": NaN}', "{}", "arguments_emptied"),
    ("an object with such a number", {"x": float("nan")}, "{}", "arguments_emptied"),
    ("nothing", None, "{}", "arguments_rewritten"),
    ("blank text", " \n", "{}", "arguments_rewritten"),
    ("the text null", "null", "{}", "arguments_rewritten"),
    ("an object", {"city": "奥斯陆"}, '{"city": "奥斯陆"}', "arguments_rewritten"),
    ("text encoded twice", '"{\\"a\\": 1}"', '{"a": 1}', "arguments_rewritten"),
    ("a code fence", '```json\n{"a": 1}\n```', '{"a": 1}', "arguments_rewritten"),
    ("raw control characters", '{"a": "x\ny"}', '{"a": "x\\ny"}', "arguments_rewritten"),
]


class TestArguments:
    @pytest.mark.parametrize(
        ("stored", "text", "action"), [pytest.param(*rest, id=name) for name, *rest in ARGUMENTS]
    )
    def test_become_text_of_an_object(self, stored: object, text: str, action: str) -> None:
        messages = calling({"name": "f", "arguments": stored})

        repair = mend_advisories(messages)

        assert [a.kind for a in find_advisories(messages)] == ["arguments_not_an_object"]
        assert function_of(repair.messages) == {"name": "f", "arguments": text}
        assert [(c.action, c.message_index) for c in repair.changes] == [(action, 1)]

    @pytest.mark.parametrize("text", ["{}", ' {"a": [1, null]} ', '{"a": 1, "a": 2}', '{"": 1e3}'])
    def test_that_are_text_of_an_object_stay_as_they_are(self, text: str) -> None:
        messages = calling({"name": "f", "arguments": text})

        assert find_advisories(messages) == ()
        assert mend_advisories(messages).messages is messages

    def test_too_deep_for_us_to_judge_stay_as_they_are(self) -> None:
        text = '{"a":' * 500 + "1" + "}" * 500

        assert find_advisories(calling({"name": "f", "arguments": text})) == ()


class TestNames:
    @pytest.mark.parametrize("name", [None, "", "  ", 7, ["f"]])
    def test_a_call_without_a_name_gets_one(self, name: object) -> None:
        messages = calling({"name": name, "arguments": "{}"})

        assert [a.kind for a in find_advisories(messages)] == ["missing_name"]
        assert function_of(mend_advisories(messages).messages)["name"] == "unnamed_tool"

    @pytest.mark.parametrize(
        ("name", "legal"),
        [
            ("files.read", "files_read_"),
            ("get weather\n", "get_weather_"),
            ("查天气", "tool_"),
            ("x" * 65, "x" * 55 + "_"),
            ("\ud800", "tool_"),
        ],
    )
    def test_an_illegal_name_keeps_what_is_legal_of_it(self, name: str, legal: str) -> None:
        messages = calling({"name": name, "arguments": "{}"})

        mended = function_of(mend_advisories(messages).messages)["name"]

        assert [a.kind for a in find_advisories(messages)] == ["illegal_name"]
        assert mended[:-8] == legal
        assert len(mended) <= 64

    def test_two_names_stay_two_names(self) -> None:
        names = {
            function_of(mend_advisories(calling({"name": name, "arguments": "{}"})).messages)[
                "name"
            ]
            for name in ("查天气", "查新闻", "a.b", "a b", "a_b")
        }

        assert len(names) == 5

    @pytest.mark.parametrize("name", ["f", "get-weather_2", "x" * 64])
    def test_a_legal_name_stays(self, name: str) -> None:
        assert find_advisories(calling({"name": name, "arguments": "{}"})) == ()

    @pytest.mark.parametrize("function", [None, "f", ...])
    def test_a_call_without_a_function_gets_an_empty_one(self, function: object) -> None:
        messages = calling(function)
        if function is ...:
            del messages[1]["tool_calls"][0]["function"]

        assert function_of(mend_advisories(messages).messages) == {
            "name": "unnamed_tool",
            "arguments": "{}",
        }

    def test_a_custom_tool_has_neither_name_nor_arguments_of_this_kind(self) -> None:
        messages = calling(None)
        messages[1]["tool_calls"] = [{"id": "a", "type": "custom", "custom": {"name": "grep"}}]

        assert find_advisories(messages) == ()


class TestEmptyToolCalls:
    def test_are_removed(self) -> None:
        messages = [user("hi"), {**says("hello"), "tool_calls": []}]

        repair = mend_advisories(messages)

        assert [(a.kind, a.message_index, a.call_index) for a in find_advisories(messages)] == [
            ("empty_tool_calls", 1, None)
        ]
        assert repair.messages == [user("hi"), says("hello")]
        assert repair.changes[0].action == "tool_calls_removed"

    def test_leave_content_that_astrbot_can_load(self) -> None:
        messages = [{"role": "assistant", "content": None, "tool_calls": []}]

        assert mend_advisories(messages).messages == [says("")]


class TestOverlongIds:
    def test_are_shortened_on_both_sides_of_each_group(self) -> None:
        group = [declares("a", LONG), result(LONG), result("a")]

        repair = mend_advisories([*group, user("again"), *group])

        assert repair.messages == [
            *(declares("a", "call00001"), result("call00001"), result("a")),
            user("again"),
            *(declares("a", "call00003"), result("call00003"), result("a")),
        ]
        assert [(c.action, c.message_index) for c in repair.changes] == [
            ("id_shortened", index) for index in (0, 1, 4, 5)
        ]

    def test_are_found_at_their_call(self) -> None:
        found = find_advisories([declares("a" * 40, "b" * 41)])

        assert [(a.kind, a.message_index, a.call_index) for a in found] == [("overlong_id", 0, 1)]


def test_several_faults_of_one_call_are_mended_together() -> None:
    messages = calling({"name": "a.b", "arguments": "oops"}, call_id=LONG)

    repair = mend_advisories(messages)

    assert {a.kind for a in find_advisories(messages)} == {
        "illegal_name",
        "arguments_not_an_object",
        "overlong_id",
    }
    assert find_advisories(repair.messages) == ()
    assert [c.message_index for c in repair.changes] == [1, 1, 1, 2]


def test_details_hold_no_content() -> None:
    messages = calling({"name": "sk secret", "arguments": "sk secret"})

    texts = json.dumps([a.to_dict() for a in find_advisories(messages)])

    assert "secret" not in texts


@pytest.mark.parametrize("messages", [None, "text", {}, 7])
def test_what_is_no_list_has_no_advisories(messages: object) -> None:
    assert find_advisories(messages) == ()
    assert mend_advisories(messages).messages is messages


CORPUS_KINDS = {
    "req-empty-tool-calls-array": ["empty_tool_calls"],
    "req-empty-tool-calls-then-result": ["empty_tool_calls"],
    "req-nameless-call-in-history": ["missing_name"],
    "req-overlong-doubled-id": ["overlong_id"],
}


@pytest.mark.parametrize("case", cases("req-"))
def test_the_corpus_has_the_advisories_its_notes_name(case: dict[str, Any]) -> None:
    found = find_advisories(effective_messages(case["input"]))

    assert [advisory.kind for advisory in found] == CORPUS_KINDS.get(case["slug"], [])


class TestLaws:
    @given(st.one_of(damaged_lists(), absurd_lists))
    @settings(max_examples=200)
    def test_mending_is_complete_and_leaves_its_input_and_the_pairing_alone(
        self, messages: list[Any]
    ) -> None:
        before = repr(messages)

        repair = mend_advisories(copy.deepcopy(messages))

        assert find_advisories(repair.messages) == ()
        assert repr(messages) == before
        assert len(find_violations(repair.messages)) == len(find_violations(messages))
        assert {change.action for change in repair.changes} <= set(get_args(AdvisoryAction))
        assert bool(repair.changes) is bool(find_advisories(messages))

    @given(healthy_lists())
    def test_a_healthy_list_comes_back_as_the_same_object(self, messages: list[Any]) -> None:
        assert mend_advisories(messages).messages is messages

    @given(
        st.lists(
            st.builds(
                lambda name, arguments, i: {
                    **call(i),
                    "function": {"name": name, "arguments": arguments},
                },
                st.one_of(st.none(), st.text(max_size=80)),
                st.one_of(st.none(), st.text(max_size=8), st.just('{"a": 1}'), st.just({"b": []})),
                st.integers(0, 1).map(lambda n: LONG if n else "a"),
            ),
            min_size=1,
            max_size=2,
            unique_by=lambda made: made["id"],
        )
    )
    @settings(max_examples=200)
    def test_a_strict_provider_takes_what_was_mended(self, calls: list[Any]) -> None:
        declaration = {"role": "assistant", "content": None, "tool_calls": calls}
        messages = [user("hi"), declaration, *(result(made["id"]) for made in calls)]

        mended = mend_advisories(messages).messages

        assert refusal({"messages": mended}) is None
