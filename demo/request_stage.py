"""Requests whose tool calls and results do not pair, as bots come to send them."""

from __future__ import annotations

from typing import Any

from tests.support.answers import call, calls, say
from tests.support.bot import MAIN, Bot

from .scene import Scenario, Seen, Table, nothing_sent, same_as_alone, seen_by, seen_in


def history(*answered: str, first: str = "call_a", second: str = "call_b") -> list[dict[str, Any]]:
    """Return a conversation with two parallel calls, of which `answered` have results."""
    asked = [
        call("get_weather", {"city": "Oslo"}, id=first),
        call("get_weather", {"city": "Rome"}, id=second),
    ]
    return [
        {"role": "user", "content": "Compare the weather in Oslo and in Rome."},
        {"role": "assistant", "content": None, "tool_calls": asked},
        *({"role": "tool", "tool_call_id": id, "content": "12 C"} for id in answered),
        {"role": "assistant", "content": "The same in both."},
    ]


BROKEN = history("call_a")
HEALTHY = history("call_a", "call_b")


async def healthy(bot: Bot, session: str, streaming: bool) -> Seen:
    oslo, rome = call("get_weather", {"city": "Oslo"}), call("get_weather", {"city": "Rome"})
    bot.server.script(calls(oslo, rome), say("The same in both."))
    return seen_in(await bot.say("And tomorrow?", session=session, streaming=streaming))


async def half_answered(bot: Bot, session: str, streaming: bool) -> Seen:
    await bot.set_history(session, BROKEN)
    return seen_in(await bot.say("And tomorrow?", session=session, streaming=streaming))


async def removed_by_plugin(bot: Bot, session: str, streaming: bool) -> Seen:
    def forget_a_result(event: Any, request: Any) -> None:
        kept = [item for item in request.contexts if item.get("tool_call_id") != "call_b"]
        request.contexts = kept

    await bot.set_history(session, HEALTHY)
    bot.neighbour.on_request = forget_a_result
    return seen_in(await bot.say("And tomorrow?", session=session, streaming=streaming))


async def broken_override(bot: Bot, session: str, streaming: bool) -> Seen:
    with bot.provider_config(custom_extra_body={"messages": BROKEN}):
        return seen_in(await bot.say("And tomorrow?", session=session, streaming=streaming))


async def null_override(bot: Bot, session: str, streaming: bool) -> Seen:
    with bot.provider_config(custom_extra_body={"messages": None}):
        return seen_in(await bot.say("And tomorrow?", session=session, streaming=streaming))


async def every_key_and_provider(bot: Bot, session: str, streaming: bool) -> Seen:
    # AstrBot looks for "429" in the text of an error, and the provider quotes the id.
    await bot.set_history(session, history("call_a", second="call_42971"))
    async with bot.changed(fallbacks=["backup/model"]):
        return seen_in(await bot.say("And tomorrow?", session=session, streaming=streaming))


async def direct_call(bot: Bot, session: str, streaming: bool) -> Seen:
    provider = bot.provider(MAIN)
    try:
        if streaming:
            stream = provider.text_chat_stream(prompt="And tomorrow?", contexts=BROKEN)
            answer = [piece async for piece in stream][-1]
        else:
            answer = await provider.text_chat(prompt="And tomorrow?", contexts=BROKEN)
        told = answer.completion_text
    except Exception as error:
        told = f"(the plugin gets {type(error).__name__}: {error})"
    return seen_by(bot.server.requests, [told])


BLOCKED = nothing_sent("/toolguard explain")

TABLE = Table(
    "Requests: tool calls and results that do not pair",
    (
        Scenario("Healthy parallel calls", healthy, same_as_alone),
        Scenario("Half-answered parallel calls in the history", half_answered, BLOCKED),
        Scenario("Another plugin removes a result before the request", removed_by_plugin, BLOCKED),
        Scenario("Broken messages in `custom_extra_body`", broken_override, BLOCKED),
        Scenario("Messages `null` in `custom_extra_body`", null_override, BLOCKED),
        Scenario(
            "Two keys, a fallback provider, and an id with 429 in it",
            every_key_and_provider,
            BLOCKED,
        ),
        Scenario(
            "Another plugin calls the provider itself",
            direct_call,
            nothing_sent("ToolMessageProtocolError"),
        ),
    ),
)
