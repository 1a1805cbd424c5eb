"""What the model server can be told to answer: plain values, no behaviour of a server.

`say(...)` and `calls(...)` make a `Reply`, which is a well-formed answer and is
sent as one completion or as a stream, whichever the request asked for. The others
send exactly what they hold: `Completion`, `Chunks`, `Failure`, `Raw`. `Cut` and
`Held` go around another answer.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_ids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Reply:
    """A well-formed answer, complete or streamed as the request wants it.

    Attributes:
        content: The text, or `None`.
        tool_calls: Calls as `call(...)` makes them.
        reasoning: Sent as `reasoning_content`.
        finish_reason: `None` picks `tool_calls` or `stop`.
        piece: Characters per piece of text and arguments in a stream.
    """

    content: str | None = None
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    reasoning: str | None = None
    finish_reason: str | None = None
    usage: Mapping[str, int] = field(
        default_factory=lambda: {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    )
    piece: int = 12

    @property
    def ending(self) -> str:
        """The finish reason that is sent."""
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")

    def completion(self, model: str) -> dict[str, Any]:
        """Return the answer as one `chat.completion` object."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.tool_calls:
            message["tool_calls"] = list(self.tool_calls)
        if self.reasoning is not None:
            message["reasoning_content"] = self.reasoning
        return {
            "id": "chatcmpl-local",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": self.ending}],
            "usage": dict(self.usage),
        }

    def chunks(self, model: str, *, usage: bool = True) -> Iterator[dict[str, Any]]:
        """Yield the answer as `chat.completion.chunk` objects."""
        yield chunk({"role": "assistant", "content": ""}, model=model)
        for piece in _pieces(self.reasoning or "", self.piece):
            yield chunk({"reasoning_content": piece}, model=model)
        for piece in _pieces(self.content or "", self.piece):
            yield chunk({"content": piece}, model=model)
        for index, whole in enumerate(self.tool_calls):
            arguments = whole["function"]["arguments"]
            head = {**whole, "index": index, "function": {**whole["function"], "arguments": ""}}
            yield chunk({"tool_calls": [head]}, model=model)
            for piece in _pieces(arguments, self.piece):
                part = {"index": index, "function": {"arguments": piece}}
                yield chunk({"tool_calls": [part]}, model=model)
        yield chunk({}, model=model, finish_reason=self.ending)
        if usage:
            yield {**chunk({}, model=model), "choices": [], "usage": dict(self.usage)}


@dataclass(frozen=True, slots=True)
class Completion:
    """A completion object, sent as it is. A streaming request gets it as one JSON body."""

    body: Any


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunk objects, each sent as it is; a `str` is the raw data of one event.

    Attributes:
        chunks: What is sent, in order.
        done: Whether `data: [DONE]` follows.
    """

    chunks: Sequence[Mapping[str, Any] | str]
    done: bool = True


@dataclass(frozen=True, slots=True)
class Failure:
    """An HTTP error with a JSON body."""

    status: int
    message: str
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """Return the JSON body of the error."""
        return {"error": {"message": self.message, "type": "error", "code": self.code}}


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes written to the socket as they are, status line included; then it closes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Cut:
    """Another answer whose connection ends after `after` bytes of its body.

    `None` cuts after the whole body, before the end of the HTTP message.
    """

    answer: Answer
    after: int | None = None


class Gate:
    """A place where an answer waits: `await reached.wait()`, then `release.set()`."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.release = asyncio.Event()


@dataclass(frozen=True, slots=True)
class Held:
    """Another answer that stops at a gate after `after` pieces of its body.

    A piece is one event of a stream; a complete answer is one piece. With 0
    nothing is sent before the gate opens, not even the status line.
    """

    answer: Answer
    gate: Gate
    after: int = 0


Answer = Reply | Completion | Chunks | Failure | Raw | Cut | Held


def say(content: str, **more: Any) -> Reply:
    """Return an answer of plain text."""
    return Reply(content=content, **more)


def calls(*tool_calls: Mapping[str, Any], content: str | None = None, **more: Any) -> Reply:
    """Return an answer that calls tools."""
    return Reply(content=content, tool_calls=tool_calls, **more)


def call(name: str, arguments: Any = None, *, id: str | None = None, **more: Any) -> dict[str, Any]:
    """Return one tool call; arguments that are no string become their JSON text.

    Args:
        name: The tool's name.
        arguments: An object, or raw text as a model may write it.
        id: The call's id; without it a new one.
        more: Further keys of the call, e.g. `extra_content`.
    """
    if not isinstance(arguments, str):
        arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
    call_id = f"call_{next(_ids):06d}" if id is None else id
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function, **more}


def chunk(
    delta: Mapping[str, Any] | None, *, model: str = "model", finish_reason: str | None = None
) -> dict[str, Any]:
    """Return one `chat.completion.chunk` object around `delta`."""
    return {
        "id": "chatcmpl-local",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }


def rate_limited() -> Failure:
    """Return the 429 that makes AstrBot try another key."""
    return Failure(429, "Rate limit reached for requests. Please try again.", "rate_limit_exceeded")


def server_error() -> Failure:
    """Return a 500."""
    return Failure(500, "The server had an error while processing your request.")


def context_length() -> Failure:
    """Return the 400 that makes AstrBot drop the oldest messages."""
    return Failure(
        400,
        "This model's maximum context length is 8192 tokens. Please reduce the messages.",
        "context_length_exceeded",
    )


def tools_unsupported() -> Failure:
    """Return the 400 that makes AstrBot take the tools away."""
    return Failure(400, "This model does not support tool use.")


def from_json(value: Mapping[str, Any]) -> Answer:
    """Return the answer that `value` describes, for a server in a process of its own.

    Args:
        value: `{"chunks": […]}`, `{"completion": {…}}`, `{"say": "…"}` or
            `{"status": 500, "message": "…"}`.
    """
    if "chunks" in value:
        return Chunks(value["chunks"])
    if "completion" in value:
        return Completion(value["completion"])
    if "say" in value:
        return say(value["say"])
    return Failure(value["status"], value["message"])


def _pieces(text: str, size: int) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]
