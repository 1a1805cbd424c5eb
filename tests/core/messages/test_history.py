"""A stored history: checkpoints stay where they belong, and indexes are the stored ones."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from astrbot_tool_guard.core.messages.history import mend_history
from astrbot_tool_guard.core.messages.matching import NEUTRAL_RESULT
from astrbot_tool_guard.core.messages.pairing import find_violations
from tests.core.messages.histories import damaged_lists, declares, result, says, user


def mark(name: str) -> dict[str, Any]:
    """Return a checkpoint segment as AstrBot stores it."""
    return {"role": "_checkpoint", "content": {"id": name}}


def neutral(call_id: str) -> dict[str, Any]:
    return result(call_id, NEUTRAL_RESULT)


HISTORIES: list[tuple[str, list[Any], list[Any]]] = [
    (
        "a checkpoint behind a turn stays there",
        [user("hi"), declares("a"), says("done"), mark("1"), user("next")],
        [user("hi"), declares("a"), neutral("a"), says("done"), mark("1"), user("next")],
    ),
    (
        "a checkpoint at the end of a broken group stands behind the mended group",
        [user("hi"), declares("a", "b"), result("a"), mark("1"), user("next")],
        [user("hi"), declares("a", "b"), result("a"), neutral("b"), mark("1"), user("next")],
    ),
    (
        "a checkpoint at the end of the list stays at the end",
        [user("hi"), declares("a"), mark("1")],
        [user("hi"), declares("a"), neutral("a"), mark("1")],
    ),
    (
        "a checkpoint inside a group that is right stays inside it",
        [declares("a", "b"), result("a"), mark("1"), result("b"), declares("c"), mark("2")],
        [
            declares("a", "b"),
            result("a"),
            mark("1"),
            result("b"),
            declares("c"),
            neutral("c"),
            mark("2"),
        ],
    ),
    (
        "a checkpoint behind a message that is dropped stands before the next one",
        [
            user("hi"),
            result("x"),
            mark("1"),
            says("hello"),
            result("y"),
            mark("2"),
            None,
            mark("3"),
        ],
        [user("hi"), mark("1"), says("hello"), mark("2"), mark("3")],
    ),
    (
        "a checkpoint behind a result that moves up does not move with it",
        [declares("a"), says("wait"), result("a"), mark("1"), user("next"), mark("2")],
        [declares("a"), result("a"), says("wait"), mark("1"), user("next"), mark("2")],
    ),
    ("only checkpoints are left", [result("x"), mark("1"), result("y")], [mark("1")]),
]


@pytest.mark.parametrize(
    ("stored", "expected"), [pytest.param(s, e, id=name) for name, s, e in HISTORIES]
)
def test_checkpoints(stored: list[Any], expected: list[Any]) -> None:
    mended = mend_history(stored)

    assert mended.history == expected
    again = mend_history(mended.history)
    assert again.history is mended.history
    assert again.changes == again.violations == ()


def test_a_checkpoint_breaks_no_group() -> None:
    stored = [user("hi"), declares("a"), mark("1"), result("a")]

    mended = mend_history(stored)

    assert mended.history is stored
    assert mended.violations == mended.changes == ()


def test_indexes_are_those_of_the_stored_history() -> None:
    stored = [mark("1"), declares("a"), mark("2"), user("hi"), mark("3"), result("x")]

    mended = mend_history(stored)

    assert [(v.rule, v.message_index) for v in mended.violations] == [
        ("unanswered_call", 1),
        ("orphan_result", 5),
    ]
    assert [(c.action, c.message_index) for c in mended.changes] == [
        ("result_added", 1),
        ("result_dropped", 5),
    ]


def test_advisories_are_found_always_and_mended_on_request() -> None:
    long = "x" * 50
    stored = [mark("1"), {**says("hi"), "tool_calls": []}, result("gone"), declares(long)]

    found = mend_history(stored, advisories="find")
    mended = mend_history(stored, advisories="mend")

    assert mend_history(stored).advisories == ()

    assert [(a.kind, a.message_index) for a in found.advisories] == [
        ("empty_tool_calls", 1),
        ("overlong_id", 3),
    ]
    assert found.history == [*stored[:2], stored[3], neutral(long)]
    assert mended.history == [*(mark("1"), says("hi"), declares("call00000"), neutral("call00000"))]
    assert [(c.action, c.message_index) for c in mended.changes] == [
        ("tool_calls_removed", 1),
        ("result_dropped", 2),
        ("result_added", 3),
        ("id_shortened", 3),
        ("id_shortened", 3),
    ]


@pytest.mark.parametrize("history", ["text", 7, {}, {"role": "user"}])
def test_what_is_no_list_is_reported(history: object) -> None:
    mended = mend_history(history)

    assert mended.history is history
    assert [v.rule for v in mended.violations] == ["messages_not_a_list"]
    assert mended.changes == ()


@pytest.mark.parametrize("history", [None, []])
def test_an_empty_history_is_fine(history: object) -> None:
    mended = mend_history(history, advisories="mend")

    assert mended.history is history
    assert mended.violations == mended.advisories == mended.changes == ()


@st.composite
def stored_histories(draw: st.DrawFn) -> list[Any]:
    history = draw(damaged_lists())
    for number in range(draw(st.integers(0, 4))):
        history.insert(draw(st.integers(0, len(history))), mark(str(number)))
    return history


def is_checkpoint(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "_checkpoint"


@given(stored_histories(), st.sampled_from(["ignore", "find", "mend"]))
@settings(max_examples=300)
def test_checkpoints_are_kept_in_order_and_between_the_same_texts(
    stored: list[Any], advisories: Any
) -> None:
    before = copy.deepcopy(stored)

    mended = mend_history(stored, advisories=advisories)

    assert stored == before
    assert isinstance(mended.history, list)
    plain = [m for m in mended.history if not is_checkpoint(m)]
    assert find_violations(plain) == ()
    assert (mended.history is stored) is (not mended.changes)

    def outline(messages: list[Any]) -> list[Any]:
        """Return checkpoints and texts in their order, results left out."""
        return [
            message["content"]
            for message in messages
            if isinstance(message, dict) and message.get("role") != "tool" and message["content"]
        ]

    assert outline(mended.history) == outline(stored)
    kept = [m for m in mended.history if is_checkpoint(m)]
    assert all(a is b for a, b in zip(kept, filter(is_checkpoint, stored), strict=True))
