"""Message lists for the tests of the host: one broken one for each rule, and healthy ones."""

from __future__ import annotations

from typing import Any

USER = {"role": "user", "content": "Weather and time?"}
THANKS = {"role": "user", "content": "Thanks."}


def declare(*ids: Any) -> dict[str, Any]:
    """Return an assistant message that calls a tool once for each id."""
    calls = [
        {"id": id_, "type": "function", "function": {"name": "get_time", "arguments": "{}"}}
        for id_ in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(id_: Any, content: str = "noon") -> dict[str, Any]:
    """Return the result of the call `id_`."""
    return {"role": "tool", "tool_call_id": id_, "content": content}


NAMELESS_ID = declare("a")
del NAMELESS_ID["tool_calls"][0]["id"]
RESULT_WITHOUT_ID = {"role": "tool", "content": "noon"}

BROKEN: dict[str, Any] = {
    "messages_not_a_list": "Weather and time?",
    "message_not_an_object": [USER, None],
    "tool_calls_not_a_list": [USER, {"role": "assistant", "content": "x", "tool_calls": {"id": 1}}],
    "tool_call_not_an_object": [
        USER,
        {"role": "assistant", "content": None, "tool_calls": ["get_time"]},
    ],
    "missing_call_id": [USER, NAMELESS_ID, THANKS],
    "invalid_call_id": [USER, declare(7), result(7), THANKS],
    "duplicate_call_id": [USER, declare("a", "a"), result("a"), THANKS],
    "unanswered_call": [USER, declare("a", "b"), result("a"), THANKS],
    "missing_result_id": [USER, declare("a"), result("a"), RESULT_WITHOUT_ID, THANKS],
    "invalid_result_id": [USER, declare("a"), result("a"), result(7), THANKS],
    "duplicate_result": [USER, declare("a"), result("a"), result("a"), THANKS],
    "orphan_result": [USER, result("gone"), THANKS],
}
"""By rule. Each breaks its own rule first, and some break another one with it."""

HEALTHY = [USER, declare("a", "b"), result("b"), result("a"), THANKS]
HALF_ANSWERED = BROKEN["unanswered_call"]
