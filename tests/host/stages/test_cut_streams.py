"""The connection to the provider dies at each byte of a stream: as without the guard."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from astrbot import logger as astrbot_logger

from astrbot_tool_guard.host.guard import Guard, install
from tests.host.conftest import Told
from tests.support.answers import Chunks, Cut
from tests.support.bot import Bot


def event(delta: dict[str, Any], finish: str | None = None) -> str:
    """Return one event that is as short as can be, so that there are few bytes to cut at."""
    choice = {"index": 0, "delta": delta} | ({"finish_reason": finish} if finish else {})
    return json.dumps({"choices": [choice]}, separators=(",", ":"))


def entry(**more: Any) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, **more}]}


SHORT = Chunks(
    [
        event({"content": "Hm."}),
        event(entry(id="a", function={"name": "get_time", "arguments": "{"})),
        event(entry(function={"arguments": "}"}), "tool_calls"),
    ]
)
BYTES = sum(len(f"data: {each}\n\n") for each in SHORT.chunks) + len("data: [DONE]\n\n")

STEP = 1 if os.environ.get("THOROUGH") else 7
"""Each byte takes minutes; without `THOROUGH=1` every seventh stands for them."""
CUTS = range(0, BYTES + 1, STEP)


async def outcome(bot: Bot, answer: Any) -> tuple[list[str], str]:
    """Return what a provider's stream gave before it ended, and the error it ended with."""
    bot.server.script(answer)
    tools = bot.context.get_llm_tool_manager().get_full_tool_set()
    seen: list[str] = []
    try:
        async for each in bot.provider().text_chat_stream(
            prompt="hi", func_tool=tools, request_max_retries=1
        ):
            calls = list(zip(each.tools_call_name, each.tools_call_args, strict=True))
            seen.append(each.completion_text if each.is_chunk else f"final {calls}")
    except Exception as error:
        return seen, f"{type(error).__name__}: {error}"
    return seen, ""


async def test_a_connection_that_dies_at_any_byte_ends_the_answer_as_without_the_guard(
    bot: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    # AstrBot logs a whole traceback for each, which takes longer than all the rest.
    monkeypatch.setattr(astrbot_logger, "disabled", True)
    bare = [await outcome(bot, Cut(SHORT, after=after)) for after in CUTS]
    guard = install()
    told = Told()
    guard.subscribe(told.events.append)
    try:
        guarded = [await outcome(bot, Cut(SHORT, after=after)) for after in CUTS]
    finally:
        guard.uninstall()
    for after, with_us, without_us in zip(CUTS, guarded, bare, strict=True):
        assert with_us == without_us, f"cut after {after} bytes of {BYTES}"
    assert len(told.attempts) >= len(CUTS)
    assert [each for each in told.incidents if each.kind == "guard_fault"] == []
    assert any(error for _, error in bare)


async def test_uncut_the_answer_is_whole(bot: Bot, guard: Guard) -> None:
    seen, error = await outcome(bot, SHORT)
    assert error == ""
    assert seen == ["Hm.", "final [('get_time', {})]"]


async def test_a_turn_whose_stream_dies_is_as_without_the_guard(bot: Bot, no_waiting: None) -> None:
    async def turns() -> list[Any]:
        came: list[Any] = []
        for after in range(0, BYTES, 30):
            bot.server.script(*[Cut(SHORT, after=after)] * 20)
            bot.neighbour.invocations.clear()
            turn = await bot.say("Weather?", session="cut-turns", streaming=True)
            bot.server.reset()
            runs = [(run.tool, run.arguments) for run in turn.invocations]
            came.append((after, turn.texts, runs, len(turn.requests)))
        return came

    bare = await turns()
    guard = install()
    try:
        guarded = await turns()
    finally:
        guard.uninstall()
    assert guarded == bare
