"""Streams that end badly, and the guard's own faults: AstrBot goes on as without it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from astrbot_tool_guard.core.calls.assembly import CallAssembler
from astrbot_tool_guard.core.calls.chat_completions import ChatReader
from astrbot_tool_guard.host.agent.execution import GuardedExecutor
from astrbot_tool_guard.host.guard import Guard
from astrbot_tool_guard.host.protocols.chat_completions import dialect, writing
from astrbot_tool_guard.host.stages import reading, streamed
from astrbot_tool_guard.settings.settings import Settings
from tests.host.conftest import Told
from tests.support.answers import Chunks, Cut, Gate, Held, Raw, call, calls, chunk, say
from tests.support.bot import Bot, Turn

streaming = pytest.mark.parametrize("streaming", [False, True], ids=["complete", "stream"])

TWO_CALLS = calls(
    call("get_weather", {"city": "Oslo"}, id="a"), call("get_time", {}, id="b"), content="Hm."
)


def tools(bot: Bot) -> Any:
    return bot.context.get_llm_tool_manager().get_full_tool_set()


async def outcome(bot: Bot, answer: Any) -> tuple[list[str], str]:
    """Return what a provider's stream gave before it ended, and the error it ended with."""
    bot.server.script(answer)
    seen: list[str] = []
    try:
        async for each in bot.provider().text_chat_stream(prompt="hi", func_tool=tools(bot)):
            seen.append(each.completion_text if each.is_chunk else f"final {each.tools_call_name}")
    except Exception as error:
        return seen, type(error).__name__
    return seen, ""


@pytest.mark.parametrize("after", range(0, 1400, 100))
async def test_a_provider_that_dies_in_mid_stream_surfaces_as_without_the_guard(
    bot: Bot, guard: Guard, told: Told, after: int
) -> None:
    answer = Cut(say("Some words that are sent in pieces of twelve characters."), after=after)
    guarded = await outcome(bot, answer)
    assert [attempt.outcome for attempt in told.attempts] == ["failed"]
    assert told.attempts[0].error
    guard.uninstall()
    assert guarded == await outcome(bot, answer)


async def test_an_error_object_in_mid_stream_surfaces_as_without_the_guard(
    bot: Bot, guard: Guard
) -> None:
    part = {"tool_calls": [{"index": 0, "id": "x", "function": {"name": "get_time"}}]}
    answer = Chunks([chunk({"content": "Hm"}), chunk(part), {"error": {"message": "overloaded"}}])
    guarded = await outcome(bot, answer)
    assert guarded == (["Hm"], "APIError")
    guard.uninstall()
    assert await outcome(bot, answer) == guarded


async def test_an_empty_stream_ends_the_turn_as_an_empty_answer_does(
    bot: Bot, guard: Guard, no_waiting: None
) -> None:
    assert await outcome(bot, Chunks([])) == ([], "")
    bot.server.script(Chunks([]), Chunks([]), Chunks([]))
    turn = await bot.say("Hello?", session="empty-stream", streaming=True)
    assert len(turn.texts) == 1
    assert len(turn.requests) <= 3


async def test_an_answer_that_is_no_stream_at_all_is_not_ours_to_mend(
    bot: Bot, guard: Guard
) -> None:
    body = b"<html>502</html>"
    raw = Raw(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n" % len(body)
        + body
    )
    guarded = await outcome(bot, raw)
    guard.uninstall()
    # Without the guard AstrBot has no final answer and says so in its log only.
    assert (await outcome(bot, raw))[0] == guarded[0] == []


async def test_closing_early_closes_the_connection(bot: Bot, guard: Guard, told: Told) -> None:
    gate = Gate()
    bot.server.script(Held(say("Words, words, words, words."), gate, after=3))
    responses = bot.provider().text_chat_stream(prompt="hi")
    await anext(responses)
    await responses.aclose()
    gate.release.set()
    async with asyncio.timeout(5):
        await bot.server.idle()
    await asyncio.sleep(0)
    assert [(each.outcome, each.error) for each in told.attempts] == [("failed", "GeneratorExit")]


async def test_cancelling_closes_the_connection_and_stays_a_cancellation(
    bot: Bot, guard: Guard, told: Told
) -> None:
    gate = Gate()
    bot.server.script(Held(TWO_CALLS, gate, after=4))

    async def consume() -> None:
        async for _ in bot.provider().text_chat_stream(prompt="hi", func_tool=tools(bot)):
            pass

    task = asyncio.create_task(consume())
    await gate.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.release.set()
    async with asyncio.timeout(5):
        await bot.server.idle()
    assert [(each.outcome, each.error) for each in told.attempts] == [("failed", "CancelledError")]


async def test_cancelling_a_retry_tells_both_attempts(bot: Bot, guard: Guard, told: Told) -> None:
    gate = Gate()
    bot.server.script(calls(call("get_weather", "", id="x")), Held(say("Hm."), gate, after=1))

    async def consume() -> None:
        async for _ in bot.provider().text_chat_stream(prompt="hi", func_tool=tools(bot)):
            pass

    task = asyncio.create_task(consume())
    await gate.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.release.set()
    assert [each.outcome for each in told.attempts] == ["discarded", "failed"]


async def test_a_retry_that_does_not_come_in_time_leaves_the_first_answer(
    bot: Bot, guard: Guard, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    bot.server.script(calls(call("get_weather", "", id="x")), Held(say("Hm."), gate))
    asked = asyncio.wait_for

    async def at_once(awaitable: Any, _seconds: float) -> Any:
        """Let the time be over as soon as the retry is on its way."""
        return await asked(awaitable, 0.05)

    monkeypatch.setattr(streamed.asyncio, "wait_for", at_once)
    *_, final = [
        each async for each in bot.provider().text_chat_stream(prompt="hi", func_tool=tools(bot))
    ]
    gate.release.set()
    assert final.tools_call_ids == ["x"]
    assert [(each.outcome, each.error) for each in told.attempts] == [
        ("accepted_degraded", None),
        ("failed", "TimeoutError"),
    ]


# --- our own faults -------------------------------------------------------------------------


class OwnFaultError(Exception):
    """Raised in the place of our own code."""


def broken(*_: Any, **__: Any) -> Any:
    raise OwnFaultError("SECRET")


FAULTS: dict[str, tuple[Any, str, tuple[bool, ...]]] = {
    "a piece": (CallAssembler, "add", (True,)),
    "a chunk": (ChatReader, "take", (True,)),
    "the end of a stream": (CallAssembler, "finish", (True,)),
    "checking": (reading, "check_calls", (True, False)),
    "the verdict": (reading, "judge", (True, False)),
    "the whole calls": (writing, "ending", (True,)),
    "a message": (writing, "first_message", (False,)),
    "entries": (dialect, "read_completion", (False,)),
    "mending": (writing, "mend_completion", (False,)),
    "the executor": (GuardedExecutor, "_call", (True, False)),
}


@pytest.mark.parametrize(
    ("name", "streaming"),
    [(name, each) for name, (_, _, ways) in FAULTS.items() for each in ways],
)
async def test_a_fault_of_ours_leaves_the_turn_as_it_is_without_the_guard(
    bot: Bot, guard: Guard, monkeypatch: pytest.MonkeyPatch, name: str, streaming: bool
) -> None:
    async def turn(session: str) -> Turn:
        bot.server.script(TWO_CALLS, say("Done."))
        bot.neighbour.invocations.clear()
        return await bot.say("Weather?", session=session, streaming=streaming)

    owner, attribute, _ = FAULTS[name]
    with monkeypatch.context() as patch:
        patch.setattr(owner, attribute, broken)
        guarded = await turn(f"fault-{name}-{streaming}")
    told = [line for line in guarded.log if line.startswith("ERROR")]
    assert len(told) == 1
    assert "Tool Call Guard" in told[0]
    assert "SECRET" not in told[0]
    guard.uninstall()
    bare = await turn(f"bare-{name}-{streaming}")
    assert guarded.text == bare.text
    assert [(run.tool, run.arguments) for run in guarded.invocations] == [
        (run.tool, run.arguments) for run in bare.invocations
    ]
    assert [request.messages[2:] for request in guarded.requests] == [
        request.messages[2:] for request in bare.requests
    ]


async def test_a_fault_over_another_transport_asks_as_the_caller_did(
    bot: Bot, guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard.settings = Settings(stream_transport="stream")
    monkeypatch.setattr(ChatReader, "take", broken)
    bot.server.script(say("one"), say("two"))
    response_ = await bot.provider().text_chat(prompt="hi")
    assert response_.completion_text == "two"
    assert [request.stream for request in bot.server.requests] == [True, False]


# --- odd shapes that a provider may send -----------------------------------------------------

ODD_CHUNKS: list[Any] = [
    {**chunk({}), "choices": None},
    {**chunk({}), "choices": [None]},
    {**chunk({}), "choices": ["x"]},
    {**chunk({}), "choices": {"index": 0}},
    chunk(None),
    {**chunk({}), "choices": [{"index": 0, "delta": "x", "finish_reason": None}]},
    {**chunk({}), "choices": [{"index": "0", "delta": {"content": ""}, "finish_reason": None}]},
    {**chunk({}), "choices": [{"delta": {"content": ""}}]},
    chunk({"tool_calls": "x"}),
    chunk({"tool_calls": [None, 5, "{", ["x"]]}),
    chunk({"tool_calls": [{"index": "x", "id": 5, "type": 5, "function": 5}]}),
    chunk({"tool_calls": {"index": 0}}),
    chunk({}, finish_reason=None) | {"usage": 5},
    {**chunk({}), "choices": [], "prompt_filter_results": []},
    [1],
    5,
]


@pytest.mark.parametrize("odd", ODD_CHUNKS, ids=lambda odd: str(odd)[:60])
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
async def test_an_odd_chunk_changes_nothing_of_the_answer(
    bot: Bot, guard: Guard, odd: Any, first: bool
) -> None:
    import json

    whole = list(TWO_CALLS.chunks("model"))
    at = 0 if first else 3
    sent = [*whole[:at], odd if isinstance(odd, dict) else json.dumps(odd), *whole[at:]]
    seen, error = await outcome(bot, Chunks(sent))
    assert error == ""
    assert seen == ["Hm.", "final ['get_weather', 'get_time']"]
    assert not [line for line in bot.log.lines if line.startswith("ERROR Tool Call Guard")]


async def test_an_answer_of_a_second_choice_is_not_taken_for_the_first(
    bot: Bot, guard: Guard
) -> None:
    def other(delta: dict[str, Any]) -> dict[str, Any]:
        return {**chunk({}), "choices": [{"index": 1, "delta": delta, "finish_reason": None}]}

    foreign = {"tool_calls": [{"index": 0, "id": "z", "function": {"name": "get_time"}}]}
    sent = [chunk({"content": "Hm."}), other({"content": "No."}), other(foreign),
            chunk({}, finish_reason="stop")]  # fmt: skip
    assert await outcome(bot, Chunks(sent)) == (["Hm.", "final []"], "")


async def test_a_schema_that_is_not_valid_is_told_once_per_tool(bot: Bot, guard: Guard) -> None:
    from astrbot.core.agent.tool import FunctionTool, ToolSet

    tool_set = ToolSet([FunctionTool("odd", "", {}, None)])
    declared = {"name": "odd", "parameters": {"type": "any", "required": ["a"]}}
    tool_set.get_func_desc_openai_style = lambda **_: [{"type": "function", "function": declared}]  # type: ignore[method-assign]
    for _ in range(3):
        bot.server.script(calls(call("odd", {}, id="x")))
        await bot.provider().text_chat(prompt="hi", func_tool=tool_set)
    warnings = [line for line in bot.log.lines if "not valid JSON Schema" in line]
    assert len(warnings) == 1


async def test_a_large_schema_is_judged_beside_the_event_loop(
    bot: Bot, guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    from astrbot.core.agent.tool import FunctionTool, ToolSet

    where: list[bool] = []
    inline = reading.check_calls

    def noted(*args: Any, **kwargs: Any) -> Any:
        where.append(threading.current_thread() is threading.main_thread())
        return inline(*args, **kwargs)

    monkeypatch.setattr(reading, "check_calls", noted)
    guard.settings = Settings(tool_argument_validation="strict")
    large = {"properties": {f"p{n}": {"description": "x" * 40} for n in range(200)}}
    tool_set = ToolSet([FunctionTool("large", "", {}, None)])
    declared = {"name": "large", "parameters": large}
    tool_set.get_func_desc_openai_style = lambda **_: [{"type": "function", "function": declared}]  # type: ignore[method-assign]
    for _ in range(2):
        bot.server.script(calls(call("large", {}, id="x")))
        await bot.provider().text_chat(prompt="hi", func_tool=tool_set)
    assert where == [False, True]


async def test_a_client_that_is_not_astrbots_is_not_touched(bot: Bot, guard: Guard) -> None:
    from openai import AsyncOpenAI

    async with AsyncOpenAI(api_key="sk-own", base_url=bot.server.url) as client:
        bot.server.script(calls(call("get_weather", "{", id="")))
        completion = await client.chat.completions.create(
            model="model", messages=[{"role": "user", "content": "hi"}]
        )
    (only,) = completion.choices[0].message.tool_calls or []
    assert only.id == ""
    assert only.function.arguments == "{"  # type: ignore[union-attr]
