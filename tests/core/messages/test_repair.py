"""Repair: the walk sentence by sentence, the laws as properties, the corpus as it wants it."""

from __future__ import annotations

import copy
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrbot_tool_guard.core.messages.matching import NEUTRAL_RESULT, id_key
from astrbot_tool_guard.core.messages.pairing import effective_messages, find_violations
from astrbot_tool_guard.core.messages.repair import Action, repair_messages
from astrbot_tool_guard.core.model import Repair
from tests.conftest import cases
from tests.core.messages.histories import (
    DAMAGES,
    absurd_lists,
    call,
    damaged_lists,
    declares,
    healthy_lists,
    result,
    says,
    user,
)


def neutral(call_id: str) -> dict[str, Any]:
    return result(call_id, NEUTRAL_RESULT)


def mended(messages: list[Any]) -> list[Any]:
    """Return the mended list, which the finder must have nothing against."""
    repair = repair_messages(messages)
    assert find_violations(repair.messages) == ()
    return repair.messages  # type: ignore[return-value]


# Each sentence of the walk: what is given, and what comes of it.
WALK: list[tuple[str, list[Any], list[Any]]] = [
    # 1. Within a region, equal ids, by position, directly adjacent results first.
    (
        "a late result goes behind its call, in front of what stood between",
        [declares("a"), says("working"), result("a"), user("well?")],
        [declares("a"), result("a"), says("working"), user("well?")],
    ),
    (
        "results in place come first, then moved ones, then neutral ones, then the rest",
        [declares("a", "b", "c"), result("c"), user("image"), result("a"), user("so?")],
        [
            declares("a", "b", "c"),
            result("c"),
            result("a"),
            neutral("b"),
            user("image"),
            user("so?"),
        ],
    ),
    (
        "moved results keep the order they stood in",
        [declares("a", "b"), user("hm"), result("b"), result("a")],
        [declares("a", "b"), result("b"), result("a"), user("hm")],
    ),
    (
        "images between parallel results follow them in their order",
        [declares("a", "b"), result("a"), user("image a"), result("b"), user("image b")],
        [declares("a", "b"), result("a"), result("b"), user("image a"), user("image b")],
    ),
    (
        "repeated ids are answered by position, and the later call gets a new one",
        [declares("a", "a"), result("a", "first"), result("a", "second")],
        [declares("a", "call00001"), result("a", "first"), result("call00001", "second")],
    ),
    (
        "repeated ids are answered by position, adjacent results first",
        [declares("a", "a"), result("a", "first"), user("hm"), result("a", "second")],
        [
            declares("a", "call00001"),
            result("a", "first"),
            result("call00001", "second"),
            user("hm"),
        ],
    ),
    (
        "equal numbers are equal ids",
        [declares(8, 7), result(7, "seven"), result(8, "eight")],
        [
            declares("call00000", "call00001"),
            result("call00001", "seven"),
            result("call00000", "eight"),
        ],
    ),
    (
        "a number, a boolean and a string are three different ids",
        [declares(1, True, "x"), result(True, "yes"), result(1, "one"), result("x")],
        [
            declares("call00000", "call00001", "x"),
            result("call00001", "yes"),
            result("call00000", "one"),
            result("x"),
        ],
    ),
    (
        "equal objects are equal ids, whatever the order of their keys",
        [declares({"p": 1, "q": [2]}), result({"q": [2], "p": 1})],
        [declares("call00000"), result("call00000")],
    ),
    # 2. A left-over result whose id its own region declares and has answered is dropped ...
    (
        "a repetition beside the first one is dropped",
        [declares("a"), result("a", "first"), result("a", "second"), says("done")],
        [declares("a"), result("a", "first"), says("done")],
    ),
    (
        "a repetition further down its region is dropped",
        [declares("a"), result("a", "first"), says("done"), result("a", "second")],
        [declares("a"), result("a", "first"), says("done")],
    ),
    (
        "a repetition in its own region is not taken for another call's result",
        [declares("a", ...), result("a", "first"), result("a", "second")],
        [declares("a", "call00001"), result("a", "first"), neutral("call00001")],
    ),
    # ... else the nearest preceding declaration of the id decides ...
    (
        "a result moves up to the declaration of its id that is open",
        [declares("a"), declares("b"), result("a"), result("b")],
        [declares("a"), result("a"), declares("b"), result("b")],
    ),
    (
        "the nearest preceding declaration wins over one further up",
        [
            declares("a"),
            user("1"),
            declares("a"),
            user("2"),
            declares("b"),
            result("a"),
            result("b"),
        ],
        [
            *(declares("a"), neutral("a"), user("1"), declares("a"), result("a"), user("2")),
            *(declares("b"), result("b")),
        ],
    ),
    (
        "a preceding declaration wins over a following one",
        [
            declares("a"),
            user("1"),
            declares("b"),
            result("b"),
            user("2"),
            result("a"),
            declares("a"),
        ],
        [
            *(declares("a"), result("a"), user("1"), declares("b"), result("b"), user("2")),
            *(declares("a"), neutral("a")),
        ],
    ),
    (
        "the nearest preceding declaration has its answer: the result is dropped",
        [
            declares("a"),
            result("a"),
            declares("b"),
            result("b"),
            says("done"),
            result("a", "again"),
        ],
        [declares("a"), result("a"), declares("b"), result("b"), says("done")],
    ),
    # ... with none before it the next one after.
    (
        "a result in front of its call moves behind it",
        [user("hi"), result("a"), declares("a"), says("done")],
        [user("hi"), declares("a"), result("a"), says("done")],
    ),
    (
        "a result in front of two calls of its id goes to the next one",
        [result("a"), declares("a"), user("1"), declares("a")],
        [declares("a"), result("a"), user("1"), declares("a"), neutral("a")],
    ),
    (
        "a result in front of an answered call is dropped",
        [result("a", "early"), declares("a"), result("a", "in place")],
        [declares("a"), result("a", "in place")],
    ),
    (
        "of two results that could move, the first one does",
        [
            result("a", "first"),
            declares("a"),
            user("hi"),
            declares("b"),
            result("b"),
            result("a", "second"),
        ],
        [declares("a"), result("a", "first"), user("hi"), declares("b"), result("b")],
    ),
    (
        "a result that no call declares is dropped",
        [user("hi"), result("a"), declares("b"), result("b"), result("c")],
        [user("hi"), declares("b"), result("b")],
    ),
    # 3. Within a region, ids equal after trimming, or a number and its text, if unique.
    (
        "white space around an id is trimmed away",
        [declares("a"), result(" a\n")],
        [declares("a"), result("a")],
    ),
    (
        "the call's id counts, also when it is the one with the white space",
        [declares(" a"), result("a")],
        [declares(" a"), result(" a")],
    ),
    (
        "a number meets its text",
        [declares("7", 8), result(7, "seven"), result("8", "eight")],
        [declares("7", "call00001"), result("7", "seven"), result("call00001", "eight")],
    ),
    (
        "two results that are alike are not told apart",
        [declares("a"), result(" a"), result("a ")],
        [declares("a"), neutral("a")],
    ),
    (
        "two calls that are alike are not told apart",
        [declares("a ", " a"), result("a")],
        [declares("a ", " a"), neutral("a "), neutral(" a")],
    ),
    (
        "alike ids do not meet across regions",
        [declares("a"), user("hi"), declares("b"), result("b"), result(" a ")],
        [declares("a"), neutral("a"), user("hi"), declares("b"), result("b")],
    ),
    ("true meets no text", [declares("True"), result(True)], [declares("True"), neutral("True")]),
    # 4. Within a region, missing with missing by position ...
    (
        "missing ids meet missing ids by position, whatever form missing takes",
        [declares("", None, ...), result(None, "1"), result(..., "2"), result("", "3")],
        [
            declares("call00000", "call00001", "call00002"),
            *(result("call00000", "1"), result("call00001", "2"), result("call00002", "3")),
        ],
    ),
    # ... then one id-less result with the one open call ...
    (
        "the one result without an id answers the one open call",
        [declares("a", "b"), result("b"), user("hm"), result("", "12 C")],
        [declares("a", "b"), result("b"), result("a", "12 C"), user("hm")],
    ),
    (
        "one result without an id is not guessed for two open calls",
        [declares("a", "b"), result("")],
        [declares("a", "b"), neutral("a"), neutral("b")],
    ),
    (
        "two results without an id are not guessed for one open call",
        [declares("a"), result("", "1"), result("", "2")],
        [declares("a"), neutral("a")],
    ),
    (
        "one too many without an id answers the one call that is left",
        [declares("", "a"), result("", "1"), result("", "2")],
        [declares("call00000", "a"), result("call00000", "1"), result("a", "2")],
    ),
    # ... then the one open id-less call adopts the one unclaimed result's id.
    (
        "the call without an id adopts the unclaimed result's",
        [declares(..., "b"), result("b"), result("a")],
        [declares("a", "b"), result("b"), result("a")],
    ),
    (
        "also when that result stands further down",
        [declares(...), says("hm"), result("a")],
        [declares("a"), result("a"), says("hm")],
    ),
    (
        "also when the id is declared elsewhere, if the result stands in place",
        [declares("a"), result("a"), declares(None), result("a", "again")],
        [declares("a"), result("a"), declares("a"), result("a", "again")],
    ),
    (
        "not when the id is declared elsewhere and the result does not stand in place",
        [declares("a"), result("a"), declares(None), says("hm"), result("a", "again")],
        [declares("a"), result("a"), declares("call00001"), neutral("call00001"), says("hm")],
    ),
    (
        "not when an open call elsewhere declares the id",
        [declares("a"), user("hi"), declares(""), result("a")],
        [declares("a"), result("a"), user("hi"), declares("call00001"), neutral("call00001")],
    ),
    (
        "two calls without an id adopt nothing",
        [declares("", ""), result("a")],
        [declares("call00000", "call00001"), neutral("call00000"), neutral("call00001")],
    ),
    (
        "two unclaimed results are not adopted",
        [declares(""), result("a"), result("b")],
        [declares("call00000"), neutral("call00000")],
    ),
    (
        "a result with another id is not guessed for a call that has one",
        [declares("a"), result("b")],
        [declares("a"), neutral("a")],
    ),
    # 5. Missing, non-string and repeated ids get a new one.
    (
        "a new id derives from the ordinal of its call in the list",
        [declares("a"), result("a"), declares("b", ""), result("b"), result("")],
        [declares("a"), result("a"), declares("b", "call00002"), result("b"), result("call00002")],
    ),
    (
        "a new id avoids every id in the list, those of results and later calls too",
        [declares(""), declares("call00000"), result("call00000"), result("call00002")],
        [declares("call00004"), neutral("call00004"), declares("call00000"), result("call00000")],
    ),
    # Neutral results.
    (
        "a real result replaces our own sentence in its region",
        [declares("a", "b"), neutral("a"), result("b"), user("late"), result("a")],
        [declares("a", "b"), result("b"), result("a"), user("late")],
    ),
    (
        "a real result replaces our own sentence in another region",
        [declares("a"), neutral("a"), declares("b"), result("b"), says("late"), result("a")],
        [declares("a"), result("a"), declares("b"), result("b"), says("late")],
    ),
    (
        "a real result beside our own sentence replaces it",
        [declares("a"), neutral("a"), result("a"), result("a", "second")],
        [declares("a"), result("a")],
    ),
    (
        "a real result further down replaces our own sentence further down",
        [declares("a"), user("hm"), neutral("a"), result("a"), says("done")],
        [declares("a"), result("a"), user("hm"), says("done")],
    ),
    (
        "our own sentence gives way in its region before it gives way to another one",
        [declares("a"), user("hm"), neutral("a"), declares("b"), result("b"), result("a")],
        [declares("a"), result("a"), user("hm"), declares("b"), result("b")],
    ),
    (
        "a stray one of our own sentences takes no real result's place",
        [declares("a"), declares("b"), result("b"), neutral("a"), result("a")],
        [declares("a"), result("a"), declares("b"), result("b")],
    ),
    (
        "of repeated ids the one without any answer comes before the one with our sentence",
        [declares("a", "a"), neutral("a"), result("a")],
        [declares("a", "call00001"), neutral("a"), result("call00001")],
    ),
    (
        "results for repeated ids keep their order, also where one replaces our sentence",
        [declares("a", "a"), neutral("a"), user("hm"), result("a", "1"), result("a", "2")],
        [declares("a", "call00001"), result("a", "1"), result("call00001", "2"), user("hm")],
    ),
    (
        "our own sentence never replaces a real result",
        [declares("a"), result("a"), neutral("a")],
        [declares("a"), result("a")],
    ),
    (
        "a result without an id replaces our own sentence, if it is the one open call",
        [declares("a"), neutral("a"), result("")],
        [declares("a"), result("a")],
    ),
    # Shapes.
    (
        "a message that is no object is dropped, and what it tore apart is whole again",
        [declares("a"), None, result("a"), "text", 7, []],
        [declares("a"), result("a")],
    ),
    (
        "a call that is no object is dropped",
        [{"role": "assistant", "content": None, "tool_calls": [None, call("a"), 7]}, result("a")],
        [declares("a"), result("a")],
    ),
    (
        "JSON text of a call is read as that call",
        [
            {"role": "assistant", "content": None, "tool_calls": [json.dumps(call("a"))]},
            result("a"),
        ],
        [declares("a"), result("a")],
    ),
    (
        "other text is no call, JSON or not",
        [
            {"role": "assistant", "content": "x", "tool_calls": ["get_weather", "{}", "[]", "["]},
            user("hi"),
        ],
        [says("x"), user("hi")],
    ),
    (
        "a single call object is put into a list",
        [{"role": "assistant", "content": None, "tool_calls": call("a")}, result("a")],
        [declares("a"), result("a")],
    ),
    *(
        (
            f"{value!r} as tool_calls is removed",
            [{"role": "assistant", "content": "x", "tool_calls": value}, result("a")],
            [says("x")],
        )
        for value in ("", "text", 0, {}, {"id": "a"}, json.dumps([call("a")]))
    ),
    (
        "a message left without calls and content gets empty content, which AstrBot can load",
        [{"role": "assistant", "content": None, "tool_calls": "text"}],
        [says("")],
    ),
]


@pytest.mark.parametrize(
    ("messages", "expected"), [pytest.param(m, e, id=name) for name, m, e in WALK]
)
def test_walk(messages: list[Any], expected: list[Any]) -> None:
    assert mended(messages) == expected


@pytest.mark.parametrize("messages", [None, "text", 7, {}, {"role": "user"}, ()])
def test_what_is_no_list_cannot_be_mended(messages: object) -> None:
    repair = repair_messages(messages)

    assert repair.messages is messages
    assert repair.changes == ()


class TestChanges:
    def test_every_action_says_where_in_the_input_and_why(self) -> None:
        messages = [
            "text",
            {"role": "assistant", "content": None, "tool_calls": [None, json.dumps(call(...))]},
            declares("a", "a", 7),
            user("hi"),
            result(" a "),
            result("x"),
            {"role": "assistant", "tool_calls": call("b")},
            {"role": "assistant", "content": "", "tool_calls": 7},
            declares(...),
            result("z"),
        ]

        repair = repair_messages(messages)

        assert [(c.action, c.message_index, c.detail) for c in repair.changes] == [
            ("message_dropped", 0, "it is no object, so it has no role and no text"),
            ("call_dropped", 1, "call 0 was no object"),
            ("call_parsed", 1, "call 1 was JSON text of a call"),
            ("call_id_generated", 1, "call 0 got a new id"),
            ("result_added", 1, "call 0 has no recorded result"),
            ("call_id_generated", 2, "call 1 got a new id"),
            ("call_id_generated", 2, "call 2 got a new id"),
            ("result_added", 2, "call 0 has no recorded result"),
            ("result_added", 2, "call 1 has no recorded result"),
            ("result_added", 2, "call 2 has no recorded result"),
            ("result_dropped", 4, "no call is left that it answers"),
            ("result_dropped", 5, "no call is left that it answers"),
            ("tool_calls_wrapped", 6, "a single call was put into a list"),
            ("result_added", 6, "call 0 has no recorded result"),
            ("tool_calls_removed", 7, "it was no list and no call"),
            ("call_id_adopted", 8, "call 0 took the id of its result"),
        ]

    def test_an_empty_text_that_had_to_be_added_is_reported(self) -> None:
        repair = repair_messages([{"role": "assistant", "content": None, "tool_calls": 7}])

        assert repair.messages == [{"role": "assistant", "content": ""}]
        assert [change.detail for change in repair.changes] == [
            "it was no list and no call; the message had no content and got an empty text"
        ]

    def test_moving_and_relabelling_are_reported_apart(self) -> None:
        repair = repair_messages([declares("a"), user("hi"), result(" a ")])

        assert [c.to_dict() for c in repair.changes] == [
            {
                "action": "result_moved",
                "message_index": 2,
                "detail": "moved to call 0 of message 0, which it answers",
            },
            {
                "action": "result_id_set",
                "message_index": 2,
                "detail": "it got the id of the call it answers",
            },
        ]

    def test_origins_tell_where_each_message_stood(self) -> None:
        repair = repair_messages([None, declares("a", "b"), user("hi"), result("b")])

        assert repair.origins == (1, 3, None, 2)


def real_results(messages: list[Any]) -> list[dict[str, Any]]:
    return [
        message
        for message in messages
        if isinstance(message, dict)
        and message.get("role") == "tool"
        and message.get("content") != NEUTRAL_RESULT
    ]


def declarations(messages: list[Any]) -> list[list[Any]]:
    return [
        message["tool_calls"]
        for message in messages
        if isinstance(message, dict)
        and message.get("role") == "assistant"
        and isinstance(message.get("tool_calls"), list)
    ]


def texts(messages: list[Any]) -> list[Any]:
    """What people and the model said, in order; the calls beside it left out."""
    return [
        {key: value for key, value in message.items() if key != "tool_calls"}
        for message in messages
        if isinstance(message, dict) and message.get("role") != "tool"
    ]


ID_DAMAGES = tuple(kind for kind in DAMAGES if kind != "misshape")


class TestLaws:
    @given(st.one_of(damaged_lists(), absurd_lists))
    @settings(max_examples=300)
    def test_the_result_is_paired_and_repairing_it_again_changes_nothing(
        self, messages: list[Any]
    ) -> None:
        repair = repair_messages(messages)

        assert find_violations(repair.messages) == ()
        again = repair_messages(repair.messages)
        assert again.messages is repair.messages
        assert again.changes == ()

    @given(st.one_of(healthy_lists(), absurd_lists))
    def test_a_paired_list_comes_back_as_the_same_object(self, messages: list[Any]) -> None:
        repair = repair_messages(messages)

        assert (repair.messages is messages) is not find_violations(messages)
        assert (repair.changes == ()) is not find_violations(messages)

    @given(st.one_of(damaged_lists(), absurd_lists))
    @settings(max_examples=150)
    def test_the_input_is_never_changed_and_the_output_always_the_same(
        self, messages: list[Any]
    ) -> None:
        before = repr(messages)

        first = repair_messages(messages)
        second = repair_messages(copy.deepcopy(messages))

        assert repr(messages) == before
        assert repr(first) == repr(second)

    @given(damaged_lists())
    @settings(max_examples=150)
    def test_no_text_is_lost_or_reordered(self, messages: list[Any]) -> None:
        kept = texts(mended(messages))

        # A message that loses its unreadable calls gets content, if it had none.
        for before, after in zip(texts(messages), kept, strict=True):
            if before.get("content") is None and after.get("content") == "":
                after["content"] = None
            assert before == after

    @given(damaged_lists(kinds=ID_DAMAGES))
    @settings(max_examples=150)
    def test_no_call_is_added_or_lost_or_touched_but_for_its_id(self, messages: list[Any]) -> None:
        def without_ids(lists: list[list[Any]]) -> list[list[Any]]:
            return [[call["function"] for call in calls] for calls in lists]

        assert without_ids(declarations(mended(messages))) == without_ids(declarations(messages))

    @given(damaged_lists())
    @settings(max_examples=300)
    def test_a_result_whose_id_is_declared_once_is_kept_under_that_call(
        self, messages: list[Any]
    ) -> None:
        declared = Counter(
            id_key(call.get("id"))
            for calls in declarations(messages)
            for call in calls
            if isinstance(call, dict)
        )
        offered: dict[Any, list[str]] = {}
        for message in real_results(messages):
            offered.setdefault(id_key(message.get("tool_call_id")), []).append(message["content"])

        kept = [message["content"] for message in real_results(mended(messages))]

        for key, contents in offered.items():
            if key is not None and declared[key] == 1:
                assert set(contents) & set(kept)

    @given(damaged_lists(kinds=ID_DAMAGES))
    @settings(max_examples=150)
    def test_a_result_that_is_right_where_it_stands_stays_there(self, messages: list[Any]) -> None:
        faulty = {v.message_index for v in find_violations(messages) if v.call_index is None}
        repair = repair_messages(messages)
        after = repair.origins or range(len(messages))

        def declaration(places: Sequence[int | None], index: int) -> int | None:
            """Return which message the run of results that holds `index` follows."""
            before = reversed(places[: places.index(index)])
            others = (at for at in before if at is not None and messages[at]["role"] != "tool")
            return next(others, None)

        for index, message in enumerate(messages):
            if message["role"] == "tool" and index not in faulty:
                stood = declaration(range(len(messages)), index)
                assert declaration(after, index) == stood

    @given(damaged_lists())
    @settings(max_examples=150)
    def test_what_is_not_reported_is_the_same_object(self, messages: list[Any]) -> None:
        repair = repair_messages(messages)
        changed = {
            c.message_index
            for c in repair.changes
            if c.action.startswith(("call_", "tool_calls_")) or c.action == "result_id_set"
        }

        assert isinstance(repair.messages, list)
        assert len(repair.origins) == (len(repair.messages) if repair.changes else 0)
        for message, origin in zip(repair.messages, repair.origins, strict=False):
            if origin is not None:
                assert (message is messages[origin]) is (origin not in changed)

    @given(damaged_lists())
    @settings(max_examples=150)
    def test_each_change_is_visible_in_the_result(self, messages: list[Any]) -> None:
        repair = repair_messages(messages)
        actions = Counter(c.action for c in repair.changes)
        assert isinstance(repair.messages, list)

        def tools(items: list[Any]) -> int:
            return sum(isinstance(m, dict) and m.get("role") == "tool" for m in items)

        added, dropped = actions["result_added"], actions["result_dropped"]
        assert tools(repair.messages) == tools(messages) + added - dropped
        assert len(repair.messages) == (
            len(messages) + added - dropped - actions["message_dropped"]
        )
        assert list(repair.origins).count(None) == added

    @given(st.one_of(damaged_lists(), absurd_lists))
    @settings(max_examples=150)
    def test_changes_are_data_from_a_closed_set(self, messages: list[Any]) -> None:
        changes = repair_messages(messages).changes

        json.dumps([change.to_dict() for change in changes])
        assert {change.action for change in changes} <= set(get_args(Action))
        places = [change.message_index for change in changes]
        assert places == sorted(places, key=lambda place: -1 if place is None else place)

    @given(damaged_lists(kinds=ID_DAMAGES))
    @settings(max_examples=150)
    def test_a_new_id_is_nine_letters_and_digits_and_new(self, messages: list[Any]) -> None:
        present = {
            call["id"]
            for calls in declarations(messages)
            for call in calls
            if "id" in call and isinstance(call["id"], str)
        }
        present |= {m["tool_call_id"] for m in messages if isinstance(m.get("tool_call_id"), str)}
        repair = repair_messages(messages)
        assert isinstance(repair.messages, list)

        new = [
            call["id"]
            for calls in declarations(repair.messages)
            for call in calls
            if call["id"] not in present
        ]

        assert len(new) == sum(c.action == "call_id_generated" for c in repair.changes)
        assert all(re.fullmatch("[A-Za-z0-9]{9}", call_id) for call_id in new)
        assert len(set(new)) == len(new)


# Which repair the notes of an invalid case call right.
EXPECTED: dict[str, list[Any]] = {
    "req-cut-inside-parallel-group": [
        "user",
        "assistant",
        "19 C",
        NEUTRAL_RESULT,
        "assistant",
        "user",
    ],
    "req-split-parallel-declarations": [
        "user",
        "assistant",
        "12 C",
        "assistant",
        "19 C",
        "assistant",
    ],
    "req-duplicate-id-in-one-group": ["user", "assistant", "12 C", "19 C", "assistant"],
    "req-duplicate-result-adjacent": ["user", "assistant", "12 C", "assistant"],
    "req-image-message-between-parallel-results": [
        *("user", "assistant", "image 1 attached", "image 2 attached", "user", "user")
    ],
    "req-missing-id-key-with-result": ["user", "assistant", "12 C", "assistant"],
    "req-numeric-id": ["user", "assistant", "12 C", "assistant"],
    "req-empty-string-id-on-both-sides": ["user", "assistant", "12 C", "assistant"],
    "req-whitespace-only-difference-in-id": ["user", "assistant", "12 C", "assistant"],
    "req-result-before-its-call": ["user", "assistant", "12 C", "assistant"],
    "req-assistant-text-before-late-result": ["user", "assistant", "12 C", "assistant", "user"],
    "req-plugin-removed-one-parallel-result": [
        *("user", "assistant", "12 C", "12 C", NEUTRAL_RESULT, "assistant")
    ],
    "req-dangling-call-at-tail": ["user", "assistant", NEUTRAL_RESULT],
    "req-failed-tool-left-no-result": ["user", "assistant", NEUTRAL_RESULT, "assistant", "user"],
    "req-tool-that-ends-the-turn": ["user", "assistant", NEUTRAL_RESULT, "user"],
    "req-reused-id-second-group-unanswered": [
        *("user", "assistant", "12 C", "assistant", "user", "assistant", NEUTRAL_RESULT, "user")
    ],
    "req-orphan-after-turn-truncation": ["system", "assistant", "user"],
    "req-orphan-in-raw-override": ["system", "assistant", "user"],
    "req-orphans-after-compaction-summary": ["system", "user", "assistant", "user"],
    "req-empty-tool-calls-then-result": ["user", "assistant", "assistant"],
}


@pytest.mark.parametrize("case", cases("req-"))
def test_each_case_of_the_corpus_is_mended_as_its_notes_want_it(case: dict[str, Any]) -> None:
    messages = effective_messages(case["input"])
    assert isinstance(messages, list)

    repaired = mended(messages)

    if case["expect"]["valid"]:
        assert repaired is messages
    else:
        outline = [m["content"] if m["role"] == "tool" else m["role"] for m in repaired]
        assert outline == EXPECTED[case["slug"]]


def test_the_output_does_not_depend_on_the_hash_seed() -> None:
    script = (
        "import json, sys\n"
        "from astrbot_tool_guard.core.messages.repair import repair_messages\n"
        "for line in sys.stdin:\n"
        "    repair = repair_messages(json.loads(line))\n"
        "    print(json.dumps([repair.messages, [c.to_dict() for c in repair.changes]]))\n"
    )
    draw = random.Random(20)
    pieces = [declares("a", "b"), declares("", 7, "a", "a"), declares(...), user("hi"), None]
    pieces += [result(call_id) for call_id in ("a", "b", " b", "", 7, "7", "x", None)]
    lines = [json.dumps(draw.choices(pieces, k=12)) for _ in range(200)]

    def run(seed: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", script],
            input="\n".join(lines),
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[3],
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout

    outputs = {run(seed) for seed in ("0", "1", "2")}

    assert len(outputs) == 1
    assert outputs.pop().count("\n") == len(lines)


class TestHostileInput:
    @pytest.mark.parametrize(
        "messages",
        [
            pytest.param([declares(*["a"] * 3000), *[result("a")] * 3000], id="one repeated id"),
            pytest.param([result("a"), declares("a")] * 3000, id="results ahead of their calls"),
            pytest.param(
                [declares("a"), user("")] * 3000 + [result("a")] * 3000, id="late results"
            ),
            pytest.param([declares(*[""] * 3000), *[result("")] * 3000], id="no ids at all"),
            pytest.param(
                [declares(""), *[result(f"call{n:05}") for n in range(3000)]], id="taken ids"
            ),
        ],
    )
    def test_large_broken_lists_are_mended(self, messages: list[Any]) -> None:
        assert isinstance(mended(messages), list)

    def test_cycles_and_depth_are_ids_like_any_other(self) -> None:
        ring: list[Any] = []
        ring.append(ring)
        deep: list[Any] = []
        for _ in range(100_000):
            deep = [deep]

        repaired = mended(
            [declares(ring, deep, 10**5000), result(ring, "1"), result(10**5000, "2")]
        )

        assert [m["content"] for m in real_results(repaired)] == ["1", "2"]

    def test_response_models_are_read_and_only_replaced_where_they_change(self) -> None:
        class Model:
            def __init__(self, **fields: object) -> None:
                self.fields = fields

            def model_dump(self) -> dict[str, object]:
                return self.fields

        declaration, answer = Model(**declares("a")), Model(**result("a"))

        assert mended([declaration, user("hi"), answer]) == [declaration, answer, user("hi")]
        assert mended([declaration, Model(**result(" a"))]) == [declaration, result("a")]


def test_a_repair_is_a_value() -> None:
    broken = [declares("a")]

    assert repair_messages(broken) == repair_messages(copy.deepcopy(broken))
    assert isinstance(repair_messages(broken), Repair)
