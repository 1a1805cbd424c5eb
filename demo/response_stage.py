"""Answers whose tool calls are broken, as providers and gateways send them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.support.answers import Answer, Chunks, call, calls, chunk
from tests.support.bot import Bot

from .scene import Play, Promise, Scenario, Seen, Table, Way, next_turn_accepted, seen_in

STREAMING: tuple[Way, ...] = ("streaming",)
OSLO = {"city": "Oslo"}


def piece(**entry: Any) -> dict[str, Any]:
    """Return a chunk with one piece of a call."""
    return chunk({"tool_calls": [entry]})


def head(name: str, arguments: str = "", **entry: Any) -> dict[str, Any]:
    """Return a chunk that begins a call."""
    return piece(**entry, type="function", function={"name": name, "arguments": arguments})


def more(arguments: str, **entry: Any) -> dict[str, Any]:
    """Return a chunk that goes on with a call's arguments."""
    return piece(**entry, function={"arguments": arguments})


def stream(*chunks: dict[str, Any], finish: str | None = "tool_calls") -> Chunks:
    """Return a stream of `chunks`, ended by a finish reason unless that is `None`."""
    end = [chunk({}, finish_reason=finish)] if finish else []
    return Chunks([*chunks, *end])


def turn(*answers: Answer) -> Play:
    """Return a play: the model gives `answers` and then text, and one more turn follows."""

    async def played(bot: Bot, session: str, streaming: bool) -> Seen:
        bot.server.script(*answers)
        async with bot.changed(misc={"max_steps": 5}):
            spoken = await bot.say("The weather in Oslo?", session=session, streaming=streaming)
            accepted = await next_turn_accepted(bot, session, streaming)
        return seen_in(spoken, next_turn=accepted)

    return played


def ran(*tools: str, requests: int) -> Promise:
    """Promise which tools ran, how many requests were sent, and a usable history."""

    def kept(guarded: Seen, alone: Seen) -> str | None:
        if guarded.tools != tools:
            return f"ran {', '.join(guarded.tools) or 'nothing'}"
        if len(guarded.asked) != requests:
            return f"{len(guarded.asked)} requests instead of {requests}"
        if guarded.refused or not guarded.next_turn:
            return "the provider refuses the history"
        return None if guarded.user == "OK." else f"the user read {guarded.user!r}"

    return kept


WEATHER = "get_weather(city='Oslo')"
TIME = "get_time()"


def both(first: Sequence[dict[str, Any]], second: Sequence[dict[str, Any]]) -> Chunks:
    return stream(*first, *second)


TABLE = Table(
    "Answers: tool calls that are cut off, merged, nameless or not JSON",
    (
        Scenario(
            "Arguments that are not JSON",
            turn(calls(call("get_weather", "{'city': Oslo}"))),
            # Complete: the model reads an error result. Streaming: it is asked once more.
            ran(requests=2),
        ),
        Scenario(
            "Cut off by `length`, in mid-arguments",
            turn(calls(call("get_weather", '{"city": "Os'), finish_reason="length")),
            ran(requests=2),
        ),
        Scenario(
            "The stream ends in the middle of a call",
            turn(stream(head("get_weather", '{"ci', index=0, id="a"), finish=None)),
            ran(requests=2),
            STREAMING,
        ),
        Scenario(
            "A call without an id",
            turn(calls(call("get_weather", OSLO, id=""))),
            ran(WEATHER, requests=2),
        ),
        Scenario(
            "Two calls streamed without `index`",
            turn(
                both(
                    [head("get_weather", '{"city": "Oslo"}', id="a")],
                    [head("get_time", "{}", id="b")],
                )
            ),
            ran(WEATHER, TIME, requests=2),
            STREAMING,
        ),
        Scenario(
            "Two calls streamed on `index` 0",
            turn(
                both(
                    [head("get_weather", '{"city": "Oslo"}', index=0, id="a")],
                    [head("get_time", "{}", index=0, id="b")],
                )
            ),
            ran(WEATHER, TIME, requests=2),
            STREAMING,
        ),
        Scenario(
            "The name repeated in every piece",
            turn(
                stream(
                    head("get_weather", '{"city":', index=0, id="a"),
                    head("get_weather", ' "Oslo"}', index=0, id="a"),
                )
            ),
            ran(WEATHER, requests=2),
            STREAMING,
        ),
        Scenario(
            "Two calls with one id",
            turn(calls(call("get_weather", OSLO, id="a"), call("get_time", id="a"))),
            ran(WEATHER, TIME, requests=2),
        ),
        Scenario(
            "A required argument is missing",
            turn(calls(call("get_weather", {"days": 2}))),
            ran(requests=2),
        ),
        Scenario(
            "Empty arguments where some are required; asked again, they come",
            turn(calls(call("get_weather", "")), calls(call("get_weather", OSLO))),
            ran(WEATHER, requests=3),
            STREAMING,
        ),
        Scenario(
            "Empty arguments where some are required; asked again, still empty",
            turn(calls(call("get_weather", "")), calls(call("get_weather", ""))),
            ran(requests=3),
            STREAMING,
        ),
    ),
)
