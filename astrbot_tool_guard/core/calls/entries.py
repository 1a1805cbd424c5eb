"""One entry of `tool_calls`, as a provider may send it, read without trusting it.

Shared by streamed and complete answers, so that both mean the same by a usable id,
a name, an index and argument text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .. import jsontext
from ..jsontext import JsonTextError
from ..plain import is_object
from . import arguments

MAX_CALLS: Final = 128
"""Calls of one answer; OpenAI's own limit of declared tools is the same."""

MAX_NAME_CHARS: Final = 4_096
"""Characters of a name; what would make it longer names nothing."""

MAX_ID_CHARS: Final = 256 * 1024
"""Characters of an id, in which some gateways put a whole thought signature."""

ENTRY_KEYS: Final = frozenset({"index", "id", "type", "function"})
"""The known keys of an entry; every other one travels with the call."""

FUNCTION_KEYS: Final = frozenset({"name", "arguments", "function"})
"""The known keys of its `function`, and the one that would be one level more."""


_DIGITS = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Raw:
    """One call as read, before it is decoded and checked.

    Attributes:
        name: Its name, `""` for a nameless call.
        id: Its usable id, or `None`.
        text: Its argument text, `None` where none came.
        extras: Its unknown keys, as `unknown_keys` returns them.
        oversized: Whether argument text was given up for its size.
    """

    name: str
    id: str | None
    text: str | None
    extras: Mapping[str, Any]
    oversized: bool = False


def read_entry(entry: object) -> Mapping[str, Any] | None:
    """Return the object an entry is, or is the JSON text of; else `None`."""
    if isinstance(entry, str):
        try:
            entry = jsontext.loads(entry)
        except JsonTextError:
            return None
    return entry if is_object(entry) else None


def unknown_keys(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return what travels with a call; under `function` what stood inside of that."""
    found = {key: value for key, value in entry.items() if key not in ENTRY_KEYS}
    function = entry.get("function")
    if is_object(function) and (inside := function.keys() - FUNCTION_KEYS):
        found["function"] = {key: value for key, value in function.items() if key in inside}
    return found


def is_name(name: str, declared: frozenset[str]) -> bool:
    """Whether a name names anything: blanks do not, nor does an undeclared `null`."""
    if len(name) > MAX_NAME_CHARS or not jsontext.is_sendable(name):
        return False
    return bool(name.strip()) and (name != "null" or name in declared)


def read_index(value: object) -> int | None:
    """Return an index, which is any whole number or the digits of one; else `None`."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        return int(value) if _DIGITS.fullmatch(value) else None
    return value if isinstance(value, int) else None


def read_id(value: object) -> str | None:
    """Return a usable id, or `None`."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID_CHARS:
        return None
    return value if jsontext.is_sendable(value) else None


def argument_piece(value: object) -> str:
    """Return argument text; a value that is no text is its JSON text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else arguments.dumps(value) or "\0"
