"""What a strict provider refuses in a Chat Completions request, and in which words.

The rules are written here once more, apart from the guard's own finder, so that
a test of the guard against the model server compares two independent readings.
Two kinds of refusal: `pairing`, which the guard's request stage is about, and
`form`, for what pairs and is refused all the same (a nameless call, arguments
that are not JSON, an empty list of calls, …).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
MAX_ID_LENGTH = 40
NAME_PATTERN = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is answered with 400.

    Attributes:
        kind: `pairing` when calls and results do not pair, else `form`.
        message: The text of the error, as a provider words it.
        param: The part of the body at fault.
    """

    kind: Literal["pairing", "form"]
    message: str
    param: str

    def body(self) -> dict[str, object]:
        """Return the JSON body of the 400."""
        return {
            "error": {
                "message": self.message,
                "type": "invalid_request_error",
                "param": self.param,
                "code": None,
            }
        }


def refusal(body: Mapping[str, Any]) -> Refusal | None:
    """Return why a strict provider refuses `body`, or `None` when it takes it."""
    if "messages" not in body:
        return Refusal("pairing", "Missing required parameter: 'messages'.", "messages")
    messages = body["messages"]
    if not isinstance(messages, list):
        return _wrong_type("messages", "an array of objects", messages)
    if not messages:
        return _too_short("messages", "array")
    # Pairing first: a list that breaks both rules is refused as people know it.
    return next(_pairing(messages), None) or next(_form(messages), None)


def _pairing(messages: list[Any]) -> Iterator[Refusal]:
    open_ids: list[str] = []
    answered: set[str] = set()
    opened_at = 0
    for index, message in enumerate(messages):
        at = f"messages[{index}]"
        if not isinstance(message, Mapping):
            yield _wrong_type(at, "an object", message)
            return
        if message.get("role") == "tool":
            yield from _pair_result(message, at, open_ids, answered)
            continue
        if open_ids:
            yield _unanswered(open_ids, opened_at)
        open_ids, answered, opened_at = [], set(), index
        if message.get("role") == "assistant" and message.get("tool_calls") is not None:
            yield from _open_group(message["tool_calls"], at, open_ids)
    if open_ids:
        yield _unanswered(open_ids, opened_at)


def _open_group(calls: Any, at: str, open_ids: list[str]) -> Iterator[Refusal]:
    if not isinstance(calls, list):
        yield _wrong_type(f"{at}.tool_calls", "an array of objects", calls)
        return
    for position, call in enumerate(calls):
        where = f"{at}.tool_calls[{position}]"
        if not isinstance(call, Mapping):
            yield _wrong_type(where, "an object", call)
            return
        yield from _usable_id(call, "id", f"{where}.id")
        if call.get("id") in open_ids:
            yield Refusal("pairing", f"Duplicate value for 'tool_call_id' in '{at}'.", where)
        open_ids.append(call["id"])


def _pair_result(
    message: Mapping[str, Any], at: str, open_ids: list[str], answered: set[str]
) -> Iterator[Refusal]:
    if not open_ids and not answered:
        yield Refusal(
            "pairing",
            "Invalid parameter: messages with role 'tool' must be a response to a "
            "preceeding message with 'tool_calls'.",
            f"{at}.role",
        )
    yield from _usable_id(message, "tool_call_id", f"{at}.tool_call_id")
    call_id = message["tool_call_id"]
    if call_id in answered:
        yield Refusal(
            "pairing",
            f"Duplicate value for 'tool_call_id' of '{call_id}' in message with role 'tool'.",
            f"{at}.tool_call_id",
        )
    if call_id not in open_ids:
        yield Refusal(
            "pairing",
            f"Invalid parameter: 'tool_call_id' of '{call_id}' not found in 'tool_calls' "
            "of previous message.",
            f"{at}.tool_call_id",
        )
    open_ids.remove(call_id)
    answered.add(call_id)


def _usable_id(holder: Mapping[str, Any], key: str, at: str) -> Iterator[Refusal]:
    value = holder.get(key)
    if value is None:
        yield Refusal("pairing", f"Missing required parameter: '{at}'.", at)
    elif not isinstance(value, str):
        yield _wrong_type(at, "a string", value)
    elif not value:
        yield _too_short(at, "string")


def _unanswered(open_ids: list[str], index: int) -> Refusal:
    return Refusal(
        "pairing",
        "An assistant message with 'tool_calls' must be followed by tool messages "
        "responding to each 'tool_call_id'. The following tool_call_ids did not have "
        f"response messages: {', '.join(open_ids)}",
        f"messages[{index + 1}].role",
    )


def _form(messages: list[Mapping[str, Any]]) -> Iterator[Refusal]:
    for index, message in enumerate(messages):
        at = f"messages[{index}]"
        role = message.get("role")
        if role not in ROLES:
            yield Refusal("form", f"Invalid value for '{at}.role'.", f"{at}.role")
        calls = message.get("tool_calls")
        if role == "assistant":
            if calls == []:
                yield _too_short(f"{at}.tool_calls", "array", "form")
            if not calls and message.get("content") in (None, [], ""):
                yield Refusal(
                    "form",
                    f"Invalid value for '{at}.content': expected a string, got null.",
                    f"{at}.content",
                )
        for position, call in enumerate(calls or ()):
            yield from _call_form(call, f"{at}.tool_calls[{position}]")


def _call_form(call: Mapping[str, Any], at: str) -> Iterator[Refusal]:
    if len(call["id"]) > MAX_ID_LENGTH:
        yield Refusal(
            "form",
            f"Invalid '{at}.id': string too long. Expected a string with maximum length "
            f"{MAX_ID_LENGTH}, but got a string with length {len(call['id'])} instead.",
            f"{at}.id",
        )
    function = call.get("function")
    if not isinstance(function, Mapping):
        yield Refusal("form", f"Missing required parameter: '{at}.function'.", f"{at}.function")
        return
    name = function.get("name")
    if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name):
        yield Refusal(
            "form",
            f"Invalid '{at}.function.name': string does not match pattern. Expected a "
            "string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
            f"{at}.function.name",
        )
    arguments = function.get("arguments")
    if not isinstance(arguments, str) or not _is_json_object(arguments):
        yield Refusal(
            "form",
            f"Invalid '{at}.function.arguments': the \"function.arguments\" parameter of "
            "a tool call must be in JSON format.",
            f"{at}.function.arguments",
        )


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _wrong_type(at: str, expected: str, value: object) -> Refusal:
    names = {type(None): "null", bool: "a boolean", int: "an integer", str: "a string"}
    names |= {float: "a decimal", list: "an array", dict: "an object"}
    got = names.get(type(value), "something else")
    return Refusal(
        "pairing", f"Invalid type for '{at}': expected {expected}, but got {got} instead.", at
    )


def _too_short(at: str, what: str, kind: Literal["pairing", "form"] = "pairing") -> Refusal:
    expected = "an array" if what == "array" else "a string"
    return Refusal(
        kind,
        f"Invalid '{at}': empty {what}. Expected {expected} with minimum length 1, but got "
        f"an empty {what} instead.",
        at,
    )
