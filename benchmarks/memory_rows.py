"""The rows about memory: what ten thousand turns in as many sessions leave behind.

Runs in the project's own environment: `python -m benchmarks.memory_rows FILE`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tracemalloc
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from . import workloads
from .host import astrbot_root, guarded, model_server, started_bot
from .host_rows import TOOL_CALL, make_provider, make_tools, streamed
from .rows import Row

TURNS = 10_000
SETTLED = 2_000
"""Turns after which everything that is bounded has reached its bound."""


def main(file: Path) -> None:
    """Measure, and write what came of it to `file`."""
    with (
        astrbot_root() as root,
        model_server(streamed(TOOL_CALL)) as short,
        model_server(workloads.call_chunks()) as long,
    ):
        rows = asyncio.run(measure(root, short, long))
    file.write_text(json.dumps({"rows": [row.to_dict() for row in rows]}), encoding="utf-8")


async def measure(root: Path, short: str, long: str) -> list[Row]:
    """Run the turns with the guard on, and look at the memory before, between and after."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(started_bot(short))
        tools = make_tools()
        await turn(make_provider(short), tools, "warm-up")
        alone = await peak_of_a_stream(long, tools)
        await stack.enter_async_context(guarded(root))
        before = await peak_of_a_stream(long, tools)
        provider = make_provider(short)
        settled = 0
        for number in range(TURNS):
            if number == SETTLED:
                settled = blocks()
            await turn(provider, tools, f"session-{number}")
        left = (blocks() - settled) / (TURNS - SETTLED)
        after = await peak_of_a_stream(long, tools)
    held = "peak memory of a held 1,000-fragment stream"
    what = "memory left by a turn in a new session"
    return [
        Row.of(what, "nothing", (left, left, left), goal=0.1, room=0.1, unit="blocks"),
        Row.of(f"{held}, after {TURNS:,} turns", "before them", _once(after / before), goal=1.05),
        Row.of(held, "AstrBot without the guard", _once(before / alone)),
    ]


def _once(value: float) -> tuple[float, float, float]:
    return value, value, value


async def turn(provider: Any, tools: Any, session: str) -> None:
    """Ask for a streamed tool call on behalf of a session."""
    from astrbot.core.platform.astr_message_event import current_message_event

    event: Any = SimpleNamespace(unified_msg_origin=f"bench:FriendMessage:{session}")
    token = current_message_event.set(event)
    try:
        async for _ in provider.text_chat_stream(prompt="Hello", func_tool=tools):
            pass
    finally:
        current_message_event.reset(token)


async def peak_of_a_stream(url: str, tools: Any) -> float:
    """Return the bytes that one long stream of a tool call needs at most."""
    provider = make_provider(url)
    await turn(provider, tools, "peak")
    gc.collect()
    tracemalloc.start()
    await turn(provider, tools, "peak")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def blocks() -> int:
    """Return how many blocks of memory are in use."""
    gc.collect()
    return sys.getallocatedblocks()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
