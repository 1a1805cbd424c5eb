"""The guard's events as lines of AstrBot's log.

The rule: one line an event, and a broken conversation cannot flood the log. A
session gets a few lines of one kind a minute; what is left out is counted and
told with the next line. Lines hold names, rules and indexes, no content.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..texts.texts import clean
from .events import Event, Incident, IncidentKind

WINDOW_SECONDS = 60.0
LINES_PER_WINDOW = 5
MAX_SOURCES = 1000
"""Pairs of session and kind whose rate is kept; the longest silent go first."""

_MAX_NAMED = 5

_LINES: Mapping[IncidentKind, tuple[int, str]] = {
    "request_blocked": (logging.WARNING, "blocked a request"),
    "request_observed": (logging.WARNING, "let a request pass that does not pair"),
    "request_repaired": (logging.INFO, "repaired a request"),
    "response_retried": (logging.INFO, "asked again after an invalid answer"),
    "response_degraded": (logging.WARNING, "kept an invalid tool call from running"),
    "calls_dropped": (logging.WARNING, "dropped tool calls without a name"),
    "ids_repaired": (logging.INFO, "gave tool calls an id"),
    "guard_fault": (logging.ERROR, "failed and let AstrBot go on"),
}


@dataclass(slots=True)
class _Rate:
    started: float
    lines: int = 0
    suppressed: int = 0


class EventLog:
    """Writes events to a logger; subscribe `observe` to an `EventBus`.

    Args:
        logger: AstrBot's logger.
        clock: Monotonic seconds.
    """

    def __init__(
        self, logger: logging.Logger, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._logger = logger
        self._clock = clock
        self._rates: OrderedDict[tuple[str, str], _Rate] = OrderedDict()

    def observe(self, event: Event) -> None:
        """Write one event, unless its session has had its share."""
        if not isinstance(event, Incident):
            if not self._logger.isEnabledFor(logging.DEBUG):
                return  # cleaning names for nobody is most of what a request would cost here
            self._logger.debug(
                "Tool Call Guard: attempt %d of %s to %s (%s): %s%s",
                event.attempt,
                clean(event.session, 120) or "no session",
                clean(event.provider),
                event.transport,
                event.outcome,
                f", {clean(event.reason)}" if event.reason else "",
            )
            return
        suppressed = self._admit(event.session, event.kind)
        if suppressed is not None:
            level, what = _LINES[event.kind]
            self._logger.log(level, "Tool Call Guard: %s", _line(what, event, suppressed))

    def _admit(self, session: str, kind: str) -> int | None:
        """Return how many lines were left out before this one, or `None` to leave it out."""
        now = self._clock()
        rate = self._rates.get((session, kind))
        suppressed = 0
        if rate is None or now - rate.started >= WINDOW_SECONDS:
            suppressed = rate.suppressed if rate else 0
            rate = self._rates[session, kind] = _Rate(now)
        self._rates.move_to_end((session, kind))
        while len(self._rates) > MAX_SOURCES:
            self._rates.popitem(last=False)
        if rate.lines >= LINES_PER_WINDOW:
            rate.suppressed += 1
            return None
        rate.lines += 1
        return suppressed


def _line(what: str, incident: Incident, suppressed: int) -> str:
    parts = [f"{what}; session {clean(incident.session, 120) or 'none'}"]
    parts.append(f"provider {clean(incident.provider)}")
    if incident.tools:
        parts.append("tools " + _named(incident.tools))
    if incident.problems:
        parts.append(_named(incident.problems))
    if suppressed:
        parts.append(f"{suppressed} such lines were left out before")
    return "; ".join(parts)


def _named(names: tuple[str, ...]) -> str:
    shown = ", ".join(clean(name, 120) for name in names[:_MAX_NAMED])
    rest = len(names) - _MAX_NAMED
    return f"{shown} and {rest} more" if rest > 0 else shown
