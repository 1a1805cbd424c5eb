"""Timing rivals side by side.

The rule: they run in turns within each round, in an order that rotates, and a ratio
is taken within a round. What disturbs the machine for longer than a round disturbs
all of them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from statistics import quantiles

BATCH_SECONDS = 0.02
"""CPU time that one rival gets in one round."""


class Times:
    """CPU seconds per call, a figure a round, for each rival.

    Args:
        rounds: The figures by rival, of equal length.
    """

    def __init__(self, rounds: Mapping[str, list[float]]) -> None:
        self.rounds = rounds

    def ratio(self, ours: str, theirs: str) -> tuple[float, float, float]:
        """Return the lower quartile, the median and the upper quartile of ours / theirs."""
        pairs = zip(self.rounds[ours], self.rounds[theirs], strict=True)
        low, middle, high = quantiles([one / other for one, other in pairs], n=4)
        return low, middle, high

    def undisturbed(self, ours: str, theirs: str) -> tuple[float, float, float]:
        """Return ours / theirs of the fastest tenth of the rounds, between those of two halves.

        For what takes so long that a round outlasts the machine's moods: there medians
        of two equal sides come out a few hundredths apart, and these do not.
        """
        halves = [
            _tenth(self.rounds[ours][at::2]) / _tenth(self.rounds[theirs][at::2]) for at in (0, 1)
        ]
        return min(halves), _tenth(self.rounds[ours]) / _tenth(self.rounds[theirs]), max(halves)


def side_by_side(rivals: Mapping[str, Callable[[], object]], rounds: int) -> Times:
    """Time functions that need no argument."""
    names = list(rivals)
    counts = {name: _calls_per_batch(rivals[name]) for name in names}
    found: dict[str, list[float]] = {name: [] for name in names}
    settle()
    for round_number in range(rounds):
        shift = round_number % len(names)
        for name in names[shift:] + names[:shift]:
            found[name].append(_seconds(rivals[name], counts[name]) / counts[name])
    return Times(found)


def settle() -> None:
    """Put what lives for long out of the collector's way, so that it is nobody's cost."""
    gc.collect()
    gc.freeze()


def _tenth(seconds: list[float]) -> float:
    return quantiles(seconds, n=10)[0]


def _calls_per_batch(function: Callable[[], object]) -> int:
    count = 1
    while (took := _seconds(function, count)) < BATCH_SECONDS / 4:
        count *= 4
    return max(1, round(count * BATCH_SECONDS / took))


def _seconds(function: Callable[[], object], count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        function()
    return time.process_time() - start
