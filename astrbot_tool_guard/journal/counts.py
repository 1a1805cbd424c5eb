"""What happened since the start, counted in memory.

The rule: it needs no disk, so `status` counts and the reason of a block can be
told even where there is no journal.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import assert_never

from .events import AttemptRecord, Event, Incident

MAX_SESSIONS = 500
"""Sessions whose last block is remembered; the longest unblocked go first."""


class Counts:
    """Counts events; subscribe `observe` to an `EventBus`."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._blocked: OrderedDict[str, Incident] = OrderedDict()

    def observe(self, event: Event) -> None:
        """Count one event."""
        match event:
            case AttemptRecord():
                self._counts["requests"] += 1
                self._counts[event.outcome] += 1
            case Incident():
                self._counts[event.kind] += 1
                if event.kind == "request_blocked":
                    self._remember(event)
            case _:
                assert_never(event)

    def counts(self) -> Mapping[str, int]:
        """Return how often each outcome and each kind of incident came up.

        `requests` counts the attempts, the blocked ones among them.
        """
        return dict(self._counts)

    def last_blocked(self, session: str) -> Incident | None:
        """Return the last block of `session` since the start."""
        return self._blocked.get(session)

    def _remember(self, incident: Incident) -> None:
        self._blocked[incident.session] = incident
        self._blocked.move_to_end(incident.session)
        while len(self._blocked) > MAX_SESSIONS:
            self._blocked.popitem(last=False)
