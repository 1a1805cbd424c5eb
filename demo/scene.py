"""A scenario: something that goes wrong in a bot, played without and with the guard.

A scenario is data: a title, a coroutine that plays it, and the promise that the
guarded half must keep. It is played complete and streaming, or one of the two, and
what both have in common is told once. A table is a list of scenarios; add one in a
module of its own and name it in `demo.__main__`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tests.support.bot import Bot, Turn
from tests.support.model_server import Request

KEYS = {"sk-main-1": "main, key 1", "sk-main-2": "main, key 2", "sk-backup": "backup"}


@dataclass(frozen=True, slots=True)
class Seen:
    """What one playing of a scenario came to.

    Attributes:
        asked: Provider of each request that was sent, with the key where it was refused.
        refused: How many of them the provider refused.
        tools: Each run of a tool, as `name(arguments)`.
        user: What the user read, a message a line; the error a plugin got, where it
            asked itself.
        next_turn: Whether the provider takes the stored history on the next turn;
            `None` where nobody asked.
    """

    asked: tuple[str, ...]
    refused: int
    tools: tuple[str, ...]
    user: str
    next_turn: bool | None = None

    def lines(self) -> list[str]:
        """Return what stands in the table's cell, a fact a line."""
        told = [f"sent: {self._sent()}"]
        if self.tools or self.next_turn is not None:
            told.append(f"ran: {', '.join(self.tools) or 'nothing'}")
        told += [f"user: {message}" for message in self.user.splitlines() or ["nothing"]]
        if self.next_turn is not None:
            told.append(f"next turn: {'accepted' if self.next_turn else 'refused'}")
        return told

    def _sent(self) -> str:
        if not self.asked:
            return "nothing"
        many = f"{len(self.asked)} request{'s' * (len(self.asked) > 1)}"
        all_refused = self.refused == len(self.asked)
        fate = {0: ""}.get(
            self.refused, ", all refused" if all_refused else f", {self.refused} refused"
        )
        return f"{many}{fate} ({'; '.join(_counted(self.asked))})"


Way = Literal["complete", "streaming"]
Play = Callable[[Bot, str, bool], Awaitable[Seen]]
Promise = Callable[[Seen, Seen], str | None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of a table.

    Attributes:
        title: What goes wrong.
        play: Plays it: the bot, a session of its own, and whether to stream.
        promise: Given what was seen with the guard and without it, says what is
            not as promised, or `None`.
        ways: How AstrBot asks for its answer.
    """

    title: str
    play: Play
    promise: Promise
    ways: tuple[Way, ...] = ("complete", "streaming")


@dataclass(frozen=True, slots=True)
class Table:
    """A title and its scenarios."""

    title: str
    scenarios: Sequence[Scenario]


Played = Mapping[Way, Seen]
"""A scenario as it went, each way."""


def lines(played: Played) -> list[str]:
    """Return the lines of a cell: the facts, told for each way where the ways differ."""
    first, *others = played.values()
    # Which of the keys comes first is AstrBot's dice, and not what differs.
    if all(_without_dice(other) == _without_dice(first) for other in others):
        return first.lines()
    return [f"{way} {line}" for way, seen in played.items() for line in seen.lines()]


async def play(scenario: Scenario, bot: Bot, session: str) -> Played:
    """Play `scenario` each of its ways, each in a session of its own."""
    played: dict[Way, Seen] = {}
    for way in scenario.ways:
        bot.reset()
        played[way] = await scenario.play(bot, f"{session}-{way}", way == "streaming")
    bot.reset()
    return played


def broken_promises(scenario: Scenario, alone: Played, guarded: Played) -> list[str]:
    """Return what the guarded half of `scenario` does not keep."""
    kept = {way: scenario.promise(seen, alone[way]) for way, seen in guarded.items()}
    return [f"{way}: {what}" for way, what in kept.items() if what]


async def next_turn_accepted(bot: Bot, session: str, streaming: bool) -> bool:
    """Say one more thing, and return whether the provider took the stored history."""
    bot.server.reset()
    turn = await bot.say("And now?", session=session, streaming=streaming)
    return bool(turn.requests) and not turn.refused


def seen_in(turn: Turn, *, next_turn: bool | None = None) -> Seen:
    """Return what came of a turn of the chat."""
    tools = tuple(f"{run.tool}({_shown(run.arguments)})" for run in turn.invocations)
    return seen_by(turn.requests, turn.texts, tools, next_turn)


def seen_by(
    requests: Sequence[Request],
    messages: Sequence[str],
    tools: tuple[str, ...] = (),
    next_turn: bool | None = None,
) -> Seen:
    """Return what came of some requests."""
    asked = tuple(_asked(request) for request in requests)
    refused = sum(request.refusal is not None for request in requests)
    user = "\n".join(" ".join(message.split()) for message in messages)
    return Seen(asked, refused, tools, user, next_turn)


def nothing_sent(telling: str) -> Promise:
    """Promise that no request was sent, and that what the user reads holds `telling`."""

    def kept(guarded: Seen, alone: Seen) -> str | None:
        if guarded.asked:
            return f"sent {len(guarded.asked)} request(s)"
        return None if telling in guarded.user else f"the user did not read {telling!r}"

    return kept


def same_as_alone(guarded: Seen, alone: Seen) -> str | None:
    """Promise that the guard changed nothing."""
    same = _without_dice(guarded) == _without_dice(alone)
    return None if same else "it went otherwise than without the guard"


def _asked(request: Request) -> str:
    # The key matters where a request fails and the next key is tried.
    provider_and_key = KEYS.get(request.key, request.key)
    return provider_and_key if request.refusal else provider_and_key.partition(",")[0]


def _without_dice(seen: Seen) -> Seen:
    return replace(seen, asked=tuple(name.partition(",")[0] for name in seen.asked))


def _counted(names: Sequence[str]) -> list[str]:
    counted: list[tuple[str, int]] = []
    for name in names:
        if counted and counted[-1][0] == name:
            counted[-1] = (name, counted[-1][1] + 1)
        else:
            counted.append((name, 1))
    return [name if count == 1 else f"{name} × {count}" for name, count in counted]


def _shown(arguments: dict[str, object]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
