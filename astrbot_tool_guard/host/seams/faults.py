"""The guard's own faults: told in one line, and AstrBot goes on.

The rule: nothing of ours that goes wrong reaches AstrBot, and nothing of
AstrBot's is caught here. So only our own code stands in a `contained` block, and
what AstrBot does is called outside of it. A proven violation is no fault and
passes through.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Literal

from ...core.errors import ToolMessageProtocolError
from ...journal.events import EventBus, Incident
from .net import tell

QUIET_S = 60.0
"""A fault at one place is told once in this time, whatever part of the guard met it."""


class Faults:
    """Where the guard's own faults end.

    Args:
        events: Gets a `guard_fault` incident for each; the event log makes it a line.
    """

    def __init__(self, events: EventBus) -> None:
        self._events = events
        self._told: dict[str, float] = {}

    def contained(self, what: str) -> _Contained:
        """Return a context manager that ends whatever `Exception` of ours comes up.

        Args:
            what: Which part of the guard this is, for the log line.
        """
        return _Contained(self, what)

    def teller(self, what: str) -> Callable[[Exception], None]:
        """Return `report` for one part of the guard."""
        return partial(self.report, what)

    def report(self, what: str, error: Exception) -> None:
        """Tell a fault: where it came up and its type, not its text, which may quote content."""
        last = traceback.extract_tb(error.__traceback__)[-1:]
        at = f"{last[0].name}:{last[0].lineno}" if last else "?"
        fault = f"{type(error).__name__} in {at}"
        now = time.monotonic()
        if now - self._told.get(fault, -QUIET_S) < QUIET_S:
            return
        self._told[fault] = now
        self._events.emit(
            Incident(
                kind="guard_fault",
                at=time.time(),
                session="",
                provider="",
                model="",
                problems=(f"{what}: {fault}",),
                outcome="unguarded",
            )
        )


class _Contained:
    __slots__ = ("_faults", "_what", "failed")

    def __init__(self, faults: Faults, what: str) -> None:
        self._faults = faults
        self._what = what
        self.failed = False

    def __enter__(self) -> _Contained:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Literal[False] | bool:
        if not isinstance(error, Exception) or isinstance(error, ToolMessageProtocolError):
            return False
        self.failed = True
        tell(self._faults.teller(self._what), error)
        return True
