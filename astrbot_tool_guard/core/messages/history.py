"""A stored conversation: the list of a request, with AstrBot's checkpoints in it.

AstrBot keeps checkpoint segments between the messages it stores, and takes them
out before it sends anything. So they neither close a group nor may get lost: the
list is read and mended as if they were not there, and each of them stays between
the messages it stood between, or before the next one that is no result.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, cast

from ..model import Change, Violation
from .advisories import Advisory, find_advisories, mend_advisories
from .pairing import as_object, find_violations, has_role
from .repair import repair_messages

CHECKPOINT_ROLE: Final = "_checkpoint"


@dataclass(frozen=True, slots=True)
class MendedHistory:
    """A stored history, what is wrong with it, and what it becomes.

    All indexes are those of the stored history.

    Attributes:
        history: The mended history; the very object that was given when nothing
            had to change.
        violations: What does not pair in the stored one.
        advisories: What pairs in it and may be refused all the same, if asked for.
        changes: What was done.
    """

    history: object
    violations: tuple[Violation, ...]
    advisories: tuple[Advisory, ...]
    changes: tuple[Change, ...]


def mend_history(
    history: object, *, advisories: Literal["ignore", "find", "mend"] = "ignore"
) -> MendedHistory:
    """Mend a stored history.

    Args:
        history: The list of messages as AstrBot stores it; `None` is an empty one.
        advisories: What to do about what pairs and may be refused all the same.

    Returns:
        The mended history. What is no list cannot be mended: it comes back with
        its violation.
    """
    if history is None:
        return MendedHistory(None, (), (), ())
    if not isinstance(history, list):
        return MendedHistory(history, find_violations(history), (), ())
    stored = cast("list[object]", history)
    places = [index for index, message in enumerate(stored) if not _is_checkpoint(message)]
    plain = stored if len(places) == len(stored) else [stored[index] for index in places]

    repair = repair_messages(plain)
    messages, changes = cast("list[object]", repair.messages), list(repair.changes)
    origins: Sequence[int | None] = repair.origins if repair.changes else range(len(plain))
    found = () if advisories == "ignore" else find_advisories(plain)
    if advisories == "mend":
        mended = mend_advisories(messages)
        if mended.changes:
            messages = cast("list[object]", mended.messages)
            changes += [_seen_from(change, origins) for change in mended.changes]
    moved = [replace(c, message_index=places[cast("int", c.message_index)]) for c in changes]
    if changes and len(plain) < len(stored):
        messages = _with_checkpoints(stored, messages, origins)
    return MendedHistory(
        history=messages if changes else stored,
        violations=tuple(
            replace(v, message_index=places[cast("int", v.message_index)])
            for v in find_violations(plain)
        ),
        advisories=tuple(replace(a, message_index=places[a.message_index]) for a in found),
        changes=tuple(sorted(moved, key=_place)),
    )


def _is_checkpoint(message: object) -> bool:
    return isinstance(message, dict) and has_role(
        cast("dict[str, object]", message), CHECKPOINT_ROLE
    )


def _seen_from(change: Change, origins: Sequence[int | None]) -> Change:
    """Say where a change of the repaired list is in the list before it."""
    at = cast("int", change.message_index)
    while origins[at] is None:  # an added result stands behind its declaration
        at -= 1
    return replace(change, message_index=origins[at])


def _with_checkpoints(
    stored: list[object],
    messages: list[object],
    origins: Sequence[int | None],
) -> list[object]:
    """Put the checkpoints of `stored` back between the mended messages."""
    stands = {origin: at for at, origin in enumerate(origins) if origin is not None}
    anchors = [(origin, at) for origin, at in stands.items() if not _is_result(messages[at])]
    merged: list[object] = []
    done = 0
    plain_before = 0
    for index, message in enumerate(stored):
        if not _is_checkpoint(message):
            plain_before += 1
            continue
        following = bisect_left(anchors, (plain_before, -1))
        text_after = anchors[following][1] if following < len(anchors) else len(messages)
        text_before = anchors[following - 1][1] if following else -1
        target = stands.get(plain_before, -1)
        side_by_side = stands.get(plain_before - 1, -2) == target - 1
        if not (side_by_side and text_before < target <= text_after):
            target = text_after
        merged.extend(messages[done:target])
        done = max(done, target)
        merged.append(stored[index])
    merged.extend(messages[done:])
    return merged


def _is_result(message: object) -> bool:
    fields = as_object(message)
    return fields is not None and has_role(fields, "tool")


def _place(change: Change) -> int:
    return cast("int", change.message_index)
