"""One streamed answer from its first chunk to its end, a retry included.

The rule: an answer with an invalid call is asked for once more while there is time,
since nothing of it has run by then; a retry that fails leaves the first answer
standing. What the user has read is not shown again. What was opened is closed,
however the stream ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from typing import Any

from openai.types.chat import ChatCompletion, ChatCompletionChunk

from ...core.calls.answers import CUT_OFF
from ...core.calls.verdict import Verdict, judge, retry_budget
from ...core.schemas.schema import declared_tools
from ..attempts import Attempt, Clock, degraded, empty_arguments
from ..call import Call
from ..protocols.chat_completions.answers import (
    build_completion,
    call_chunks,
    mend_completion,
    plain,
)
from ..protocols.chat_completions.stream import StreamReader
from ..protocols.chat_completions.uncast import as_chunk, events
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
        source: The SDK's stream.
        ask: Sends the same request once more.
        attempt: The request that opened `source`.
        call: Who asked.
        live: Whether somebody sees the chunks while they come; otherwise the answer
            is only collected.
    """

    def __init__(
        self,
        desk: AnswerDesk,
        source: Any,
        ask: Ask,
        attempt: Attempt,
        call: Call,
        *,
        live: bool,
    ) -> None:
        self._desk = desk
        self._source = source
        self._ask = ask
        self._attempt = attempt
        self._call = call
        self._live = live
        self._declared = declared_tools(call.tools)
        self._client = getattr(call.provider, "client", None)
        key = getattr(call.provider, "reasoning_key", None)
        self._reasoning_key = key if isinstance(key, str) and key else "reasoning_content"
        self._standing: tuple[StreamReader, Reading] | None = None

    async def collect(self) -> ChatCompletion | None:
        """Return the answer as one complete object; `None` where the guard itself failed.

        Its fields are those that the provider would have sent in one piece, the
        finish reason included.
        """
        async for _ in self.chunks():
            pass
        if self._standing is None:
            return None
        reader, reading = self._standing
        finish = reader.finish_reason or ("tool_calls" if reading.calls else "stop")
        completion = build_completion(
            reader.last,
            reader.message(calls=bool(reading.calls)),
            finish_reason=finish,
            usage=reader.usage,
        )
        if reading.calls and completion.choices:
            mend_completion(completion, reading.calls)
        return completion

    async def chunks(self) -> AsyncGenerator[ChatCompletionChunk, None]:
        """Yield what AstrBot is to see."""
        reader: StreamReader | None = None  # none any more, once the guard itself has failed
        source = self._source
        with self._desk.faults.contained("stream"):
            source = events(source, self._client)
            reader = self._reader()
        try:
            async for event in source:
                passed: ChatCompletionChunk | None = None
                if reader is not None:
                    with self._desk.faults.contained("stream") as block:
                        self._attempt.piece()
                        passed = reader.take(event)
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
                        async for chunk in rest:
                            yield chunk
                except Exception as error:
                    # Whatever comes of asking again is settled in there: this is ours.
                    self._desk.faults.report("end of stream", error)
                    for chunk in self._given_back(reader) if self._standing is None else ():
                        yield chunk
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

    async def _conclude(self, reader: StreamReader) -> AsyncGenerator[ChatCompletionChunk, None]:
        """Yield the end of the stream, after a retry where one is due."""
        ending: list[ChatCompletionChunk] | None = None
        with self._desk.faults.contained("end of stream"):
            reading = await self._read(reader)
            left = self._time_for_retry()
            verdict = judge(reading.calls, may_retry=left is not None)
            if verdict.action == "retry" and left is not None:
                ending = []
            else:
                ending = list(_ending(reader, reading))
                left = None
                self._settle(self._attempt, reader, reading, verdict)
        if ending is None:  # the guard itself failed: AstrBot gets what came
            for chunk in self._given_back(reader):
                yield chunk
            with self._desk.faults.contained("attempt"):
                self._end("accepted", reader)
            return
        if left is not None:
            async with aclosing(self._retry(reader, reading, verdict, left)) as rest:
                async for chunk in rest:
                    yield chunk
        for chunk in ending:
            yield chunk

    def _given_back(self, reader: StreamReader) -> list[ChatCompletionChunk]:
        with self._desk.faults.contained("stream"):
            return list(reader.given_back())
        return []

    def _as_it_came(self, event: Any) -> Any:
        with self._desk.faults.contained("stream"):
            return as_chunk(event)
        return ChatCompletionChunk.construct(**event) if isinstance(event, dict) else event

    async def _retry(
        self, reader: StreamReader, reading: Reading, verdict: Verdict, seconds: float
    ) -> AsyncGenerator[ChatCompletionChunk, None]:
        """Ask once more and yield what of the second answer is new, or end the first."""
        reports = self._desk.reports
        reports.retried(self._call, reading.calls, verdict)
        second = reports.begin(self._call, "stream", 2)
        again = self._reader(seen=reader)
        failure: Exception | None = None
        # What a retry that fails in the middle has said is no part of the answer.
        came: list[ChatCompletionChunk] = []
        ending: list[ChatCompletionChunk] = []
        try:
            within = _within(self._ask, self._client, seconds, reports.clock)
            async with aclosing(within) as found:
                async for event in found:
                    second.piece()
                    with self._desk.faults.contained("retry") as block:
                        passed = again.take(event)
                        if passed is not None:
                            came.append(passed)
                    if block.failed:
                        raise RetryFailedError
            answer: Reading | None = None
            with self._desk.faults.contained("retry"):
                answer = await self._read(again)
                ending = list(_ending(again, answer))
            if answer is None or not (answer.calls or "".join(again.text).strip()):
                raise RetryFailedError
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
            self._settle(second, again, answer, judge(answer.calls, may_retry=False))
            if unseen := again.unseen(final=not answer.calls):
                came.append(unseen)
            for chunk in came:
                yield chunk
        if failure is not None:
            standing = judge(reading.calls, may_retry=False)
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
            ending = list(_ending(reader, reading))
        for chunk in ending:
            yield chunk

    def _reader(self, *, seen: StreamReader | None = None) -> StreamReader:
        shown = "".join(seen.text) if seen is not None and self._live else ""
        return StreamReader(
            self._declared,
            self._reasoning_key,
            shown=shown if shown.strip() else "",
            mute_reasoning=seen is not None and self._live and seen.reasoned,
            collects=not self._live,
        )

    async def _read(self, reader: StreamReader) -> Reading:
        raws, dropped = reader.assembler.finish()
        return await self._desk.check(
            raws,
            dropped,
            self._declared,
            self._call,
            cut_off=reader.cut_off,
            overflowed=reader.assembler.overflowed,
        )

    def _time_for_retry(self) -> float | None:
        if not self._call.modes.retry_invalid_stream or not self._call.tools:
            return None
        return retry_budget(self._call.timeout or DEFAULT_TIMEOUT, self._attempt.elapsed)

    def _settle(
        self,
        attempt: Attempt,
        reader: StreamReader,
        reading: Reading,
        verdict: Verdict,
        **more: Any,
    ) -> None:
        self._standing = (reader, reading)
        self._desk.settle(
            attempt,
            self._call,
            reading,
            verdict,
            finish_reason=reader.finish_reason,
            usage=reader.usage,
            **more,
        )

    def _end(
        self,
        outcome: Any,
        reader: StreamReader | None,
        reading: Reading | None = None,
        **more: Any,
    ) -> None:
        self._attempt.end(
            outcome,
            finish_reason=None if reader is None else reader.finish_reason,
            usage=None if reader is None else reader.usage,
            calls=() if reading is None else reading.calls,
            **more,
        )


class GuardedStream:
    """What `create` returns for a stream: the SDK's own, with whole calls in it.

    Args:
        source: The SDK's stream, if there is one.
        chunks: What AstrBot is to see of it.
        closed: Called once it is closed; one that nobody reads ends only so.
    """

    def __init__(
        self,
        source: Any,
        chunks: AsyncGenerator[ChatCompletionChunk, None],
        closed: Callable[[], None] | None = None,
    ) -> None:
        self._source = source
        self._chunks = chunks
        self._closed = closed

    def __aiter__(self) -> AsyncIterator[ChatCompletionChunk]:
        return self._chunks

    async def __anext__(self) -> ChatCompletionChunk:
        return await self._chunks.__anext__()

    async def __aenter__(self) -> GuardedStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the stream and the connection under it."""
        await self._chunks.aclose()
        await close(self._source)
        if self._closed is not None:
            self._closed()

    aclose = close

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


async def as_stream(completion: ChatCompletion) -> AsyncGenerator[ChatCompletionChunk, None]:
    """Yield a complete answer, mended already, as a stream."""
    choices: Any = completion.choices
    choice = choices[0] if choices else None
    fields = {} if choice is None else plain(choice.message)
    fields = {name: value for name, value in fields.items() if value is not None}
    entries = fields.pop("tool_calls", None) or []
    finish = _harmless(getattr(choice, "finish_reason", None), calls=bool(entries))
    deltas: list[dict[str, Any]] = [fields] if fields else []
    deltas += [
        {"tool_calls": [{**entry.to_dict(), "index": index}]} for index, entry in enumerate(entries)
    ]
    for chunk in call_chunks(
        completion, (), finish_reason=finish, usage=completion.usage, before=deltas
    ):
        yield chunk


def _ending(reader: StreamReader, reading: Reading) -> Iterable[ChatCompletionChunk]:
    finish = _harmless(reader.finish_reason, calls=bool(reading.calls))
    return call_chunks(reader.last, reading.calls, finish_reason=finish, usage=reader.usage)


def _harmless(finish_reason: object, *, calls: bool) -> str:
    """Return a finish reason that AstrBot ends a streamed turn with.

    The SDK's accumulator raises on `length` and `content_filter`; AstrBot then has
    no final answer and asks again, until its step limit.
    """
    if calls:
        return "tool_calls"
    usable = isinstance(finish_reason, str) and finish_reason and finish_reason not in CUT_OFF
    return str(finish_reason) if usable else "stop"


async def _within(ask: Ask, client: Any, seconds: float, clock: Clock) -> AsyncGenerator[Any, None]:
    """Yield the events of a stream that is asked for now and must end within `seconds`."""
    deadline = clock.steady() + seconds
    source = await asyncio.wait_for(ask(), seconds)
    try:
        items = aiter(events(source, client))
        while True:
            try:
                item = await asyncio.wait_for(anext(items), max(deadline - clock.steady(), 0))
            except StopAsyncIteration:
                return
            yield item
    finally:
        await close(source)


async def close(source: Any) -> None:
    """Close a stream of the SDK; closing it again does nothing."""
    if source is not None and hasattr(source, "close"):
        await source.close()
