"""What administrators changed for single sessions.

The rule: reading is free, since it happens on every request; writing is stored
before it is answered. A session is AstrBot's `unified_msg_origin`. All
overrides live under one key of AstrBot's plugin storage, which its owner hands
in as two callables, so this module knows neither AstrBot nor a database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import cast

from .specs import MODE_SPECS, read_mode

STORAGE_KEY = "session_overrides"

Load = Callable[[str, object], Awaitable[object]]
Save = Callable[[str, dict[str, dict[str, object]]], Awaitable[None]]


class SessionOverrides:
    """The overrides of all sessions, in memory and in AstrBot's storage.

    Args:
        load: `Star.get_kv_data` or its like: key and default to value.
        save: `Star.put_kv_data` or its like. Without both, overrides last as
            long as the process.
    """

    def __init__(self, load: Load | None = None, save: Save | None = None) -> None:
        self._load = load
        self._save = save
        self._sessions: dict[str, Mapping[str, object]] = {}
        self._writing = asyncio.Lock()

    async def load(self) -> tuple[str, ...]:
        """Read what is stored, dropping what this version cannot use.

        Returns:
            One warning per setting that was dropped.
        """
        stored = await self._load(STORAGE_KEY, {}) if self._load else {}
        self._sessions, warnings = _usable(stored)
        return warnings

    def get(self, session: str) -> Mapping[str, object] | None:
        """Return the overrides of `session`, or `None` where it has none."""
        return self._sessions.get(session)

    def all(self) -> Mapping[str, Mapping[str, object]]:
        """Return every session that has overrides, in the order they came."""
        return MappingProxyType(self._sessions)

    async def set(self, session: str, name: str, value: object) -> object:
        """Override one setting for one session, at once and for good.

        Args:
            session: `unified_msg_origin`.
            name: A key of `settings.MODE_SPECS`.
            value: The value, as typed or as data.

        Returns:
            The value as it was understood.

        Raises:
            KeyError: There is no such setting.
            ValueError: The setting does not take this value.
            Exception: Whatever the storage raised; the override is in force
                all the same until the process ends.
        """
        usable = read_mode(name, value)
        overrides = {**self._sessions.get(session, {}), name: usable}
        self._sessions[session] = MappingProxyType(overrides)
        await self._store()
        return usable

    async def reset(self, session: str) -> bool:
        """Drop all overrides of `session`.

        Returns:
            Whether there were any.
        """
        if self._sessions.pop(session, None) is None:
            return False
        await self._store()
        return True

    async def _store(self) -> None:
        if self._save is None:
            return
        # One writer at a time, each with the state as it is when it writes:
        # an earlier, slower write cannot put an older state over a newer one.
        async with self._writing:
            await self._save(STORAGE_KEY, {s: dict(o) for s, o in self._sessions.items()})


def _usable(stored: object) -> tuple[dict[str, Mapping[str, object]], tuple[str, ...]]:
    sessions: dict[str, Mapping[str, object]] = {}
    warnings: list[str] = []
    if not isinstance(stored, Mapping):
        return {}, ("stored session overrides are unreadable and ignored",)
    for session, overrides in cast("Mapping[object, object]", stored).items():
        if not isinstance(session, str) or not isinstance(overrides, Mapping):
            warnings.append("a stored session override is unreadable and ignored")
            continue
        kept: dict[str, object] = {}
        for name, value in cast("Mapping[str, object]", overrides).items():
            try:
                kept[name] = read_mode(name, value)
            except (KeyError, ValueError):
                known = "unusable value" if name in MODE_SPECS else "no such setting"
                warnings.append(f"stored session override: {known}; ignored")
        if kept:
            sessions[session] = MappingProxyType(kept)
    return sessions, tuple(warnings)
