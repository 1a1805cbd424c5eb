"""The response stage: an answer is read whole, checked, and mended before AstrBot sees its calls.

The rule: AstrBot gets what it asked for, one complete object or a stream, whatever
way the answer was sent for. Which protocol it is, only the dialect knows.
"""

from __future__ import annotations

from typing import Any

from ...core.schemas.schema import declared_tools
from ..attempts import Attempt
from ..call import Call
from ..protocols.dialect import Dialect, ReadingOf
from .reading import AnswerDesk, Ask
from .streamed import GuardedStream, StreamedAnswer

NO_IDS = frozenset[str]()


class ResponseStage:
    """Sends requests and hands their answers over.

    Args:
        desk: Where answers are checked and settled.
    """

    def __init__(self, desk: AnswerDesk) -> None:
        self._desk = desk

    async def complete(
        self, dialect: Dialect, ask: Ask, call: Call, used: frozenset[str] = NO_IDS
    ) -> Any:
        """Send for a complete answer and return it, mended.

        Args:
            dialect: The protocol.
            ask: Sends the request.
            call: Who asks.
            used: Ids that no call of the answer may have.
        """
        attempt = self._desk.reports.begin(call, "complete")
        try:
            answer = await ask()
        except BaseException as error:
            attempt.end("failed", error=error)
            raise
        with self._desk.faults.contained("complete answer"):
            await self._mend(dialect, answer, attempt, call, used)
        # Told already, unless the guard itself failed or another plugin answered.
        attempt.end("accepted")
        return answer

    async def stream(
        self,
        dialect: Dialect,
        ask: Ask,
        call: Call,
        used: frozenset[str] = NO_IDS,
        *,
        live: bool = True,
    ) -> tuple[Any, StreamedAnswer | None]:
        """Send for a streamed answer.

        Returns:
            The SDK's stream, and what reads it; without that, another plugin has
            answered in a form of its own.
        """
        attempt = self._desk.reports.begin(call, "stream")
        try:
            source = await ask()
        except BaseException as error:
            attempt.end("failed", error=error)
            raise
        if not hasattr(source, "__aiter__"):
            attempt.end("accepted")
            return source, None
        answer = StreamedAnswer(
            self._desk, dialect, source, ask, attempt, call, live=live, used=used
        )
        return source, answer

    async def guarded_stream(
        self, dialect: Dialect, ask: Ask, call: Call, used: frozenset[str] = NO_IDS
    ) -> Any:
        """Send for a streamed answer and return the stream that AstrBot reads."""
        source, answer = await self.stream(dialect, ask, call, used)
        if answer is None:
            return source
        return GuardedStream(source, answer.events(), answer.left)

    async def _mend(
        self, dialect: Dialect, completed: Any, attempt: Attempt, call: Call, used: frozenset[str]
    ) -> None:
        declared = declared_tools(call.tools)
        answer = dialect.read(completed, ReadingOf(call, declared))
        if answer is None:
            return
        reading = await self._desk.check(answer, declared, call, used)
        verdict = reading.judged(may_retry=False)
        if answer.raws or answer.dropped:
            dialect.mend(completed, reading.given)
        self._desk.settle(attempt, call, reading, verdict)
