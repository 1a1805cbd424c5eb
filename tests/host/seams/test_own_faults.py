"""A fault in each of our own functions in turn: AstrBot's turn ends as without the guard.

Not a list of functions: every one that takes part in a turn is found by watching one,
and made faulty where it stands.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection
from typing import Any

import pytest

from astrbot_tool_guard.host.guard import install
from astrbot_tool_guard.settings.settings import Settings
from tests.host.seams.fault_points import SECRET, FaultPoint, called, fault_points
from tests.host.stages.lists import HALF_ANSWERED
from tests.support.answers import call, calls, say
from tests.support.bot import Bot, Turn
from tests.support.model_server import Request

POINTS = fault_points()

NET = "it is the net itself, or what AstrBot holds in its hands instead of its own object"
MADE = "it makes the SDK's own object of an event, and AstrBot reads no other"
EXCEPTED: dict[str, str] = {
    "host.seams.net._Below.__init__": NET,
    "host.seams.net._awaited": NET,
    "host.seams.net._Below.lets_pass": NET,
    "host.seams.net.tell": NET,
    "host.seams.relay._Around.__enter__": NET,
    "host.seams.relay._Around.__exit__": NET,
    "host.seams.relay._Around.__init__": NET,
    "host.seams.relay._after": NET,
    "host.seams.relay._last": NET,
    "host.seams.relay.relay": NET,
    "host.agent.execution.GuardedExecutor.execute": NET,
    "host.stages.streamed.GuardedStream.__aiter__": NET,
    "host.stages.streamed.StreamedAnswer.events": NET,
    "host.agent.execution._refusal": "it is the result of a call that is proven to be invalid",
    "host.stages.streamed.close": "it closes the SDK's stream, and what fails there is the SDK's",
    "host.protocols.chat_completions.dialect.ChatCompletions.event": MADE,
    "host.protocols.chat_completions.uncast.as_chunk": MADE,
    "host.protocols.chat_completions.uncast._uncount_unknown": MADE,
    "core.errors.ToolMessageProtocolError.__str__": "it is the violation's own text",
    "journal.events.EventBus.emit": "it tells the fault; its own cannot be told",
}
"""What may break a turn, or end it otherwise, when it fails."""


def answering(arguments: str) -> Any:
    """Return a model that calls two tools, and then says that it is done."""

    def answer(request: Request) -> Any:
        if request.messages[-1]["role"] == "tool":
            return say("Done.")
        return calls(
            call("get_weather", arguments, id="a"), call("get_time", {}, id="b"), content="Hm."
        )

    return answer


SOUND = answering('{"city": "Oslo"}')
DAMAGED = answering("{'city'")


def came_of(turn: Turn) -> Any:
    """Return what a user, the tools and the provider saw of a turn."""
    runs = [(run.tool, run.arguments) for run in turn.invocations]
    return turn.texts, runs, json.dumps([request.messages[2:] for request in turn.requests])


def fault_lines(turn: Turn) -> list[str]:
    return [line for line in turn.log if line.startswith("ERROR") and "Tool Call Guard" in line]


class Play:
    """The same conversation again and again."""

    def __init__(self, bot: Bot, streaming: bool, model: Any, history: Any = ()) -> None:
        self._bot = bot
        self._streaming = streaming
        self._model = model
        self._history = list(history)

    async def turn(self) -> Turn:
        """Have one turn of it, from its beginning."""
        self._bot.reset()
        self._bot.server.fallback = self._model
        await self._bot.set_history("own-faults", self._history)
        return await self._bot.say("Weather?", session="own-faults", streaming=self._streaming)

    async def guarded(self) -> Turn:
        """Have one turn of it with the guard."""
        guard = install()
        try:
            return await self.turn()
        finally:
            guard.uninstall()

    async def functions(self, settings: Settings | None = None) -> set[str]:
        """Return the names of the functions that take part in a turn of it."""
        guard = install(settings)
        try:
            await self.turn()  # what is made once is made
            with called(POINTS) as names:
                await self.turn()
        finally:
            guard.uninstall()
        assert len(names) > 20
        return names

    async def with_each_fault(
        self, settings: Settings | None = None, *, but: Collection[str] = ()
    ) -> AsyncIterator[tuple[FaultPoint, Turn]]:
        """Yield the turn with each function faulty that takes part in it, `but` some."""
        names = (await self.functions(settings)).difference(but)
        for point in POINTS:
            if point.name not in names:
                continue
            # A guard of its own for each, since it tells a fault once in a while only.
            guard = install(settings)
            try:
                with point.faulty():
                    turn = await self.turn()
            finally:
                guard.uninstall()
            yield point, turn


streaming = pytest.mark.parametrize("streaming", [False, True], ids=["complete", "stream"])


@streaming
async def test_a_sound_turn_is_the_same_with_a_fault_in_any_function(
    bot: Bot, streaming: bool
) -> None:
    play = Play(bot, streaming, SOUND)
    bare = came_of(await play.turn())
    wrong: dict[str, Any] = {}
    async for point, turn in play.with_each_fault():
        lines = fault_lines(turn)
        if any(SECRET in line for line in turn.log):
            wrong[point.name] = "its text is in the log"
        elif came_of(turn) != bare:
            wrong[point.name] = f"other outcome: {turn.texts} {len(turn.requests)} requests"
        elif point.hits and len(lines) != 1:
            wrong[point.name] = lines
    assert {name: why for name, why in wrong.items() if name not in EXCEPTED} == {}


async def test_a_damaged_answer_ends_the_turn_with_a_fault_in_any_function(bot: Bot) -> None:
    """Guarded or not, but never worse than without the guard: the user gets an end."""
    play = Play(bot, True, DAMAGED)
    guarded = came_of(await play.guarded())
    bare = came_of(await play.turn())
    wrong: dict[str, Any] = {}
    async for point, turn in play.with_each_fault():
        texts, runs, _ = came = came_of(turn)
        if any(SECRET in line for line in turn.log):
            wrong[point.name] = "its text is in the log"
        elif came not in (guarded, bare) and (not texts or len(runs) > 2 or turn.refused):
            wrong[point.name] = f"{texts} {runs} {len(turn.requests)}"
        elif len(fault_lines(turn)) > 1:
            wrong[point.name] = fault_lines(turn)
    assert {name: why for name, why in wrong.items() if name not in EXCEPTED} == {}


@pytest.mark.parametrize(("mode", "other"), [("block", None), ("repair", "block")])
async def test_a_broken_request_ends_the_turn_with_a_fault_in_any_function(
    bot: Bot, mode: Any, other: Any
) -> None:
    """Nothing is sent, or what AstrBot sends without the guard; the user gets an end.

    A fault on the way of a proven violation leaves AstrBot's own words for it, which
    are those of any exception.
    """
    settings = Settings(request_guard=mode)
    play = Play(bot, False, say("OK."), HALF_ANSWERED)
    bare = await play.turn()
    wrong: dict[str, Any] = {}
    but = await play.functions(Settings(request_guard=other)) if other else ()
    async for point, turn in play.with_each_fault(settings, but=but):
        if any(SECRET in line for line in (*turn.log, *turn.texts)):
            wrong[point.name] = "its text is seen"
        elif not turn.texts:
            wrong[point.name] = "no end"
        elif len(turn.refused) > len(bare.refused):
            wrong[point.name] = f"{len(turn.refused)} refused requests"
        elif len(fault_lines(turn)) > 1:
            wrong[point.name] = fault_lines(turn)
    assert {name: why for name, why in wrong.items() if name not in EXCEPTED} == {}
