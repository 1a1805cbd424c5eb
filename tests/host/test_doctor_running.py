"""The doctor on a running AstrBot: a bricked conversation answers again, and no turn is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from astrbot_tool_guard.core.messages.pairing import find_violations
from astrbot_tool_guard.doctor.backups import Backups
from astrbot_tool_guard.doctor.doctor import Applied, Doctor, Undone
from astrbot_tool_guard.host.conversations import BotConversations
from astrbot_tool_guard.host.guard import Guard
from tests.host.stages.lists import HALF_ANSWERED, HEALTHY
from tests.support.answers import Gate, Held, say
from tests.support.bot import Bot

WELCOME = {"role": "assistant", "content": "Welcome."}
BROKEN = [*HALF_ANSWERED, WELCOME]


@pytest.fixture
def doctor(bot: Bot, tmp_path: Path) -> Doctor:
    """A doctor for the running bot."""
    return Doctor(BotConversations(bot.context.conversation_manager), Backups(tmp_path))


async def test_blocked_diagnosed_mended_and_answering_again(
    bot: Bot, guard: Guard, doctor: Doctor
) -> None:
    cid = await bot.set_history("bricked", BROKEN)
    assert (await bot.say("Hello?", session="bricked")).requests == []
    found = await doctor.examine(conversation=cid)
    assert [diagnosis.state for diagnosis in found.findings] == ["repairable"]
    assert await bot.history("bricked") == BROKEN  # looking changes nothing
    assert found.plan is not None
    assert await doctor.apply(found.plan) == Applied(1, 0, 0, 1, 0)
    assert (await bot.say("Hello?", session="bricked")).texts == ["OK."]
    assert find_violations(await bot.history("bricked")) == ()


async def test_undone_it_is_as_it_was(bot: Bot, doctor: Doctor) -> None:
    await bot.set_history("undone", BROKEN)
    found = await doctor.examine(session=bot.umo("undone"))
    assert found.plan is not None
    await doctor.apply(found.plan)
    assert await doctor.undo(bot.umo("undone")) == Undone(1, 0, 0)
    assert await bot.history("undone") == BROKEN
    assert await doctor.undo(bot.umo("undone")) is None


async def test_a_conversation_that_went_on_is_not_put_back(bot: Bot, doctor: Doctor) -> None:
    await bot.set_history("went-on", BROKEN)
    found = await doctor.examine(session=bot.umo("went-on"))
    assert found.plan is not None
    await doctor.apply(found.plan)
    await bot.say("Hello?", session="went-on")
    now = await bot.history("went-on")
    assert await doctor.undo(bot.umo("went-on")) == Undone(0, 1, 0)
    assert await bot.history("went-on") == now


async def test_a_turn_in_flight_is_saved_and_not_overwritten(bot: Bot, doctor: Doctor) -> None:
    cid = await bot.set_history("in-flight", BROKEN)
    found = await doctor.examine(conversation=cid)
    assert found.plan is not None
    gate = Gate()
    bot.server.strict = False
    bot.server.script(Held(say("It is noon."), gate))
    turn = asyncio.create_task(bot.say("The time?", session="in-flight"))
    await gate.reached.wait()
    applying = asyncio.create_task(doctor.apply(found.plan))
    # Another session does not wait for that turn.
    await bot.set_history("meanwhile", HEALTHY)
    gate.release.set()
    await turn
    assert await applying == Applied(0, 1, 0, 0, 0)
    assert "It is noon." in str(await bot.history("in-flight"))


async def test_a_turn_that_waits_for_the_doctor_reads_what_was_mended(
    bot: Bot, guard: Guard, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    cid = await bot.set_history("waiting", BROKEN)
    found = await doctor.examine(conversation=cid)
    assert found.plan is not None
    saving, go_on = asyncio.Event(), asyncio.Event()
    real = BotConversations.save

    async def slowly(*args: object) -> None:
        saving.set()
        await go_on.wait()
        await real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(BotConversations, "save", slowly)
    applying = asyncio.create_task(doctor.apply(found.plan))
    await saving.wait()
    turn = asyncio.create_task(bot.say("Hello?", session="waiting"))
    go_on.set()
    assert await applying == Applied(1, 0, 0, 1, 0)
    assert (await turn).texts == ["OK."]


async def test_two_doctors_at_once_mend_once(bot: Bot, tmp_path: Path) -> None:
    cid = await bot.set_history("two", BROKEN)
    doctors = [
        Doctor(BotConversations(bot.context.conversation_manager), Backups(tmp_path / str(number)))
        for number in range(2)
    ]
    plans = [(await doctor.examine(conversation=cid)).plan or "" for doctor in doctors]
    done = await asyncio.gather(
        *(doctor.apply(plan) for doctor, plan in zip(doctors, plans, strict=True))
    )
    assert sorted(applied.repaired for applied in done if applied) == [0, 1]
    assert sorted(applied.moved_on for applied in done if applied) == [0, 1]
    assert find_violations(await bot.history("two")) == ()
