"""Other plugins around the execution of tools: what is proven to be invalid does not run.

Tool executors of theirs, in place of AstrBot's, below our own and above it; loops of
theirs that execute the calls; and models they ask while an answer waits.

Each style is known from a public plugin: the class's method is replaced, the runner
gets another executor when it starts, or one is put on in the middle of a step.
Whatever the style and whoever came first: a valid call runs once, through theirs; an
invalid one does not run; and what is left afterwards works as if we had never come.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import pytest
import wrapt

from astrbot_tool_guard.host.guard import install
from astrbot_tool_guard.settings.settings import Settings
from tests.host.seams.wrapping import on_seams
from tests.host.stages.test_response_turns import BROKEN, accepted_again, tool_results
from tests.host.test_other_plugins import OneByOne
from tests.support.answers import Gate, Held, call, calls, say
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


# --- loops of their own ----------------------------------------------------------------


def at_once(*, keeps_executor: bool) -> Any:
    """Return a `_handle_function_tools` that announces every call and then runs all at once."""
    from astrbot.core.agent.message import ToolCallMessageSegment
    from astrbot.core.agent.runners.tool_loop_agent_runner import _HandleFunctionToolsResult
    from astrbot.core.message.components import Json
    from astrbot.core.message.message_event_result import MessageChain

    async def handle(self: Any, req: Any, llm_response: Any) -> AsyncGenerator[Any, None]:
        kept = self.tool_executor
        names, ids = llm_response.tools_call_name, llm_response.tools_call_ids
        found = list(zip(names, llm_response.tools_call_args, ids, strict=True))
        for name, arguments, call_id in found:
            data = {"id": call_id, "name": name, "args": arguments}
            chain = MessageChain(type="tool_call", chain=[Json(data=data)])
            yield _HandleFunctionToolsResult.from_message_chain(chain)

        async def one(name: str, arguments: dict[str, Any], call_id: str) -> Any:
            executor = kept if keeps_executor else self.tool_executor
            tool = req.func_tool.get_tool(name)
            results = executor.execute(tool=tool, run_context=self.run_context, **arguments)
            text = "".join([result.content[0].text async for result in results])
            return ToolCallMessageSegment(role="tool", tool_call_id=call_id, content=text)

        blocks = await asyncio.gather(*(one(*each) for each in found))
        yield _HandleFunctionToolsResult.from_tool_call_result_blocks(list(blocks))

    return handle


@pytest.mark.parametrize("keeps_executor", [False, True])
@pytest.mark.parametrize("sibling", ["get_time", "get_weather"])
async def test_calls_that_are_run_at_once_are_told_apart(
    bot: Bot, sibling: str, keeps_executor: bool
) -> None:
    from astrbot.core.agent.runners.tool_loop_agent_runner import ToolLoopAgentRunner

    arguments = {} if sibling == "get_time" else {"city": "Oslo"}
    with pytest.MonkeyPatch.context() as patch:
        handle = at_once(keeps_executor=keeps_executor)
        patch.setattr(ToolLoopAgentRunner, "_handle_function_tools", handle)
        guard = install()
        first = calls(call("get_weather", BROKEN, id="a"), call(sibling, arguments, id="b"))
        bot.server.script(first, say("Done."))
        turn = await bot.say("Weather?", session=f"at-once-{sibling}-{keeps_executor}")
        guard.uninstall()
    assert [(run.tool, run.arguments) for run in turn.invocations] == [(sibling, arguments)]
    assert tool_results(turn)["a"].startswith("error: invalid_arguments")


async def test_where_the_loop_is_no_generator_any_more_the_order_of_the_calls_tells(
    bot: Bot,
) -> None:
    from astrbot.core.agent.runners.tool_loop_agent_runner import ToolLoopAgentRunner

    def wrapper(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> OneByOne:
        return OneByOne(wrapped(*args, **kwargs))

    theirs = wrapt.wrap_function_wrapper(ToolLoopAgentRunner, "_handle_function_tools", wrapper)
    try:
        guard = install()
        turn = await two_steps(bot, "one-by-one-tools")
        guard.uninstall()
    finally:
        wrapt.unwrap_object(ToolLoopAgentRunner, "_handle_function_tools", theirs)
    assert [run.tool for run in turn.invocations] == ["get_time", "get_weather", "get_weather"]


async def test_a_call_that_is_run_again_is_the_one_it_was(bot: Bot) -> None:
    from astrbot.core.agent.runners.tool_loop_agent_runner import ToolLoopAgentRunner

    texts: list[str] = []
    before = ToolLoopAgentRunner._iter_tool_executor_results

    async def twice(self: Any, executor: Any) -> AsyncGenerator[Any, None]:
        async for result in before(self, executor):
            again = self.tool_executor.execute(
                tool=self.req.func_tool.get_tool("get_weather"), run_context=self.run_context
            )
            texts.extend([each.content[0].text async for each in again])
            yield result

    install()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ToolLoopAgentRunner, "_iter_tool_executor_results", twice)
        bot.server.script(calls(call("get_weather", BROKEN, id="a")), say("Done."))
        turn = await bot.say("Weather?", session="again")
    assert turn.invocations == []
    assert [text[:24] for text in texts] == ["error: invalid_arguments"]


async def test_a_nested_run_with_its_parents_executor_is_guarded(bot: Bot) -> None:
    from astrbot.core.agent.runners.tool_loop_agent_runner import ToolLoopAgentRunner

    install()
    runners: list[Any] = []
    events: list[Any] = []
    before = ToolLoopAgentRunner.reset

    async def reset(self: Any, *args: Any, **kwargs: Any) -> Any:
        if runners:
            kwargs["tool_executor"] = runners[0].tool_executor
        runners.append(self)
        return await before(self, *args, **kwargs)

    async def nested(**_: Any) -> str:
        answer = await bot.context.tool_loop_agent(
            event=events[0],
            chat_provider_id="main/model",
            prompt="inner",
            tools=bot.context.get_llm_tool_manager().get_full_tool_set(),
            stream=False,
        )
        return answer.completion_text

    bot.neighbour.on_tool = lambda event, *_: events.append(event)
    bot.neighbour.results["get_time"] = nested
    bot.server.script(
        calls(call("get_time", {}, id="a")),
        calls(call("get_weather", BROKEN, id="b")),
        say("inner"),
        say("Done."),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ToolLoopAgentRunner, "reset", reset)
        turn = await bot.say("Hello?", session="nested")
    assert [run.tool for run in turn.invocations] == ["get_time"]
    assert turn.texts[-1:] == ["Done."]


# --- models they ask, and answers they change, while an answer waits for its execution -------


@pytest.mark.parametrize("theirs", [("get_weather", {"city": "Rome"}), ("get_time", {})])
async def test_a_plugin_that_asks_a_model_about_an_answer_does_not_free_its_calls(
    bot: Bot, theirs: tuple[str, Any]
) -> None:
    from astrbot.core.agent.runners.tool_loop_agent_runner import ToolLoopAgentRunner

    before = ToolLoopAgentRunner._iter_llm_responses

    async def moderated(self: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        async for response in before(self, *args, **kwargs):
            if response.tools_call_name:
                tools = self.req.func_tool
                await self.provider.text_chat(prompt="Is this fine?", func_tool=tools)
            yield response

    install()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ToolLoopAgentRunner, "_iter_llm_responses", moderated)
        bot.server.script(
            calls(call("get_weather", BROKEN, id="a")),
            # Its own answer has calls as well, under the same id.
            calls(call(*theirs, id="a")),
            say("Done."),
        )
        turn = await bot.say("Weather?", session=f"moderated-{theirs[0]}")
    assert turn.invocations == []
    assert tool_results(turn)["a"].startswith("error: invalid_arguments")


async def test_a_task_that_a_tool_left_behind_does_not_free_the_next_calls(bot: Bot) -> None:
    install()
    gate = Gate()
    tasks: list[asyncio.Task[Any]] = []
    provider = bot.provider()

    def leave_a_task(**_: Any) -> str:
        tasks.append(asyncio.create_task(provider.text_chat(prompt="summarize")))
        return "noon"

    def answer(request: Any) -> Any:
        if "summarize" in str(request.messages[-1]):
            return Held(say("A summary."), gate)
        results = [message for message in request.messages if message["role"] == "tool"]
        if not results:
            return calls(call("get_time", {}, id="a"))
        if len(results) == 1:
            return calls(call("get_weather", BROKEN, id="b"), content="Let me look.")
        return say("Done.")

    bot.neighbour.results["get_time"] = leave_a_task
    bot.server.fallback = answer
    event = bot.event("Weather?", session="left-behind")
    event.set_extra("enable_streaming", False)
    send = event.send

    async def sending_takes_a_while(message: Any) -> None:
        if "Let me look" in message.get_plain_text():
            gate.release.set()
            await asyncio.gather(*tasks)
        await send(message)

    event.send = sending_takes_a_while
    turn = await bot.run(event)
    assert len(tasks) == 1
    assert tasks[0].done()
    assert [run.tool for run in turn.invocations] == ["get_time"]


async def test_a_plugin_that_mends_a_name_does_not_free_the_call(bot: Bot) -> None:
    from astrbot.core.agent.runners.tool_loop_agent_runner import ToolLoopAgentRunner

    before = ToolLoopAgentRunner._iter_llm_responses

    async def renamed(self: Any, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        async for response in before(self, *args, **kwargs):
            names = [name.removeprefix("functions.") for name in response.tools_call_name]
            response.tools_call_name = names
            yield response

    install()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ToolLoopAgentRunner, "_iter_llm_responses", renamed)
        bot.server.script(calls(call("functions.get_weather", BROKEN, id="a")), say("Done."))
        turn = await bot.say("Weather?", session="renamed")
    assert turn.invocations == []
    assert tool_results(turn)["a"].startswith("error: invalid_arguments")


async def test_a_call_of_an_unguarded_answer_is_not_taken_for_an_earlier_one(bot: Bot) -> None:
    """Gateways count their ids anew in each answer."""
    guard = install()
    bot.neighbour.on_tool_done = lambda *_: setattr(guard, "settings", Settings(enabled=False))
    bot.server.script(
        calls(call("get_time", '{"a', id="call_0")),
        calls(call("get_time", {}, id="call_0")),
        say("Done."),
    )
    turn = await bot.say("The time?", session="stale")
    assert [run.tool for run in turn.invocations] == ["get_time"]
