"""Sending Chat Completions: one answer over the transport that was asked for, or the other.

The rule: AstrBot gets what it asked for, whatever way the answer was sent for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from openai.types.chat import ChatCompletion

from ...call import Call, Transport
from ...stages.response import ResponseStage
from ...stages.streamed import GuardedStream
from ...transport import forced_transport
from .dialect import ChatCompletions, asking_for

DIALECT = ChatCompletions()


async def send(
    stage: ResponseStage,
    create: Callable[..., Awaitable[Any]],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    call: Call,
) -> Any:
    """Send one request and return the answer in the form that was asked for.

    Args:
        stage: Reads, checks and mends answers.
        create: The SDK's `create`, bound to its client.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        call: Who asks.
    """
    transport = _transport(call)
    as_asked = transport == call.transport
    request = dict(kwargs) if as_asked else asking_for(transport, kwargs)

    async def ask() -> Any:
        return await create(*args, **request)

    if transport == "complete":
        completion = await stage.complete(DIALECT, ask, call)
        if as_asked or not isinstance(completion, ChatCompletion):
            return completion
        return GuardedStream(None, DIALECT.as_stream(completion))
    if as_asked:
        return await stage.guarded_stream(DIALECT, ask, call)
    source, answer = await stage.stream(DIALECT, ask, call, live=False)
    if answer is None:
        return source
    async for _ in answer.events():
        pass
    if answer.standing is None:  # the guard itself failed: as if it were not there
        return await create(*args, **kwargs)
    reader, reading = answer.standing
    return DIALECT.collected(reader, reading.given)


def _transport(call: Call) -> Transport:
    forced = forced_transport.get()
    if forced is not None:
        return forced
    wanted = call.modes.stream_transport
    return call.transport if wanted == "auto" else wanted
