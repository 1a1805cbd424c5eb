"""Requests of any shape, through a real provider: a violation or a pass, and nothing else.

What AstrBot itself makes of such messages is its own affair; what comes from us is a
`ToolMessageProtocolError` that quotes nothing, or no exception at all.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai.resources.chat.completions import AsyncCompletions
from openai.types.chat import ChatCompletion

from astrbot_tool_guard.core.errors import ToolMessageProtocolError
from astrbot_tool_guard.core.messages.pairing import find_violations
from astrbot_tool_guard.host.guard import Guard, install
from astrbot_tool_guard.journal.events import Incident
from astrbot_tool_guard.settings.settings import Settings
from tests.host.seams.faulty import is_ours
from tests.host.stages.lists import BROKEN, HEALTHY
from tests.support.answers import say
from tests.support.bot import Bot
from tests.support.odd import odd_json

SECRET = "SECRET-of-the-user"


class Asked:
    """A provider under the guard, above an SDK that takes everything."""

    def __init__(self, bot: Bot, guard: Guard) -> None:
        self.bot = bot
        self.guard = guard
        self.sent: list[Any] = []
        self.faults: list[Incident] = []
        guard.subscribe(self._note)

    def _note(self, event: Any) -> None:
        if isinstance(event, Incident) and event.kind == "guard_fault":
            self.faults.append(event)

    async def outcome(self, asked: Any) -> Exception | None:
        """Return what was raised; an exception of ours can only be the one."""
        self.sent.clear()
        self.faults.clear()
        failure: Exception | None = None
        try:
            await asked
        except Exception as error:
            failure = error
        if isinstance(failure, ToolMessageProtocolError):
            assert self.sent == []
            assert failure.violations
            quotes_nothing(failure)
        elif failure is not None:
            assert not is_ours(failure), failure
        return failure

    async def override(self, messages: Any) -> Exception | None:
        """Ask with `messages` put in by the provider's own configuration."""
        with self.bot.provider_config(custom_extra_body={"messages": messages}):
            return await self.outcome(self.bot.provider().text_chat(prompt="hi"))

    async def payload(self, messages: Any) -> Exception | None:
        """Ask with `messages` where AstrBot's clean-up sees them."""

        async def ask() -> None:
            await self.bot.provider()._query({"messages": messages, "model": "model"}, None)

        return await self.outcome(ask())


def quotes_nothing(error: ToolMessageProtocolError) -> None:
    """Check that neither the error nor what stands behind it holds anything of a message."""
    seen: set[int] = set()
    behind: list[BaseException | None] = [error]
    while behind:
        each = behind.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        assert SECRET not in f"{each} {each!r} {each.args}"
        behind += [each.__cause__, each.__context__]
    assert len(str(error)) < 1_000
    assert all(SECRET not in violation.detail for violation in error.violations)


@pytest.fixture
def asked(bot: Bot, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    """The guard on an SDK that takes everything."""
    holder: list[Asked] = []

    @functools.wraps(AsyncCompletions.create)
    async def create(self: Any, **kwargs: Any) -> Any:
        holder[0].sent.append(kwargs)
        return ChatCompletion.construct(**say("OK.").completion("model"))

    monkeypatch.setattr(AsyncCompletions, "create", create)
    guard = install()
    holder.append(Asked(bot, guard))
    yield holder[0]
    guard.uninstall()


def cyclic_list() -> Any:
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle


def cyclic_dict() -> Any:
    cycle: dict[str, Any] = {"role": "assistant", "content": SECRET}
    cycle["tool_calls"] = [cycle]
    cycle["function"] = cycle
    return cycle


def deep_list() -> Any:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


class Raising:
    """An object that fails at whatever is done to it."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError(SECRET)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise RuntimeError(SECRET)

    def __str__(self) -> str:
        raise RuntimeError(SECRET)

    __repr__ = __str__


ASSISTANT = {"role": "assistant", "content": SECRET}
CALL = {"id": SECRET, "type": "function", "function": {"name": SECRET, "arguments": SECRET}}
HOSTILE: dict[str, Any] = {
    "a cycle of lists": cyclic_list(),
    "a message in itself": [cyclic_dict()],
    "cyclic calls": [{**ASSISTANT, "tool_calls": cyclic_list()}],
    "cyclic content": [{"role": "user", "content": cyclic_list()}],
    "100,000 deep": deep_list(),
    "100,000 deep calls": [{**ASSISTANT, "tool_calls": deep_list()}],
    "unhashable call id": [{**ASSISTANT, "tool_calls": [{**CALL, "id": {"a": [SECRET]}}]}],
    "unhashable result id": [{"role": "tool", "tool_call_id": [SECRET], "content": SECRET}],
    "unhashable role": [{"role": [SECRET], "content": SECRET}],
    "nan id": [{**ASSISTANT, "tool_calls": [{**CALL, "id": float("nan")}]}],
    "huge number id": [{**ASSISTANT, "tool_calls": [{**CALL, "id": 10**5000}]}],
    "bytes": b"SECRET",
    "a set": {1, 2},
    "no list at all": 5,
    "null": None,
    "tuple of messages": ({"role": "tool", "tool_call_id": "x", "content": SECRET},),
    "calls as a set": [{**ASSISTANT, "tool_calls": {SECRET}}],
    "calls as a generator": [{**ASSISTANT, "tool_calls": (each for each in [CALL])}],
    "surrogates": [{**ASSISTANT, "tool_calls": [{**CALL, "id": "\ud800"}]}],
    "objects that raise": [Raising()],
    "a role that raises": [{"role": Raising(), "content": SECRET}],
    "an id that raises": [{**ASSISTANT, "tool_calls": [{**CALL, "id": Raising()}]}],
    "calls that raise": [{**ASSISTANT, "tool_calls": Raising()}],
    "a result id that raises": [{"role": "tool", "tool_call_id": Raising(), "content": SECRET}],
}
MODES = ["block", "repair", "observe"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_messages_are_a_violation_or_pass(asked: Asked, name: str, mode: Any) -> None:
    asked.guard.settings = Settings(request_guard=mode)
    for ask in (asked.override, asked.payload):
        failure = await ask(HOSTILE[name])
        assert failure is not None or asked.sent
        # An object that raises at a comparison is told as what it is, and passes.
        assert asked.faults == [] or "raise" in name


@pytest.mark.parametrize("rule", BROKEN)
async def test_what_is_raised_quotes_nothing(asked: Asked, rule: str) -> None:
    def secret(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: value[key] if key == "role" else secret(value[key]) for key in value}
        if isinstance(value, list):
            return [secret(each) for each in value]
        return f"{SECRET}{value}" if isinstance(value, str) else value

    failure = await asked.override(secret(BROKEN[rule]))
    assert isinstance(failure, ToolMessageProtocolError)
    assert failure.violations[0].rule == rule


def whole_history() -> list[Any]:
    """A healthy history in which every field is there that can be."""
    first = copy.deepcopy(HEALTHY)
    first[1]["tool_calls"][0]["extra_content"] = {"google": {}}
    first[1]["reasoning_content"] = "r"
    return first


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(whole_history()).flatmap(odd_json), max_size=6), st.data())
async def test_no_messages_however_odd_are_a_fault_of_ours(
    asked: Asked, messages: list[Any], data: st.DataObject
) -> None:
    mode: Any = data.draw(st.sampled_from(MODES))
    asked.guard.settings = Settings(request_guard=mode)
    failure = await asked.override(messages)
    assert asked.faults == []
    blocked = isinstance(failure, ToolMessageProtocolError)
    broken = bool(find_violations(messages))
    assert blocked == (broken and mode == "block")
    if not blocked and failure is None:
        (request,) = asked.sent
        sent = request["extra_body"]["messages"]
        assert sent is not None or not messages
        if mode == "repair":
            assert find_violations(sent) == ()
    await asked.payload(messages)
    assert asked.faults == []


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(whole_history()).flatmap(odd_json), max_size=6))
async def test_no_history_however_odd_is_a_fault_of_ours(asked: Asked, messages: list[Any]) -> None:
    asked.guard.settings = Settings(request_guard="repair")
    await asked.outcome(asked.bot.provider().text_chat(prompt="hi", contexts=messages))
    assert asked.faults == []
