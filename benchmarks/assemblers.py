# The libraries live in `.bench` only, and hardly any of them has types for what is used.
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""Other people's ways to put a streamed tool call together.

The rule: each gets its own chunk objects, made beforehand, and the way that its own
streaming code takes. All of them end at the same whole call.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from .workloads import NOTE_SCHEMA, Message, tool

Assembler = Callable[[], tuple[str, str, str]]
"""Puts the call together and returns its id, its name and its argument text."""


def guard(chunks: list[Message]) -> Assembler:
    """Return ours, which decodes and checks the arguments, too."""
    from astrbot_tool_guard import assemble

    tools = [tool("save_note", NOTE_SCHEMA)]

    def run() -> tuple[str, str, str]:
        call = assemble(chunks=chunks, tools=tools).calls[0]
        return call.id, call.name, call.raw_arguments or ""

    return run


def contenders(chunks: list[Message]) -> dict[str, Assembler]:
    """Return the four of the table by name."""
    makers = {
        "LangChain": _langchain,
        "LiteLLM": _litellm,
        "pydantic-ai": _pydantic_ai,
        "OpenAI SDK": _openai,
    }
    # Each gets chunks of its own, since LiteLLM writes into what it is given.
    return {name: make(copy.deepcopy(chunks)) for name, make in makers.items()}


def entries(chunks: list[Message]) -> list[Message]:
    """Return the tool-call entries of a stream."""
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    return [entry for delta in deltas for entry in delta.get("tool_calls", ())]


def _langchain(chunks: list[Message]) -> Assembler:
    from langchain_core.messages import AIMessageChunk
    from langchain_core.messages.tool import tool_call_chunk

    pieces = [
        AIMessageChunk(
            content="",
            tool_call_chunks=[
                tool_call_chunk(
                    name=entry["function"].get("name"),
                    args=entry["function"].get("arguments"),
                    id=entry.get("id"),
                    index=entry["index"],
                )
            ],
        )
        for entry in entries(chunks)
    ]

    def run() -> tuple[str, str, str]:
        # All at once, as its models merge a stream; adding them up one by one is far slower.
        whole = pieces[0] + pieces[1:]
        call = whole.tool_calls[0]
        return call["id"], call["name"], json.dumps(call["args"])

    return run


def _litellm(chunks: list[Message]) -> Assembler:
    import litellm
    from litellm.types.utils import ModelResponseStream

    litellm.suppress_debug_info = True  # it prints a line for a model it does not know
    # With the usage chunk that providers send: without one it counts tokens for a while.
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    pieces = [ModelResponseStream(**chunk) for chunk in chunks]
    pieces.append(ModelResponseStream(**{**chunks[-1], "choices": [], "usage": usage}))

    def run() -> tuple[str, str, str]:
        call = litellm.stream_chunk_builder(pieces).choices[0].message.tool_calls[0]
        return call.id, call.function.name, call.function.arguments

    return run


def _pydantic_ai(chunks: list[Message]) -> Assembler:
    from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall
    from pydantic_ai._parts_manager import ModelResponsePartsManager
    from pydantic_ai.models import ModelRequestParameters

    pieces: list[Any] = [ChoiceDeltaToolCall.construct(**entry) for entry in entries(chunks)]
    parameters = ModelRequestParameters()

    def run() -> tuple[str, str, str]:
        manager = ModelResponsePartsManager(model_request_parameters=parameters)
        for piece in pieces:
            for _ in manager.handle_tool_call_delta_events(
                vendor_part_id=piece.index,
                tool_name=piece.function.name,
                args=piece.function.arguments,
                tool_call_id=piece.id,
            ):
                pass
        part: Any = manager.get_parts()[0]
        return part.tool_call_id, part.tool_name, part.args_as_json_str()

    return run


def _openai(chunks: list[Message]) -> Assembler:
    from openai.lib.streaming.chat import ChatCompletionStreamState
    from openai.types.chat import ChatCompletionChunk

    pieces = [ChatCompletionChunk.construct(**chunk) for chunk in chunks]

    def run() -> tuple[str, str, str]:
        state = ChatCompletionStreamState()
        for piece in pieces:
            state.handle_chunk(piece)
        whole: Any = state.get_final_completion()
        call = whole.choices[0].message.tool_calls[0]
        return call.id, call.function.name, call.function.arguments

    return run
