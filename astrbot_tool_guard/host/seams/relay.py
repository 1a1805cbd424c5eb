"""Standing in the middle of an async generator without being noticed.

The rule: what the consumer does to us (next, send, throw, close, cancel) happens
to the stream, and what the stream does happens to the consumer, except where a
hook says otherwise. A hook that fails says nothing, and is told.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from ...core.errors import ToolMessageProtocolError
from .net import Fault, tell


async def relay(
    stream: AsyncGenerator[Any, Any],
    around: Callable[[], AbstractContextManager[object]],
    fault: Fault,
    *,
    item: Callable[[Any], Any] | None = None,
    failed: Callable[[BaseException], Any] | None = None,
    ended: Callable[[], Iterable[Any]] = tuple,
) -> AsyncGenerator[Any, Any]:
    """Yield what `stream` yields.

    Args:
        stream: The generator in whose place we stand.
        around: Makes the context in which `stream` works, entered for each of its
            steps and left before its items are handed on.
        fault: Told what goes wrong in a hook.
        item: Returns what is yielded for an item.
        failed: Gets what `stream` raised; raises what the consumer is to see, or
            returns a last item.
        ended: Returns what is yielded after the last item of a stream that came to
            its end; not asked when `item` has failed.
    """
    resume: Callable[[Any], Any] = stream.asend
    value: Any = None
    try:
        while True:
            try:
                with _Around(around, fault):
                    came = await resume(value)
            except StopAsyncIteration:
                for more in _last(ended, fault):
                    yield more
                return
            except BaseException as error:
                if failed is None:
                    raise
                last = _after(failed, error, fault)
            else:
                if item is not None:
                    try:
                        came = item(came)
                    except Exception as error:
                        tell(fault, error)
                        ended = tuple  # what missed an item knows nothing of the end
                try:
                    resume, value = stream.asend, (yield came)
                except GeneratorExit:
                    raise
                except BaseException as thrown:
                    resume, value = stream.athrow, thrown
                continue
            yield last
            return
    finally:
        with _Around(around, fault):
            await stream.aclose()


def _last(ended: Callable[[], Iterable[Any]], fault: Fault) -> Iterable[Any]:
    try:
        return tuple(ended())
    except Exception as error:
        tell(fault, error)
        return ()


def _after(failed: Callable[[BaseException], Any], error: BaseException, fault: Fault) -> Any:
    try:
        return failed(error)
    except ToolMessageProtocolError:
        raise
    except Exception as raised:
        if raised is not error:
            tell(fault, raised)
    raise error


class _Around:
    """A context of ours, in which what fails is ours as well."""

    __slots__ = ("_context", "_fault", "_make")

    def __init__(self, make: Callable[[], AbstractContextManager[object]], fault: Fault) -> None:
        self._make = make
        self._fault = fault
        self._context: AbstractContextManager[object] | None = None

    def __enter__(self) -> None:
        try:
            context = self._make()
            context.__enter__()
        except Exception as error:
            tell(self._fault, error)
        else:
            self._context = context

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._context is None:
            return
        try:
            self._context.__exit__(kind, error, trace)
        except Exception as raised:
            if raised is not error:
                tell(self._fault, raised)
