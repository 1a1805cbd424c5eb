"""The response stage: an answer is read whole, checked, and mended before AstrBot sees its calls.

The rule: AstrBot gets what it asked for, one complete object or a stream, whatever
way the answer was sent for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from openai.types.chat import ChatCompletion

from ...core.calls.answers import CUT_OFF, error_sentence, read_entries
from ...core.calls.verdict import judge
from ...core.schemas.schema import declared_tools
from ..attempts import Attempt
from ..call import Call, Transport
from ..protocols.chat_completions.answers import first_message, mend_completion, plain_entry
from ..transport import forced_transport
from .reading import AnswerDesk, Ask, Reading
from .streamed import GuardedStream, StreamedAnswer, as_stream


class ResponseStage:
    """Sends requests and hands their answers over.

    Args:
        desk: Where answers are checked and settled.
    """

    def __init__(self, desk: AnswerDesk) -> None:
        self._desk = desk

    async def send(
        self,
        create: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        call: Call,
    ) -> Any:
        """Send one request and return the answer in the form that was asked for.

        Args:
            create: The SDK's `create`, bound to its client.
            args: Its positional arguments.
            kwargs: Its keyword arguments.
            call: Who asks.
        """
        transport = _transport(call)
        as_asked = transport == call.transport
        request = dict(kwargs) if as_asked else _asking_for(transport, kwargs)

        async def ask() -> Any:
            return await create(*args, **request)

        if transport == "complete":
            completion = await self._complete(ask, call)
            if as_asked or not isinstance(completion, ChatCompletion):
                return completion
            return GuardedStream(None, as_stream(completion))

        attempt = self._desk.reports.begin(call, "stream")
        try:
            source = await ask()
        except BaseException as error:
            attempt.end("failed", error=error)
            raise
        if not hasattr(source, "__aiter__"):  # another plugin answers in a form of its own
            attempt.end("accepted")
            return source
        answer = StreamedAnswer(self._desk, source, ask, attempt, call, live=as_asked)
        if as_asked:
            return GuardedStream(source, answer.chunks(), answer.left)
        completion = await answer.collect()
        if completion is None:  # the guard itself failed: as if it were not there
            return await create(*args, **kwargs)
        return completion

    async def _complete(self, ask: Ask, call: Call) -> Any:
        attempt = self._desk.reports.begin(call, "complete")
        try:
            completion = await ask()
        except BaseException as error:
            attempt.end("failed", error=error)
            raise
        if isinstance(completion, ChatCompletion):
            with self._desk.faults.contained("complete answer"):
                await self._mend(completion, attempt, call)
        # Told already, unless the guard itself failed or another plugin answered.
        attempt.end("accepted", usage=getattr(completion, "usage", None))
        return completion

    async def _mend(self, completion: ChatCompletion, attempt: Attempt, call: Call) -> None:
        message = first_message(completion)
        finish: Any = completion.choices[0].finish_reason if message is not None else None
        finish_reason = finish if isinstance(finish, str) else None
        entries: Any = message.tool_calls if message is not None else None
        reading = Reading()
        if entries:
            items = entries if isinstance(entries, list | tuple) else (entries,)
            declared = declared_tools(call.tools)
            raws, dropped = read_entries([plain_entry(each) for each in items], declared)
            reading = await self._desk.check(
                raws,
                dropped,
                declared,
                call,
                cut_off=finish_reason in CUT_OFF,
                overflowed=any(each.reason == "too_many_calls" for each in dropped),
                error=error_sentence({"error": getattr(completion, "error", None)}),
            )
            mend_completion(completion, reading.calls)
        verdict = judge(reading.calls, may_retry=False)
        usage = completion.usage
        self._desk.settle(attempt, call, reading, verdict, finish_reason=finish_reason, usage=usage)


def _transport(call: Call) -> Transport:
    forced = forced_transport.get()
    if forced is not None:
        return forced
    wanted = call.modes.stream_transport
    return call.transport if wanted == "auto" else wanted


def _asking_for(transport: Transport, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    request = {name: value for name, value in kwargs.items() if name != "stream_options"}
    request["stream"] = transport == "stream"
    if transport == "stream":
        request["stream_options"] = {"include_usage": True}
    return request
