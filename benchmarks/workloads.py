"""What is measured: message lists, streams and a tool, the same in every run."""

from __future__ import annotations

import json
from typing import Any

Message = dict[str, Any]

FRAGMENTS = 1_000
FRAGMENT_CHARS = 4


def call(call_id: str, number: int) -> Message:
    """Return a call whose arguments tell it from every other one."""
    function = {"name": "get_weather", "arguments": json.dumps({"city": "Oslo", "days": number})}
    return {"id": call_id, "type": "function", "function": function}


def result(call_id: str, text: str) -> Message:
    """Return a tool message."""
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def healthy(count: int) -> list[Message]:
    """Return `count` paired messages: user, two parallel calls, their results, an answer."""
    messages: list[Message] = [{"role": "system", "content": "You are helpful."}]
    number = 0
    while len(messages) < count:
        ids = [f"call_{number:06d}", f"call_{number + 1:06d}"]
        calls = [call(ids[0], number), call(ids[1], number + 1)]
        number += 2
        messages += [
            {"role": "user", "content": f"Question {number}"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            result(ids[0], f"Result {number}"),
            result(ids[1], f"Result {number + 1}"),
            {"role": "assistant", "content": f"Answer {number}"},
        ]
    # Cut at a place where every group is complete.
    while len(messages) > count or "tool_calls" in messages[-1] or messages[-1]["role"] == "tool":
        messages.pop()
    return messages


def five_open_calls(count: int) -> list[Message]:
    """Return about `count` messages in which five calls have no result."""
    messages = healthy(count)
    for index in reversed(_five_groups(messages)):
        del messages[index + 1]
    return messages


def five_kinds_of_fault(count: int) -> list[Message]:
    """Return about `count` messages with five faults, one of each common kind.

    Two parallel calls without results, one of two without, a result twice, a result
    whose call is gone, and one that a user's message came before.
    """
    messages = healthy(count)
    both, one, twice, gone, late = _five_groups(messages)
    # From the end to the start, so that the places before stay where they are.
    first = messages.pop(late + 1)
    messages[late + 2 : late + 2] = [{"role": "user", "content": "Still there?"}, first]
    del messages[gone : gone + 2]
    messages.insert(twice + 3, dict(messages[twice + 2]))
    del messages[one + 1]
    del messages[both + 1 : both + 3]
    return messages


def _five_groups(messages: list[Message]) -> list[int]:
    groups = [index for index, each in enumerate(messages) if each.get("tool_calls")]
    return [groups[len(groups) * part // 6] for part in range(1, 6)]


def fragments() -> list[str]:
    """Return the argument text of one call in pieces."""
    room = FRAGMENTS * FRAGMENT_CHARS - len(json.dumps({"text": ""}))
    words = "Some words of a page that the model writes. " * room
    text = json.dumps({"text": words[:room]})
    return [text[at : at + FRAGMENT_CHARS] for at in range(0, len(text), FRAGMENT_CHARS)]


def call_chunks() -> list[Message]:
    """Return the chunks of a stream with one tool call, as OpenAI sends it."""
    head = {"name": "save_note", "arguments": ""}
    first = {"index": 0, "id": "call_000001", "type": "function", "function": head}
    return [
        chunk({"role": "assistant", "content": None, "tool_calls": [first]}),
        *(
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
            for piece in fragments()
        ),
        chunk({}, "tool_calls"),
    ]


def text_chunks() -> list[Message]:
    """Return the chunks of a stream of text."""
    return [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": piece}) for piece in fragments()),
        chunk({}, "stop"),
    ]


def chunk(delta: Message, finish_reason: str | None = None) -> Message:
    """Return one `chat.completion.chunk` object."""
    return {
        "id": "chatcmpl-000001",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "model",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }


def tool(name: str, parameters: Message) -> Message:
    """Return the declaration of a tool."""
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


NOTE_SCHEMA: Message = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
}
TRIP_SCHEMA: Message = {
    "type": "object",
    "properties": {
        "origin": {"type": "string", "minLength": 1},
        "destination": {"type": "string", "minLength": 1},
        "days": {"type": "integer", "minimum": 1, "maximum": 60},
        "class": {"type": "string", "enum": ["economy", "business", "first"]},
        "stops": {"type": "array", "items": {"type": "string"}, "maxItems": 5},
        "flexible": {"type": "boolean"},
    },
    "required": ["origin", "destination", "days"],
    "additionalProperties": False,
}
TRIP: Message = {
    "origin": "Oslo",
    "destination": "Osaka",
    "days": 12,
    "class": "economy",
    "stops": ["Helsinki", "Tokyo"],
    "flexible": True,
}
