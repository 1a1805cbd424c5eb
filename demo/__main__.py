"""`make demo`: a real AstrBot without and with the guard, side by side.

One AstrBot in this process plays every scenario, then the packaged plugin is
installed into it as the WebUI would, and it plays them again. Exits with 1 when a
guarded row is not as promised.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from pathlib import Path

from tests.support.bot import Bot, prepare_root
from tests.support.model_server import ModelServer

from . import repair, request_stage, response_stage
from .report import render
from .scene import Played, Table, broken_promises, lines, play

TABLES = (request_stage.TABLE, response_stage.TABLE, repair.TABLE)
DIST = Path(__file__).resolve().parent.parent / "dist"
PACKAGE = DIST / "astrbot_plugin_toolcall_guard.zip"
LOG = DIST / "demo.log"


async def main() -> int:
    """Play everything twice, print the tables, and return the exit status."""
    started = time.monotonic()
    print("Starting AstrBot in this process, with an embedded model server …", flush=True)
    LOG.parent.mkdir(exist_ok=True)
    async with ModelServer() as server:
        with LOG.open("w", encoding="utf-8") as log:
            # AstrBot's console log stays with what standard output is at its start.
            with contextlib.redirect_stdout(log):
                bot = await Bot.start(server)
            alone = [await _play(table, bot, "alone") for table in TABLES]
            await bot.load_plugin_from(PACKAGE)
            guarded = [await _play(table, bot, "guarded") for table in TABLES]
            await bot.stop()

    broken: list[str] = []
    for table, without, with_guard in zip(TABLES, alone, guarded, strict=True):
        rows = list(zip(table.scenarios, without, with_guard, strict=True))
        print()
        print(render(table.title, [(row.title, lines(a), lines(g)) for row, a, g in rows]))
        for scenario, a, g in rows:
            broken += [f"{scenario.title}: {what}" for what in broken_promises(scenario, a, g)]

    for what in broken:
        print(f"NOT AS PROMISED  {what}")
    total = sum(len(table.scenarios) for table in TABLES)
    kept = "every guarded row is as promised" if not broken else "see above"
    print(f"{total} scenarios: {kept}.", end=" ")
    print(f"({time.monotonic() - started:.0f} s)")
    return 1 if broken else 0


async def _play(table: Table, bot: Bot, half: str) -> list[Played]:
    return [
        await play(scenario, bot, f"{half}-{table.title}-{index}")
        for index, scenario in enumerate(table.scenarios)
    ]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="toolcall-guard-demo-") as folder:
        prepare_root(Path(folder))
        sys.exit(asyncio.run(main()))
