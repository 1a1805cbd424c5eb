"""Writing Chat Completions: whole calls as the SDK's objects, which AstrBot's adapter reads.

The rule: what needs no change stays the same object. The SDK builds its models
without validation, so any field can hold anything; nothing here relies on a type
that it has not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.chat_completion_message import ChatCompletionMessage
from openai.types.chat.chat_completion_message_function_tool_call import (
    ChatCompletionMessageFunctionToolCall,
    Function,
)

from ....core.model import ToolCall
from ..arguments import argument_text
from .uncast import as_chunk

MARK = "toolcallguard"
"""Id of an answer that came without one."""

_RAISING = frozenset({"length", "content_filter"})
"""Finish reasons on which the SDK's accumulator raises."""


def mend_completion(completion: ChatCompletion, calls: Sequence[ToolCall]) -> None:
    """Put whole, well-formed calls into the first choice of a complete answer.

    An answer whose calls are well-formed already keeps its very objects.
    """
    message = first_message(completion)
    if message is None:
        return
    before: Any = message.tool_calls
    entries = list(before) if isinstance(before, list | tuple) else [before] if before else []
    if len(entries) == len(calls) and all(map(_is_well_formed, entries, calls)):
        return
    made: list[Any] = [
        ChatCompletionMessageFunctionToolCall.construct(**_entry(call)) for call in calls
    ]
    message.tool_calls = made or None


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


def ending(last: Any, calls: Sequence[ToolCall], finish: object, usage: Any) -> Iterable[Any]:
    """Yield the end of a stream: one whole delta per call, then the finish chunk.

    The usage rides on the finish chunk, because the SDK's accumulator keeps what
    the last chunk says.

    Args:
        last: An event of the answer, for what all of its events have in common.
        calls: The calls, in order.
        finish: The finish reason as the provider sent it.
        usage: The provider's usage, or `None`.
    """
    for index, call in enumerate(calls):
        yield chunk(last, {"tool_calls": [{"index": index, **_entry(call)}]})
    yield chunk(last, {}, harmless(finish, calls=bool(calls)), usage)


def harmless(finish_reason: object, *, calls: bool) -> str:
    """Return a finish reason that AstrBot ends a streamed turn with.

    The SDK's accumulator raises on `length` and `content_filter`; AstrBot then has
    no final answer and asks again, until its step limit.
    """
    if calls:
        return "tool_calls"
    usable = isinstance(finish_reason, str) and finish_reason and finish_reason not in _RAISING
    return str(finish_reason) if usable else "stop"


def chunk(
    last: Any, delta: Mapping[str, Any], finish_reason: str | None = None, usage: Any = None
) -> ChatCompletionChunk:
    """Return a chunk with one delta, like `last` in what all chunks have in common."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    event = {**_shared(last), "object": "chat.completion.chunk", "choices": [choice]}
    if usage is not None:
        event["usage"] = usage
    return as_chunk(event)


def build_completion(
    last: Any, message: Mapping[str, Any], *, finish_reason: str | None, usage: Any
) -> ChatCompletion:
    """Return one complete answer made of what a stream brought.

    Args:
        last: An event of the answer, or `None` when none came.
        message: The fields of the message, without calls.
        finish_reason: As the provider sent it.
        usage: The provider's usage, or `None`.
    """
    choice = {"index": 0, "message": {"role": "assistant", **message}}
    fields = {
        **_shared(last),
        "object": "chat.completion",
        "choices": [{**choice, "finish_reason": finish_reason}] if last is not None else [],
    }
    return ChatCompletion.construct(**fields, **({} if usage is None else {"usage": usage}))


def _shared(last: Any) -> dict[str, Any]:
    shared: dict[str, Any] = {"id": MARK, "created": 0, "model": ""}
    for name in ("id", "created", "model", "system_fingerprint", "service_tier"):
        value = last.get(name) if isinstance(last, Mapping) else getattr(last, name, None)
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
