"""A blocked request in a turn of the bot: nothing is sent, and the user reads one sentence."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

from astrbot_tool_guard.core.errors import ToolMessageProtocolError
from astrbot_tool_guard.core.messages.pairing import find_violations
from astrbot_tool_guard.host.guard import Guard
from astrbot_tool_guard.host.stages.request import RequestStage
from astrbot_tool_guard.settings.settings import Settings
from astrbot_tool_guard.texts.texts import blocked_sentence
from tests.host.conftest import Told
from tests.host.stages.lists import BROKEN, HALF_ANSWERED, HEALTHY, THANKS, USER, declare, result
from tests.support.answers import Failure, Gate, Held, call, calls, say
from tests.support.bot import BACKUP, Bot, Turn

streaming = pytest.mark.parametrize("streaming", [False, True], ids=["complete", "stream"])


def opens(text: str, language: Literal["zh", "en"] = "en") -> bool:
    """Tell whether a text begins as the block sentence does."""
    any_violation = find_violations(HALF_ANSWERED)
    return text.startswith(blocked_sentence(language, any_violation)[:8])


def is_blocked(turn: Turn, language: Literal["zh", "en"] = "en") -> bool:
    """Tell whether the user read the block sentence, and nothing else."""
    return len(turn.texts) == 1 and opens(turn.texts[0], language)


@streaming
async def test_nothing_is_sent_with_two_keys_and_a_fallback(
    bot: Bot, guard: Guard, told: Told, streaming: bool
) -> None:
    await bot.set_history("bricked", HALF_ANSWERED)
    async with bot.changed(fallbacks=[BACKUP], request_max_retries=3):
        turn = await bot.say("Hello?", session="bricked", streaming=streaming)
    assert turn.requests == []
    assert is_blocked(turn)
    assert len(told.attempts) == 1


@streaming
@pytest.mark.parametrize("rule", BROKEN)
async def test_a_broken_override_ends_the_turn_with_the_sentence(
    bot: Bot, guard: Guard, rule: str, streaming: bool
) -> None:
    with bot.provider_config(custom_extra_body={"messages": BROKEN[rule]}):
        async with bot.changed(fallbacks=[BACKUP]):
            turn = await bot.say("Hello?", session=f"{rule}-{streaming}", streaming=streaming)
    assert turn.requests == []
    assert is_blocked(turn)


@streaming
async def test_a_result_taken_away_by_another_plugin_is_stopped(
    bot: Bot, guard: Guard, streaming: bool
) -> None:
    def take_away(event: object, request: Any) -> None:
        request.contexts = [m for m in request.contexts if m.get("tool_call_id") != "a"]

    bot.neighbour.on_request = take_away
    await bot.set_history("robbed", HEALTHY)
    turn = await bot.say("Hello?", session="robbed", streaming=streaming)
    assert turn.requests == []
    assert is_blocked(turn)


@streaming
async def test_the_sentence_is_in_the_chats_language(
    bot: Bot, guard: Guard, streaming: bool
) -> None:
    await bot.set_history("chinese", HALF_ANSWERED)
    turn = await bot.say("你好，在吗？", session="chinese", streaming=streaming)
    assert is_blocked(turn, "zh")


async def test_the_language_setting_wins(bot: Bot, guard: Guard) -> None:
    guard.settings = Settings(language="zh")
    await bot.set_history("set", HALF_ANSWERED)
    turn = await bot.say("Hello?", session="set")
    assert is_blocked(turn, "zh")


@streaming
async def test_a_personas_own_error_text_wins(bot: Bot, guard: Guard, streaming: bool) -> None:
    def set_text(event: Any, request: object) -> None:
        event.set_extra("persona_custom_error_message", "My head hurts.")

    bot.neighbour.on_request = set_text
    await bot.set_history("persona", HALF_ANSWERED)
    turn = await bot.say("Hello?", session="persona", streaming=streaming)
    assert turn.texts == ["My head hurts."]
    assert turn.requests == []


@streaming
async def test_the_log_names_session_provider_rules_and_no_content(
    bot: Bot, guard: Guard, streaming: bool
) -> None:
    history = [{"role": "user", "content": "SECRET"}, declare("SECRET-ID"), THANKS]
    await bot.set_history("logged", history)
    turn = await bot.say("Hello?", session="logged", streaming=streaming)
    (line,) = [line for line in turn.log if "Tool Call Guard" in line]
    assert line.startswith("WARNING Tool Call Guard: blocked a request")
    assert bot.umo("logged") in line
    assert "main/model" in line
    assert "unanswered_call at message 2, call 0" in line
    assert not any("SECRET" in line for line in turn.log)
    assert not any(line.startswith("ERROR") for line in turn.log)


@streaming
async def test_a_blocked_turn_adds_nothing_to_the_history(
    bot: Bot, guard: Guard, streaming: bool
) -> None:
    await bot.set_history("kept", HALF_ANSWERED)
    await bot.say("Hello?", session="kept", streaming=streaming)
    assert await bot.history("kept") == HALF_ANSWERED


@streaming
async def test_the_next_turn_of_a_healthy_conversation_goes_on(
    bot: Bot, guard: Guard, streaming: bool
) -> None:
    with bot.provider_config(custom_extra_body={"messages": None}):
        assert is_blocked(await bot.say("Hello?", session="next", streaming=streaming))
    assert (await bot.say("Again?", session="next", streaming=streaming)).texts == ["OK."]


@streaming
async def test_a_list_broken_in_the_middle_of_a_run_is_stopped_there(
    bot: Bot, guard: Guard, streaming: bool
) -> None:
    def break_it(event: object, tool: object, arguments: object, result: object) -> None:
        bot.provider().provider_config["custom_extra_body"] = {"messages": None}

    bot.neighbour.on_tool_done = break_it
    bot.server.script(calls(call("get_time")))
    with bot.provider_config(custom_extra_body={}):
        turn = await bot.say("The time?", session="middle", streaming=streaming)
    assert len(turn.requests) == 1
    assert len(turn.invocations) == 1
    assert opens(turn.texts[-1])


LOUD = "index=429, this tool is not in support of the maximum context length"


class LoudError(ToolMessageProtocolError):
    """Ours, with every text that AstrBot looks for."""

    def __str__(self) -> str:
        return LOUD


@streaming
async def test_no_text_in_the_error_makes_astrbot_try_again(
    bot: Bot, guard: Guard, monkeypatch: pytest.MonkeyPatch, streaming: bool
) -> None:
    checks = 0
    real = RequestStage.settle

    def check(*args: Any) -> Any:
        nonlocal checks
        checks += 1
        try:
            return real(*args)
        except ToolMessageProtocolError as error:
            raise LoudError(error.violations) from None

    monkeypatch.setattr(RequestStage, "settle", check)
    await bot.set_history("loud", HALF_ANSWERED)
    async with bot.changed(fallbacks=[BACKUP], request_max_retries=3):
        turn = await bot.say("Hello?", session="loud", streaming=streaming)
    assert checks == 1
    assert is_blocked(turn)
    assert turn.requests == []


@streaming
async def test_a_violation_at_message_429_is_no_rate_limit(
    bot: Bot, guard: Guard, told: Told, streaming: bool
) -> None:
    long = [USER, {"role": "assistant", "content": "OK."}] * 214 + [declare("a"), THANKS]
    await bot.set_history("long", long)
    with bot.provider_config(max_context_tokens=0):
        turn = await bot.say("Hello?", session="long", streaming=streaming)
    assert "429" in told.incidents[0].problems[0]
    assert is_blocked(turn)
    assert len(told.attempts) == 1


async def test_the_second_request_of_skills_like_is_stopped_with_the_sentence(
    bot: Bot, guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    from astrbot.core.agent.runners.tool_loop_agent_runner import ToolLoopAgentRunner

    def broken(*_: object, **__: object) -> list[Any]:
        return HALF_ANSWERED

    monkeypatch.setattr(ToolLoopAgentRunner, "_build_tool_requery_context", broken)
    for streaming in (False, True):
        bot.server.reset()
        bot.server.script(calls(call("get_weather")))
        async with bot.changed(misc={"tool_schema_mode": "skills_like"}):
            turn = await bot.say("Weather?", session=f"skills-{streaming}", streaming=streaming)
        assert len(turn.requests) == 1
        assert turn.invocations == []
        assert is_blocked(turn)


async def ask_sub_agent(bot: Bot, event: Any, contexts: list[Any]) -> str:
    """Run an agent inside a tool, as a hand-off does."""
    answer = await bot.context.tool_loop_agent(
        event=event, chat_provider_id="main/model", prompt="Go on.", contexts=contexts
    )
    return answer.completion_text


@streaming
async def test_a_blocked_sub_agent_is_told_to_the_agent_that_asked(
    bot: Bot, guard: Guard, told: Told, streaming: bool
) -> None:
    event = bot.event("The time?", session="nested")
    event.set_extra("enable_streaming", streaming)

    async def delegate() -> str:
        return await ask_sub_agent(bot, event, HALF_ANSWERED)

    bot.neighbour.results["get_time"] = delegate
    bot.server.script(calls(call("get_time", id="one")), say("I could not ask."))
    turn = await bot.run(event)
    assert turn.texts[-1] == "I could not ask."
    assert len(turn.requests) == 2
    given = [m["content"] for m in turn.requests[1].messages if m["role"] == "tool"]
    assert opens(given[0])
    assert [incident.session for incident in told.incidents] == [bot.umo("nested")]


@pytest.mark.parametrize("tool_schema_mode", ["full", "skills_like"])
async def test_a_later_error_of_the_outer_run_keeps_its_own_text(
    bot: Bot, guard: Guard, monkeypatch: pytest.MonkeyPatch, tool_schema_mode: str
) -> None:
    from astrbot.core.agent.runners.tool_loop_agent_runner import ToolLoopAgentRunner
    from astrbot.core.agent.tool import ToolSet

    def broken(*_: object, **__: object) -> list[Any]:
        return HALF_ANSWERED

    event = bot.event("The time?", session=f"later-{tool_schema_mode}")
    weather = bot.context.get_llm_tool_manager().get_func("get_weather")

    async def delegate() -> str:
        # In the one mode its first request is blocked, in the other its second, which
        # leaves the inner run as an exception.
        first = HALF_ANSWERED if tool_schema_mode == "full" else []
        answer = await bot.context.tool_loop_agent(
            event=event,
            chat_provider_id="main/model",
            prompt="Go on.",
            contexts=first,
            tools=ToolSet([weather]),
            tool_schema_mode=tool_schema_mode,
        )
        return answer.completion_text

    monkeypatch.setattr(ToolLoopAgentRunner, "_build_tool_requery_context", broken)
    bot.neighbour.results["get_time"] = delegate
    inner = [calls(call("get_weather"))] if tool_schema_mode == "skills_like" else []
    bot.server.script(calls(call("get_time")), *inner, Failure(400, "The model is asleep."))
    turn = await bot.run(event)
    assert bot.server.unused == 0
    assert "The model is asleep." in turn.texts[-1]
    assert not opens(turn.texts[-1])


@streaming
async def test_sessions_at_once_do_not_see_each_other(
    bot: Bot, guard: Guard, told: Told, streaming: bool
) -> None:
    gate = Gate()
    bot.server.script(Held(say("Late."), gate))
    await bot.set_history("broken-one", HALF_ANSWERED)
    await bot.set_history("broken-two", [USER, declare("a"), result("b"), THANKS])
    healthy = asyncio.create_task(bot.say("Hello?", session="healthy", streaming=streaming))
    await gate.reached.wait()
    one, two = await asyncio.gather(
        bot.say("你好", session="broken-one", streaming=streaming),
        bot.say("Hello?", session="broken-two", streaming=streaming),
    )
    gate.release.set()
    assert is_blocked(one, "zh")
    assert is_blocked(two, "en")
    assert (await healthy).texts == ["Late."]
    assert {incident.session: incident.problems for incident in told.incidents} == {
        bot.umo("broken-one"): ("unanswered_call at message 2, call 1",),
        bot.umo("broken-two"): ("unanswered_call at message 2, call 0",),
    }


@streaming
async def test_a_fault_of_ours_is_one_line_and_the_turn_goes_on(
    bot: Bot, guard: Guard, told: Told, monkeypatch: pytest.MonkeyPatch, streaming: bool
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("SECRET")

    monkeypatch.setattr(RequestStage, "settle", fail)
    first = await bot.say("Hello?", session="fault", streaming=streaming)
    second = await bot.say("Hello?", session="fault", streaming=streaming)
    assert (first.texts, second.texts) == (["OK."], ["OK."])
    lines = [line for line in first.log + second.log if line.startswith("ERROR")]
    assert len(lines) == 1
    assert lines[0].endswith(
        f"request stage: RuntimeError in fail:{fail.__code__.co_firstlineno + 1}"
    )
    assert [incident.kind for incident in told.incidents] == ["guard_fault"]


async def test_the_prefix_of_the_command_is_the_bots(bot: Bot, guard: Guard, told: Told) -> None:
    before, bot.config["wake_prefix"] = bot.config["wake_prefix"], ["#"]
    try:
        await bot.set_history("prefix", HALF_ANSWERED)
        turn = await bot.say("Hello?", session="prefix")
    finally:
        bot.config["wake_prefix"] = before
    assert "#toolguard doctor" in turn.text
