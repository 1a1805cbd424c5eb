"""Standing in the middle of an async generator without being noticed.

The rule: what the consumer does to us (next, send, throw, close, cancel) happens
to the stream, and what the stream does happens to the consumer, except where a
hook says otherwise.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any


def _as_it_is(item: Any) -> Any:
    return item


def _raise(error: BaseException) -> Any:
    raise error


async def relay(
    stream: AsyncGenerator[Any, Any],
    around: Callable[[], AbstractContextManager[object]],
    *,
    item: Callable[[Any], Any] = _as_it_is,
    failed: Callable[[BaseException], Any] = _raise,
    ended: Callable[[], Iterable[Any]] = tuple,
) -> AsyncGenerator[Any, Any]:
    """Yield what `stream` yields.

    Args:
        stream: The generator in whose place we stand.
        around: Makes the context in which `stream` works, entered for each of its
            steps and left before its items are handed on.
        item: Returns what is yielded for an item.
        failed: Gets what `stream` raised; raises what the consumer is to see, or
            returns a last item.
        ended: Returns what is yielded after the last item of a stream that came to
            its end.
    """
    resume: Callable[[Any], Any] = stream.asend
    value: Any = None
    try:
        while True:
            try:
                with around():
                    came = await resume(value)
            except StopAsyncIteration:
                for more in ended():
                    yield more
                return
            except BaseException as error:
                last = failed(error)
            else:
                try:
                    resume, value = stream.asend, (yield item(came))
                except GeneratorExit:
                    raise
                except BaseException as thrown:
                    resume, value = stream.athrow, thrown
                continue
            yield last
            return
    finally:
        with around():
            await stream.aclose()
