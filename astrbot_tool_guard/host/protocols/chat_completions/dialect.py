"""Chat Completions, as the stages see it; see `protocols.dialect`.

The list that counts is the one the SDK would send: `extra_body` replaces what it names,
also with nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, cast

from openai import BaseModel
from openai.types.chat import ChatCompletion

from ....core.calls.chat_completions import REASONING, ChatReader, read_completion
from ....core.calls.reading import Answer, AnswerReader
from ....core.messages.pairing import effective_messages
from ....core.model import ToolCall
from ....core.plain import as_data
from ...call import Call
from ..dialect import ReadingOf
from . import uncast, writing


class ChatCompletions:
    """The dialect."""

    name = "chat_completions"

    def messages(self, request: Mapping[str, Any]) -> object:
        """Return the messages the SDK would send."""
        messages = effective_messages(request)
        return list(cast("tuple[object, ...]", messages)) if type(messages) is tuple else messages

    def replaced(self, request: Mapping[str, Any], messages: object) -> dict[str, Any] | None:
        """Return a copy of `request` whose effective messages are `messages`."""
        extra_body = request.get("extra_body")
        if isinstance(extra_body, Mapping) and "messages" in extra_body:
            override = cast("Mapping[str, Any]", extra_body)
            return {**request, "extra_body": {**override, "messages": messages}}
        return {**request, "messages": messages}

    def events(self, source: Any, call: Call) -> AsyncIterator[Any]:
        """Return the events of a stream, before the SDK makes models of them."""
        return uncast.events(source, getattr(call.provider, "client", None))

    def plain(self, event: Any) -> Any:
        """Return a chunk as plain data, as it came."""
        return event if isinstance(event, dict) else _data(event)

    def event(self, plain: Any) -> Any:
        """Return the SDK's chunk."""
        return uncast.as_chunk(plain)

    def reader(self, reading: ReadingOf) -> ChatReader:
        """Return the reader of one streamed answer."""
        key = getattr(reading.call.provider, "reasoning_key", None)
        return ChatReader(
            reading.declared,
            reasoning_key=key if isinstance(key, str) and key else REASONING,
            muted=reading.muted,
            many=_many(reading.call),
            collects=reading.collects,
        )

    def ending(self, reader: AnswerReader, calls: Sequence[ToolCall]) -> Iterable[Any]:
        """Return a delta per call, and the finish chunk."""
        return writing.ending(_last(reader), calls, reader.finish_reason, reader.usage)

    def text(self, reader: AnswerReader, text: str) -> Any:
        """Return a chunk that holds text only."""
        return writing.chunk(_last(reader), {"content": text})

    def read(self, answer: Any, reading: ReadingOf) -> Answer | None:
        """Read a complete answer."""
        if not isinstance(answer, ChatCompletion):
            return None
        return read_completion(as_data(answer), reading.declared, many=_many(reading.call))

    def mend(self, answer: Any, calls: Sequence[ToolCall]) -> None:
        """Put whole calls into a complete answer."""
        writing.mend_completion(answer, calls)

    # --- one transport below another, which only this protocol offers --------------------

    def collected(self, reader: AnswerReader, calls: Sequence[ToolCall]) -> ChatCompletion:
        """Return what a stream brought as one complete answer.

        Its fields are those that the provider would have sent in one piece, the
        finish reason included.
        """
        made = cast("ChatReader", reader)
        completion = writing.build_completion(
            made.last,
            made.message(calls=bool(calls)),
            finish_reason=made.finish_reason or ("tool_calls" if calls else "stop"),
            usage=made.usage,
        )
        if calls and completion.choices:
            writing.mend_completion(completion, calls)
        return completion

    async def as_stream(self, completion: ChatCompletion) -> AsyncGenerator[Any, None]:
        """Yield a complete answer, mended already, as a stream."""
        choices: Any = completion.choices
        choice = choices[0] if choices else None
        message = getattr(choice, "message", None)
        fields = {} if message is None else cast("dict[str, Any]", _data(message))
        fields = {name: value for name, value in fields.items() if value is not None}
        entries = fields.pop("tool_calls", None) or []
        finish = writing.harmless(getattr(choice, "finish_reason", None), calls=bool(entries))
        if fields:
            yield writing.chunk(completion, fields)
        for index, entry in enumerate(entries):
            yield writing.chunk(completion, {"tool_calls": [{**entry, "index": index}]})
        usage = completion.usage
        yield writing.chunk(completion, {}, finish, None if usage is None else _data(usage))


def asking_for(transport: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `create` for another transport than they were made for."""
    request = {name: value for name, value in kwargs.items() if name != "stream_options"}
    request["stream"] = transport == "stream"
    if transport == "stream":
        request["stream_options"] = {"include_usage": True}
    return request


def _data(model: Any) -> Any:
    """Return an SDK's model as the data it came as: what was not set is not there."""
    if not isinstance(model, BaseModel):
        return model
    return model.model_dump(exclude_unset=True, warnings=False)


def _last(reader: AnswerReader) -> Any:
    return cast("ChatReader", reader).last


def _many(call: Call) -> bool:
    return isinstance(call.answers, int) and call.answers > 1
