"""The rows about AstrBot with and without the guard.

Runs in the project's own environment: `python -m benchmarks.host_rows FILE`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from . import damage, workloads
from .host import astrbot_root, calls_of, guarded, model_server, started_bot, with_and_without
from .rows import Row
from .workloads import Message

STREAM_ROUNDS = 25
TURN_ROUNDS = 101
COUNTED_TURNS = 8
TOOL_CALL: Message = {
    "index": 0,
    "id": "call_turn",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
}
ANSWER = "It is twelve degrees in Oslo, and it rains a little."


def main(file: Path) -> None:
    """Measure, and write what came of it to `file`."""
    with (
        astrbot_root() as root,
        model_server(workloads.call_chunks()) as calls,
        model_server(workloads.text_chunks()) as text,
        model_server(completion(TOOL_CALL), completion(None)) as turns,
        model_server(streamed(TOOL_CALL), streamed(None)) as streamed_turns,
    ):
        rows = asyncio.run(measure(root, calls, text, turns, streamed_turns))
        found = {"rows": [row.to_dict() for row in rows], "quality": quality()}
    file.write_text(json.dumps(found), encoding="utf-8")


async def measure(root: Path, calls: str, text: str, turns: str, streamed_turns: str) -> list[Row]:
    """Measure streams and whole turns."""
    alone = "AstrBot without the guard"
    async with started_bot(turns) as bot:
        whole = "an agent turn with a tool call, 200 messages"
        return [
            await stream_row(root, calls, "a 1,000-fragment tool-call stream", alone, goal=0.5),
            await stream_row(root, text, "a 1,000-fragment text stream", alone, goal=1.05),
            *await turn_rows(root, bot, turns, whole, alone),
            *await turn_rows(
                root, bot, streamed_turns, "the same, streamed", alone, streaming=True
            ),
        ]


async def stream_row(root: Path, url: str, what: str, against: str, *, goal: float) -> Row:
    """Measure `text_chat_stream` of one of AstrBot's providers."""
    provider, tools = make_provider(url), make_tools()

    async def turn() -> None:
        last = None
        async for each in provider.text_chat_stream(prompt="Hello", func_tool=tools):
            last = each
        whole = json.loads("".join(workloads.fragments()))
        if last is None or last.is_chunk or last.tools_call_args not in ([], [whole]):
            raise AssertionError("the stream came to no whole answer")

    times = await with_and_without(root, turn, STREAM_ROUNDS)
    return Row.of(what, against, times.ratio("with", "without"), goal=goal, slack=1.15)


async def turn_rows(
    root: Path, bot: Any, url: str, what: str, against: str, *, streaming: bool = False
) -> list[Row]:
    """Measure a message from its way into the pipeline to the end of its turn."""
    bot.provider().client.base_url = url
    history = workloads.healthy(200)[1:]  # AstrBot stores none of the first system message

    async def prepare() -> None:
        await bot.set_history("bench", history)
        bot.neighbour.invocations.clear()

    async def turn() -> None:
        said = await bot.say("What is the weather?", session="bench", streaming=streaming)
        await bot.settle()
        if said.texts != [ANSWER] or len(said.invocations) != 1:
            raise AssertionError("the turn did not go as it should")

    times = await with_and_without(root, turn, TURN_ROUNDS, prepare=prepare)
    without = await calls_of(turn, prepare, COUNTED_TURNS)
    async with guarded(root):
        calls = await calls_of(turn, prepare, COUNTED_TURNS) / without
    return [
        Row.of(what, against, times.undisturbed("with", "without"), goal=1.02, slack=1.08),
        Row.of(f"{what}: functions called", against, (calls, calls, calls), goal=1.02, slack=1.01),
        Row.of(f"{what}: the control", against, times.undisturbed("again", "without")),
    ]


def make_provider(url: str) -> Any:
    """Return a provider of AstrBot that sends to `url`."""
    from astrbot.core.provider.sources.openai_source import ProviderOpenAIOfficial

    config = {
        "id": "bench/model",
        "type": "openai_chat_completion",
        "key": ["sk-bench"],
        "api_base": url,
        "timeout": 60,
        "model": "model",
        "custom_extra_body": {},
    }
    return ProviderOpenAIOfficial(config, {})


def make_tools() -> Any:
    """Return AstrBot's form of the tool that the stream calls."""
    from astrbot.core.agent.tool import FunctionTool, ToolSet

    return ToolSet(
        [
            FunctionTool(
                name="save_note", description="Save a note.", parameters=workloads.NOTE_SCHEMA
            )
        ]
    )


def completion(call: Message | None) -> Message:
    """Return a complete answer, with a call or with the text."""
    message: Message = {"role": "assistant", "content": None if call else ANSWER}
    if call:
        message["tool_calls"] = [{key: call[key] for key in ("id", "type", "function")}]
    finish = "tool_calls" if call else "stop"
    return {
        "id": "chatcmpl-000001",
        "object": "chat.completion",
        "created": 1,
        "model": "model",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }


def streamed(call: Message | None) -> list[Message]:
    """Return the same answer as chunks."""
    pieces = [ANSWER[at : at + 8] for at in range(0, len(ANSWER), 8)]
    deltas: list[Message] = [{"tool_calls": [call]}] if call else [{"content": p} for p in pieces]
    return [
        workloads.chunk({"role": "assistant", "content": None if call else ""}),
        *(workloads.chunk(delta) for delta in deltas),
        workloads.chunk({}, "tool_calls" if call else "stop"),
    ]


def quality() -> dict[str, dict[str, int]]:
    """Let AstrBot's two clean-ups mend the damaged histories."""
    from astrbot.core.agent.context.truncator import ContextTruncator
    from astrbot.core.agent.message import Message as AstrBotMessage
    from astrbot.core.provider.sources.openai_source import ProviderOpenAIOfficial

    def before_sending(messages: list[Message]) -> list[Message]:
        payload = {"messages": messages}
        ProviderOpenAIOfficial._sanitize_assistant_messages(payload)
        return payload["messages"]

    def when_trimming(messages: list[Message]) -> list[Message]:
        loaded = [AstrBotMessage.model_validate(each) for each in messages]
        fixed = ContextTruncator().fix_messages(loaded)
        return [each.model_dump() for each in fixed]

    histories = damage.damaged_histories()
    return {
        "AstrBot, before it sends": damage.judge(before_sending, histories).to_dict(),
        "AstrBot, when it trims": damage.judge(when_trimming, histories).to_dict(),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
