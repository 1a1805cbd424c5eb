"""One streamed answer from its first event to its end, a retry included.

The rule: an answer with an invalid call is asked for once more while there is time,
since nothing of it has run by then; a retry that fails leaves the first answer
standing. What the user has read is not shown again. What was opened is closed,
however the stream ends. No fault of ours ends a stream that AstrBot could have read.

What may happen in which state, and what a fault of ours leads to there:

==========  ========================  ==================================  =================
state       what happens              what AstrBot sees                   a fault of ours
==========  ========================  ==================================  =================
READING     an event came             what of it passes; the rest is      what is held comes,
                                      held                                -> PASSING
READING     the source ended          -> JUDGING
PASSING     an event came             the event, as it came               the event
PASSING     the source ended          -> ENDED, accepted
JUDGING     the answer stands         its whole calls and its finish,     what is held,
                                      -> ENDED, settled                   -> ENDED, accepted
JUDGING     it is invalid, and there  -> RETRYING
            is time
RETRYING    an event came             nothing yet                         the retry has failed
RETRYING    the second answer ended   what of it is new, and its calls,   the retry has failed
                                      -> ENDED, the first discarded
RETRYING    the retry failed          the first answer's calls and        what is held,
                                      finish, -> ENDED, settled           -> ENDED
any         the source raises         that very error, -> ENDED, failed
any         the reader goes away      nothing, -> ENDED, failed
==========  ========================  ==================================  =================

READING and PASSING are `events`, JUDGING is `_conclude`, RETRYING is `_retry`. A fault
is contained where it comes up, by `faults.contained`; what must happen all the same
(closing, and telling the attempt's end) stands outside of every such block.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from ...core.calls.reading import AnswerReader, Muted, is_limit
from ...core.calls.verdict import Verdict, retry_budget
from ...core.schemas.schema import declared_tools
from ..attempts import Attempt, Clock, degraded, empty_arguments
from ..call import Call
from ..protocols.dialect import Dialect, ReadingOf
from ..seams.net import not_ours
from .reading import AnswerDesk, Ask, Reading

DEFAULT_TIMEOUT = 120.0
"""Seconds an answer may take where the provider does not say, as in AstrBot."""

RETRY = "retry_streaming"


class RetryFailedError(Exception):
    """A retry came to nothing: it was empty, or the guard itself failed at it."""


class StreamedAnswer:
    """Reads one streamed answer.

    Args:
        desk: Checks, settles and tells.
        dialect: The protocol it comes in.
        source: The SDK's stream.
        ask: Sends the same request once more.
        attempt: The request that opened `source`.
        call: Who asked.
        live: Whether somebody sees the events while they come; otherwise the answer
            is only collected.
        used: Ids that no call of the answer may have.
    """

    def __init__(
        self,
        desk: AnswerDesk,
        dialect: Dialect,
        source: Any,
        ask: Ask,
        attempt: Attempt,
        call: Call,
        *,
        live: bool,
        used: frozenset[str] = frozenset(),
    ) -> None:
        self._desk = desk
        self._dialect = dialect
        self._source = source
        self._ask = ask
        self._attempt = attempt
        self._call = call
        self._live = live
        self._used = used
        self._declared = declared_tools(call.tools)
        self.standing: tuple[AnswerReader, Reading] | None = None

    async def events(self) -> AsyncGenerator[Any, None]:
        """Yield what AstrBot is to see."""
        reader: AnswerReader | None = None  # none any more in the state PASSING
        source = self._source
        with self._desk.faults.contained("stream"):
            source = self._dialect.events(source, self._call)
            reader = self._reader()
        try:
            async for event in source:
                passed: Any = None
                if reader is not None:
                    with self._desk.faults.contained("stream") as block:
                        self._attempt.piece()
                        passed = self._take(reader, event)
                    if block.failed:
                        for held in self._given_back(reader):
                            yield held
                        reader = None
                if reader is None:
                    passed = self._as_it_came(event)
                if passed is not None:
                    yield passed
            await close(self._source)
            if reader is not None:
                try:
                    async with aclosing(self._conclude(reader)) as rest:
                        async for event in rest:
                            yield event
                except Exception as error:
                    # Whatever comes of asking again is settled in there: this is ours.
                    self._desk.faults.report("end of stream", error)
                    for event in self._given_back(reader) if self.standing is None else ():
                        yield event
            with self._desk.faults.contained("attempt"):
                self._attempt.end("accepted")
        except BaseException as failure:
            not_ours(failure)
            with self._desk.faults.contained("attempt"):
                self._end("failed", reader, error=failure)
            raise
        finally:
            await close(self._source)

    def left(self) -> None:
        """Tell that the stream was closed; without effect where its end was told."""
        with self._desk.faults.contained("attempt"):
            self._end("failed", None, error=GeneratorExit())

    async def _conclude(self, reader: AnswerReader) -> AsyncGenerator[Any, None]:
        """Yield the end of the stream, after a retry where one is due."""
        ending: list[Any] | None = None
        with self._desk.faults.contained("end of stream"):
            reading = await self._check(reader)
            left = self._time_for_retry()
            verdict = reading.judged(may_retry=left is not None)
            if verdict.action == "retry" and not self._may_ask_again(reader):
                verdict, left = reading.judged(may_retry=False), None
            if verdict.action == "retry" and left is not None:
                ending = []
            else:
                ending = self._ending(reader, reading)
                left = None
                self._settle(self._attempt, reader, reading, verdict)
        if ending is None:  # the guard itself failed: AstrBot gets what came
            for event in self._given_back(reader):
                yield event
            with self._desk.faults.contained("attempt"):
                self._end("accepted", reader)
            return
        if left is not None:
            async with aclosing(self._retry(reader, reading, verdict, left)) as rest:
                async for event in rest:
                    yield event
        for event in ending:
            yield event

    async def _retry(
        self, reader: AnswerReader, reading: Reading, verdict: Verdict, seconds: float
    ) -> AsyncGenerator[Any, None]:
        """Ask once more and yield what of the second answer is new, or end the first."""
        reports = self._desk.reports
        reports.retried(self._call, reading.calls, verdict)
        second = reports.begin(self._call, "stream", 2)
        again = self._reader(seen=reader)
        failure: Exception | None = None
        # What a retry that fails in the middle has said is no part of the answer.
        came: list[Any] = []
        try:
            async with aclosing(self._asked_again(seconds, reports.clock)) as found:
                async for event in found:
                    second.piece()
                    with self._desk.faults.contained("retry") as block:
                        if (passed := self._take(again, event)) is not None:
                            came.append(passed)
                    if block.failed:
                        raise RetryFailedError
            answer: Reading | None = None
            with self._desk.faults.contained("retry"):
                answer = await self._check(again)
            if answer is None or not (answer.calls or "".join(again.text).strip()):
                raise RetryFailedError
            came.extend(self._ending_after(reader, again, answer))
        except Exception as error:
            failure = error
        except BaseException as error:
            self._end("discarded", reader, reading, reason=verdict.reason, recovery_action=RETRY)
            second.end("failed", usage=again.usage, error=error)
            raise
        else:
            metadata = degraded(reading.calls)
            metadata |= empty_arguments(reading.calls, verdict.reason, None)
            self._end("discarded", reader, reading, reason=verdict.reason,
                      recovery_action=RETRY, metadata=metadata)  # fmt: skip
            self._settle(second, again, answer, answer.judged(may_retry=False))
        if failure is not None:
            standing = reading.judged(may_retry=False)
            self._settle(self._attempt, reader, reading, standing, retried=verdict, error=failure)
            empty = verdict.reason == "stream_empty_tool_arguments"
            reason = "stream_empty_args_replay" if empty else verdict.reason
            second.end(
                "failed",
                finish_reason=again.finish_reason,
                usage=again.usage,
                reason=reason,
                error=failure,
            )
            came = self._ending(reader, reading)
        for event in came:
            yield event

    async def _asked_again(self, seconds: float, clock: Clock) -> AsyncGenerator[Any, None]:
        """Yield the events of a stream that is asked for now and must end within `seconds`."""
        deadline = clock.steady() + seconds
        source = await asyncio.wait_for(self._ask(), seconds)
        try:
            items = aiter(self._dialect.events(source, self._call))
            while True:
                try:
                    item = await asyncio.wait_for(anext(items), max(deadline - clock.steady(), 0))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            await close(source)

    # --- what stands in the table's third column ------------------------------------------

    def _take(self, reader: AnswerReader, event: Any) -> Any:
        plain = self._dialect.plain(event)
        passed = reader.take(plain)
        if passed is None:
            return None
        return self._dialect.event(event if passed is plain else passed)

    def _ending(self, reader: AnswerReader, reading: Reading) -> list[Any]:
        return list(self._dialect.ending(reader, reading.given))

    def _ending_after(
        self, first: AnswerReader, again: AnswerReader, reading: Reading
    ) -> list[Any]:
        """Return the end of a second answer, with what of its text the user has not read.

        A continuation of what was shown is shown. Another wording is shown only
        where it is the answer itself, and not what goes with a call.
        """
        text, shown = "".join(again.text), self._shown(first)
        if not shown or shown.startswith(text):
            text = ""  # none of it was held back, or all of it was read
        elif text.startswith(shown):
            text = text[len(shown) :]
        else:
            text = "" if reading.calls else f"\n{text}"
        unseen = [self._dialect.text(again, text)] if text else []
        return [*unseen, *self._dialect.ending(again, reading.given)]

    def _given_back(self, reader: AnswerReader) -> list[Any]:
        with self._desk.faults.contained("stream"):
            return [self._dialect.event(held) for held in reader.given_back()]
        return []

    def _as_it_came(self, event: Any) -> Any:
        with self._desk.faults.contained("stream"):
            return self._dialect.event(event)
        return event

    # --- reading, judging, telling ----------------------------------------------------------

    def _shown(self, reader: AnswerReader) -> str:
        shown = "".join(reader.text) if self._live else ""
        return shown if shown.strip() else ""

    def _reader(self, *, seen: AnswerReader | None = None) -> AnswerReader:
        muted = Muted(
            text=seen is not None and bool(self._shown(seen)),
            reasoning=seen is not None and self._live and seen.reasoned,
        )
        return self._dialect.reader(
            ReadingOf(self._call, self._declared, muted, collects=not self._live)
        )

    async def _check(self, reader: AnswerReader) -> Reading:
        answer = reader.answer()
        return await self._desk.check(answer, self._declared, self._call, self._used)

    def _may_ask_again(self, reader: AnswerReader) -> bool:
        run = self._call.run
        return run is None or run.may_ask_again(cut_by_limit=is_limit(reader.finish_reason))

    def _time_for_retry(self) -> float | None:
        if not self._call.modes.retry_invalid_stream or not self._call.tools:
            return None
        return retry_budget(self._call.timeout or DEFAULT_TIMEOUT, self._attempt.elapsed)

    def _settle(
        self,
        attempt: Attempt,
        reader: AnswerReader,
        reading: Reading,
        verdict: Verdict,
        **more: Any,
    ) -> None:
        self.standing = (reader, reading)
        self._desk.settle(attempt, self._call, reading, verdict, **more)

    def _end(
        self,
        outcome: Any,
        reader: AnswerReader | None,
        reading: Reading | None = None,
        **more: Any,
    ) -> None:
        self._attempt.end(
            outcome,
            finish_reason=None if reader is None else reader.finish_reason,
            usage=None if reader is None else reader.usage,
            calls=() if reading is None else reading.calls,
            mended=() if reading is None else reading.mended,
            **more,
        )


class GuardedStream:
    """What an SDK's function returns for a stream: the SDK's own, with whole calls in it.

    Args:
        source: The SDK's stream, if there is one.
        events: What AstrBot is to see of it.
        closed: Called once it is closed; one that nobody reads ends only so.
    """

    def __init__(
        self,
        source: Any,
        events: AsyncGenerator[Any, None],
        closed: Callable[[], None] | None = None,
    ) -> None:
        self._source = source
        self._events = events
        self._closed = closed

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._events

    async def __anext__(self) -> Any:
        return await self._events.__anext__()

    async def __aenter__(self) -> GuardedStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the stream and the connection under it."""
        await self._events.aclose()
        await close(self._source)
        if self._closed is not None:
            self._closed()

    aclose = close

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


async def close(source: Any) -> None:
    """Close a stream; closing it again does nothing.

    Another plugin's stream may close with a plain function, and has then closed.
    """
    for name in ("close", "aclose"):
        if callable(ending := getattr(source, name, None)):
            closed = ending()
            if inspect.isawaitable(closed):
                await closed
            return
