# The libraries live in `.bench` only, and hardly any of them has types for what is used.
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
"""Other people's clean-ups of histories, each behind the same three steps.

The rule: each gets its own message types, made by its own converter where it has
one, and is timed on them alone. What is asked of it is what its own agent loop asks
of it before it sends a stored history.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .workloads import Message


@dataclass(frozen=True, slots=True)
class Contender:
    """A clean-up.

    Attributes:
        name: How the tables name it.
        load: Makes its own history out of Chat Completions messages.
        repair: The clean-up itself.
        dump: Makes Chat Completions messages out of its history.
    """

    name: str
    load: Callable[[list[Message]], Any]
    repair: Callable[[Any], Any]
    dump: Callable[[Any], list[Message]]

    def __call__(self, messages: list[Message]) -> list[Message]:
        """Do all three steps."""
        return self.dump(self.repair(self.load(messages)))


def guard() -> Contender:
    """Return ours."""
    from astrbot_tool_guard import repair_messages

    return Contender("guard", _as_it_is, lambda m: repair_messages(m).messages, _as_it_is)


def contenders() -> list[Contender]:
    """Return the four of the table."""
    return [_deepagents(), _pydantic_ai(), _litellm(), _openai_agents()]


def _as_it_is(messages: Any) -> Any:
    return messages


def _deepagents() -> Contender:
    from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware
    from langchain_core.messages import convert_to_messages, convert_to_openai_messages

    middleware = PatchToolCallsMiddleware()
    runtime: Any = None

    def repair(messages: list[Any]) -> list[Any]:
        update = middleware.before_agent({"messages": messages}, runtime)
        # The first entry of an update only says that it replaces the history.
        return messages if update is None else update["messages"][1:]

    def dump(messages: list[Any]) -> list[Message]:
        return [_without_name(each) for each in convert_to_openai_messages(messages)]

    return Contender("deepagents (LangChain)", convert_to_messages, repair, dump)


def _without_name(message: Message) -> Message:
    return {key: value for key, value in message.items() if key != "name"}


def _pydantic_ai() -> Contender:
    from pydantic_ai.messages import (
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
        repair_messages,
    )

    now = datetime(2025, 11, 30, tzinfo=UTC)

    def load(messages: list[Message]) -> list[Any]:
        names: dict[str, str] = {}
        history: list[Any] = []
        for message in messages:
            role, content = message["role"], message.get("content")
            if role == "assistant":
                parts: list[Any] = [TextPart(content)] if content else []
                for call in message.get("tool_calls") or ():
                    name = names[call["id"]] = call["function"]["name"]
                    parts.append(ToolCallPart(name, call["function"]["arguments"], call["id"]))
                # With a model's name, as a real answer has one: it does not merge those.
                history.append(ModelResponse(parts, model_name="model", timestamp=now))
            elif role == "tool":
                call_id = message["tool_call_id"]
                name = names.get(call_id, "unknown")
                part = ToolReturnPart(name, content, call_id, timestamp=now)
                history.append(ModelRequest([part], timestamp=now))
            else:
                kind = UserPromptPart if role == "user" else SystemPromptPart
                history.append(ModelRequest([kind(content, timestamp=now)], timestamp=now))
        return history

    def dump(history: list[Any]) -> list[Message]:
        messages: list[Message] = []
        for each in history:
            if isinstance(each, ModelResponse):
                messages.append(response(each))
                continue
            for part in each.parts:
                if isinstance(part, ToolReturnPart):
                    content = part.model_response_str()
                    messages.append(
                        {"role": "tool", "tool_call_id": part.tool_call_id, "content": content}
                    )
                else:
                    role = "user" if isinstance(part, UserPromptPart) else "system"
                    messages.append({"role": role, "content": part.content})
        return messages

    def response(answer: Any) -> Message:
        texts = [part.content for part in answer.parts if isinstance(part, TextPart)]
        calls = [
            {
                "id": part.tool_call_id,
                "type": "function",
                "function": {"name": part.tool_name, "arguments": part.args_as_json_str()},
            }
            for part in answer.parts
            if isinstance(part, ToolCallPart)
        ]
        message: Message = {"role": "assistant", "content": "\n\n".join(texts) or None}
        return {**message, "tool_calls": calls} if calls else message

    return Contender("pydantic-ai", load, repair_messages, dump)


def _litellm() -> Contender:
    import litellm
    from litellm.litellm_core_utils.prompt_templates.factory import (
        sanitize_messages_for_tool_calling,
    )

    litellm.modify_params = True  # what switches its clean-up on
    # It writes a line for each duplicate, which is no part of the work.
    logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
    return Contender("LiteLLM", _as_it_is, sanitize_messages_for_tool_calling, _as_it_is)


def _openai_agents() -> Contender:
    from agents.models.chatcmpl_converter import Converter
    from agents.run_internal.items import (
        deduplicate_input_items_preferring_latest,
        drop_orphan_function_calls,
        normalize_input_items_for_api,
    )

    def load(messages: list[Message]) -> list[Any]:
        items: list[Any] = []
        for message in messages:
            role, content = message["role"], message.get("content")
            if role == "tool":
                call_id = message["tool_call_id"]
                items.append(
                    {"type": "function_call_output", "call_id": call_id, "output": content}
                )
                continue
            if role != "assistant":
                items.append({"role": role, "content": content})
                continue
            if content:
                text = {"type": "output_text", "text": content, "annotations": []}
                kind = {"type": "message", "role": "assistant", "status": "completed"}
                items.append({**kind, "id": f"msg_{len(items)}", "content": [text]})
            items += [
                {"type": "function_call", "call_id": call["id"], **call["function"]}
                for call in message.get("tool_calls") or ()
            ]
        return items

    def repair(items: list[Any]) -> list[Any]:
        # The steps of `prepare_input_with_session` for what a session has stored.
        stored = set(range(len(items)))
        kept = drop_orphan_function_calls(
            items, pruning_indexes=stored, output_pruning_indexes=stored
        )
        return deduplicate_input_items_preferring_latest(normalize_input_items_for_api(kept))

    return Contender("OpenAI Agents SDK", load, repair, Converter.items_to_messages)
