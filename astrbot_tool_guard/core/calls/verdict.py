"""What to do with an answer: run it, ask once more, or answer with errors.

The verdict is data. Asking again and answering are the host's; which of them is
right, and whether there is time, is decided here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ..model import ToolCall

RETRY_SECONDS: Final = 10.0
"""Seconds with which a retry is always worth a try."""

RETRY_SHARE: Final = 0.5
"""Share of the budget with which it is, too, however short the budget."""

Action = Literal["accept", "retry", "degrade"]
Reason = Literal["stream_empty_tool_arguments", "stream_invalid_tool_call"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows from the checked calls of an answer.

    Attributes:
        action: `accept` runs every call, `retry` discards the answer and asks
            once more, `degrade` answers the invalid calls with error results.
        reason: Why, for everything but plain `accept`.
    """

    action: Action
    reason: Reason | None


ACCEPT: Final = Verdict("accept", None)


def judge(calls: tuple[ToolCall, ...], *, may_retry: bool, only_nameless: bool = False) -> Verdict:
    """Return the verdict on the calls of one answer.

    Args:
        calls: The checked calls. Under `off` every call is valid; one that
            came empty although its schema requires names is still asked for
            again, as AstrBot's older guards did, but never refused.
        may_retry: Whether the answer was streamed, was not a retry itself, and
            leaves the time.
        only_nameless: Whether the answer is nothing but calls without a name. The
            host tells the model what is wrong with those, so such an answer is asked
            for again, and is the host's if that does not help.
    """
    if only_nameless:
        return Verdict("retry" if may_retry else "degrade", "stream_invalid_tool_call")
    invalid = [call for call in calls if not call.valid]
    empty = [call for call in calls if call.blank and call.missing]
    if not invalid and not (empty and may_retry):
        return ACCEPT
    only_empty = all(call.blank and call.missing for call in invalid)
    reason: Reason = "stream_empty_tool_arguments" if only_empty else "stream_invalid_tool_call"
    return Verdict("retry" if may_retry else "degrade", reason)


def retry_budget(budget: float, elapsed: float) -> float | None:
    """Return the seconds a retry may take, or `None` where it is not worth a try.

    A retry lives inside the time that the attempt had from its start: it is
    skipped when less than `RETRY_SECONDS` *and* less than `RETRY_SHARE` of the
    budget is left.

    Args:
        budget: The provider's timeout in seconds.
        elapsed: Seconds since the attempt began.
    """
    left = budget - elapsed
    if left <= 0 or (left < RETRY_SECONDS and left < budget * RETRY_SHARE):
        return None
    return left
