"""An installed guard, what it told, and whether it left anything behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from astrbot_tool_guard.host.guard import Guard, install
from astrbot_tool_guard.journal.events import AttemptRecord, Event, Incident
from tests.host.seams.wrapping import on_seams


@dataclass(slots=True)
class Told:
    """The events of one test, in order."""

    events: list[Event] = field(default_factory=list)

    @property
    def attempts(self) -> list[AttemptRecord]:
        """The attempts among them."""
        return [event for event in self.events if isinstance(event, AttemptRecord)]

    @property
    def incidents(self) -> list[Incident]:
        """The incidents among them."""
        return [event for event in self.events if isinstance(event, Incident)]


@pytest.fixture
def guard() -> Iterator[Guard]:
    """The guard with default settings, on this process's AstrBot."""
    before = on_seams()
    installed = install()
    yield installed
    installed.uninstall()
    after = on_seams()
    assert all(after[name] is before[name] for name in before)


@pytest.fixture
def told(guard: Guard) -> Told:
    """What the guard tells during the test."""
    told = Told()
    guard.subscribe(told.events.append)
    return told


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """AstrBot's pauses between attempts take no time."""
    import asyncio
    from types import SimpleNamespace

    from astrbot.core.agent.runners.tool_loop_agent_runner import ToolLoopAgentRunner
    from astrbot.core.provider.sources import openai_source, request_retry

    async def at_once(_: float) -> None:
        """Stand in for `asyncio.sleep`."""

    names: dict[str, Any] = {**vars(asyncio), "sleep": at_once}
    monkeypatch.setattr(openai_source, "asyncio", SimpleNamespace(**names))
    monkeypatch.setattr(request_retry, "REQUEST_RETRY_WAIT_MIN_S", 0)
    monkeypatch.setattr(request_retry, "REQUEST_RETRY_WAIT_MAX_S", 0)
    monkeypatch.setattr(ToolLoopAgentRunner, "EMPTY_OUTPUT_RETRY_WAIT_MIN_S", 0)
    monkeypatch.setattr(ToolLoopAgentRunner, "EMPTY_OUTPUT_RETRY_WAIT_MAX_S", 0)
