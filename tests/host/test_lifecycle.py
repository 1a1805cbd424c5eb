"""The packaged plugin in AstrBot's plugin manager: one set of wrappers, or none."""

from __future__ import annotations

import importlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.host.seams.wrapping import SEAMS, on_seams, owner_of, wrappers_on
from tests.host.stages.lists import HALF_ANSWERED
from tests.support.bot import ADMIN, Bot
from tools.package import NAME, build

BARE = on_seams()


def wrapper_counts() -> set[int]:
    """Return how deep the seams are wrapped, each number once."""
    return {wrappers_on(seam) for seam in SEAMS}


def assert_nothing_left() -> None:
    """Check that every seam holds the very object it held at first."""
    now = on_seams()
    assert all(now[name] is BARE[name] for name in BARE)


@pytest.fixture
async def plugin(bot: Bot, tmp_path: Path) -> AsyncIterator[str]:
    """The plugin's name, installed from its package; gone without a trace afterwards."""
    name = await bot.load_plugin_from(build(tmp_path / "plugin.zip"))
    yield name
    if bot.star(name) is not None:
        await bot.remove(name)
    assert_nothing_left()


async def blocks(bot: Bot, session: str) -> bool:
    """Tell whether a broken conversation is stopped."""
    await bot.set_history(session, HALF_ANSWERED)
    turn = await bot.say("Hello?", session=session)
    return turn.requests == [] and turn.texts[0].startswith("Nothing was sent")


async def test_loaded_it_guards_and_removed_it_leaves_nothing(bot: Bot, plugin: str) -> None:
    assert plugin == NAME
    assert wrapper_counts() == {1}
    assert await blocks(bot, "loaded")
    await bot.remove(plugin)
    assert_nothing_left()
    assert not await blocks(bot, "removed")


async def test_reloads_leave_one_set_of_wrappers(bot: Bot, plugin: str) -> None:
    for _ in range(3):
        success, error = await bot.reload(plugin)
        assert success, error
        assert wrapper_counts() == {1}
    assert await blocks(bot, "reloaded")


@pytest.mark.parametrize("streaming", [False, True], ids=["complete", "stream"])
async def test_when_every_wrapper_was_taken_off_the_next_run_puts_them_back(
    bot: Bot, plugin: str, streaming: bool
) -> None:
    for seam in SEAMS:
        owner, attribute = owner_of(seam)
        setattr(owner, attribute, BARE[seam.name])
    session = f"robbed-{streaming}"
    await bot.set_history(session, HALF_ANSWERED)
    turn = await bot.say("Hello?", session=session, streaming=streaming)
    assert turn.requests == []
    assert wrapper_counts() == {1}
    answer = (await bot.say("/toolguard status", session=session, sender=ADMIN)).text
    assert "put back" in answer


async def test_disabled_there_are_none_and_enabled_there_is_one_set(bot: Bot, plugin: str) -> None:
    await bot.disable(plugin)
    assert_nothing_left()
    assert not await blocks(bot, "disabled")
    await bot.enable(plugin)
    assert wrapper_counts() == {1}
    assert await blocks(bot, "enabled")


async def test_a_load_without_a_terminate_before_leaves_one_set(bot: Bot, plugin: str) -> None:
    star: Any = bot.star(plugin)
    star.guard = None  # `terminate` finds nothing to take off, as after a crash
    assert wrapper_counts() == {1}
    await bot.reload(plugin)
    assert wrapper_counts() == {1}
    assert await blocks(bot, "crashed")


async def test_two_loads_in_a_row_leave_one_set(bot: Bot, plugin: str) -> None:
    module = bot.context.get_registered_star(plugin).module_path
    await bot.star(plugin).initialize()
    assert wrapper_counts() == {1}
    package = module.removesuffix("main") + "astrbot_tool_guard"
    for loaded in [name for name in sys.modules if name.startswith(package)]:
        del sys.modules[loaded]
    copy = importlib.import_module(f"{package}.host.guard")
    second = copy.install()
    assert wrapper_counts() == {1}
    second.uninstall()
    assert_nothing_left()


async def test_a_failing_start_rolls_back(
    bot: Bot, plugin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind: Any = type(bot.star(plugin))
    real = kind._start

    async def start_and_fail(self: Any) -> None:
        await real(self)
        assert wrapper_counts() == {1}
        raise RuntimeError("out of luck")

    monkeypatch.setattr(kind, "_start", start_and_fail)
    star = kind(bot.context)
    with pytest.raises(RuntimeError, match="out of luck"):
        await star.initialize()
    assert star.guard is None
    assert_nothing_left()
    monkeypatch.undo()
    assert (await bot.reload(plugin))[0]
    assert wrapper_counts() == {1}


async def test_it_starts_without_providers_and_without_configuration(
    bot: Bot, plugin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind: Any = type(bot.star(plugin))
    await bot.disable(plugin)
    monkeypatch.setattr(bot.context.provider_manager, "provider_insts", [])
    star = kind(context=bot.context)
    await star.initialize()
    assert wrapper_counts() == {1}
    await star.terminate()
    assert_nothing_left()
    await bot.enable(plugin)


async def test_reloaded_in_the_middle_of_a_turn_the_turn_ends(bot: Bot, plugin: str) -> None:
    import asyncio

    from tests.support.answers import Gate, Held, say

    gate = Gate()
    bot.server.script(Held(say("It is noon."), gate, 3))
    turn = asyncio.create_task(bot.say("The time?", session="mid", streaming=True))
    await gate.reached.wait()
    await bot.reload(plugin)
    gate.release.set()
    assert (await turn).texts == ["It is noon."]
    assert wrapper_counts() == {1}
