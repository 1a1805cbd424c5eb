"""What the doctor does to a database, as AstrBot itself sees it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from astrbot_tool_guard.core.messages.history import mend_history
from astrbot_tool_guard.core.messages.pairing import find_violations
from astrbot_tool_guard.doctor import database
from astrbot_tool_guard.doctor.database import DatabaseError, examine_database, mend_database
from tests.core.messages.histories import damaged_lists, declares, result, user
from tests.doctor.conftest import Bot, broken

CHECKPOINT = {"role": "_checkpoint", "content": {"id": "turn-1"}}


async def test_a_running_astrbot_is_noticed_and_a_stopped_one_reads_what_was_mended(
    stopped: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    from astrbot.core.db.sqlite import SQLiteDatabase

    monkeypatch.setattr(database, "PATIENCE", 0.0)
    running = SQLiteDatabase(str(stopped.path))
    await running.initialize()
    conversation = await running.create_conversation(
        user_id="qq:FriendMessage:1", platform_id="qq", content=[*broken(), CHECKPOINT]
    )
    name = conversation.conversation_id

    assert examine_database(stopped.path, see=id).states["repairable"] == 1
    with pytest.raises(DatabaseError, match="in use"):
        mend_database(stopped.path, see=id)
    await running.engine.dispose()
    mend_database(stopped.path, see=id)

    restarted = SQLiteDatabase(str(stopped.path))
    stored = await restarted.get_conversation_by_id(name)
    await restarted.engine.dispose()
    assert stored is not None
    assert stored.content is not None
    assert stored.content == stopped.history(name)
    assert stored.content[-1] == CHECKPOINT
    assert find_violations(stored.content) == ()
    # A row is written as AstrBot writes it: storing it again would change nothing.
    assert stopped.text(name) == json.dumps(stored.content)


@given(damaged_lists())
@settings(max_examples=100)
def test_astrbot_can_load_whatever_was_mended(history: list[Any]) -> None:
    from astrbot.core.agent.message import bind_checkpoint_messages, dump_messages_with_checkpoints

    mended = mend_history([*history, CHECKPOINT]).history
    assert isinstance(mended, list)

    loaded = dump_messages_with_checkpoints(bind_checkpoint_messages(mended))

    plain = [message for message in mended if message != CHECKPOINT]
    assert [m["role"] for m in loaded if m["role"] != "_checkpoint"] == [m["role"] for m in plain]
    assert find_violations(loaded[: len(plain)]) == ()


def test_astrbot_cannot_load_a_number_as_an_id_before_it_is_mended() -> None:
    from astrbot.core.agent.message import bind_checkpoint_messages
    from pydantic import ValidationError

    history = [user("hi"), declares(7), result(7)]

    with pytest.raises(ValidationError):
        bind_checkpoint_messages(history)
    mended = mend_history(history).history
    assert isinstance(mended, list)
    assert len(bind_checkpoint_messages(mended)) == 3
