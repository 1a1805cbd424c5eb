"""Tool executors of other plugins, in place of AstrBot's, below our own and above it.

Each style is known from a public plugin: the class's method is replaced, the runner
gets another executor when it starts, or one is put on in the middle of a step.
Whatever the style and whoever came first: a valid call runs once, through theirs; an
invalid one does not run; and what is left afterwards works as if we had never come.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import pytest

from astrbot_tool_guard.host.guard import install
from tests.host.test_response_turns import BROKEN, accepted_again, tool_results
from tests.host.wrapping import on_seams
from tests.support.answers import call, calls, say
from tests.support.bot import Bot, Turn

BARE = on_seams()
Put = Callable[[pytest.MonkeyPatch, list[str]], None]


class TheirExecutor:
    """Another plugin's executor: notes the tool and asks the one it replaced."""

    def __init__(self, inner: Any, ran: list[str]) -> None:
        self.inner = inner
        self.ran = ran

    async def execute(self, tool: Any, run_context: Any, **given: Any) -> AsyncGenerator[Any, None]:
        """Run a tool."""
        self.ran.append(tool.name)
        async for result in self.inner.execute(tool=tool, run_context=run_context, **given):
            yield result


class Impatient(TheirExecutor):
    """Its `execute` is no generator function: it looks, and returns what AstrBot's gives."""

    def execute(self, tool: Any, run_context: Any, **given: Any) -> Any:  # type: ignore[override]
        """Run a tool."""
        self.ran.append(tool.name)
        return self.inner.execute(tool=tool, run_context=run_context, **given)


def on_the_class(patch: pytest.MonkeyPatch, ran: list[str]) -> None:
    """Replace `FunctionToolExecutor.execute`."""
    from astrbot.core.astr_agent_tool_exec import FunctionToolExecutor

    before = FunctionToolExecutor.execute

    async def execute(
        _cls: Any, tool: Any, run_context: Any, **given: Any
    ) -> AsyncGenerator[Any, None]:
        ran.append(tool.name)
        async for result in before(tool, run_context, **given):
            yield result

    patch.setattr(FunctionToolExecutor, "execute", classmethod(execute))


def at_the_start(
    patch: pytest.MonkeyPatch, ran: list[str], kind: type[TheirExecutor] = TheirExecutor
) -> None:
    """Give each runner an executor when it is reset."""
    from astrbot.core.agent.runners.tool_loop_agent_runner import ToolLoopAgentRunner

    before = ToolLoopAgentRunner.reset

    async def reset(self: Any, *args: Any, **kwargs: Any) -> Any:
        done = await before(self, *args, **kwargs)
        self.tool_executor = kind(self.tool_executor, ran)
        return done

    patch.setattr(ToolLoopAgentRunner, "reset", reset)


def impatient(patch: pytest.MonkeyPatch, ran: list[str]) -> None:
    """As `at_the_start`, with an executor that is no generator function."""
    at_the_start(patch, ran, Impatient)


def in_mid_step(patch: pytest.MonkeyPatch, ran: list[str]) -> None:
    """Put an executor on when tools are about to run; once, as such plugins do."""
    from astrbot.core.agent.runners.tool_loop_agent_runner import ToolLoopAgentRunner

    before = ToolLoopAgentRunner._handle_function_tools

    async def handle(self: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        if not isinstance(self.tool_executor, TheirExecutor):
            self.tool_executor = TheirExecutor(self.tool_executor, ran)
        async for item in before(self, *args, **kwargs):
            yield item

    patch.setattr(ToolLoopAgentRunner, "_handle_function_tools", handle)


STYLES: dict[str, Put] = {
    "on the class": on_the_class,
    "at the start": at_the_start,
    "no generator": impatient,
    "in mid-step": in_mid_step,
}


@pytest.fixture(autouse=True)
def clean_seams() -> Iterator[None]:
    """Whatever a test does, the next one finds AstrBot bare."""
    yield
    install().uninstall()
    now = on_seams()
    assert all(now[name] is BARE[name] for name in BARE)


async def two_steps(bot: Bot, session: str) -> Turn:
    """Have a turn whose first answer holds a good and a broken call, and its second two good."""
    bot.server.script(
        calls(call("get_weather", BROKEN, id="a"), call("get_time", {}, id="b")),
        calls(call("get_weather", {"city": "Oslo"}, id="c"), call("get_weather", {"city": "Rome"})),
        say("Done."),
    )
    return await bot.say("Weather?", session=session)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("first", ["ours", "theirs"])
async def test_theirs_runs_each_valid_call_once_and_no_invalid_one(
    bot: Bot, first: str, style: str
) -> None:
    session = f"executor-{first}-{style}"
    ran: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        if first == "theirs":
            STYLES[style](patch, ran)
            guard = install()
        else:
            guard = install()
            STYLES[style](patch, ran)
        turn = await two_steps(bot, session)
        assert turn.texts[-1:] == ["Done."]
        invoked = [(run.tool, run.arguments) for run in turn.invocations]
        assert invoked == [
            ("get_time", {}),
            ("get_weather", {"city": "Oslo"}),
            ("get_weather", {"city": "Rome"}),
        ]
        # One that was put on in mid-step lies above ours and sees the refused call, too.
        seen = ["get_time", "get_weather", "get_weather"]
        assert ran in (seen, ["get_weather", *seen])
        results = [m for m in turn.requests[-1].messages if m["role"] == "tool"]
        assert [m["tool_call_id"] for m in results[:3]] == ["a", "b", "c"]
        assert len({m["tool_call_id"] for m in results}) == len(results) == 4
        assert results[0]["content"].startswith("error: invalid_arguments")
        await accepted_again(bot, session)

        guard.uninstall()
        ran.clear()
        bot.server.script(calls(call("get_time", {}, id="z")), say("Noon."))
        turn = await bot.say("The time?", session=session)
        assert (turn.texts[-1:], ran) == (["Noon."], ["get_time"])
        assert len(turn.invocations) == 1
        assert tool_results(turn) == {"z": "get_time done"}


async def test_one_of_ours_that_somebody_kept_and_put_back_is_not_the_end(bot: Bot) -> None:
    from astrbot.core.agent.runners.tool_loop_agent_runner import ToolLoopAgentRunner

    install()
    before = ToolLoopAgentRunner._handle_function_tools
    kept: dict[Any, Any] = {}

    async def handle(self: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        saved = kept.setdefault(self, self.tool_executor)
        async for item in before(self, *args, **kwargs):
            yield item
        self.tool_executor = saved

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ToolLoopAgentRunner, "_handle_function_tools", handle)
        bot.server.script(
            calls(call("get_time", {}, id="a")),
            calls(call("get_weather", BROKEN, id="b")),
            say("Done."),
        )
        turn = await bot.say("Weather?", session="kept")
    assert [run.tool for run in turn.invocations] == ["get_time"]
    assert tool_results(turn)["b"].startswith("error: invalid_arguments")


@pytest.mark.parametrize("style", ["at the start", "in mid-step"])
async def test_with_the_guard_taken_off_in_mid_turn_theirs_goes_on(bot: Bot, style: str) -> None:
    guard = install()
    ran: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        STYLES[style](patch, ran)
        bot.neighbour.on_tool = lambda *_: guard.uninstall()
        turn = await two_steps(bot, f"off-{style}")
    assert turn.texts[-1:] == ["Done."]
    assert [run.tool for run in turn.invocations] == ["get_time", "get_weather", "get_weather"]
    assert ran[-3:] == ["get_time", "get_weather", "get_weather"]
