"""A whole AstrBot with its dashboard: the panel saves, a restart forgets nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.host.running import RunningAstrBot
from tests.host.stages.lists import BROKEN
from tests.support.answers import say
from tests.support.bot import base_config, write_config
from tests.support.model_server import ModelServer
from tools.package import build

BLOCKED = "Nothing was sent to the model"


@pytest.fixture(scope="module")
async def broken_world(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[RunningAstrBot, ModelServer]]:
    """An AstrBot whose every request is broken, and a model that takes them all."""
    root = tmp_path_factory.mktemp("astrbot")
    async with ModelServer(strict=False) as server:
        server.fallback = say("It went out.")
        astrbot = RunningAstrBot(root, server.url, build(root / "plugin.zip"))
        config: dict[str, Any] = base_config(server.url) | {"admins_id": ["astrbot"]}
        for provider in config["provider"]:
            provider["custom_extra_body"] = {"messages": BROKEN["orphan_result"]}
        write_config(root, config)
        await astrbot.start()
        yield astrbot, server
        await astrbot.stop()


@pytest.mark.parametrize("streaming", [True, False])
async def test_what_the_panel_saves_is_in_force_at_once(broken_world, streaming):
    astrbot, server = broken_world
    session = await astrbot.new_session()
    assert BLOCKED in await astrbot.say(session, "Hello?", streaming=streaming)
    assert server.count == 0
    config = await astrbot.config()
    config["request"]["request_guard"] = "off"
    config["language"] = "zh"
    await astrbot.save(config)
    try:
        assert await astrbot.say(session, "Hello?", streaming=streaming) == "It went out."
        status = await astrbot.say(session, "/toolguard status", streaming=streaming)
        assert "request_guard：off（全局）" in status
    finally:
        config["request"]["request_guard"] = "block"
        config["language"] = "auto"
        await astrbot.save(config)
        server.requests.clear()
    assert BLOCKED in await astrbot.say(session, "Hello?", streaming=streaming)


async def test_the_panels_provider_entry_is_in_force_for_that_provider(broken_world):
    astrbot, server = broken_world
    session = await astrbot.new_session()
    config = await astrbot.config()
    config["providers"] = [
        {"__template_key": "provider", "provider_id": "main/model", "request_guard": "off"}
    ]
    await astrbot.save(config)
    try:
        assert await astrbot.say(session, "Hello?") == "It went out."
        status = await astrbot.say(session, "/toolguard status")
        assert "request_guard: off (provider)" in status
    finally:
        await astrbot.save(config | {"providers": []})
        server.requests.clear()
    assert BLOCKED in await astrbot.say(session, "Hello?")


async def test_an_override_is_still_there_in_the_next_process_and_for_its_session_only(
    broken_world,
):
    astrbot, server = broken_world
    open_one, guarded = await astrbot.new_session(), await astrbot.new_session()
    assert "request_guard = off" in await astrbot.say(open_one, "/toolguard set request_guard off")
    assert BLOCKED in await astrbot.say(guarded, "Hello?")
    await astrbot.stop()
    await astrbot.start()
    server.requests.clear()
    assert await astrbot.say(open_one, "Hello?") == "It went out."
    assert BLOCKED in await astrbot.say(guarded, "Hello?")
    assert "request_guard=off" in await astrbot.say(guarded, "/toolguard sessions")
    # The journal of the process before is there, too.
    assert len((await astrbot.say(guarded, "/toolguard log")).splitlines()) >= 2
