"""What a protocol has to offer, so that every stage can serve it without knowing it.

A dialect stands between the SDK's objects and plain data. Reading an answer is done in
`core.calls`, by a reader of the protocol's own; here events become plain data for it,
and what it passes, holds or learnt becomes what AstrBot's adapter reads.

The rule: what needs no change stays the same object.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ...core.calls.reading import NOT_MUTED, Answer, AnswerReader, Muted
from ...core.model import ToolCall
from ..call import Call


@dataclass(frozen=True, slots=True)
class ReadingOf:
    """How one answer is to be read.

    Attributes:
        call: Who asked.
        declared: Names of the tools the request declared.
        muted: What of it is not passed on at once.
        collects: Whether it is wanted as one complete object at the end.
    """

    call: Call
    declared: Iterable[str]
    muted: Muted = NOT_MUTED
    collects: bool = False


class Dialect(Protocol):
    """One protocol, as the stages see it.

    Attributes:
        name: As in `AttemptRecord.protocol`.
    """

    name: str

    # --- requests ----------------------------------------------------------------------

    def messages(self, request: Mapping[str, Any]) -> object:
        """Return the effective messages of a request, in the shape of Chat Completions.

        Of another protocol it is enough what pairs: roles, ids and names.
        """
        ...

    def replaced(self, request: Mapping[str, Any], messages: object) -> dict[str, Any] | None:
        """Return a copy of a request with other messages; `None` where that cannot be."""
        ...

    # --- answers -----------------------------------------------------------------------

    def events(self, source: Any, call: Call) -> AsyncIterator[Any]:
        """Return the events of the SDK's stream, as early as they can be had."""
        ...

    def plain(self, event: Any) -> Any:
        """Return an event as plain data."""
        ...

    def event(self, plain: Any) -> Any:
        """Return what AstrBot is to see for an event that was plain data."""
        ...

    def reader(self, reading: ReadingOf) -> AnswerReader:
        """Return what reads one streamed answer."""
        ...

    def ending(self, reader: AnswerReader, calls: Sequence[ToolCall]) -> Iterable[Any]:
        """Return the end of a stream: its calls whole, then its finish."""
        ...

    def text(self, reader: AnswerReader, text: str) -> Any:
        """Return an event that holds text only."""
        ...

    def read(self, answer: Any, reading: ReadingOf) -> Answer | None:
        """Read a complete answer; `None` where it is none that this protocol knows."""
        ...

    def mend(self, answer: Any, calls: Sequence[ToolCall]) -> None:
        """Put whole, well-formed calls into a complete answer, in place."""
        ...
