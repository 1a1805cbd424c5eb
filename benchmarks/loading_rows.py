"""The rows about loading: the plugin beside AstrBot's start, and what the core brings along.

Runs in the project's own environment: `python -m benchmarks.loading_rows FILE`. Each
start is one in a process of its own: `python -m benchmarks.loading_rows --start`.
"""

from __future__ import annotations

import asyncio
import compileall
import json
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from statistics import quantiles
from typing import Any

from .environment import PROJECT
from .host import astrbot_root
from .rows import Row

STARTS = 5
PLUGIN = "astrbot_plugin_toolcall_guard"
EMPTY = "astrbot_plugin_bench_empty"
PACKAGE = PROJECT / "dist" / f"{PLUGIN}.zip"
HEAVY = ("astrbot", "openai", "wrapt", "jsonschema", "referencing")
USE_OF_THE_CORE = """
import sys
import astrbot_tool_guard as guard
messages = [{"role": "user", "content": "Hello"}, {"role": "tool", "tool_call_id": "x"}]
assert guard.find_violations(messages) and guard.repair_messages(messages).changes
tools = [{"function": {"name": "f", "parameters": {"required": ["a"]}}}]
call = {"id": "x", "function": {"name": "f", "arguments": '{"a": 1}'}}
answer = {"choices": [{"message": {"tool_calls": [call]}}]}
assert guard.assemble(completion=answer, tools=tools).ok
print(sum(name.partition(".")[0] in %r for name in sys.modules))
"""


def main(file: Path) -> None:
    """Measure, and write what came of it to `file`."""
    rows = [*start_rows(), core_row()]
    file.write_text(json.dumps({"rows": [row.to_dict() for row in rows]}), encoding="utf-8")


def start_rows() -> list[Row]:
    """Start AstrBot a few times and load the plugin into it."""
    command = [sys.executable, "-m", "benchmarks.loading_rows", "--start"]
    whole: list[float] = []
    empty: list[float] = []
    for _ in range(STARTS):
        run = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
        starting, loading, loading_empty = json.loads(run.stdout.splitlines()[-1])
        whole.append(loading / starting)
        empty.append(loading_empty / starting)
    own = [one - other for one, other in zip(whole, empty, strict=True)]
    return [
        _share("loading the plugin", whole, goal=0.02),
        _share("loading an empty plugin with the same requirements.txt", empty),
        _share("what the plugin adds to that", own, goal=0.02),
    ]


def _share(what: str, shares: list[float], **more: Any) -> Row:
    low, middle, high = quantiles(shares, n=4)
    return Row(what, "AstrBot's start", middle, low, high, slack=1.5, **more)


def core_row() -> Row:
    """Count what finding, repairing and assembling load besides the guard itself."""
    code = USE_OF_THE_CORE % (HEAVY,)
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    count = int(run.stdout)
    what = "modules of AstrBot, the SDK, wrapt and jsonschema that the core loads"
    return Row(what, "nothing", count, count, count, goal=0, unit="modules")


async def start(root: Path, began: float) -> tuple[float, float, float]:
    """Return the CPU seconds of AstrBot's start, of the plugin's load and of an empty one's."""
    from .host import started_bot

    async with started_bot("http://127.0.0.1:9/v1") as bot:
        starting = time.process_time() - began
        plugins = root / "data" / "plugins"
        with zipfile.ZipFile(PACKAGE) as package:
            package.extractall(plugins)
        make_empty(plugins / EMPTY, plugins / PLUGIN)
        compileall.compile_dir(plugins, quiet=1)  # as after its first start
        seconds = [await load(bot, name) for name in (EMPTY, PLUGIN)]
    return starting, seconds[1], seconds[0]


def make_empty(folder: Path, like: Path) -> None:
    """Write a plugin that does nothing and requires what another one requires."""
    folder.mkdir()
    shutil.copy(like / "requirements.txt", folder)
    metadata = (like / "metadata.yaml").read_text(encoding="utf-8")
    (folder / "metadata.yaml").write_text(metadata.replace(PLUGIN, EMPTY), encoding="utf-8")
    (folder / "main.py").write_text(
        "from astrbot.api.star import Star\n\n\nclass Empty(Star):\n    pass\n"
    )


async def load(bot: Any, name: str) -> float:
    """Return the CPU seconds that AstrBot takes to load a plugin."""
    before = time.process_time()
    loaded, error = await bot.plugins.load(specified_dir_name=name)
    if not loaded or bot.star(name) is None:
        raise AssertionError(f"{name} was not loaded: {error}")
    return time.process_time() - before


if __name__ == "__main__":
    if sys.argv[1] == "--start":
        begun = time.process_time()
        with astrbot_root() as made:
            print(f"\n{json.dumps(asyncio.run(start(made, begun)))}", flush=True)
    else:
        main(Path(sys.argv[1]))
