"""A real AstrBot in this process, its model server in another, and the guard on and off.

The rule: what is measured is the CPU time of this process, so the server's work is
nobody's. The guard is put on as the plugin puts it on, with everything that listens.
"""

from __future__ import annotations

import contextlib
import cProfile
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.bot import Bot, prepare_root

from .environment import PROJECT
from .measure import Times, settle
from .workloads import Message

Turn = Callable[[], Awaitable[object]]


@contextlib.contextmanager
def astrbot_root() -> Iterator[Path]:
    """Make a new AstrBot root that of this process; it is removed at the end."""
    root = Path(tempfile.mkdtemp(prefix="toolcall-guard-bench-"))
    try:
        prepare_root(root)
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def model_server(*answers: Sequence[Message] | Message) -> Iterator[str]:
    """Run a model server in a process of its own; yields its URL.

    Args:
        answers: What it answers, over and over: chunks, or a completion.
    """
    script = [{"chunks": each} if isinstance(each, list) else {"completion": each}
              for each in answers]  # fmt: skip
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(script, file)
        file.flush()
        command = [sys.executable, "-m", "tests.support.model_server", file.name]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=PROJECT, stdin=pipe, stdout=pipe, text=True) as server:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
            assert server.stdin is not None
            server.stdin.close()  # ends it


class RemoteModel:
    """What `Bot` has to know about a model server that runs elsewhere."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[Any] = []

    def reset(self) -> None:
        """Do nothing: what the server was told stays."""


@contextlib.asynccontextmanager
async def started_bot(url: str) -> AsyncIterator[Bot]:
    """Run AstrBot with the log level it has by default."""
    from loguru import logger

    server: Any = RemoteModel(url)
    bot = await Bot.start(server)
    logger.remove()
    logger.add(lambda _: None, level="INFO")
    try:
        yield bot
    finally:
        await bot.stop()


@contextlib.asynccontextmanager
async def guarded(root: Path) -> AsyncIterator[None]:
    """Have the guard on, with its counters and its journal."""
    from astrbot import logger

    from astrbot_tool_guard.host.guard import install
    from astrbot_tool_guard.journal.counts import Counts
    from astrbot_tool_guard.journal.journal import Journal
    from astrbot_tool_guard.settings.settings import Settings

    settings = Settings()
    journal = Journal(root / "journal.sqlite3", settings.journal, logger)
    await journal.open()
    guard = install(settings)
    guard.subscribe(Counts().observe)
    guard.subscribe(journal.observe)
    try:
        yield
    finally:
        guard.uninstall()
        await journal.close()


async def with_and_without(
    root: Path, turn: Turn, rounds: int, *, prepare: Turn | None = None
) -> Times:
    """Time a turn with the guard, one without it, and another one without it, in every round.

    The third is the control: how far two equal sides come out apart.

    Args:
        root: AstrBot's root.
        turn: What is timed.
        rounds: How many rounds there are.
        prepare: Goes before each turn and is not timed.
    """
    guards = {
        "without": contextlib.nullcontext,
        "with": partial(guarded, root),
        "again": contextlib.nullcontext,
    }
    found: dict[str, list[float]] = {side: [] for side in guards}
    sides = list(guards)
    settle()
    for number in range(-1, rounds):
        shift = number % len(sides)
        for side in sides[shift:] + sides[:shift]:
            async with guards[side]():
                seconds = await _seconds(turn, prepare)
            if number >= 0:  # what is done once was done in the round before
                found[side].append(seconds)
    return Times(found)


async def calls_of(turn: Turn, prepare: Turn, turns: int) -> float:
    """Return how many functions a turn calls, which is the same on any machine."""
    profile = cProfile.Profile()
    for _ in range(turns):
        await prepare()
        profile.enable()
        await turn()
        profile.disable()
    return sum(each.callcount for each in profile.getstats()) / turns


async def _seconds(turn: Turn, prepare: Turn | None) -> float:
    if prepare is not None:
        await prepare()
    start = time.process_time()
    await turn()
    return time.process_time() - start
