"""Overrides of single sessions: kept, isolated, stored in order."""

from __future__ import annotations

import asyncio
from copy import deepcopy

import pytest

from astrbot_tool_guard.settings.sessions import STORAGE_KEY, SessionOverrides


class Storage:
    """AstrBot's plugin storage, as far as it matters here."""

    def __init__(self, **values: object) -> None:
        self.values: dict[str, object] = dict(values)

    async def load(self, key: str, default: object) -> object:
        return deepcopy(self.values.get(key, default))

    async def save(self, key: str, value: dict[str, dict[str, object]]) -> None:
        self.values[key] = deepcopy(value)


def opened(storage: Storage) -> SessionOverrides:
    return SessionOverrides(storage.load, storage.save)


async def test_an_override_holds_for_its_session_only_and_after_a_restart():
    storage = Storage()
    sessions = opened(storage)
    assert await sessions.set("qq:GroupMessage:1", "request_guard", "observe") == "observe"
    assert sessions.get("qq:GroupMessage:1") == {"request_guard": "observe"}
    assert sessions.get("qq:GroupMessage:2") is None
    reopened = opened(storage)
    assert await reopened.load() == ()
    assert reopened.all() == {"qq:GroupMessage:1": {"request_guard": "observe"}}


async def test_overrides_of_one_session_add_up():
    sessions = SessionOverrides()
    await sessions.set("s", "enabled", "off")
    await sessions.set("s", "request_guard", "off")
    await sessions.set("s", "enabled", "on")
    assert sessions.get("s") == {"enabled": True, "request_guard": "off"}


async def test_reset_drops_everything_of_one_session_and_says_whether_there_was_any():
    storage = Storage()
    sessions = opened(storage)
    await sessions.set("a", "enabled", False)
    await sessions.set("b", "enabled", False)
    assert await sessions.reset("a") is True
    assert await sessions.reset("a") is False
    assert storage.values[STORAGE_KEY] == {"b": {"enabled": False}}


@pytest.mark.parametrize(
    ("name", "value", "error"), [("nope", "1", KeyError), ("enabled", "maybe", ValueError)]
)
async def test_a_wrong_key_or_value_changes_nothing(name, value, error):
    storage = Storage()
    sessions = opened(storage)
    with pytest.raises(error):
        await sessions.set("s", name, value)
    assert sessions.get("s") is None
    assert storage.values == {}


async def test_what_was_handed_out_does_not_change_under_its_reader():
    sessions = SessionOverrides()
    await sessions.set("s", "enabled", False)
    before = sessions.get("s")
    await sessions.set("s", "enabled", True)
    assert before == {"enabled": False}


async def test_a_slow_earlier_write_cannot_undo_a_later_one():
    storage = Storage()
    release = asyncio.Event()
    entered = asyncio.Event()

    async def slow_first(key: str, value: dict[str, dict[str, object]]) -> None:
        if not entered.is_set():
            entered.set()
            await release.wait()
        await storage.save(key, value)

    sessions = SessionOverrides(storage.load, slow_first)
    first = asyncio.create_task(sessions.set("a", "enabled", False))
    await entered.wait()
    second = asyncio.create_task(sessions.set("b", "enabled", False))
    release.set()
    await asyncio.gather(first, second)
    assert storage.values[STORAGE_KEY] == {"a": {"enabled": False}, "b": {"enabled": False}}


async def test_an_override_that_cannot_be_stored_is_in_force_and_reported():
    async def full(key: str, value: object) -> None:
        raise OSError("disk full")

    sessions = SessionOverrides(Storage().load, full)
    with pytest.raises(OSError, match="disk full"):
        await sessions.set("s", "enabled", False)
    assert sessions.get("s") == {"enabled": False}


@pytest.mark.parametrize(
    ("stored", "kept", "warnings"),
    [
        ("nonsense", {}, 1),
        ({"s": 5, "t": {"enabled": False}}, {"t": {"enabled": False}}, 1),
        ({"s": {"enabled": "perhaps", "gone_setting": 1}}, {}, 2),
        ({"s": {"gone_setting": 1, "enabled": False}}, {"s": {"enabled": False}}, 1),
    ],
)
async def test_what_another_version_stored_is_dropped_with_a_warning(stored, kept, warnings):
    sessions = opened(Storage(**{STORAGE_KEY: stored}))
    assert len(await sessions.load()) == warnings
    assert sessions.all() == kept
