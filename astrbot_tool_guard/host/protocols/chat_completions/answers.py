"""Between the SDK's objects and plain data: reading answers, and writing calls into them.

The rule: what needs no change stays the same object. The SDK builds its models
without validation, so any field can hold anything; nothing here relies on a type
that it has not looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from openai import BaseModel
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.chat_completion_message import ChatCompletionMessage
from openai.types.chat.chat_completion_message_function_tool_call import (
    ChatCompletionMessageFunctionToolCall,
    Function,
)

from ....core.model import ToolCall

MARK = "toolcallguard"
"""Id of an answer that came without one."""


def plain(value: Any) -> Any:
    """Return the fields of an SDK object as a dict, unknown ones included; else `value`.

    One level deep and without copying, since this runs for every piece of a stream.
    """
    if not isinstance(value, BaseModel):
        return value
    extra = value.__pydantic_extra__
    return {**value.__dict__, **extra} if extra else value.__dict__


def plain_entry(entry: Any) -> Any:
    """Return one entry of `tool_calls` as plain data."""
    fields = plain(entry)
    if isinstance(fields, dict) and isinstance(function := fields.get("function"), BaseModel):
        return {**fields, "function": plain(function)}
    return fields


def plain_usage(usage: Any) -> dict[str, object] | None:
    """Return a usage object as plain data, or `None`."""
    if isinstance(usage, BaseModel):
        return usage.model_dump(exclude_unset=True, warnings=False)
    return dict(usage) if isinstance(usage, Mapping) else None


def argument_text(call: ToolCall) -> str:
    """Return the argument text that AstrBot is given for a call.

    AstrBot decodes it again and stores what it got, so it is always the JSON of an
    object: `{}` for a call that will not run because its text is none. Only where
    nothing is checked does a text that is none pass as it came.
    """
    if call.arguments is None:
        return "{}" if call.problems else call.raw_arguments or "{}"
    if call.blank or call.raw_arguments is None:
        return "{}"
    if call.normalized:
        return json.dumps(call.arguments, ensure_ascii=False)
    return call.raw_arguments


def mend_completion(completion: ChatCompletion, calls: Sequence[ToolCall]) -> None:
    """Put whole, well-formed calls into the first choice of a complete answer.

    An answer whose calls are well-formed already keeps its very objects.
    """
    message = completion.choices[0].message
    before: Any = message.tool_calls
    entries = list(before) if isinstance(before, list | tuple) else [before]
    if len(entries) == len(calls) and all(map(_is_well_formed, entries, calls)):
        return
    message.tool_calls = [_message_call(call) for call in calls] or None


def first_message(completion: Any) -> ChatCompletionMessage | None:
    """Return the message AstrBot reads from a complete answer, or `None`.

    Where there are no choices AstrBot reads a `data` object that has them; its
    strict reading of it fails on calls that are not well-formed, so the guard reads
    it into the answer itself.
    """
    choices = completion.choices
    data = getattr(completion, "data", None)
    if not choices and isinstance(data, Mapping) and data.get("choices"):
        inner = ChatCompletion.construct(**data)
        completion.choices = choices = inner.choices
        completion.usage = completion.usage or inner.usage
        completion.id = completion.id or inner.id
    if not isinstance(choices, list) or not choices:
        return None
    message = getattr(choices[0], "message", None)
    return message if isinstance(message, ChatCompletionMessage) else None


def call_chunks(
    last: ChatCompletionChunk | ChatCompletion | None,
    calls: Iterable[ToolCall],
    *,
    finish_reason: str,
    usage: Any,
    before: Iterable[Mapping[str, Any]] = (),
) -> Iterable[ChatCompletionChunk]:
    """Yield the end of a stream: one whole delta per call, then the finish chunk.

    The usage rides on the finish chunk, because the SDK's accumulator keeps what
    the last chunk says.

    Args:
        last: A chunk of the answer, for what all of its chunks have in common.
        calls: The calls, in order.
        finish_reason: Of the finish chunk.
        usage: The provider's usage object, or `None`.
        before: Deltas that come first.
    """
    for delta in before:
        yield _chunk(last, delta, None, None)
    for index, call in enumerate(calls):
        yield _chunk(last, {"tool_calls": [{"index": index, **_entry(call)}]}, None, None)
    yield _chunk(last, {}, finish_reason, usage)


def text_chunk(last: ChatCompletionChunk | None, text: str) -> ChatCompletionChunk:
    """Return a chunk that holds text only."""
    return _chunk(last, {"content": text}, None, None)


def build_completion(
    last: ChatCompletionChunk | None,
    message: Mapping[str, Any],
    *,
    finish_reason: str | None,
    usage: Any,
) -> ChatCompletion:
    """Return one complete answer made of what a stream brought.

    Args:
        last: A chunk of the answer, or `None` when none came.
        message: The fields of the message, without calls.
        finish_reason: As the provider sent it.
        usage: The provider's usage object, or `None`.
    """
    shared = _shared(last)
    choice = {"index": 0, "message": {"role": "assistant", **message}}
    completion = ChatCompletion.construct(
        **{
            **shared,
            "object": "chat.completion",
            "choices": [{**choice, "finish_reason": finish_reason}] if last is not None else [],
        }
    )
    completion.usage = usage
    return completion


def without(part: Any, *names: str) -> Any:
    """Return a shallow copy of an SDK object in which these fields were never set."""
    copy = part.model_copy()
    extra = copy.__pydantic_extra__
    if extra and any(name in extra for name in names):
        copy.__pydantic_extra__ = {k: v for k, v in extra.items() if k not in names}
    for name in names:
        if name in type(copy).model_fields:
            copy.__dict__[name] = None
            copy.__pydantic_fields_set__.discard(name)
    return copy


def rechoiced(chunk: ChatCompletionChunk, choice: Any, delta: Any, *names: str) -> Any:
    """Return a copy of `chunk` whose one choice has this delta and lacks the fields `names`."""
    changed = without(choice, *names)
    changed.delta = delta
    copy = chunk.model_copy()
    copy.choices = [changed]
    return copy


def _chunk(
    last: ChatCompletionChunk | ChatCompletion | None,
    delta: Mapping[str, Any],
    finish_reason: str | None,
    usage: Any,
) -> ChatCompletionChunk:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    chunk = ChatCompletionChunk.construct(
        **{**_shared(last), "object": "chat.completion.chunk", "choices": [choice]}
    )
    chunk.usage = usage
    return chunk


def _shared(last: ChatCompletionChunk | ChatCompletion | None) -> dict[str, Any]:
    shared: dict[str, Any] = {"id": MARK, "created": 0, "model": ""}
    for name in ("id", "created", "model", "system_fingerprint", "service_tier"):
        value = getattr(last, name, None)
        if value is not None:
            shared[name] = value
    return shared


def _is_well_formed(entry: Any, call: ToolCall) -> bool:
    function = getattr(entry, "function", None)
    return (
        isinstance(entry, ChatCompletionMessageFunctionToolCall)
        and isinstance(function, Function)
        and entry.type == "function"
        and entry.id == call.id
        and function.name == call.name
        and function.arguments == argument_text(call)
    )


def _message_call(call: ToolCall) -> ChatCompletionMessageFunctionToolCall:
    return ChatCompletionMessageFunctionToolCall.construct(**_entry(call))


def _entry(call: ToolCall) -> dict[str, Any]:
    return {
        **call.extras,
        "id": call.id,
        "type": "function",
        "function": {
            **call.extras.get("function", {}),
            "name": call.name,
            "arguments": argument_text(call),
        },
    }
