"""What a terminal is shown while something takes long."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TextIO


class ProgressBar:
    """A bar for work that takes long, where somebody is looking.

    Args:
        stream: Where it is drawn, if that is a terminal.
        clock: Seconds that only go forward.
    """

    WIDTH: Final = 30
    DELAY: Final = 1.0
    INTERVAL: Final = 0.1

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._next = clock() + self.DELAY if stream.isatty() else float("inf")
        self._drawn = False

    def advance(self, done: int, total: int) -> None:
        """Show that `done` of `total` are done."""
        now = self._clock()
        if now < self._next or not total:
            return
        self._next = now + self.INTERVAL
        self._drawn = True
        filled = "#" * (self.WIDTH * done // total)
        self._stream.write(f"\r[{filled:<{self.WIDTH}}] {done:,} of {total:,}")
        self._stream.flush()

    def end(self) -> None:
        """Take the bar away again."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
