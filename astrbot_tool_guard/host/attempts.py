"""What each physical request was, from its start to its outcome.

The rule: one record a request, told once, whatever becomes of it; usage is that of
the request alone and never added up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.calls.verdict import Reason, Verdict
from ..core.model import DroppedCall, ToolCall
from ..journal.events import AttemptRecord, EventBus, Incident, IncidentKind, Outcome
from .call import Call, Transport


@dataclass(frozen=True, slots=True)
class Clock:
    """Where the time comes from.

    Attributes:
        wall: Unix time in seconds.
        steady: Seconds that only go forward.
    """

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic


class Attempt:
    """One physical request that is under way.

    Attributes:
        ended: Whether its record was told.
    """

    __slots__ = ("_call", "_clock", "_first", "_number", "_start", "_tell", "_transport", "_wall",
                 "ended")  # fmt: skip

    def __init__(
        self,
        call: Call,
        transport: Transport,
        number: int,
        clock: Clock,
        tell: Callable[[AttemptRecord], None],
    ) -> None:
        self._call = call
        self._transport: Transport = transport
        self._number = number
        self._clock = clock
        self._tell = tell
        self._wall = clock.wall()
        self._start = clock.steady()
        self._first: float | None = None
        self.ended = False

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return self._clock.steady() - self._start

    def piece(self) -> None:
        """Note the first piece of a streamed answer."""
        if self._first is None:
            self._first = self._clock.steady()

    def end(
        self,
        outcome: Outcome,
        *,
        finish_reason: str | None = None,
        usage: Any = None,
        calls: Sequence[ToolCall] = (),
        reason: str | None = None,
        recovery_action: str | None = None,
        error: BaseException | None = None,
        mended: Iterable[str] = (),
        metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Tell what became of it; without effect when that was told already."""
        if self.ended:
            return
        self.ended = True
        first = self._first
        self._tell(
            AttemptRecord(
                attempt=self._number,
                provider=self._call.provider_id,
                model=self._call.model,
                session=self._call.session,
                transport=self._transport,
                started_at=self._wall,
                duration_ms=self.elapsed * 1000,
                ttft_ms=None if first is None else (first - self._start) * 1000,
                finish_reason=finish_reason,
                usage=dict(usage) if isinstance(usage, Mapping) else None,
                tool_calls_count=len(calls),
                outcome=outcome,
                reason=reason,
                recovery_action=recovery_action,
                error=None if error is None else type(error).__name__,
                protocol=self._call.protocol,
                turn=self._call.turn,
                mended=tuple(sorted(mended)),
                invalid=tuple(dict.fromkeys(p.kind for c in calls for p in c.problems)),
                metadata=metadata or {},
            )
        )


@dataclass(slots=True)
class Reports:
    """Makes attempts, and tells incidents about answers.

    Attributes:
        events: Where everything is told.
        clock: Where the time comes from.
    """

    events: EventBus
    clock: Clock = field(default_factory=Clock)

    def begin(self, call: Call, transport: Transport, number: int = 1) -> Attempt:
        """Return the attempt that begins now."""
        return Attempt(call, transport, number, self.clock, self.events.emit)

    def retried(self, call: Call, calls: Sequence[ToolCall], verdict: Verdict) -> None:
        """Tell that an answer was discarded and is asked for again."""
        invalid = [each for each in calls if not each.valid or each.missing]
        outcome = "retry_streaming"
        self._tell("response_retried", call, invalid, outcome, (str(verdict.reason),))

    def settled(
        self, call: Call, calls: Sequence[ToolCall], dropped: Sequence[DroppedCall]
    ) -> None:
        """Tell what was mended in an answer that stands, and what of it will not run."""
        if invalid := [each for each in calls if not each.valid]:
            self._tell("response_degraded", call, invalid, "not_run")
        if mended := [each for each in calls if each.id_generated]:
            self._tell("ids_repaired", call, mended, "id_generated", ("id_generated",))
        if dropped:
            problems = tuple(dict.fromkeys(each.reason for each in dropped))
            self._tell("calls_dropped", call, (), "dropped", problems)

    def _tell(
        self,
        kind: IncidentKind,
        call: Call,
        calls: Iterable[ToolCall],
        outcome: str,
        problems: tuple[str, ...] = (),
    ) -> None:
        concerned = tuple(calls)
        found = (f"{p.kind} {p.path}".rstrip() for each in concerned for p in each.problems)
        self.events.emit(
            Incident(
                kind=kind,
                at=self.clock.wall(),
                session=call.session,
                provider=call.provider_id,
                model=call.model,
                tools=tuple(each.name for each in concerned),
                problems=problems or tuple(dict.fromkeys(found)),
                outcome=outcome,
                turn=call.turn,
                arguments=tuple(each.raw_arguments for each in concerned),
            )
        )


def degraded(calls: Sequence[ToolCall]) -> dict[str, object]:
    """Return the metadata of an answer with calls that will not run."""
    invalid: list[dict[str, object]] = [
        {
            "id": each.id,
            "name": each.name,
            "raw_arguments": each.raw_arguments,
            "problems": [problem.to_dict() for problem in each.problems],
        }
        for each in calls
        if not each.valid
    ]
    return {"invalid_tool_calls": invalid} if invalid else {}


def empty_arguments(
    calls: Sequence[ToolCall], reason: Reason | None, error: BaseException | None
) -> dict[str, object]:
    """Return the metadata keys of the empty-arguments case, which older guards had too."""
    if reason != "stream_empty_tool_arguments":
        return {}
    metadata: dict[str, object] = {
        "stream_empty_args_fallback": True,
        "stream_empty_args_tools": [each.name for each in calls if each.blank and each.missing],
    }
    if error is not None:
        metadata["stream_empty_args_recovery_error"] = type(error).__name__
    return metadata
