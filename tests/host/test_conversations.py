"""The running bot's conversations: read in pieces, written under the lock of a turn."""

from __future__ import annotations

import asyncio

from sqlalchemy import text

from astrbot_tool_guard.doctor.stored import StoredConversation
from astrbot_tool_guard.host import conversations
from astrbot_tool_guard.host.conversations import BotConversations
from tests.host.stages.lists import HALF_ANSWERED, HEALTHY
from tests.support.answers import Gate, Held, say
from tests.support.bot import Bot


def store_of(bot: Bot) -> BotConversations:
    """Return the store of the running bot."""
    return BotConversations(bot.context.conversation_manager)


async def all_of(bot: Bot, session: str | None) -> list[StoredConversation]:
    """Return the conversations of a session, or all."""
    return [stored async for stored in store_of(bot).conversations(session)]


async def test_a_conversation_comes_as_it_is_stored(bot: Bot) -> None:
    store = store_of(bot)
    cid = await bot.set_history("one", HALF_ANSWERED)
    expected = StoredConversation(cid, bot.umo("one"), HALF_ANSWERED)
    assert await store.load(cid) == expected
    assert await store.current(bot.umo("one")) == cid
    assert await all_of(bot, bot.umo("one")) == [expected]
    assert await store.load("no such id") is None
    assert await store.current(bot.umo("nobody")) is None


async def test_all_of_them_come_once_each_however_many(bot: Bot) -> None:
    ids = [
        await bot.set_history(f"many-{number}", HEALTHY)
        for number in range(conversations.ROWS_AT_ONCE * 2 + 1)
    ]
    seen = [stored.id for stored in await all_of(bot, None)]
    assert len(seen) == len(set(seen))
    assert [cid for cid in seen if cid in set(ids)] == ids


async def test_a_session_has_several(bot: Bot) -> None:
    ids = [await bot.set_history("several", HEALTHY) for _ in range(3)]
    assert [stored.id for stored in await all_of(bot, bot.umo("several"))] == ids


async def test_a_damaged_row_hides_no_other(bot: Bot) -> None:
    ids = [await bot.set_history("damaged", HEALTHY) for _ in range(3)]
    async with bot.lifecycle.db.get_db() as database, database.begin():
        await database.execute(
            text("UPDATE conversations SET content = '[{' WHERE conversation_id = :id"),
            {"id": ids[1]},
        )
    try:
        found = await all_of(bot, bot.umo("damaged"))
        assert [(stored.id, stored.problem is None) for stored in found] == [
            (ids[0], True),
            (ids[1], False),
            (ids[2], True),
        ]
    finally:
        await bot.lifecycle.db.delete_conversation(cid=ids[1])


async def test_saving_replaces_the_content_and_nothing_else(bot: Bot) -> None:
    store = store_of(bot)
    cid = await bot.set_history("saved", HALF_ANSWERED)
    manager = bot.lifecycle.conversation_manager
    await manager.update_conversation(bot.umo("saved"), cid, title="Title", token_usage=7)
    before = await manager.get_conversation(bot.umo("saved"), cid)
    stored = await store.load(cid)
    assert stored is not None
    await store.save(stored, list(HEALTHY))
    after = await manager.get_conversation(bot.umo("saved"), cid)
    assert await bot.history("saved") == HEALTHY
    for name in ("cid", "user_id", "platform_id", "title", "persona_id", "token_usage"):
        assert getattr(after, name) == getattr(before, name)


async def test_the_lock_waits_for_a_turn_to_be_saved(bot: Bot) -> None:
    store, gate = store_of(bot), Gate()
    await bot.set_history("busy", [*HEALTHY, {"role": "assistant", "content": "Welcome."}])
    bot.server.script(Held(say("It is noon."), gate))
    turn = asyncio.create_task(bot.say("The time?", session="busy"))
    await gate.reached.wait()
    order: list[str] = []

    async def mend() -> None:
        async with store.lock(bot.umo("busy")):
            order.append("locked")
            stored = [c async for c in store.conversations(bot.umo("busy"))]
            order.append("It is noon." if "It is noon." in str(stored[0].history) else "too early")

    mending = asyncio.create_task(mend())
    async with store.lock(bot.umo("another session")):
        order.append("another")
    assert order == ["another"]
    gate.release.set()
    await asyncio.gather(turn, mending)
    assert order == ["another", "locked", "It is noon."]
