"""A fault in any function of ours, by its name, without touching the function's callers.

The code of a function is replaced in place: whoever holds the function, however it
was imported or bound, meets the fault, and no module has to prepare for it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import astrbot_tool_guard

SECRET = "SECRET-of-a-fault"


class OwnFaultError(Exception):
    """What a faulty function of ours raises."""


class FaultPoint:
    """One function that can be made faulty.

    Attributes:
        name: Its module and name.
        hits: How often it was called while faulty.
    """

    def __init__(self, name: str, function: types.FunctionType) -> None:
        self.name = name
        self.function = function
        self.hits = 0

    @contextmanager
    def faulty(self) -> Iterator[None]:
        """Make it raise for the duration of a `with` block."""
        self.hits = 0
        code = self.function.__code__
        self.function.__code__ = _raising(code, self._hit)
        try:
            yield
        finally:
            self.function.__code__ = code

    def _hit(self) -> OwnFaultError:
        self.hits += 1
        return OwnFaultError(SECRET)


def fault_points() -> list[FaultPoint]:
    """Return every function and method of the package, by name."""
    found: dict[types.CodeType, FaultPoint] = {}
    for module in _modules():
        for function in _functions(module):
            name = f"{function.__module__}.{function.__qualname__}"
            name = name.removeprefix(f"{astrbot_tool_guard.__name__}.")
            found.setdefault(function.__code__, FaultPoint(name, function))
    return sorted(found.values(), key=lambda point: point.name)


@contextmanager
def called(points: list[FaultPoint]) -> Iterator[set[str]]:
    """Collect the names of the functions that are called, in any thread of control."""
    names: set[str] = set()
    by_code = {point.function.__code__: point.name for point in points}
    monitoring = sys.monitoring
    monitoring.use_tool_id(monitoring.PROFILER_ID, "fault points")

    def started(code: types.CodeType, _offset: int) -> Any:
        if (name := by_code.get(code)) is not None:
            names.add(name)
        return monitoring.DISABLE

    monitoring.register_callback(monitoring.PROFILER_ID, monitoring.events.PY_START, started)
    monitoring.set_events(monitoring.PROFILER_ID, monitoring.events.PY_START)
    try:
        yield names
    finally:
        monitoring.set_events(monitoring.PROFILER_ID, 0)
        monitoring.register_callback(monitoring.PROFILER_ID, monitoring.events.PY_START, None)
        monitoring.free_tool_id(monitoring.PROFILER_ID)
        monitoring.restart_events()


def _modules() -> Iterator[types.ModuleType]:
    package = astrbot_tool_guard
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def _functions(owner: Any) -> Iterator[types.FunctionType]:
    for value in list(vars(owner).values()):
        inner = inspect.unwrap(_plain(value)) if callable(_plain(value)) else _plain(value)
        if isinstance(inner, types.FunctionType):
            if inner.__module__.startswith(astrbot_tool_guard.__name__) and _from_file(inner):
                yield inner
        elif isinstance(value, type) and value.__module__ == getattr(owner, "__name__", None):
            yield from _functions(value)


def _plain(value: Any) -> Any:
    if isinstance(value, property):
        return value.fget
    return getattr(value, "__func__", value)  # of a class or static method


def _from_file(function: types.FunctionType) -> bool:
    return function.__code__.co_filename.endswith(".py")  # dataclasses write some themselves


def _raising(code: types.CodeType, hit: Any) -> types.CodeType:
    """Return code of the same kind as `code` that raises what `hit` returns."""
    head = "async def" if code.co_flags & _ASYNC else "def"
    tail = "\n    yield" if code.co_flags & _GENERATES else ""
    namespace: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # a text is not callable: it is replaced
        exec(f"{head} faulty(*_, **__):\n    raise '@'(){tail}", namespace)
    made: types.CodeType = namespace["faulty"].__code__
    constants = tuple(hit if each == "@" else each for each in made.co_consts)
    return made.replace(
        co_consts=constants,
        co_freevars=code.co_freevars,
        co_filename=code.co_filename,
        co_name=code.co_name,
    )


_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_GENERATES = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
