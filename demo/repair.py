"""A conversation whose stored history is broken, and the ways out of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.support.bot import ADMIN, Bot, Turn
from tools.package import NAME

from .request_stage import BROKEN
from .scene import Scenario, Seen, Table, Way, next_turn_accepted, seen_by

ASK = "And tomorrow?"
ONE_WAY: tuple[Way, ...] = ("complete",)


async def doctor(bot: Bot, session: str, streaming: bool) -> Seen:
    await bot.set_history(session, BROKEN)
    talk = [await _say(bot, session, ASK, streaming)]
    if bot.star(NAME):
        talk.append(await _say(bot, session, "/toolguard doctor", streaming))
        plan = re.search(r"doctor apply (\w+)", talk[-1].text)
        command = f"/toolguard doctor apply {plan[1] if plan else '?'}"
        talk.append(await _say(bot, session, command, streaming))
    talk.append(await _say(bot, session, ASK, streaming))
    return await _seen(bot, session, streaming, talk)


async def repair_mode(bot: Bot, session: str, streaming: bool) -> Seen:
    await bot.set_history(session, BROKEN)
    if bot.star(NAME):
        await _say(bot, session, "/toolguard set request_guard repair", streaming)
    return await _seen(bot, session, streaming, [await _say(bot, session, ASK, streaming)])


async def _say(bot: Bot, session: str, text: str, streaming: bool) -> Turn:
    return await bot.say(text, session=session, sender=ADMIN, streaming=streaming)


async def _seen(bot: Bot, session: str, streaming: bool, talk: Sequence[Turn]) -> Seen:
    requests = [request for turn in talk for request in turn.requests]
    read = [text for turn in talk for text in turn.texts]
    accepted = await next_turn_accepted(bot, session, streaming)
    return seen_by(requests, read, next_turn=accepted)


def answers_again(guarded: Seen, alone: Seen) -> str | None:
    """Promise one request, which is answered, and a history that the provider takes."""
    if guarded.refused or len(guarded.asked) != 1:
        return f"sent {len(guarded.asked)} request(s), {guarded.refused} refused"
    if not guarded.user.endswith("OK."):
        return "the user got no answer"
    return None if guarded.next_turn else "the provider refuses the history"


TABLE = Table(
    "Repair: a conversation whose history is broken",
    (
        Scenario(
            "Blocked, diagnosed by `/toolguard doctor`, mended", doctor, answers_again, ONE_WAY
        ),
        Scenario("`request_guard` set to `repair` in this chat", repair_mode, answers_again),
    ),
)
