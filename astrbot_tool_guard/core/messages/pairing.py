"""The rules of a paired message list: which calls and results do not fit.

An assistant message with a non-empty `tool_calls` opens a group. Until the next
message that is no `tool` message, each id it declares needs exactly one `tool`
message, in any order. Groups are independent: an id may come back in a later one.

This is the only reader of groups. `repair` takes what is right and what is wrong
from what is read here, so finding and mending cannot drift apart.
A message or a value of any type is read without raising: it breaks a rule or it
does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from ..errors import protocol_error
from ..model import Rule, Violation

JsonObject = dict[str, object]


def find_violations(messages: object) -> tuple[Violation, ...]:
    """Find every place where tool calls and tool results do not pair.

    One pass, linear in the number of messages and calls. Chat Completions
    providers refuse a list with a violation; everything else they may refuse
    is not looked at here.

    Args:
        messages: The list a request would send.

    Returns:
        The violations, by message and then by call; empty for a paired list.
        A call that is left open is reported where it is declared.
    """
    if not isinstance(messages, list):
        return (_violation("messages_not_a_list", None, None, messages),)
    items = cast("list[object]", messages)
    return read_groups(items).violations


def check_messages(messages: object) -> None:
    """Raise if tool calls and tool results of `messages` do not pair.

    Args:
        messages: The list a request would send.

    Raises:
        ToolMessageProtocolError: With everything `find_violations` found.
    """
    if violations := find_violations(messages):
        raise protocol_error(violations)


def effective_messages(request: Mapping[str, object]) -> object:
    """Return what a request sends as its messages; see `effective`."""
    return effective(request, "messages")


def effective(request: Mapping[str, object], name: str) -> object:
    """Return what a request sends under a name.

    The SDK merges `extra_body` over the body, so that wins wherever the key exists,
    also when its value is `None`.

    Args:
        request: Arguments of the SDK's function.
        name: `messages`, `tools`, ...
    """
    extra_body = request.get("extra_body")
    if isinstance(extra_body, Mapping) and name in extra_body:
        return cast("Mapping[str, object]", extra_body)[name]
    return request.get(name)


@dataclass(frozen=True, slots=True)
class Groups:
    """What the reader makes of a list.

    Attributes:
        violations: What breaks a rule, by message and then by call.
        declarations: Index of every message that opens a group.
    """

    violations: tuple[Violation, ...]
    declarations: list[int]


def read_groups(messages: list[object]) -> Groups:
    """Read every group of a list, and what is wrong with it.

    The list is read in sections: a message with the results behind it.
    """
    found: list[Violation] = []
    declarations: list[int] = []
    position = 0
    while (position := _read_plain(messages, position, declarations, found)) < len(messages):
        position = _read_section(messages, position, declarations, found)
    return Groups(tuple(found), declarations)


def _read_plain(
    messages: list[Any], start: int, declarations: list[int], found: list[Violation]
) -> int:
    """Walk over plain objects whose results have a call, at the least possible cost.

    Every request pays for this walk, and nearly every list is nothing else.

    Returns:
        Where the first section starts that has to be read properly.
    """
    section = start
    open_ids: set[str] = set()
    try:
        for index in range(start, len(messages)):
            message = messages[index]
            role = message["role"]
            if role == "tool":
                open_ids.remove(message["tool_call_id"])
                continue
            if open_ids:
                _unanswered(messages[section]["tool_calls"], section, open_ids, found)
            section = index
            if role == "assistant":
                calls: Any = message.get("tool_calls")
                if calls is None:
                    continue
                if type(calls) is not list:
                    break
                # Calling `cast` would cost more than all else here.
                plain: list[Any] = calls  # pyright: ignore[reportUnknownVariableType]
                for call in plain:
                    call_id = call["id"]
                    if type(call_id) is not str or not call_id or call_id in open_ids:
                        break
                    open_ids.add(call_id)
                else:
                    if open_ids:
                        declarations.append(index)
                    continue
                break
        else:
            if open_ids:
                _unanswered(messages[section]["tool_calls"], section, open_ids, found)
            return len(messages)
    except Exception:  # a missing key, another type, an id that is not open, ...
        pass
    if declarations and declarations[-1] == section:
        declarations.pop()
    return section


def _read_section(
    messages: list[object], start: int, declarations: list[int], found: list[Violation]
) -> int:
    """Read a message with the results behind it, whatever they are; return where they end."""
    index = start
    calls: list[object] = []
    declared: set[str] = set()
    at_head: list[Violation] = []
    at_results: list[Violation] = []
    result = _result_at(messages, index)
    if result is None:
        calls = _read_head(messages[start], start, declared, at_head)
        if calls:
            declarations.append(start)
        index += 1
        result = _result_at(messages, index)
    open_ids = set(declared)
    while result is not None:
        result_id = result.get("tool_call_id")
        if isinstance(result_id, str) and result_id in open_ids:
            open_ids.remove(result_id)
        else:
            at_results.append(_faulty_result(index, result_id, declared))
        index += 1
        result = _result_at(messages, index)
    if open_ids:
        _unanswered(calls, start, open_ids, at_head)
        at_head.sort(key=_call_index)
    found += at_head
    found += at_results
    return index


def _unanswered(
    calls: list[object], index: int, open_ids: set[str], found: list[Violation]
) -> None:
    """Report each open id at the first call that declares it, and leave none open."""
    for call_index, call_id in enumerate(declared_ids(calls)):
        if isinstance(call_id, str) and call_id in open_ids:
            open_ids.remove(call_id)
            detail = _DETAILS["unanswered_call"]
            found.append(Violation("unanswered_call", index, call_index, call_id, detail))


def _read_head(
    message: object, index: int, declared: set[str], found: list[Violation]
) -> list[object]:
    """Return the calls that a message declares, and add their usable ids to `declared`."""
    fields = as_object(message)
    if fields is None:
        found.append(_violation("message_not_an_object", index, None, message))
        return []
    calls = fields.get("tool_calls")
    if calls is None or not has_role(fields, "assistant"):
        return []
    if not isinstance(calls, list):
        found.append(_violation("tool_calls_not_a_list", index, None, calls))
        return []
    for call_index, call in enumerate(cast("list[object]", calls)):
        call_fields = as_object(call)
        if call_fields is None:
            found.append(_violation("tool_call_not_an_object", index, call_index, call))
            continue
        call_id = call_fields.get("id")
        if isinstance(call_id, str) and call_id and call_id not in declared:
            declared.add(call_id)
        else:
            found.append(_faulty_call(index, call_index, call_id))
    return cast("list[object]", calls)


def _result_at(messages: list[object], index: int) -> JsonObject | None:
    if index >= len(messages):
        return None
    fields = as_object(messages[index])
    return fields if fields is not None and has_role(fields, "tool") else None


def as_object(value: object) -> JsonObject | None:
    """Return the fields of a message or call, or `None` if it is no object.

    Besides mappings the SDK also takes its own response models as messages and
    serializes them; those are read by what they dump. Never raises.
    """
    if type(value) is dict:
        # Calling `cast` would cost more than all else here.
        return value  # pyright: ignore[reportUnknownVariableType]
    try:
        if isinstance(value, Mapping):
            return dict(cast("Mapping[str, object]", value))
        dump = getattr(value, "model_dump", None)
        fields = dump() if callable(dump) else None
    except Exception:  # what cannot be read is no object, whatever it raises
        return None
    return cast("JsonObject", fields) if type(fields) is dict else None


def declared_calls(message: object) -> list[object]:
    """Return the calls of a message that opens a group."""
    fields: Any = as_object(message)
    return fields["tool_calls"]


def declared_ids(calls: list[Any]) -> list[object]:
    """Return the id of each call, of whatever type it is."""
    try:
        return [call["id"] for call in calls]
    except Exception:  # no plain objects, or not all with an id
        return [(as_object(call) or {}).get("id") for call in calls]


def has_role(fields: JsonObject, role: str) -> bool:
    """Tell whether a message has this role; a role of another type is no role."""
    value = fields.get("role")
    return isinstance(value, str) and value == role


def is_missing(value: object) -> bool:
    """Tell whether an id counts as absent: no key, null, or an empty string."""
    return value is None or (isinstance(value, str) and not value)


def _faulty_call(index: int, call_index: int, call_id: object) -> Violation:
    rule: Rule = "duplicate_call_id"
    if is_missing(call_id):
        rule = "missing_call_id"
    elif not isinstance(call_id, str):
        rule = "invalid_call_id"
    return _violation(rule, index, call_index, call_id)


def _faulty_result(index: int, result_id: object, known_ids: set[str]) -> Violation:
    rule: Rule = "orphan_result"
    if is_missing(result_id):
        rule = "missing_result_id"
    elif not isinstance(result_id, str):
        rule = "invalid_result_id"
    elif result_id in known_ids:
        rule = "duplicate_result"
    return _violation(rule, index, None, result_id)


_DETAILS: Final[dict[Rule, str]] = {
    "messages_not_a_list": "the messages are {kind}, not a list",
    "message_not_an_object": "the message is {kind}, not an object",
    "tool_calls_not_a_list": "tool_calls is {kind}, not a list",
    "tool_call_not_an_object": "the call is {kind}, not an object",
    "missing_call_id": "the call has no id",
    "invalid_call_id": "the call's id is {kind}, not a string",
    "duplicate_call_id": "an earlier call of this message has the same id",
    "unanswered_call": "no tool message answers this call before the next other message",
    "missing_result_id": "the tool message has no tool_call_id",
    "invalid_result_id": "the tool message's tool_call_id is {kind}, not a string",
    "duplicate_result": "an earlier tool message has already answered this call",
    "orphan_result": "no call with this id is open here",
}


def _violation(
    rule: Rule, message_index: int | None, call_index: int | None, value: object
) -> Violation:
    """Build a violation around the thing or the id that is at fault."""
    named = isinstance(value, str) and value and rule not in _ABOUT_THINGS
    detail = _DETAILS[rule]
    if rule in _ABOUT_KINDS:
        detail = detail.format(kind=_kind(value))
    return Violation(rule, message_index, call_index, str(value) if named else None, detail)


_ABOUT_THINGS: Final[frozenset[Rule]] = frozenset(
    {
        "messages_not_a_list",
        "message_not_an_object",
        "tool_calls_not_a_list",
        "tool_call_not_an_object",
    }
)
_ABOUT_KINDS: Final = frozenset({*_ABOUT_THINGS, "invalid_call_id", "invalid_result_id"})


def _kind(value: object) -> str:
    """Name a value's JSON type; never its content."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, (list, tuple)):
        return "a list" if isinstance(value, list) else "a tuple"
    if isinstance(value, Mapping):
        return "an object"
    return "of another type"


def _call_index(violation: Violation) -> int:
    return -1 if violation.call_index is None else violation.call_index
