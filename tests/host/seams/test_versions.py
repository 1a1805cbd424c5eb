"""An AstrBot or a wrapt that is not as we know it: said by name, and no harm done."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wrapt

import astrbot_tool_guard
from astrbot_tool_guard.core import errors
from astrbot_tool_guard.core.messages.pairing import check_messages
from astrbot_tool_guard.host import shared_error as protocol
from astrbot_tool_guard.host.guard import Guard, install
from astrbot_tool_guard.host.seams.seams import Seam
from astrbot_tool_guard.settings.settings import Settings
from tests.host.conftest import Told
from tests.host.seams.wrapping import SEAMS, on_seams, owner_of
from tests.host.stages.lists import BROKEN, HALF_ANSWERED
from tests.support.answers import call, calls, say
from tests.support.bot import Bot, Turn
from tests.support.model_server import Request
from tools.package import NAME, build

# --- a seam of another shape ---------------------------------------------------------


class Reshaped:
    """What a method became that is no plain function any more, and works as before."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self._function.__get__(instance, owner)


def answering(arguments: str) -> Any:
    """Return a model that calls a tool with `arguments`, and then says that it is done."""

    def answer(request: Request) -> Any:
        if request.messages[-1]["role"] == "tool":
            return say("Done.")
        return calls(call("get_weather", arguments, id="x"))

    return answer


def told_by(turn: Turn) -> tuple[Any, ...]:
    runs = [(run.tool, run.arguments) for run in turn.invocations]
    return turn.text, runs, len(turn.requests), len(turn.refused)


async def turns(bot: Bot, session: str) -> dict[str, tuple[Any, ...]]:
    """Return what came of a sound, a damaged and a broken conversation, either way."""
    came: dict[str, tuple[Any, ...]] = {}
    for streaming in (False, True):
        for name, arguments in (("sound", '{"city": "Oslo"}'), ("damaged", "{'city'")):
            bot.server.fallback = answering(arguments)
            turn = await bot.say(
                "Weather?", session=f"{session}-{name}-{streaming}", streaming=streaming
            )
            came[f"{name} {streaming}"] = told_by(turn)
        bot.server.fallback = say("OK.")
        session_ = f"{session}-broken-{streaming}"
        await bot.set_history(session_, HALF_ANSWERED)
        came[f"broken {streaming}"] = told_by(
            await bot.say("Hello?", session=session_, streaming=streaming)
        )
    return came


BARE: dict[str, tuple[Any, ...]] = {}
"""What comes without the guard; the same for every test here."""


async def bare_turns(bot: Bot) -> dict[str, tuple[Any, ...]]:
    if not BARE:
        BARE.update(await turns(bot, "bare"))
    return BARE


@pytest.mark.parametrize("seam", SEAMS, ids=lambda seam: seam.name)
async def test_a_seam_of_another_shape_is_named_and_every_turn_ends(
    bot: Bot, monkeypatch: pytest.MonkeyPatch, seam: Seam, no_waiting: None
) -> None:
    bare = await bare_turns(bot)
    owner, attribute = owner_of(seam)
    with monkeypatch.context() as patch:
        patch.setattr(owner, attribute, Reshaped(vars(owner)[attribute]))
        before = on_seams()
        bot.log.lines.clear()
        guard = install()
        try:
            lines = [line for line in bot.log.lines if line.startswith("WARNING Tool Call Guard")]
            off = [status for status in guard.status() if not status.attached]
            came = await turns(bot, f"reshaped-{seam.name}")
            errors_told = [
                line for line in bot.log.lines if line.startswith("ERROR Tool Call Guard")
            ]
        finally:
            guard.uninstall()
        assert on_seams() == before
    assert [(status.name, status.problem) for status in off] == [(seam.name, "other_shape")]
    assert len(lines) == 1
    assert seam.name in lines[0]
    assert errors_told == []
    for streaming in (False, True):
        assert came[f"sound {streaming}"] == bare[f"sound {streaming}"]
        for name in ("damaged", "broken"):
            assert came[f"{name} {streaming}"][0], "the user got an answer"
        # What is worse without the guard may stay so without one of its parts, not more.
        assert came[f"damaged {streaming}"][2] <= bare[f"damaged {streaming}"][2] + 1
        assert came[f"broken {streaming}"][3] <= bare[f"broken {streaming}"][3]


async def test_without_any_seam_astrbot_is_alone_and_the_plugin_says_so(
    bot: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = await bare_turns(bot)
    with monkeypatch.context() as patch:
        for seam in SEAMS:
            owner, attribute = owner_of(seam)
            patch.setattr(owner, attribute, Reshaped(vars(owner)[attribute]))
        guard = install()
        try:
            assert {status.problem for status in guard.status()} == {"other_shape"}
            assert await turns(bot, "reshaped-all") == bare
        finally:
            guard.uninstall()


# --- an AstrBot with an error of its own ----------------------------------------------


class TheirError(ValueError):
    """What AstrBot may bring some day, made from what we cannot know."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(reason)


@pytest.fixture(params=protocol.PLACES)
def their_error(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """AstrBot has a `ToolMessageProtocolError`."""
    __import__(request.param)
    monkeypatch.setattr(sys.modules[request.param], protocol.NAME, TheirError, raising=False)
    monkeypatch.setitem(vars(astrbot_tool_guard), protocol.NAME, None)
    yield TheirError
    errors.be_also(None)


@pytest.fixture
def aside(their_error: Any) -> Iterator[Guard]:
    """The guard on such an AstrBot."""
    guard = install()
    yield guard
    guard.uninstall()


def test_there_is_none_today() -> None:
    assert protocol.astrbots_own() is None
    assert protocol.shared_error() is errors.ToolMessageProtocolError


def test_ours_and_astrbots_are_one_type(their_error: Any) -> None:
    assert astrbot_tool_guard.__getattr__(protocol.NAME) is their_error
    for kind in (their_error, errors.ToolMessageProtocolError):
        with pytest.raises(kind, match="orphan_result"):
            check_messages(BROKEN["orphan_result"])
    errors.be_also(None)
    with pytest.raises(errors.ToolMessageProtocolError) as plain:
        check_messages(BROKEN["orphan_result"])
    assert not isinstance(plain.value, their_error)


async def test_the_request_stage_stands_aside_and_says_so(bot: Bot, aside: Guard) -> None:
    told = Told()
    aside.subscribe(told.events.append)
    off = [status for status in aside.status() if not status.attached]
    assert [(status.name, status.problem) for status in off] == [("request stage", "stands_aside")]
    await bot.set_history("aside", HALF_ANSWERED)
    bot.server.strict = False
    turn = await bot.say("Hello?", session="aside")
    assert turn.texts == ["OK."]
    assert len(turn.requests) == 1
    assert [each.kind for each in told.incidents] == []


async def test_standing_aside_it_still_checks_answers_and_mends(bot: Bot, aside: Guard) -> None:
    bot.server.fallback = answering("{'city'")
    turn = await bot.say("Weather?", session="aside-answer")
    assert turn.invocations == []
    aside.settings = Settings(request_guard="repair")
    await bot.set_history("aside-repair", HALF_ANSWERED)
    turn = await bot.say("Hello?", session="aside-repair")
    assert turn.refused == []
    assert turn.requests


async def test_what_astrbot_raises_itself_goes_its_own_way(
    bot: Bot, aside: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    from astrbot.core.provider.sources.openai_source import ProviderOpenAIOfficial

    async def refuse(*_: Any, **__: Any) -> None:
        raise TheirError(reason="AstrBot's own words")

    monkeypatch.setattr(ProviderOpenAIOfficial, "_prepare_chat_payload", refuse)
    turn = await bot.say("Hello?", session="aside-own")
    assert turn.requests == []
    assert "AstrBot's own words" in turn.text


# --- a wrapt that is too old -------------------------------------------------------------


async def test_an_older_wrapt_in_the_process_stops_the_start_with_a_clear_word(
    bot: Bot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = on_seams()
    name = await bot.load_plugin_from(build(tmp_path / "plugin.zip"))
    assert name == NAME
    old = types.ModuleType("wrapt")
    old.__version__, old.__version_info__ = "1.17.3", ("1", "17", "3")  # type: ignore[attr-defined]
    old.ObjectProxy = wrapt.ObjectProxy  # type: ignore[attr-defined]  # every wrapt has that
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "wrapt", old)  # without all that came later
        loaded, error = await bot.reload(name)
        assert not loaded
        assert "wrapt 1.17.3" in str(error)
        assert "2.4" in str(error)
        assert "Restart AstrBot" in str(error)
        assert "nothing was installed" in str(error)
        now = on_seams()
        assert all(now[seam] is before[seam] for seam in before)
        turn = await bot.say("Hello?", session="old-wrapt")
        assert turn.texts == ["OK."]
    loaded, error = await bot.reload(name)
    assert loaded, error
    await bot.remove(name)
    now = on_seams()
    assert all(now[seam] is before[seam] for seam in before)
