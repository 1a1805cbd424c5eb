"""What the guard tells those who watch it, and the bus that tells them.

Two kinds of event: an `AttemptRecord` for each physical request, and an
`Incident` for each thing the guard found or did. An observer is any callable
that takes one of them; one that raises is reported once and never breaks a call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["accepted", "accepted_degraded", "discarded", "failed", "blocked"]
IncidentKind = Literal[
    "request_blocked",
    "request_observed",
    "request_repaired",
    "response_retried",
    "response_degraded",
    "calls_dropped",
    "ids_repaired",
    "guard_fault",
]


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One physical request to a provider (or one that was stopped before it).

    Attributes:
        attempt: 1 for the first request of an answer, 2 for its retry.
        provider: AstrBot's provider id.
        model: The requested model.
        session: `unified_msg_origin`, or `""` where the request has no session.
        transport: How the answer was asked for.
        started_at: Unix time in seconds.
        duration_ms: From the start to the end of the answer.
        ttft_ms: To the first piece of a streamed answer, else `None`.
        finish_reason: As the provider sent it.
        usage: The provider's usage object of this request alone, as plain data.
        tool_calls_count: Named calls in the answer.
        outcome: What became of it.
        reason: Why, for everything but plain `accepted`.
        recovery_action: What followed, e.g. `retry_streaming`.
        error: The exception's type name, for `failed`.
        protocol: Which protocol it went by; a key of `host.protocols`.
        turn: Which agent run it belongs to, the same for all of its requests; `""`
            for a request outside of every run.
        mended: What was read or put right in the answer without anybody noticing,
            by the names of `core.calls.readings`.
        invalid: Kinds of the problems of its calls, as `core.model.ProblemKind`.
        metadata: Further facts in memory, raw arguments among them
            (`invalid_tool_calls`): for observers, never for logs.
    """

    attempt: int
    provider: str
    model: str
    session: str
    transport: Literal["stream", "complete"]
    started_at: float
    duration_ms: float
    ttft_ms: float | None
    finish_reason: str | None
    usage: Mapping[str, object] | None
    tool_calls_count: int
    outcome: Outcome
    reason: str | None = None
    recovery_action: str | None = None
    error: str | None = None
    protocol: str = "chat_completions"
    turn: str = ""
    mended: tuple[str, ...] = ()
    invalid: tuple[str, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class Incident:
    """One thing the guard found or did, as an operator wants to read it.

    Attributes:
        kind: What happened.
        at: Unix time in seconds.
        session: `unified_msg_origin`, or `""`.
        provider: AstrBot's provider id.
        model: The requested model.
        tools: Names of the tools concerned.
        problems: Rules with indexes, or problem kinds with paths; no content.
        outcome: What was done about it, one word or two.
        turn: As in `AttemptRecord`.
        arguments: Raw argument text per tool, in memory only: the journal
            stores their shape, or a redacted form when told to capture them.
    """

    kind: IncidentKind
    at: float
    session: str
    provider: str
    model: str
    tools: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    outcome: str = ""
    turn: str = ""
    arguments: tuple[str | None, ...] = ()


Event = AttemptRecord | Incident
Observer = Callable[[Event], object]


class EventBus:
    """Delivers events to observers, synchronously and in the order they came.

    Args:
        logger: Where a failing observer is reported, once per observer.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._observers: list[Observer] = []
        self._reported: set[int] = set()

    def subscribe(self, observer: Observer) -> Callable[[], None]:
        """Add `observer`; call what is returned to take it off again."""
        self._observers.append(observer)

        def unsubscribe() -> None:
            if observer in self._observers:
                self._observers.remove(observer)
            self._reported.discard(id(observer))

        return unsubscribe

    def emit(self, event: Event) -> None:
        """Hand `event` to every observer; never raises."""
        for observer in tuple(self._observers):
            try:
                observer(event)
            except Exception as error:
                if id(observer) not in self._reported:
                    self._reported.add(id(observer))
                    self._logger.error(
                        "Tool Call Guard: an observer failed with %s; "
                        "further failures of it are not reported",
                        type(error).__name__,
                    )
