"""Which result belongs to which call, in a list whose parts have their shape.

A region runs from one declaration to the next, with everything that stands
between them. What the finder has nothing against is matched already; only what
it names is looked at here. The order of the steps is what keeps them safe: each
gets only what the surer ones before it left over.

1. Equal ids within a region, by position.
2. An id that another region declares: the nearest before, else the next after.
3. Ids equal after trimming, or a number and its text, within a region.
4. Missing ids, within a region and where only one reading is possible.

A call that only our own neutral sentence answers counts as open throughout.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from typing import Final, cast

from .pairing import Groups, JsonObject, as_object, declared_calls, declared_ids, has_role

NEUTRAL_RESULT: Final = "No result is recorded for this tool call."
"""What answers a call without a result; it invents no cause for that."""

Key = str | tuple[str, object]
"""What ids are compared by: a string itself, or a type and a value."""


class Declared:
    """A declared call and the result that answers it.

    Attributes:
        region: Number of the region that declares it.
        index: Its index in `tool_calls`.
        fields: The call.
        id: Its id, of any type; the result's once it has adopted that.
        key: What its id is compared by; `None` when it has none.
        result: What answers it, as far as is known.
        adopted: Whether the id is the result's.
    """

    __slots__ = ("adopted", "fields", "id", "index", "key", "region", "result")

    def __init__(self, region: int, index: int, call: object) -> None:
        self.region = region
        self.index = index
        self.fields: JsonObject = as_object(call) or {}
        self.id = own_id = self.fields.get("id")
        self.key: Key | None = own_id if type(own_id) is str and own_id else id_key(own_id)
        self.result: Result | None = None
        self.adopted = False

    @property
    def is_open(self) -> bool:
        """Whether no real result answers this call."""
        return self.result is None or self.result.is_neutral


class Result:
    """A `tool` message, where it stands, and the call it answers.

    Attributes:
        region: Number of the region it stands in; -1 before the first one.
        index: Its index in the list.
        fields: The message.
        id: Its `tool_call_id`, of any type.
        key: What its id is compared by; `None` when it has none.
        is_adjacent: Whether only results stand between it and the declaration.
        is_neutral: Whether it is our own neutral sentence.
        answers: The call it answers, as far as is known.
    """

    __slots__ = (
        "answers", "fields", "id", "index", "is_adjacent", "is_neutral", "key", "region"
    )  # fmt: skip

    def __init__(self, region: int, index: int, fields: JsonObject, is_adjacent: bool) -> None:
        self.region = region
        self.index = index
        self.fields = fields
        self.id = own_id = fields.get("tool_call_id")
        self.key: Key | None = own_id if type(own_id) is str and own_id else id_key(own_id)
        self.is_adjacent = is_adjacent
        content = fields.get("content")
        self.is_neutral = isinstance(content, str) and content == NEUTRAL_RESULT
        self.answers: Declared | None = None


class Region:
    """A declaration with what stands up to the next one.

    Attributes:
        number: Its place among the regions; -1 for what precedes the first one.
        start: Index of the declaration; -1 where there is none.
        end: Index behind its last message.
        calls: The calls it declares.
        results: Every result that stands in it, by position.
        leftovers: Those of them that may still be matched.
    """

    __slots__ = ("_waiting", "calls", "end", "leftovers", "number", "results", "start")

    def __init__(self, number: int, start: int, end: int) -> None:
        self.number = number
        self.start = start
        self.end = end
        self.calls: list[Declared] = []
        self.results: list[Result] = []
        self.leftovers: list[Result] = []
        self._waiting: dict[Key, deque[Declared]] | None = None

    @property
    def waiting(self) -> dict[Key, deque[Declared]]:
        """For each id it declares, the calls that wait for a real result.

        First those without any, then those with a neutral one.
        """
        if self._waiting is None:
            self._waiting = {}
            for call in sorted(self.calls, key=_has_result):
                if call.key is not None:
                    queue = self._waiting.setdefault(call.key, deque())
                    if call.is_open:
                        queue.append(call)
        return self._waiting


def match_results(messages: list[object], groups: Groups) -> list[Region]:
    """Match calls and results wherever the finder has something against them.

    Args:
        messages: A list in which messages, calls and lists of calls have their shape.
        groups: How it reads.

    Returns:
        The regions that have to be rebuilt, by position; all others are right as
        they stand. A result that answers nothing there is one that no call claims.
    """
    walk = _Walk(messages, groups)
    unsettled = [region for region in walk.regions.values() if region.leftovers]
    for region in unsettled:
        _match_equal(region)
    walk.match_across(unsettled)
    for region in unsettled:
        if region.leftovers:
            _match_alike(region)
            _match_missing(region)
    return [walk.regions[number] for number in sorted(walk.regions)]


class _Walk:
    """The regions, each read when it is first needed."""

    def __init__(self, messages: list[object], groups: Groups) -> None:
        self._messages = messages
        self._starts = groups.declarations
        self._faulty = {v.message_index for v in groups.violations if v.call_index is None}
        self.regions: dict[int, Region] = {}
        for violation in groups.violations:
            index = cast("int", violation.message_index)
            self._region(bisect_right(self._starts, index) - 1)

    def match_across(self, unsettled: Iterable[Region]) -> None:
        """Step 2: hand results over to the region that declares their id."""
        declaring = self._declaring_regions(
            {
                result.key
                for region in unsettled
                for result in region.leftovers
                if result.key is not None and not result.is_neutral
            }
        )
        for region in unsettled:
            staying: list[Result] = []
            for result in region.leftovers:
                if result.is_neutral:
                    continue
                if result.key is None:
                    staying.append(result)
                    continue
                regions = declaring.get(result.key)
                if regions:
                    before = bisect_left(regions, region.number)
                    target = self._region(regions[before - 1 if before else 0])
                    waiting = target.waiting[result.key]
                    if waiting:
                        _answer(waiting.popleft(), result)
                        continue
                # A repetition is dropped, unless it stands where the answer to a call
                # without a usable id would stand: gateways use ids again in later turns.
                if result.is_adjacent or not regions:
                    staying.append(result)
            region.leftovers = staying

    def _region(self, number: int) -> Region:
        region = self.regions.get(number)
        if region is None:
            start = self._starts[number] if number >= 0 else -1
            following = number + 1
            end = self._starts[following] if following < len(self._starts) else len(self._messages)
            region = self.regions[number] = Region(number, start, end)
            if number >= 0:
                calls = declared_calls(self._messages[start])
                region.calls = [Declared(number, index, call) for index, call in enumerate(calls)]
            self._read_results(region)
        return region

    def _read_results(self, region: Region) -> None:
        """Read the results; those without a fault answer the first call of their id."""
        first = {call.key: call for call in reversed(region.calls)}
        is_adjacent = region.number >= 0
        for index in range(region.start + 1, region.end):
            fields = as_object(self._messages[index])
            if fields is None or not has_role(fields, "tool"):
                is_adjacent = False
                continue
            result = Result(region.number, index, fields, is_adjacent)
            region.results.append(result)
            if index in self._faulty:
                region.leftovers.append(result)
            else:
                _answer(first[result.key], result)

    def _declaring_regions(self, wanted: set[Key]) -> dict[Key, list[int]]:
        """Return the numbers of the regions that declare each wanted id, in order."""
        declaring: dict[Key, list[int]] = {}
        if wanted:
            for number, start in enumerate(self._starts):
                for call_id in declared_ids(declared_calls(self._messages[start])):
                    key = id_key(call_id)
                    if key in wanted:
                        declaring.setdefault(key, []).append(number)
        return declaring


def _match_equal(region: Region) -> None:
    """Step 1: equal ids, by position; of too many, neutral ones go first."""
    others: list[Result] = []
    by_key: dict[Key, list[Result]] = {}
    for result in region.leftovers:
        if result.key is not None and result.key in region.waiting:
            by_key.setdefault(result.key, []).append(result)
        else:
            others.append(result)
    region.leftovers = others
    for key, results in by_key.items():
        waiting = region.waiting[key]
        surplus = len(results) - sum(call.result is None for call in waiting)
        chosen: list[Result] = []
        for result in results:
            if surplus > 0 and result.is_neutral:
                surplus -= 1
            else:
                chosen.append(result)
        count = min(len(chosen), len(waiting))
        calls = sorted((waiting.popleft() for _ in range(count)), key=_call_index)
        for call, result in zip(calls, chosen, strict=False):
            _answer(call, result)
            if result.is_neutral:
                waiting.append(call)


def _match_alike(region: Region) -> None:
    """Step 3: ids that only white space or their type tells apart, if unique."""
    calls: dict[str, list[Declared]] = {}
    for call in region.calls:
        alike = _alike(call.id)
        if call.is_open and alike is not None:
            calls.setdefault(alike, []).append(call)
    results: dict[str, list[Result]] = {}
    for result in region.leftovers:
        alike = _alike(result.id)
        if alike is not None:
            results.setdefault(alike, []).append(result)
    for alike, matching in results.items():
        candidates = calls.get(alike, [])
        if len(matching) == len(candidates) == 1:
            _answer(candidates[0], matching[0])


def _match_missing(region: Region) -> None:
    """Step 4: missing with missing by position, then whatever can only mean one thing."""
    nameless = [call for call in region.calls if call.is_open and call.key is None]
    missing = [r for r in region.leftovers if r.answers is None and r.key is None]
    for call, result in zip(nameless, missing, strict=False):
        _answer(call, result)

    unclaimed = missing[len(nameless) :]
    still_open = [call for call in region.calls if call.is_open]
    if len(unclaimed) == len(still_open) == 1:
        _answer(still_open[0], unclaimed[0])

    adopting = nameless[len(missing) :]
    foreign = [r for r in region.leftovers if r.answers is None and r.key is not None]
    if len(adopting) == len(foreign) == 1:
        call, result = adopting[0], foreign[0]
        _answer(call, result)
        call.id, call.key, call.adopted = result.id, result.key, True


def _answer(call: Declared, result: Result) -> None:
    if call.result is not None:
        call.result.answers = None
    call.result = result
    result.answers = call


def id_key(value: object) -> Key | None:
    """Return what an id of any type is compared by, or `None` for a missing one.

    A number, a boolean and a string are never equal; objects and lists are equal
    when their JSON is.
    """
    if isinstance(value, str):
        return value or None
    if value is None:
        return None
    if isinstance(value, (bool, int, float)):
        return ("boolean" if isinstance(value, bool) else "number", value)
    try:
        return "json", json.dumps(value, sort_keys=True)
    except (TypeError, ValueError, RecursionError):  # no JSON, a cycle, too deep
        return "object", id(value)


def _alike(value: object) -> str | None:
    if isinstance(value, str):
        return value.strip() if value else None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return str(value)
        except ValueError:  # an integer beyond what may be printed
            return None
    return None


def _has_result(call: Declared) -> bool:
    return call.result is not None


def _call_index(call: Declared) -> int:
    return call.index
