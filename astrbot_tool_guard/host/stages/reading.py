"""What an answer's calls are under the modes of its request, and telling what stands.

The rule: an answer is checked once. What of it stands is written down in its run,
where the execution stage finds what must not run, and told to those who watch.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ...core.calls.checking import NO_IDS, check_calls, nameless_calls
from ...core.calls.reading import Answer
from ...core.calls.verdict import Verdict, judge
from ...core.ids import ALPHABET, LENGTH
from ...core.model import ToolCall
from ...core.schemas.schema import ToolSchema
from ...journal.events import EventBus
from ...texts.texts import clean
from ..attempts import Attempt, Clock, Reports, degraded, empty_arguments
from ..call import Call
from ..seams.faults import Faults

MAX_TOLD_TOOLS = 1_000
"""Tools whose unusable schema is remembered as told."""

Ask = Callable[[], Awaitable[Any]]
"""Sends the request; each call is one physical request."""


@dataclass(frozen=True, slots=True)
class Reading:
    """An answer, and its calls as they were checked."""

    answer: Answer
    calls: tuple[ToolCall, ...] = ()
    nameless: tuple[ToolCall, ...] = ()
    """The calls of an answer that has none with a name; AstrBot answers those."""

    @property
    def given(self) -> tuple[ToolCall, ...]:
        """The calls that AstrBot gets."""
        return self.calls or self.nameless

    def judged(self, *, may_retry: bool) -> Verdict:
        """Return what follows from it."""
        return judge(self.calls, may_retry=may_retry, only_nameless=self.answer.only_nameless)

    @property
    def mended(self) -> frozenset[str]:
        """What was read or put right without anybody noticing."""
        made = {
            "id_missing" if raw.id is None else "id_repeated"
            for raw, call in zip(self.answer.raws, self.calls, strict=False)
            if call.id_generated
        }
        if any(call.normalized for call in self.calls):
            made.add("normalized")
        return self.answer.readings | made


class AnswerDesk:
    """Where answers are checked and settled, streamed or complete.

    Args:
        events: Where attempts and incidents are told.
        faults: Where our own faults end.
        logger: Where a schema that cannot be used is told, once per tool.
        clock: Where the time comes from.

    Attributes:
        reports: Tells attempts and incidents.
        faults: As passed.
    """

    def __init__(
        self, events: EventBus, faults: Faults, logger: logging.Logger, clock: Clock
    ) -> None:
        self.reports = Reports(events, clock)
        self.faults = faults
        self._logger = logger
        self._told: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def check(
        self,
        answer: Answer,
        declared: Mapping[str, ToolSchema | None],
        call: Call,
        used: frozenset[str] = NO_IDS,
    ) -> Reading:
        """Check the calls of an answer under the modes of its request."""

        def check() -> tuple[ToolCall, ...]:
            return check_calls(
                answer,
                declared,
                validation=call.modes.tool_argument_validation,
                normalize=call.modes.normalize_arguments,
                new_id=_random_id,
                used=used,
            )

        schemas = (declared.get(raw.name) for raw in answer.raws)
        # Judging a large schema for the first time must not hold the event loop.
        costly = any(schema is not None and schema.costly for schema in schemas)
        calls = await asyncio.to_thread(check) if costly else check()
        for each in calls:
            if "invalid_schema" in each.unchecked:
                self._tell_schema(call, each.name)
        nameless = nameless_calls(answer, _random_id) if answer.only_nameless else ()
        return Reading(answer, calls, nameless)

    def settle(
        self,
        attempt: Attempt,
        call: Call,
        reading: Reading,
        verdict: Verdict,
        *,
        retried: Verdict | None = None,
        error: Exception | None = None,
    ) -> None:
        """Write an answer that stands down in its run, and tell it.

        Args:
            attempt: The request it came from.
            call: Who asked.
            reading: Its calls.
            verdict: What follows from them.
            retried: The verdict that led to a retry, if that retry failed.
            error: Why it failed.
        """
        if call.run is not None:
            call.run.answered(reading.calls)
        reason = verdict.reason if retried is None else retried.reason
        metadata = degraded(reading.calls)
        if retried is not None:
            metadata |= empty_arguments(reading.calls, reason, error)
        attempt.end(
            "accepted_degraded" if verdict.action == "degrade" else "accepted",
            finish_reason=reading.answer.finish_reason,
            usage=reading.answer.usage,
            calls=reading.calls,
            reason=reason,
            recovery_action=None if retried is None else "retry_streaming",
            mended=reading.mended,
            metadata=metadata,
        )
        self.reports.settled(call, reading.calls, reading.answer.dropped)

    def _tell_schema(self, call: Call, tool: str) -> None:
        key = (call.provider_id, tool)
        if key in self._told:
            return
        self._told[key] = None
        while len(self._told) > MAX_TOLD_TOOLS:
            self._told.popitem(last=False)
        self._logger.warning(
            "Tool Call Guard: the schema of tool %s is not valid JSON Schema; "
            "its arguments are not checked against it",
            clean(tool),
        )


def _random_id(_ordinal: int, taken: Collection[str]) -> str:
    """Return a new id; random, since an ordinal would repeat from turn to turn."""
    while (made := "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))) in taken:
        pass
    return made
