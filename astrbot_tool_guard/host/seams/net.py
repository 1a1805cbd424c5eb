"""What stands around each wrapper, so that nothing of ours that fails reaches AstrBot.

The rule: what is wrapped is told apart from what wraps it. An exception that came out
of AstrBot's function passes, and so does a proven violation; any other is our fault.
It is told, and AstrBot gets what it would have got without us.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ...core.errors import ToolMessageProtocolError

Fault = Callable[[Exception], object]
"""Tells a fault of ours."""

_NOTHING = object()
_NOT_OURS = "_astrbot_tool_guard_not_ours"


def not_ours(error: BaseException) -> None:
    """Say that an exception is no fault of ours, though it comes out of our code.

    A stream of the SDK fails where it is read, which may be here.
    """
    try:
        setattr(error, _NOT_OURS, True)
    except Exception:  # it takes no attributes: then it is told as a fault
        return


def tell(fault: Fault, error: Exception) -> None:
    """Tell a fault; that telling it fails, too, is nobody's concern."""
    try:
        fault(error)
    except Exception:
        return


def guarded(wrapper: Callable[..., Any], fault: Fault) -> Callable[..., Any]:
    """Return `wrapper` with the net around it.

    Args:
        wrapper: Called as `wrapper(wrapped, instance, args, kwargs)`.
        fault: Told what goes wrong in it.
    """

    def net(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        below = _Below(wrapped, kwargs)
        try:
            result = wrapper(below, instance, args, kwargs)
        except Exception as error:
            if below.lets_pass(error):
                raise
            tell(fault, error)
            return below.without_us(args, kwargs)
        if inspect.iscoroutine(result):
            return _awaited(result, below, args, kwargs, fault)
        return result

    return net


async def _awaited(
    result: Any, below: _Below, args: tuple[Any, ...], kwargs: dict[str, Any], fault: Fault
) -> Any:
    try:
        return await result
    except Exception as error:
        if below.lets_pass(error):
            raise
        tell(fault, error)
    came = below.without_us(args, kwargs)
    return await came if inspect.isawaitable(came) else came


class _Below:
    """What is wrapped, as a wrapper calls it, and what became of that."""

    __slots__ = ("_asked", "_error", "_result", "_wrapped")

    def __init__(self, wrapped: Any, kwargs: Mapping[str, Any]) -> None:
        self._wrapped = wrapped
        self._asked = kwargs.get("stream")
        self._result: Any = _NOTHING
        self._error: BaseException | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            result = self._wrapped(*args, **kwargs)
        except BaseException as error:
            self._error = error
            raise
        # An answer in another form than AstrBot asked for is of no use to it.
        as_asked = kwargs.get("stream") == self._asked
        self._result = result if as_asked else _NOTHING
        return self._waited(result, as_asked) if inspect.iscoroutine(result) else result

    async def _waited(self, result: Any, as_asked: bool) -> Any:
        try:
            came = await result
        except BaseException as error:
            self._error = error
            raise
        self._result = came if as_asked else _NOTHING
        return came

    def lets_pass(self, error: Exception) -> bool:
        if error is self._error or isinstance(error, ToolMessageProtocolError):
            return True
        return getattr(error, _NOT_OURS, False) is True

    def without_us(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return or raise what AstrBot's function did, or call it if nobody has."""
        if self._error is not None:
            raise self._error
        return self._wrapped(*args, **kwargs) if self._result is _NOTHING else self._result
