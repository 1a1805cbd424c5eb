"""Standing in the middle of an async generator, and knowing which run the code is in."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref
from collections.abc import AsyncGenerator
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from astrbot_tool_guard.core.errors import ToolMessageProtocolError
from astrbot_tool_guard.host.agent.runs import Run, current_run, current_session, run_of, within
from astrbot_tool_guard.host.seams.relay import relay


def unexpected(error: Exception) -> None:
    """Stand where faults are told."""
    raise AssertionError(error)


class Stream:
    """An async generator that notes what is done to it."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def items(self) -> AsyncGenerator[int, Any]:
        """Count, until somebody ends it."""
        number = 0
        try:
            while True:
                try:
                    self.seen.append((yield number))
                except ValueError as error:
                    self.seen.append(error)
                number += 1
        finally:
            await asyncio.sleep(0)
            self.seen.append("closed")


async def test_items_and_sent_values_go_through() -> None:
    stream = Stream()
    middle = relay(stream.items(), nullcontext, unexpected)
    assert [await anext(middle), await middle.asend("a"), await anext(middle)] == [0, 1, 2]
    await middle.aclose()
    assert stream.seen == ["a", None, "closed"]


async def test_a_thrown_exception_is_the_streams_to_catch() -> None:
    stream = Stream()
    middle = relay(stream.items(), nullcontext, unexpected)
    await anext(middle)
    error = ValueError()
    assert await middle.athrow(error) == 1
    with pytest.raises(KeyError):
        await middle.athrow(KeyError())
    assert stream.seen == [error, "closed"]


async def test_a_cancelled_consumer_cancels_the_stream() -> None:
    stream, waiting = Stream(), asyncio.Event()

    async def slow() -> AsyncGenerator[int, None]:
        try:
            waiting.set()
            await asyncio.Event().wait()
            yield 0
        except asyncio.CancelledError:
            stream.seen.append("cancelled")
            raise

    task = asyncio.create_task(anext(relay(slow(), nullcontext, unexpected)))  # type: ignore[arg-type]
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stream.seen == ["cancelled"]


async def test_what_fails_may_become_a_violation_or_a_last_item() -> None:
    async def failing() -> AsyncGenerator[int, None]:
        yield 1
        raise ValueError

    def last(error: BaseException) -> str:
        return type(error).__name__

    def other(error: BaseException) -> None:
        raise ToolMessageProtocolError(()) from None

    ended = relay(failing(), nullcontext, unexpected, failed=last)
    assert [item async for item in ended] == [1, "ValueError"]
    with pytest.raises(ToolMessageProtocolError):
        _ = [item async for item in relay(failing(), nullcontext, unexpected, failed=other)]
    with pytest.raises(ValueError, match=r"^$"):
        _ = [item async for item in relay(failing(), nullcontext, unexpected)]


async def test_a_hook_that_fails_is_told_and_changes_nothing() -> None:
    async def items() -> AsyncGenerator[int, None]:
        yield 1
        yield 2

    async def failing() -> AsyncGenerator[int, None]:
        yield 1
        raise ValueError("theirs")

    def broken(*_: Any) -> Any:
        raise KeyError("ours")

    told: list[Exception] = []
    hooks = {"item": broken, "failed": broken, "ended": broken}
    assert [item async for item in relay(items(), broken, told.append, **hooks)] == [1, 2]
    with pytest.raises(ValueError, match="theirs"):
        _ = [item async for item in relay(failing(), broken, told.append, **hooks)]
    assert {type(error) for error in told} == {KeyError}


class Runner:
    """As much of a runner as a run looks at."""

    def __init__(self, session: str) -> None:
        event = SimpleNamespace(unified_msg_origin=session)
        self.run_context = SimpleNamespace(context=SimpleNamespace(event=event))


async def step() -> AsyncGenerator[str, None]:
    """Yield the session that the stream finds itself in, each time in a new task."""
    while True:
        yield await asyncio.create_task(session())


async def session() -> str:
    """Return the current session, a task further down."""
    run = current_run()
    return run.session if run else "none"


async def test_the_run_is_current_in_every_step_and_only_there() -> None:
    runner = Runner("alice")
    steps = relay(step(), partial(within, run_of(runner)), unexpected)
    for _ in range(3):
        # Each item is taken in a task of its own, as AstrBot does.
        assert await asyncio.create_task(anext(steps)) == "alice"  # type: ignore[arg-type]
        assert current_run() is None
    await steps.aclose()


async def test_nested_runs_keep_apart() -> None:
    outer, inner = Runner("outer"), Runner("inner")

    async def delegating() -> AsyncGenerator[list[str], None]:
        while True:
            below = relay(step(), partial(within, run_of(inner)), unexpected)
            yield [await session(), await anext(below), await session()]
            await below.aclose()

    above = relay(delegating(), partial(within, run_of(outer)), unexpected)
    assert await anext(above) == ["outer", "inner", "outer"]
    await above.aclose()


async def test_a_step_that_was_given_up_may_end_in_any_context() -> None:
    runner = Runner("alice")
    step = within(run_of(runner))
    contextvars.copy_context().run(step.__enter__)
    assert step.__exit__(None, None, None) is not True
    assert current_run() is None


def test_a_runner_has_one_run_and_neither_keeps_the_other() -> None:
    runner = Runner("alice")
    run = run_of(runner)
    assert run_of(runner) is run
    gone = weakref.ref(runner)
    del runner
    gc.collect()
    assert gone() is None
    assert (run.runner, run.event, run.session) == (None, None, "")


def test_outside_of_everything_there_is_no_session() -> None:
    assert current_run() is None
    assert current_session() == ""


def test_without_a_run_the_current_message_counts() -> None:
    from astrbot.core.platform import astr_message_event

    variable = getattr(astr_message_event, "current_message_event", None)
    if variable is None:
        pytest.skip("this AstrBot does not tell")
    token = variable.set(SimpleNamespace(unified_msg_origin="bob"))
    try:
        assert current_session() == "bob"
        with within(Run(Runner("nobody keeps this one"))):
            assert current_session() == "bob"
    finally:
        variable.reset(token)
