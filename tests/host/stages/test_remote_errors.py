"""What a provider does wrong is AstrBot's to answer: the guard changes nothing about it.

Each scene is played twice, without and with the guard, and what reached the model
server and what the user read is compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from astrbot_tool_guard.core.errors import ToolMessageProtocolError
from astrbot_tool_guard.host.guard import install
from tests.host.stages.lists import HEALTHY, THANKS, USER
from tests.support import answers
from tests.support.answers import Answer, Chunks, Completion, Cut, Failure, call, calls, say
from tests.support.bot import BACKUP, Bot

pytestmark = pytest.mark.usefixtures("no_waiting", "first_key")


@pytest.fixture
def first_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """AstrBot picks the first key it has left, and not any."""
    from astrbot.core.provider.sources import openai_source

    def first(keys: list[str]) -> str:
        return keys[0]

    monkeypatch.setattr(openai_source, "random", SimpleNamespace(choice=first))


@pytest.fixture(scope="module")
async def fallback_bot(running_bot: Bot) -> AsyncIterator[Bot]:
    """The running AstrBot with a fallback provider."""
    async with running_bot.changed(fallbacks=[BACKUP], request_max_retries=2):
        yield running_bot


@pytest.fixture
def with_fallback(fallback_bot: Bot, bot: Bot) -> Bot:
    """The same with a clean slate."""
    return bot


EMPTY = Completion({"id": "x", "object": "chat.completion", "created": 1, "choices": []})
SCENES: dict[str, Sequence[Answer]] = {
    "an answer": [say("It is noon.")],
    "tools and an answer": [
        calls(call("get_time", id="t"), call("get_weather", {"city": "Oslo"}, id="w")),
        say("Noon."),
    ],
    "429 once": [answers.rate_limited(), say("Late.")],
    "429 for every key": [answers.rate_limited()] * 2,
    "429 everywhere": [answers.rate_limited()] * 9,
    "500 once": [answers.server_error(), say("Late.")],
    "500 everywhere": [answers.server_error()] * 9,
    "context length": [answers.context_length(), say("Shorter.")],
    "context length twice": [answers.context_length()] * 2 + [say("Shorter.")],
    "context length to the end": [answers.context_length()] * 25,
    "no tools": [answers.tools_unsupported(), say("Without.")],
    "no tools, said again": [answers.tools_unsupported()] * 25,
    "another 400": [Failure(400, "The model is asleep."), say("Backup.")],
    "a 400 that looks like ours": [
        Failure(400, "tool calls and tool results do not pair: orphan_result at message 3"),
        say("Backup."),
    ],
    "401": [Failure(401, "Wrong key."), say("Backup.")],
    "no choices": [EMPTY] * 3 + [say("Backup.")],
    "cut at once": [Cut(say("Never."), 0), say("Backup.")],
    "cut in the middle": [Cut(say("Long enough to be cut."), 400), say("Backup.")],
    "an error chunk": [Chunks([{"error": {"message": "Overloaded."}}]), say("Backup.")],
}


def timeless(messages: object) -> str:
    """Return the messages without the time of day that AstrBot puts into them."""
    return re.sub(r"Current datetime: [^,]*", "", json.dumps(messages))


async def play(bot: Bot, session: str, scene: Sequence[Answer], streaming: bool) -> Any:
    """Play one scene; return what the server got and what the user read."""
    bot.server.reset()
    bot.server.script(*scene)
    await bot.set_history(session, [*HEALTHY, {"role": "assistant", "content": "Welcome."}])
    turn = await bot.say("And now?", session=session, streaming=streaming)
    sent = [(r.key, r.stream, r.tools, timeless(r.messages)) for r in turn.requests]
    return sent, turn.texts, turn.invocations and [i.arguments for i in turn.invocations]


@pytest.mark.parametrize("streaming", [False, True], ids=["complete", "stream"])
@pytest.mark.parametrize("name", SCENES)
async def test_the_same_requests_and_the_same_answer(
    with_fallback: Bot, name: str, streaming: bool
) -> None:
    bare = await play(with_fallback, "bare", SCENES[name], streaming)
    guard = install()
    try:
        guarded = await play(with_fallback, "guarded", SCENES[name], streaming)
    finally:
        guard.uninstall()
    assert guarded == bare
    assert bare[0]


LONG_LISTS = {
    "no tool at all": [USER, {"role": "assistant", "content": "Noon."}, THANKS],
    "calls and results": HEALTHY,
}


@pytest.mark.parametrize("streaming", [False, True], ids=["complete", "stream"])
@pytest.mark.parametrize("name", LONG_LISTS)
async def test_a_healthy_list_is_sent_as_it_is(bot: Bot, name: str, streaming: bool) -> None:
    async def sent() -> list[Any]:
        bot.server.reset()
        provider = bot.provider()
        if streaming:
            async for _ in provider.text_chat_stream(contexts=LONG_LISTS[name]):
                pass
        else:
            await provider.text_chat(contexts=LONG_LISTS[name])
        return [request.body for request in bot.server.requests]

    bare = await sent()
    guard = install()
    try:
        assert await sent() == bare
    finally:
        guard.uninstall()


async def test_only_ours_goes_past_astrbots_error_handling(bot: Bot) -> None:
    guard = install()
    try:
        provider = bot.provider()
        ours = ToolMessageProtocolError(())
        with pytest.raises(ToolMessageProtocolError) as caught:
            await provider._handle_api_error(ours, {}, [], None, "sk", ["sk"], 0, 10)
        assert caught.value is ours
        payload: dict[str, Any] = {"tools": [1]}
        error = RuntimeError("tool use is not supported")
        outcome = await provider._handle_api_error(error, payload, [], None, "sk", ["sk"], 0, 10)
        assert outcome[3] == {}
    finally:
        guard.uninstall()
