"""One AstrBot and one event loop for the whole run; a clean slate for each test."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support.bot import Bot, prepare_root
from tests.support.model_server import ModelServer

# AstrBot reads its root when it is imported, which a test module may do at its top.
ROOT = Path(tempfile.mkdtemp(prefix="toolcall-guard-tests-"))
prepare_root(ROOT)

# The same examples in every run, and none that fails for a slow machine.
settings.register_profile("project", derandomize=True, deadline=None, database=None)
settings.load_profile("project")

CORPUS = Path(__file__).with_name("corpus")


def cases(prefix: str) -> list[Any]:
    """Return the corpus cases whose slug starts with `prefix`, as pytest parameters."""
    loaded = [
        json.loads(path.read_text(encoding="utf-8")) for path in CORPUS.glob(f"{prefix}*.json")
    ]
    return [
        pytest.param(case, id=case["slug"])
        for case in sorted(loaded, key=lambda case: case["slug"])
    ]


def pytest_unconfigure() -> None:
    """Remove the AstrBot root of this run."""
    shutil.rmtree(ROOT, ignore_errors=True)


@pytest.fixture(scope="session")
async def running_bot() -> AsyncIterator[Bot]:
    """The one AstrBot of this process."""
    async with ModelServer() as server:
        bot = await Bot.start(server)
        yield bot
        await bot.stop()


@pytest.fixture
async def bot(running_bot: Bot) -> AsyncIterator[Bot]:
    """The running AstrBot, with nothing scripted, noted, hooked or stored."""
    running_bot.reset()
    await running_bot.forget_conversations()
    yield running_bot
    running_bot.reset()


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """A model server of the test's own."""
    async with ModelServer() as started:
        yield started
