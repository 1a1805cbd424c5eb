"""Many sessions at once with mixed faults, in short; `make storm` has a minute of it."""

from __future__ import annotations

import pytest
from astrbot import logger as astrbot_logger

from astrbot_tool_guard.host.guard import Guard
from tests.host.conftest import Told
from tests.storm import storm
from tests.support.bot import BACKUP, Bot


async def test_sessions_at_once_keep_apart_and_leave_nothing(
    bot: Bot, guard: Guard, told: Told, no_waiting: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A logged exception is kept by pytest, and with it all that its frames hold.
    monkeypatch.setattr(astrbot_logger, "disabled", True)
    # However slow the machine is, there is time for a retry.
    for provider in (bot.provider(), bot.provider(BACKUP)):
        monkeypatch.setattr(provider, "timeout", 3_600)
    report = await storm(bot, 44, 0)
    assert report.wrong == {}
    assert report.left == {}
    assert report.turns == 44
    assert [each for each in told.incidents if each.kind == "guard_fault"] == []
    assert {each.outcome for each in told.attempts} >= {"accepted", "discarded", "failed"}
