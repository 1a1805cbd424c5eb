"""The request stage at the SDK: what is broken is not sent, whoever broke it."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from astrbot_tool_guard.core.errors import ToolMessageProtocolError
from astrbot_tool_guard.host.guard import Guard
from astrbot_tool_guard.settings.settings import Settings
from tests.host.conftest import Told
from tests.host.stages.lists import BROKEN, HALF_ANSWERED, HEALTHY, declare, result
from tests.support.bot import MAIN, Bot
from tests.support.model_server import ModelServer

streaming = pytest.mark.parametrize("streaming", [False, True], ids=["complete", "stream"])
each_rule = pytest.mark.parametrize("rule", BROKEN)


async def ask(provider: Any, *, streaming: bool, **arguments: Any) -> str:
    """Ask a provider as another plugin does, and return the text of the answer."""
    if not streaming:
        return (await provider.text_chat(**arguments)).completion_text
    answers = [answer async for answer in provider.text_chat_stream(**arguments)]
    return answers[-1].completion_text


def inject(monkeypatch: pytest.MonkeyPatch, messages: Any) -> None:
    """Put `messages` into the payload after AstrBot's clean-up, as a plugin's patch may."""
    from astrbot.core.provider.sources.openai_source import ProviderOpenAIOfficial

    def put(payloads: dict[str, Any]) -> None:
        payloads["messages"] = messages

    monkeypatch.setattr(ProviderOpenAIOfficial, "_sanitize_assistant_messages", staticmethod(put))


@streaming
@each_rule
async def test_a_broken_override_is_not_sent(
    bot: Bot, guard: Guard, told: Told, rule: str, streaming: bool
) -> None:
    with (
        bot.provider_config(custom_extra_body={"messages": BROKEN[rule]}),
        pytest.raises(ToolMessageProtocolError) as caught,
    ):
        await ask(bot.provider(), streaming=streaming, prompt="Hello?")
    assert bot.server.count == 0
    assert caught.value.violations[0].rule == rule
    assert [(a.outcome, a.reason) for a in told.attempts] == [("blocked", "tool_pairing")]
    assert told.attempts[0].transport == ("stream" if streaming else "complete")


@streaming
@each_rule
async def test_a_broken_list_of_astrbots_own_is_not_sent(
    bot: Bot,
    guard: Guard,
    monkeypatch: pytest.MonkeyPatch,
    rule: str,
    streaming: bool,
) -> None:
    inject(monkeypatch, BROKEN[rule])
    with pytest.raises(ToolMessageProtocolError) as caught:
        await ask(bot.provider(), streaming=streaming, prompt="Hello?")
    assert bot.server.count == 0
    assert caught.value.violations[0].rule == rule


CLEANED = ("missing_result_id", "invalid_result_id", "duplicate_result", "orphan_result")


@streaming
@pytest.mark.parametrize("rule", CLEANED)
async def test_what_astrbot_cleans_up_goes_out_clean(
    bot: Bot, guard: Guard, told: Told, rule: str, streaming: bool
) -> None:
    text = await ask(bot.provider(), streaming=streaming, contexts=BROKEN[rule])
    assert text == "OK."
    assert bot.server.count == 1
    assert bot.server.refused == []
    assert told.incidents == []


@streaming
@pytest.mark.parametrize(
    "rule", ["missing_call_id", "invalid_call_id", "duplicate_call_id", "unanswered_call"]
)
async def test_what_astrbot_does_not_clean_up_is_stopped(
    bot: Bot, guard: Guard, rule: str, streaming: bool
) -> None:
    with pytest.raises(ToolMessageProtocolError):
        await ask(bot.provider(), streaming=streaming, contexts=BROKEN[rule])
    assert bot.server.count == 0


UNHASHABLE: dict[str, list[Any]] = {
    "call id": [declare(["a"]), result("a")],
    "result id": [declare("a"), result({"id": "a"})],
    "number of calls": [{"role": "assistant", "content": None, "tool_calls": 3}],
}


@streaming
@pytest.mark.parametrize("what", UNHASHABLE)
async def test_what_would_break_astrbots_clean_up_is_a_violation(
    bot: Bot, guard: Guard, what: str, streaming: bool
) -> None:
    with pytest.raises(ToolMessageProtocolError):
        await ask(bot.provider(), streaming=streaming, contexts=UNHASHABLE[what])
    assert bot.server.count == 0


@streaming
async def test_a_null_override_is_stopped(bot: Bot, guard: Guard, streaming: bool) -> None:
    with (
        bot.provider_config(custom_extra_body={"messages": None}),
        pytest.raises(ToolMessageProtocolError) as caught,
    ):
        await ask(bot.provider(), streaming=streaming, contexts=HEALTHY)
    assert bot.server.count == 0
    assert [violation.rule for violation in caught.value.violations] == ["messages_not_a_list"]


@streaming
async def test_a_healthy_override_counts_and_not_the_broken_list_under_it(
    bot: Bot, guard: Guard, told: Told, monkeypatch: pytest.MonkeyPatch, streaming: bool
) -> None:
    inject(monkeypatch, HALF_ANSWERED)
    with bot.provider_config(custom_extra_body={"messages": HEALTHY}):
        assert await ask(bot.provider(), streaming=streaming, prompt="Hello?") == "OK."
    assert [request.messages for request in bot.server.requests] == [HEALTHY]
    assert told.incidents == []


@streaming
async def test_observing_tells_and_sends(
    bot: Bot, guard: Guard, told: Told, streaming: bool
) -> None:
    guard.settings = Settings(request_guard="observe")
    bot.server.strict = False
    assert await ask(bot.provider(), streaming=streaming, contexts=HALF_ANSWERED) == "OK."
    assert bot.server.count == 1
    assert [incident.kind for incident in told.incidents] == ["request_observed"]
    assert told.incidents[0].problems == ("unanswered_call at message 1, call 1",)
    assert not [attempt for attempt in told.attempts if attempt.outcome == "blocked"]


@pytest.mark.parametrize("settings", [Settings(request_guard="off"), Settings(enabled=False)])
async def test_switched_off_it_neither_checks_nor_tells(
    bot: Bot, guard: Guard, told: Told, settings: Settings
) -> None:
    guard.settings = settings
    bot.server.strict = False
    assert await ask(bot.provider(), streaming=False, contexts=HALF_ANSWERED) == "OK."
    assert not told.incidents


async def test_a_provider_may_have_a_mode_of_its_own(bot: Bot, guard: Guard) -> None:
    guard.settings = Settings(providers={MAIN: {"request_guard": "off"}})
    bot.server.strict = False
    assert await ask(bot.provider(), streaming=False, contexts=HALF_ANSWERED) == "OK."
    with pytest.raises(ToolMessageProtocolError):
        await ask(bot.provider("backup/model"), streaming=False, contexts=HALF_ANSWERED)


async def test_the_exception_holds_nothing_of_the_messages(bot: Bot, guard: Guard) -> None:
    secret = [{"role": "user", "content": "SECRET"}, declare("SECRET"), *HEALTHY]
    try:
        raise ValueError("SECRET")  # what a plugin may be handling when it asks
    except ValueError:
        with pytest.raises(ToolMessageProtocolError) as caught:
            await ask(bot.provider(), streaming=False, contexts=secret)
    error: BaseException | None = caught.value
    assert error is not None
    assert "SECRET" not in str(error)
    assert error.__cause__ is None
    assert not any("SECRET" in line for line in bot.log.lines)


ADAPTERS = {
    "longcat_source": "ProviderLongCat",
    "oai_aihubmix_source": "ProviderAIHubMix",
    "openrouter_source": "ProviderOpenRouter",
    "zhipu_source": "ProviderZhipu",
    "xiaomi_source": "ProviderXiaomi",
    "groq_source": "ProviderGroq",
    "xai_source": "ProviderXAI",
}


def adapter(module: str, server: ModelServer, **config: Any) -> Any:
    """Make a provider of an adapter module: its one class over the OpenAI adapter."""
    from astrbot.core.provider.sources.openai_source import ProviderOpenAIOfficial

    loaded = importlib.import_module(f"astrbot.core.provider.sources.{module}")
    (kind,) = {
        value
        for value in vars(loaded).values()
        if isinstance(value, type)
        and issubclass(value, ProviderOpenAIOfficial)
        and value.__module__ == loaded.__name__
    }
    values = {"id": module, "key": ["sk"], "api_base": server.url, "model": "model", **config}
    return kind(values, {})


@streaming
@pytest.mark.parametrize("module", ["openai_source", *ADAPTERS])
async def test_every_adapter_over_the_openai_one_is_guarded(
    server: ModelServer, guard: Guard, module: str, streaming: bool
) -> None:
    provider = adapter(module, server)
    try:
        assert await ask(provider, streaming=streaming, contexts=HEALTHY) == "OK."
        with pytest.raises(ToolMessageProtocolError):
            await ask(provider, streaming=streaming, contexts=HALF_ANSWERED)
        assert server.count == 1
    finally:
        await provider.terminate()


@streaming
async def test_azure_is_guarded(server: ModelServer, guard: Guard, streaming: bool) -> None:
    provider = adapter("openai_source", server, api_version="2024-05-01-preview")
    try:
        assert await ask(provider, streaming=streaming, contexts=HEALTHY) == "OK."
        with pytest.raises(ToolMessageProtocolError):
            await ask(provider, streaming=streaming, contexts=HALF_ANSWERED)
        assert server.count == 1
    finally:
        await provider.terminate()


async def test_an_adapter_that_sends_by_itself_is_guarded_where_astrbot_knows_it(
    server: ModelServer, guard: Guard
) -> None:
    provider = adapter("openai_source", server)
    try:
        create = provider.client.chat.completions.create
        guard.watch(lambda: [provider])
        with pytest.raises(ToolMessageProtocolError):
            await create(model="model", messages=HALF_ANSWERED)
        assert server.count == 0
    finally:
        await provider.terminate()


async def test_a_client_that_is_not_astrbots_is_none_of_our_business(
    server: ModelServer, guard: Guard, told: Told
) -> None:
    from openai import AsyncOpenAI

    server.strict = False
    async with AsyncOpenAI(api_key="sk", base_url=server.url) as client:
        answer = await client.chat.completions.create(model="model", messages=HALF_ANSWERED)
    assert answer.choices[0].message.content == "OK."
    assert told.events == []


async def test_the_sdks_own_complaints_are_the_sdks(bot: Bot, guard: Guard) -> None:
    create = bot.provider().client.chat.completions.create
    with pytest.raises(TypeError, match="Missing required arguments"):
        await create(model="model")


async def test_a_new_provider_sees_the_sdks_real_parameters(
    bot: Bot, server: ModelServer, guard: Guard
) -> None:
    guarded = adapter("openai_source", server)
    guard.uninstall()
    bare = adapter("openai_source", server)
    try:
        assert list(guarded.default_params) == list(bare.default_params)
    finally:
        await guarded.terminate()
        await bare.terminate()


async def test_the_summary_of_the_compressor_is_stopped_and_astrbot_goes_on(
    bot: Bot, guard: Guard, told: Told
) -> None:
    from astrbot.core.agent.context.compressor import LLMSummaryCompressor
    from astrbot.core.agent.message import Message

    messages = [
        Message.model_validate(message)
        for message in [*HALF_ANSWERED, {"role": "assistant", "content": "Welcome."}] * 2
    ]
    compressor = LLMSummaryCompressor(bot.provider())
    assert await compressor(messages) is messages
    assert bot.server.count == 0
    assert [incident.kind for incident in told.incidents] == ["request_blocked"]
