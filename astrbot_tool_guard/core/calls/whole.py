"""The calls of a complete answer: each is read as it is, and nothing is joined."""

from __future__ import annotations

from collections.abc import Iterable

from .. import jsontext
from ..model import DroppedCall
from ..plain import is_object
from .entries import MAX_CALLS, Raw, argument_piece, is_name, read_entry, read_id, unknown_keys
from .reading import items


def read_entries(
    entries: object, declared: Iterable[str], readings: set[str]
) -> tuple[list[Raw], list[DroppedCall]]:
    """Read the `tool_calls` of a complete answer, each entry as it is.

    Args:
        entries: The value of the message's `tool_calls`.
        declared: Names of the declared tools.
        readings: Gets the names of what was read otherwise than it stands.
    """
    names = frozenset(declared)
    raws: list[Raw] = []
    dropped: list[DroppedCall] = []
    for entry in items(entries):
        read = read_entry(entry)
        if len(raws) >= MAX_CALLS:
            dropped.append(DroppedCall("too_many_calls", None, None))
            break
        if read is None:
            dropped.append(DroppedCall("not_an_object", None, None))
            continue
        function = read.get("function")
        function = function if is_object(function) else {}
        name, given = function.get("name"), read_id(read.get("id"))
        value = function.get("arguments")
        text = None if value is None else jsontext.mend_surrogates(argument_piece(value))
        if not isinstance(name, str) or not is_name(name, names):
            dropped.append(DroppedCall("nameless", given, text))
            continue
        raws.append(Raw(name, given, text, unknown_keys(read)))
    return raws, dropped
