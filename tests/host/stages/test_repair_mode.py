"""`request_guard: repair`: what is broken is mended, sent, and stored mended."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from astrbot_tool_guard.core.errors import ToolMessageProtocolError
from astrbot_tool_guard.core.messages.pairing import find_violations
from astrbot_tool_guard.core.messages.repair import repair_messages
from astrbot_tool_guard.host.guard import Guard
from astrbot_tool_guard.settings.sessions import SessionOverrides
from astrbot_tool_guard.settings.settings import Settings
from tests.conftest import cases
from tests.host.conftest import Told
from tests.host.stages.lists import BROKEN, HALF_ANSWERED, HEALTHY, THANKS, USER, declare, result
from tests.host.stages.test_request_stage import adapter, ask, inject
from tests.support.answers import call, calls, say
from tests.support.bot import MAIN, Bot
from tests.support.model_server import ModelServer
from tests.support.strictness import refusal

streaming = pytest.mark.parametrize("streaming", [False, True], ids=["complete", "stream"])
WELCOME = {"role": "assistant", "content": "Welcome."}
CHECKPOINT = {"role": "_checkpoint", "content": {"id": "checkpoint-1"}}


@pytest.fixture
def guard(guard: Guard) -> Guard:
    """The guard in `repair` mode."""
    guard.settings = Settings(request_guard="repair")
    return guard


def without_times(messages: list[Any]) -> list[Any]:
    """Return messages with the parts that AstrBot adds to a user's message taken off."""
    plain = copy.deepcopy(messages)
    for message in plain:
        if message["role"] == "user" and isinstance(message["content"], list):
            message["content"] = message["content"][0]["text"]
    return plain


def refused_for_pairing(bot: Bot) -> list[Any]:
    """Return what a strict provider would refuse for its pairing."""
    judged = [refusal(request.body) for request in bot.server.requests]
    return [refused for refused in judged if refused and refused.kind == "pairing"]


STORABLE = [
    case
    for case in cases("req-")
    if "messages" in case.values[0]["input"] and "extra_body" not in case.values[0]["input"]
]


@streaming
@pytest.mark.parametrize("case", STORABLE)
async def test_a_stored_history_is_mended_sent_and_stored(
    bot: Bot, guard: Guard, told: Told, case: Any, streaming: bool
) -> None:
    history = [m for m in case["input"]["messages"] if m.get("role") != "system"]
    mended = repair_messages(history)
    session = f"{case['slug']}-{streaming}"
    await bot.set_history(session, history)
    bot.server.strict = False  # some cases pair and are refused for their form
    turn = await bot.say("Hello?", session=session, streaming=streaming)
    assert turn.texts == ["OK."]
    assert not refused_for_pairing(bot)
    assert len(told.incidents) == bool(mended.changes)

    stored = await bot.history(session)
    assert find_violations(stored) == ()
    told.events.clear()
    again = await bot.say("And now?", session=session, streaming=streaming)
    assert again.texts == ["OK."]
    assert not refused_for_pairing(bot)
    assert told.incidents == []


@streaming
async def test_what_is_stored_is_the_mended_history_and_the_turn(
    bot: Bot, guard: Guard, told: Told, streaming: bool
) -> None:
    history = [*HALF_ANSWERED, WELCOME]
    await bot.set_history("stored", history)
    turn = await bot.say("Hello?", session="stored", streaming=streaming)
    mended = repair_messages(history).messages
    sent = without_times(turn.requests[0].messages)
    assert sent[1:-1] == mended
    stored = without_times(await bot.history("stored"))
    assert stored[:-2] == mended
    assert [message["role"] for message in stored[-2:]] == ["user", "assistant"]
    assert [incident.kind for incident in told.incidents] == ["request_repaired"]
    assert told.incidents[0].problems == ("result_added at message 1",)
    assert told.incidents[0].session == bot.umo("stored")


async def test_a_result_that_astrbot_would_have_deleted_is_kept(bot: Bot, guard: Guard) -> None:
    late = [USER, declare("a"), THANKS, WELCOME, result("a", "half past noon"), THANKS, WELCOME]
    await bot.set_history("late", late)
    turn = await bot.say("Hello?", session="late")
    assert [m["content"] for m in turn.requests[0].messages if m["role"] == "tool"] == [
        "half past noon"
    ]
    stored = await bot.history("late")
    assert [m["content"] for m in stored if m["role"] == "tool"] == ["half past noon"]


async def test_checkpoints_stay_where_they_stood(bot: Bot, guard: Guard) -> None:
    history = [USER, declare("a"), THANKS, WELCOME, CHECKPOINT, THANKS, WELCOME]
    await bot.set_history("checkpoints", history)
    await bot.say("Hello?", session="checkpoints", extras={"llm_checkpoint_id": "new"})
    stored = await bot.history("checkpoints")
    assert [m["role"] for m in stored] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
        "_checkpoint",
        "user",
        "assistant",
        "user",
        "assistant",
        "_checkpoint",
    ]
    assert stored[5] == CHECKPOINT
    assert stored[-1]["content"] == {"id": "new"}


async def test_images_and_unknown_fields_survive(bot: Bot, guard: Guard) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "id": "one"}}
    user = {"role": "user", "content": [{"type": "text", "text": "Look."}, image]}
    signed = declare("a", "b")
    signed["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": "sig"}}
    await bot.set_history("images", [user, signed, result("b"), THANKS, WELCOME])
    with bot.provider_config(modalities=["text", "image", "tool_use"]):
        await bot.say("Hello?", session="images")
    stored = await bot.history("images")
    assert stored[0] == user
    assert stored[1]["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "sig"}}
    assert find_violations(stored) == ()


@streaming
async def test_the_run_goes_on_with_tools_after_a_repair(
    bot: Bot, guard: Guard, told: Told, streaming: bool
) -> None:
    await bot.set_history("tools", HALF_ANSWERED)
    bot.server.script(calls(call("get_time")), say("Noon."))
    turn = await bot.say("The time?", session="tools", streaming=streaming)
    assert turn.texts[-1] == "Noon."
    assert turn.refused == []
    assert len(turn.requests) == 2
    assert len(told.incidents) == 1  # mended once, at the start of the run


@streaming
@pytest.mark.parametrize("rule", [rule for rule in BROKEN if rule != "messages_not_a_list"])
async def test_an_override_is_mended_for_the_request_only(
    bot: Bot, guard: Guard, rule: str, streaming: bool
) -> None:
    override = {"messages": copy.deepcopy(BROKEN[rule])}
    bot.server.strict = False
    with bot.provider_config(custom_extra_body=override):
        assert await ask(bot.provider(), streaming=streaming, prompt="Hello?") == "OK."
    assert [request.messages for request in bot.server.requests] == [
        repair_messages(BROKEN[rule]).messages
    ]
    assert not refused_for_pairing(bot)
    assert override == {"messages": BROKEN[rule]}


@streaming
@pytest.mark.parametrize("override", [None, "text", 3])
async def test_what_cannot_be_mended_is_blocked(
    bot: Bot, guard: Guard, told: Told, override: object, streaming: bool
) -> None:
    with (
        bot.provider_config(custom_extra_body={"messages": override}),
        pytest.raises(ToolMessageProtocolError),
    ):
        await ask(bot.provider(), streaming=streaming, prompt="Hello?")
    assert bot.server.count == 0
    assert [incident.kind for incident in told.incidents] == ["request_blocked"]


@streaming
async def test_what_breaks_after_the_clean_up_is_mended_at_the_sdk(
    bot: Bot, guard: Guard, told: Told, monkeypatch: pytest.MonkeyPatch, streaming: bool
) -> None:
    inject(monkeypatch, HALF_ANSWERED)
    assert await ask(bot.provider(), streaming=streaming, prompt="Hello?") == "OK."
    assert bot.server.refused == []
    assert [incident.kind for incident in told.incidents] == ["request_repaired"]


@streaming
@pytest.mark.parametrize("ids", [(["a"], ["a"]), ("a", {"id": "a"}), (7, "7")])
async def test_ids_that_break_astrbots_clean_up_are_mended_before_it(
    bot: Bot, guard: Guard, ids: tuple[Any, Any], streaming: bool
) -> None:
    contexts = [USER, declare(ids[0]), result(ids[1]), THANKS]
    assert await ask(bot.provider(), streaming=streaming, contexts=contexts) == "OK."
    assert bot.server.refused == []
    assert find_violations(bot.server.requests[0].messages) == ()


async def test_a_direct_request_leaves_the_callers_list_alone(bot: Bot, guard: Guard) -> None:
    contexts = copy.deepcopy(HALF_ANSWERED)
    assert await ask(bot.provider(), streaming=False, contexts=contexts) == "OK."
    assert contexts == HALF_ANSWERED


async def test_a_session_may_repair_while_the_others_block(bot: Bot, guard: Guard) -> None:
    guard.settings = Settings()
    guard.sessions = SessionOverrides()
    await guard.sessions.set(bot.umo("mending"), "request_guard", "repair")
    await bot.set_history("mending", HALF_ANSWERED)
    await bot.set_history("blocking", HALF_ANSWERED)
    assert (await bot.say("Hello?", session="mending")).texts == ["OK."]
    assert (await bot.say("Hello?", session="blocking")).requests == []
    assert find_violations(await bot.history("mending")) == ()


async def test_a_provider_may_repair_while_the_others_block(bot: Bot, guard: Guard) -> None:
    guard.settings = Settings(providers={MAIN: {"request_guard": "repair"}})
    assert await ask(bot.provider(), streaming=False, contexts=HALF_ANSWERED) == "OK."
    with pytest.raises(ToolMessageProtocolError):
        await ask(bot.provider("backup/model"), streaming=False, contexts=HALF_ANSWERED)


@pytest.mark.parametrize("mode", ["block", "observe", "off"])
async def test_in_the_other_modes_nothing_is_mended(bot: Bot, guard: Guard, mode: Any) -> None:
    guard.settings = Settings(request_guard=mode)
    bot.server.strict = False
    history = [*HALF_ANSWERED, WELCOME]
    await bot.set_history(mode, history)
    await bot.say("Hello?", session=mode)
    assert without_times(await bot.history(mode))[: len(history)] == history


async def test_a_history_for_another_kind_of_adapter_is_left_alone(
    server: ModelServer, guard: Guard, told: Told
) -> None:
    pytest.importorskip("astrbot.core.provider.sources.openai_responses_source")
    from types import SimpleNamespace

    from astrbot.core.agent.runners.tool_loop_agent_runner import ToolLoopAgentRunner
    from astrbot.core.provider.entities import ProviderRequest

    provider = adapter("openai_responses_source", server)
    request = ProviderRequest(prompt="Hello?", contexts=copy.deepcopy(HALF_ANSWERED))
    context: Any = SimpleNamespace(context=SimpleNamespace(event=None), messages=[])
    hooks: Any = None
    try:
        await ToolLoopAgentRunner().reset(provider, request, context, hooks, hooks)
    finally:
        await provider.terminate()
    assert request.contexts == HALF_ANSWERED
    assert told.events == []


async def test_a_healthy_history_is_the_same_object(bot: Bot, guard: Guard, told: Told) -> None:
    seen: list[Any] = []

    def look(event: object, request: Any) -> None:
        seen.append(request)
        seen.append(request.contexts)

    bot.neighbour.on_request = look
    await bot.set_history("healthy", [*HEALTHY, WELCOME])
    await bot.say("Hello?", session="healthy")
    assert seen[0].contexts is seen[1]
    assert told.incidents == []
