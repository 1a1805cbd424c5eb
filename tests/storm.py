"""`make storm`: many sessions at once, with mixed faults, for a while.

    python -m tests.storm [--seconds 60] [--sessions 1000]

Each session says its own name in every turn, and the model answers with it: sound,
damaged, cut off, with an error, or not at all, by the session's number and turn. At
the end: nothing of one session in another, no task, connection or object of ours
left, and every stored history taken by the strict server.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import re
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.answers import Answer, Chunks, Cut, Failure, call, calls, chunk, say
from tests.support.bot import Bot, prepare_root
from tests.support.model_server import ModelServer, Request
from tests.support.strictness import refusal

MARK = re.compile(r"storm-\d+-end")
OURS = ("Run", "Handling", "GuardedExecutor", "StreamedAnswer", "ChatReader", "CallAssembler")
GENERATORS_DEEP = 8
"""More than AstrBot's generators and ours are nested in a turn."""
AT_ONCE = 100
"""Turns that are under way at a time; more would only wait for the one processor."""


@dataclass(slots=True)
class Report:
    """What came of a storm.

    Attributes:
        turns: How many turns were had.
        wrong: What was wrong, by kind.
        left: Objects of ours that were left, by type.
    """

    turns: int = 0
    wrong: Counter[str] = field(default_factory=Counter[str])
    left: Counter[str] = field(default_factory=Counter[str])


def answer(request: Request) -> Answer:
    """Answer a request with its session's name, in the way its number and length say."""
    text = str(request.messages)
    names = MARK.findall(text)
    name = names[-1] if names else "nobody"
    if request.messages[-1]["role"] == "tool":
        return say(f"Done for {name}.")
    sound = calls(call("get_weather", {"city": name}, id="a"), call("get_time", {}, id="b"))
    number = int(name.split("-")[1]) if names else 0
    ways: list[Answer] = [
        sound,
        say(f"Hello {name}."),
        calls(call("get_weather", "{'city': '" + name, id="a")),
        calls(call("get_weather", {"city": name}, id="")),
        calls(call("get_weather", {"city": name}, id="a"), call("get_time", {}, id="a")),
        calls(call("get_weather", '{"city": "' + name, id="a"), finish_reason="length"),
        Cut(sound, after=300),
        Failure(500, f"no luck, {name}"),
        Chunks([chunk({"content": name}), {"error": {"message": name}}]),
        calls(call("get_weather", "", id="a")),
        Failure(429, "slow down"),
    ]
    return ways[(number + len(request.messages)) % len(ways)]


async def storm(bot: Bot, sessions: int, seconds: float) -> Report:
    """Have one turn of each session, again and again until `seconds` are over."""
    gc.collect()
    gc.freeze()  # what was there before is nobody's fault, and is not looked at
    try:
        return await _storm(bot, sessions, seconds)
    finally:
        gc.unfreeze()


async def _storm(bot: Bot, sessions: int, seconds: float) -> Report:
    report = Report()
    bot.server.fallback = answer
    before = Counter(task.get_coro().__qualname__ for task in asyncio.all_tasks())  # type: ignore[union-attr]
    deadline = time.monotonic() + seconds
    gate = asyncio.Semaphore(AT_ONCE)
    while True:
        await asyncio.gather(*(_turn(bot, number, gate, report) for number in range(sessions)))
        if time.monotonic() >= deadline:
            break
    await bot.settle()
    await bot.server.idle()
    for number in range(sessions):
        await _look_at(bot, number, report)
    after = Counter(task.get_coro().__qualname__ for task in asyncio.all_tasks())  # type: ignore[union-attr]
    leaked = {name: after[name] - before[name] for name in after if after[name] > before[name]}
    # The server has a task for each connection that the clients keep for the next time.
    leaked.pop("ModelServer._connection", None)
    for name in leaked:
        report.wrong[f"task left: {name}"] += leaked[name]
    bot.log.lines.clear()
    bot.neighbour.reset()
    for _ in range(GENERATORS_DEEP):
        # A generator that was given up is closed by the event loop, and only then
        # is the one inside of it given up.
        gc.collect()
        await asyncio.sleep(0)
    report.left.update(
        type(each).__name__
        for each in gc.get_objects()
        if type(each).__name__ in OURS and type(each).__module__.startswith("astrbot_tool_guard")
    )
    return report


async def _turn(bot: Bot, number: int, gate: asyncio.Semaphore, report: Report) -> None:
    name = f"storm-{number}-end"
    async with gate:
        event = bot.event(f"I am {name}.", session=name)
        event.set_extra("enable_streaming", number % 2 == 0)
        pipeline = bot.lifecycle.pipeline_scheduler_mapping["default"]
        task = asyncio.ensure_future(pipeline.execute(event))
        if number % 13 == 5:
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        report.turns += 1
    if {*MARK.findall(" ".join(event.sent_texts))} - {name}:
        report.wrong["another session's answer"] += 1


async def _look_at(bot: Bot, number: int, report: Report) -> None:
    name = f"storm-{number}-end"
    history = await bot.history(name)
    if {*MARK.findall(str(history))} - {name}:
        report.wrong["another session's history"] += 1
    stored = [each for each in history if each.get("role") != "_checkpoint"]
    if stored and (refused := refusal({"messages": stored})):
        report.wrong[f"refused: {refused.message[:60]}"] += 1


async def _main(seconds: float, sessions: int) -> int:
    root = Path(tempfile.mkdtemp(prefix="toolcall-guard-storm-"))
    prepare_root(root)
    from astrbot_tool_guard.host.guard import install

    try:
        async with ModelServer() as server:
            bot = await Bot.start(server)
            guard = install()
            _quiet_and_quick()
            await storm(bot, min(sessions, 100), 0)  # what is made once is made
            at_first = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            report = await storm(bot, sessions, seconds)
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - at_first
            guard.uninstall()
            await bot.stop()
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(f"{sessions} sessions, {report.turns} turns, {server.count} requests")
    print(f"memory at its most grew by {grown / 1024:.0f} MiB")
    print(f"left of ours: {dict(report.left) or 'nothing'}")
    for what, count in report.wrong.most_common(20):
        print(f"WRONG {count} times: {what}")
    wrong = report.wrong.total() + report.left.total()
    print(f"{report.turns} passed, {wrong} failed")
    return 1 if wrong else 0


def _quiet_and_quick() -> None:
    """Take AstrBot's log away, and its pauses between attempts."""
    from types import SimpleNamespace

    from astrbot import logger
    from astrbot.core.agent.runners.tool_loop_agent_runner import ToolLoopAgentRunner
    from astrbot.core.provider.sources import openai_source, request_retry

    async def at_once(_: float) -> None:
        """Stand in for `asyncio.sleep`."""

    logger.disabled = True
    openai_source.asyncio = SimpleNamespace(**{**vars(asyncio), "sleep": at_once})  # type: ignore[assignment]
    request_retry.REQUEST_RETRY_WAIT_MIN_S = request_retry.REQUEST_RETRY_WAIT_MAX_S = 0
    runner: Any = ToolLoopAgentRunner
    runner.EMPTY_OUTPUT_RETRY_WAIT_MIN_S = runner.EMPTY_OUTPUT_RETRY_WAIT_MAX_S = 0


def main() -> int:
    """Run the command line; see the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.storm")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--sessions", type=int, default=1000)
    options = parser.parse_args()
    return asyncio.run(_main(options.seconds, options.sessions))


if __name__ == "__main__":
    sys.exit(main())
