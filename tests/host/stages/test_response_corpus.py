"""Every response case of the corpus, through a provider of a real AstrBot.

What is compared is AstrBot's own `LLMResponse`: names, ids, arguments and extra
content of the calls it would execute.
"""

from __future__ import annotations

from typing import Any

import pytest
from astrbot.core.agent.tool import FunctionTool, ToolSet
from astrbot.core.exceptions import EmptyModelOutputError

from astrbot_tool_guard.host.guard import Guard
from astrbot_tool_guard.settings.settings import Settings
from tests.conftest import cases
from tests.host.conftest import Told
from tests.support.answers import Chunks, Completion
from tests.support.bot import Bot
from tests.support.versions import stored_calls

CASES = [*cases("str-"), *cases("rsp-"), *cases("sch-")]


def tool_set(tools: list[dict[str, Any]]) -> ToolSet:
    """Return AstrBot's tools for a request that declares exactly `tools`."""
    names = [tool["function"]["name"] for tool in tools]
    made = ToolSet([FunctionTool(name, "", {}, None) for name in names])
    made.get_func_desc_openai_style = lambda **_: tools  # type: ignore[method-assign]
    return made


async def answer(bot: Bot, case: dict[str, Any], *, streaming: bool) -> Any:
    """Ask AstrBot's provider and return the last `LLMResponse`, `None` for an empty answer."""
    given = case["input"]
    scripted = Chunks(given["chunks"]) if "chunks" in given else Completion(given["completion"])
    bot.server.script(scripted, scripted)
    request = {
        "prompt": "hi",
        "func_tool": tool_set(given.get("tools") or []),
        "request_max_retries": 1,
    }
    try:
        if not streaming:
            return await bot.provider().text_chat(**request)
        final = None
        async for response in bot.provider().text_chat_stream(**request):
            final = None if response.is_chunk else response
        return final
    except EmptyModelOutputError:
        return None


def transports() -> list[Any]:
    """Each case as it came, and once more with the caller wanting the other form."""
    found: list[Any] = []
    for case in CASES:
        streamed = "chunks" in case.values[0]["input"]
        own, other = ("stream", "complete") if streamed else ("complete", "stream")
        found.append(pytest.param(case.values[0], streamed, "auto", id=f"{case.id}-{own}"))
        transport = "stream" if streamed else "complete"
        found.append(
            pytest.param(case.values[0], not streamed, transport, id=f"{case.id}-as-{other}")
        )
    return found


@pytest.mark.parametrize("validation", ["structural", "strict"])
@pytest.mark.parametrize(("case", "streaming", "transport"), transports())
async def test_astrbot_gets_the_calls_of_the_case(
    bot: Bot,
    guard: Guard,
    told: Told,
    case: dict[str, Any],
    streaming: bool,
    transport: Any,
    validation: Any,
) -> None:
    guard.settings = Settings(tool_argument_validation=validation, stream_transport=transport)
    expected = case["expect"]["calls"]
    response = await answer(bot, case, streaming=streaming)
    # Nothing but nameless calls is asked for again, and the second answer is empty here.
    record = next(each for each in reversed(told.attempts) if each.error is None)
    assert record.outcome in ("accepted", "accepted_degraded")
    invalid = {each["id"] for each in record.metadata.get("invalid_tool_calls", [])}  # type: ignore[union-attr]
    if response is None:
        assert expected == []
        return
    if not expected:
        assert not any(response.tools_call_name)  # AstrBot tells the model of those
        return
    assert len(response.tools_call_name) == len(expected)
    for index, want in enumerate(expected):
        call_id = response.tools_call_ids[index]
        assert response.tools_call_name[index] == want["name"]
        assert call_id == want["id"] if want["id"] is not None else call_id
        assert response.tools_call_args[index] == (want["arguments"] or {})
        extra = response.tools_call_extra_content.get(call_id)
        assert extra == want.get("extra_content")
        if want["valid"][validation] is not None:
            assert (call_id not in invalid) is want["valid"][validation]
    # What AstrBot stores must be JSON that the next provider takes.
    stored_calls(response)


async def test_without_calls_the_answer_is_the_very_object_of_the_sdk(
    bot: Bot, guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    from openai.types.chat import ChatCompletion

    from astrbot_tool_guard.host.protocols.chat_completions.dialect import ChatCompletions
    from tests.support.answers import say

    seen: list[ChatCompletion] = []
    read = ChatCompletions.read

    def spy(dialect: Any, completion: Any, reading: Any) -> Any:
        before = completion.model_dump()
        answer = read(dialect, completion, reading)
        assert completion.model_dump() == before
        seen.append(completion)
        return answer

    monkeypatch.setattr(ChatCompletions, "read", spy)
    bot.server.script(say("Hello."))
    response = await bot.provider().text_chat(prompt="hi")
    assert response.raw_completion is seen[0]
