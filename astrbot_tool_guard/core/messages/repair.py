"""Mend a message list so that tool calls and tool results pair, without losing a word.

What stands right is what the finder has nothing against; only what it names is
moved, matched, relabelled, answered or dropped. No text is lost or reordered
among itself, results are added and calls never are, a real result whose id is
declared exactly once is kept wherever it stood, and what was right comes back as
the same objects. `shapes` and `matching` decide; here the list is rebuilt.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Literal, cast

from ..ids import ordinal_id
from ..model import Change, Repair
from .matching import NEUTRAL_RESULT, Declared, Region, Result, match_results
from .pairing import Groups, JsonObject, as_object, declared_calls, declared_ids, read_groups
from .shapes import mend_shapes

Action = Literal[
    "message_dropped",
    "tool_calls_removed",
    "tool_calls_wrapped",
    "call_dropped",
    "call_parsed",
    "call_id_adopted",
    "call_id_generated",
    "result_id_set",
    "result_moved",
    "result_dropped",
    "result_added",
]
"""Everything a repair can do; the `action` of each `Change` is one of these."""


def repair_messages(messages: object) -> Repair:
    """Return `messages` with tool calls and tool results paired.

    Deterministic and idempotent, and linear in the number of messages and calls.
    The input is never changed; messages that were right are shared with it.

    Args:
        messages: The list a request would send, or a stored history.

    Returns:
        The mended list with every action taken. A paired list comes back as the
        same object, and so does what is no list, since nothing can mend that.
    """
    if not isinstance(messages, list):
        return Repair(messages, ())
    given = cast("list[object]", messages)
    groups = read_groups(given)
    if not groups.violations:
        return Repair(given, ())
    shaped, places, changes = mend_shapes(given, groups.violations)
    if shaped is not given:
        groups = read_groups(shaped)
    rebuilt = _Rebuilt(shaped, groups, places, changes)
    rebuilt.put_together(match_results(shaped, groups))
    changes.sort(key=_place)
    return Repair(rebuilt.messages, tuple(changes), tuple(rebuilt.origins))


class _Rebuilt:
    """The mended list as it grows, region by region."""

    def __init__(
        self,
        source: list[object],
        groups: Groups,
        places: Sequence[int],
        changes: list[Change],
    ) -> None:
        self.messages: list[object] = []
        self.origins: list[int | None] = []
        self._source = source
        self._places = places  # of each source message in the input
        self._changes = changes
        self._groups = groups

    @cached_property
    def _new_ids(self) -> NewIds:
        return NewIds(self._source, self._groups)

    def put_together(self, regions: list[Region]) -> None:
        """Rebuild `regions`, and copy everything else as it stands.

        Whatever stood between the results (steering, images, reminders) comes behind them.
        """
        done = 0
        for region in regions:
            self._copy(done, max(region.start, 0))
            if region.number >= 0:
                self._declaration(region)
            self._results(region)
            done = self._between_results(region)
        self._copy(done, len(self._source))
        for region in regions:
            for call in region.calls:
                call.result = None  # it knows the call: no cycle is left to the collector

    def _copy(self, start: int, end: int) -> None:
        """Add what stands from `start` up to `end` as it is."""
        if start >= end:
            return
        self.messages.extend(self._source[start:end])
        self.origins.extend(self._places[start:end])

    def _add(self, message: object, index: int | None) -> None:
        self.messages.append(message)
        self.origins.append(None if index is None else self._places[index])

    def _declaration(self, region: Region) -> None:
        """Step 5: give every call a usable id of its own."""
        taken: set[str] = set()
        calls: dict[int, JsonObject] = {}
        for call in region.calls:
            if isinstance(call.id, str) and call.id and call.id not in taken:
                if call.adopted:
                    calls[call.index] = {**call.fields, "id": call.id}
                    self._note(
                        "call_id_adopted",
                        region.start,
                        f"call {call.index} took the id of its result",
                    )
            else:
                call.id = self._new_ids.for_call(region.start, call.index)
                calls[call.index] = {**call.fields, "id": call.id}
                self._note("call_id_generated", region.start, f"call {call.index} got a new id")
            taken.add(call.id)
        message = self._source[region.start]
        if calls:
            fields = cast("JsonObject", as_object(message))
            declared = enumerate(declared_calls(message))
            renewed = [calls.get(index, call) for index, call in declared]
            message = {**fields, "tool_calls": renewed}
        self._add(message, region.start)

    def _results(self, region: Region) -> None:
        """Step 6: results in place, then moved ones, then neutral ones."""
        for result in region.results:
            call = result.answers
            if call is None:
                self._note("result_dropped", result.index, _why_dropped(result))
            elif result.is_adjacent and call.region == region.number:
                self._result(result, call)
        moved: list[tuple[Result, Declared]] = []
        unanswered: list[Declared] = []
        for call in region.calls:
            result = call.result
            if result is None:
                unanswered.append(call)
            elif not (result.is_adjacent and result.region == region.number):
                moved.append((result, call))
        moved.sort(key=_position)
        for result, call in moved:
            at = f"call {call.index} of message {self._places[region.start]}"
            self._note("result_moved", result.index, f"moved to {at}, which it answers")
            self._result(result, call)
        for call in unanswered:
            neutral = {"role": "tool", "tool_call_id": call.id, "content": NEUTRAL_RESULT}
            self._add(neutral, None)
            self._note("result_added", region.start, f"call {call.index} has no recorded result")

    def _result(self, result: Result, call: Declared) -> None:
        message = self._source[result.index]
        if not (isinstance(result.id, str) and result.id == call.id):
            message = {**result.fields, "tool_call_id": call.id}
            self._note("result_id_set", result.index, "it got the id of the call it answers")
        self._add(message, result.index)

    def _between_results(self, region: Region) -> int:
        """Add what stood before or among the results; return where the rest begins."""
        done = region.start + 1
        for result in region.results:
            self._copy(done, result.index)
            done = result.index + 1
        return done

    def _note(self, action: Action, index: int, detail: str) -> None:
        self._changes.append(Change(action, self._places[index], detail))


class NewIds:
    """Ids that derive from where a call stands, and that nothing in the list uses."""

    def __init__(self, source: list[object], groups: Groups) -> None:
        self._first_ordinals: dict[int, int] = {}
        self._count = 0
        used: list[object] = []
        for index in groups.declarations:
            calls = declared_calls(source[index])
            self._first_ordinals[index] = self._count
            self._count += len(calls)
            used.extend(declared_ids(calls))
        for message in source:
            fields = as_object(message)
            used.append(None if fields is None else fields.get("tool_call_id"))
        self._used = {used_id for used_id in used if isinstance(used_id, str)}

    def for_call(self, start: int, index: int) -> str:
        """Return a new id for a call of the declaration at `start`."""
        # In steps of the number of calls, no two calls ever come to the same id.
        return ordinal_id(self._first_ordinals[start] + index, self._used, step=self._count)


def _why_dropped(result: Result) -> str:
    if result.is_neutral:
        return "it was a stand-in for a result, and is not needed"
    if result.key is None:
        return "it names no call, and which one it answers cannot be told"
    return "no call is left that it answers"


def _position(moved: tuple[Result, Declared]) -> int:
    return moved[0].index


def _place(change: Change) -> int:
    return -1 if change.message_index is None else change.message_index
