"""The harness itself: a turn of a real AstrBot against the embedded server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.answers import call, calls, say
from tests.support.bot import Bot

HALF_ANSWERED = [
    {"role": "user", "content": "Weather and time?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [call("get_weather", {"city": "Oslo"}, id="a"), call("get_time", id="b")],
    },
    {"role": "tool", "tool_call_id": "a", "content": "12 C"},
    {"role": "user", "content": "Thanks."},
    {"role": "assistant", "content": "You are welcome."},
]


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_turn_runs_tools_and_shows_the_answer(bot: Bot, streaming: bool) -> None:
    bot.server.script(
        calls(call("get_weather", {"city": "Oslo"}), call("get_time")), say("It is 12 C.")
    )
    turn = await bot.say("Weather and time?", session=f"turn-{streaming}", streaming=streaming)
    assert turn.texts == ["It is 12 C."]
    assert [(run.tool, run.arguments) for run in turn.invocations] == [
        ("get_weather", {"city": "Oslo"}),
        ("get_time", {}),
    ]
    assert [request.stream for request in turn.requests] == [streaming, streaming]
    roles = [message["role"] for message in await bot.history(f"turn-{streaming}")]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]


async def test_a_broken_history_is_refused_by_every_provider(bot: Bot) -> None:
    await bot.set_history("bricked", HALF_ANSWERED)
    async with bot.changed(fallbacks=["backup/model"]):
        turn = await bot.say("Hello?", session="bricked")
    assert [request.key.rsplit("-", 1)[0] for request in turn.requests] == ["sk-main", "sk"]
    assert len(turn.refused) == 2
    assert "must be followed by tool messages" in turn.text


async def test_another_plugin_sees_and_changes_a_request(bot: Bot) -> None:
    def add_orphan(event: Any, request: Any) -> None:
        request.contexts.append({"role": "tool", "tool_call_id": "x", "content": "12 C"})

    bot.neighbour.on_request = add_orphan
    with bot.provider_config(custom_extra_body={"temperature": 0}):
        turn = await bot.say("Hello?", session="hooked")
    assert turn.requests[0].body["temperature"] == 0
