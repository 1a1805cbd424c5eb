"""Bring the parts of a message list into the shape that pairing reads.

The first half of a repair: what the finder could not read as a message, as a
list of calls or as a call is read anyway where only one reading is possible, and
is taken out where none is. Afterwards every violation left is about ids.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

from ..model import Change, Violation
from .pairing import JsonObject, as_object


def mend_shapes(
    messages: list[object], violations: Sequence[Violation]
) -> tuple[list[object], Sequence[int], list[Change]]:
    """Mend what is no list of calls, no message or no call.

    Args:
        messages: The list; it is not changed.
        violations: What the finder has against it.

    Returns:
        The messages in shape (the given list when nothing was out of shape),
        each one's index in the given list, and what was done.
    """
    faulty: dict[int, set[str]] = {}
    for violation in violations:
        if violation.message_index is not None and violation.rule in _SHAPE_RULES:
            faulty.setdefault(violation.message_index, set()).add(violation.rule)
    if not faulty:
        return messages, range(len(messages)), []

    mended: list[object] = []
    origins: list[int] = []
    changes: list[Change] = []
    for index, message in enumerate(messages):
        fields = as_object(message) if index in faulty else None
        if index not in faulty:
            mended.append(message)
        elif fields is None:
            detail = "it is no object, so it has no role and no text"
            changes.append(Change("message_dropped", index, detail))
            continue
        else:
            mended.append(_mend_calls(fields, index, changes))
        origins.append(index)
    return mended, origins, changes


_SHAPE_RULES = frozenset(
    {"message_not_an_object", "tool_calls_not_a_list", "tool_call_not_an_object"}
)


def _mend_calls(fields: JsonObject, index: int, changes: list[Change]) -> JsonObject:
    value = fields["tool_calls"]
    if isinstance(value, list):
        calls = _readable_calls(cast("list[object]", value), index, changes)
        if calls:
            return {**fields, "tool_calls": calls}
        detail = "no call was left in it"
    elif _is_call(value):
        detail = "a single call was put into a list"
        changes.append(Change("tool_calls_wrapped", index, detail))
        return {**fields, "tool_calls": [value]}
    else:
        detail = "it was no list and no call"
    rest = {key: value for key, value in fields.items() if key != "tool_calls"}
    if rest.get("content") is None:
        # Without calls a message must have content, and AstrBot refuses to load one that has none.
        rest["content"] = ""
        detail += "; the message had no content and got an empty text"
    changes.append(Change("tool_calls_removed", index, detail))
    return rest


def _readable_calls(calls: list[object], index: int, changes: list[Change]) -> list[object]:
    kept: list[object] = []
    for call_index, call in enumerate(calls):
        if as_object(call) is not None:
            kept.append(call)
            continue
        parsed = _call_from_text(call)
        if parsed is None:
            changes.append(Change("call_dropped", index, f"call {call_index} was no object"))
        else:
            kept.append(parsed)
            detail = f"call {call_index} was JSON text of a call"
            changes.append(Change("call_parsed", index, detail))
    return kept


def _call_from_text(value: object) -> JsonObject | None:
    if not isinstance(value, str):
        return None
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return cast("JsonObject", parsed) if _is_call(parsed) else None


def _is_call(value: object) -> bool:
    fields = as_object(value)
    return fields is not None and isinstance(fields.get("function"), Mapping)
