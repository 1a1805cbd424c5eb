"""What no provider should send, through the SDK seam of a real provider.

Below the guard stands a stand-in for the SDK's `create`, so that a million pieces or
100 MB need no network. Whatever comes: no exception of ours, bounded memory, a verdict.
"""

from __future__ import annotations

import functools
import gc
import json
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from astrbot.core.agent.tool import FunctionTool, ToolSet
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from openai.resources.chat.completions import AsyncCompletions
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from astrbot_tool_guard.core.calls.assembly import MAX_PIECES, CallAssembler
from astrbot_tool_guard.core.calls.chat_completions import ChatReader
from astrbot_tool_guard.core.calls.entries import MAX_CALLS
from astrbot_tool_guard.core.schemas import dialect
from astrbot_tool_guard.host.guard import Guard, install
from astrbot_tool_guard.journal.events import AttemptRecord, Incident
from astrbot_tool_guard.settings.settings import Settings
from tests.host.seams.faulty import is_ours
from tests.support.answers import chunk
from tests.support.bot import Bot
from tests.support.odd import odd_json

MB = 1_000_000
Source = Callable[[], Any]


class Sdk:
    """What `create` returns, and the guard above it."""

    def __init__(self, bot: Bot, guard: Guard) -> None:
        self.guard = guard
        self.answer: Source = list
        self.told: list[Any] = []
        self._provider = bot.provider()
        guard.subscribe(self.told.append)

    @property
    def attempts(self) -> list[AttemptRecord]:
        return [each for each in self.told if isinstance(each, AttemptRecord)]

    @property
    def faults(self) -> list[Incident]:
        return [
            each for each in self.told if isinstance(each, Incident) and each.kind == "guard_fault"
        ]

    async def stream(self, chunks: Source, tools: Any = None) -> Any:
        """Return the last `LLMResponse` of a streamed answer made of `chunks()`."""
        self.answer = lambda: _stream(chunks())
        last = None
        async for response in self._provider.text_chat_stream(
            prompt="hi", func_tool=tools or tools_with({}), request_max_retries=1
        ):
            last = response
        return last

    async def complete(self, completion: Source, tools: Any = None) -> Any:
        """Return the `LLMResponse` of a complete answer."""
        self.answer = completion
        return await self._provider.text_chat(
            prompt="hi", func_tool=tools or tools_with({}), request_max_retries=1
        )

    async def outcome(self, asked: Any) -> Any:
        """Return what came, or the exception; ours is none of the possible ones."""
        self.told.clear()
        came: Any = None
        failure: Exception | None = None
        try:
            came = await asked
        except Exception as error:
            failure = error
        assert failure is None or not is_ours(failure), failure
        assert self.faults == []
        # A stream that AstrBot leaves with an error of its own is told when it is closed.
        assert self.attempts or failure is not None
        return came if failure is None else failure


@pytest.fixture
def sdk(bot: Bot, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sdk]:
    """The guard on an SDK that answers what the test says."""
    holder: list[Sdk] = []

    @functools.wraps(AsyncCompletions.create)
    async def create(self: Any, **_: Any) -> Any:
        return holder[0].answer()

    monkeypatch.setattr(AsyncCompletions, "create", create)
    guard = install(Settings(retry_invalid_stream=False))
    holder.append(Sdk(bot, guard))
    yield holder[0]
    guard.uninstall()


async def _stream(chunks: Iterable[Any]) -> Any:
    for each in chunks:
        yield each


def made(value: Any) -> Any:
    """Return a chunk as the SDK makes it: without looking at it."""
    return ChatCompletionChunk.construct(**value) if isinstance(value, dict) else value


def piece(arguments: str, index: Any = 0, **more: Any) -> Any:
    """Return a chunk with a piece of a call."""
    entry = {"index": index, "function": {"arguments": arguments}, **more}
    return made(chunk({"tool_calls": [entry]}))


def head(index: Any = 0, name: str = "get_time", call_id: str = "x") -> Any:
    """Return the chunk that opens a call."""
    function = {"name": name, "arguments": ""}
    return made(chunk({"tool_calls": [{"index": index, "id": call_id, "function": function}]}))


def end(reason: Any = "tool_calls") -> Any:
    return made(chunk({}, finish_reason=reason))


def tools_with(schema: Any, name: str = "get_time") -> ToolSet:
    """Return AstrBot's tools for a request that declares one tool."""
    tools = ToolSet([FunctionTool(name, "", {}, None)])
    declared = [{"type": "function", "function": {"name": name, "parameters": schema}}]
    tools.get_func_desc_openai_style = lambda **_: declared  # type: ignore[method-assign]
    return tools


def invalid(sdk: Sdk) -> set[str]:
    """Return the problems of the calls that will not run."""
    found: Any = sdk.attempts[-1].metadata.get("invalid_tool_calls", [])
    return {problem["kind"] for each in found for problem in each["problems"]}


# --- too much ----------------------------------------------------------------------------


async def test_a_hundred_megabytes_of_arguments_are_refused_in_bounded_memory(sdk: Sdk) -> None:
    fragment = "x" * 100_000

    def chunks() -> Iterator[Any]:
        yield head()
        yield piece('{"text": "')
        # A text of its own for each piece, as from the network.
        for n in range(1_000):
            yield piece(str(n % 10) + fragment)
        yield piece('"}')
        yield end()

    gc.collect()
    tracemalloc.start()
    try:
        response = await sdk.outcome(sdk.stream(chunks))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert response.tools_call_args == [{}]
    assert invalid(sdk) == {"too_large"}
    assert peak < 60 * MB


async def test_a_complete_answer_of_a_hundred_megabytes_is_refused(sdk: Sdk) -> None:
    text = '{"text": "' + "x" * 100 * MB + '"}'
    entry = {"id": "x", "type": "function", "function": {"name": "get_time", "arguments": text}}
    choice = {"index": 0, "message": {"tool_calls": [entry]}, "finish_reason": "tool_calls"}
    response = await sdk.outcome(sdk.complete(lambda: ChatCompletion.construct(choices=[choice])))
    assert response.tools_call_args == [{}]
    assert invalid(sdk) == {"too_large"}


async def test_a_hundred_thousand_fragments_are_one_call_and_few_are_kept(
    sdk: Sdk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million of them take a while; the core's own test has those."""
    readers: list[ChatReader] = []
    finish = CallAssembler.finish

    def watched(self: CallAssembler) -> Any:
        readers.extend(each for each in gc.get_referrers(self) if isinstance(each, ChatReader))
        assert all(len(call.pieces) <= MAX_PIECES for call in self._calls)
        return finish(self)

    monkeypatch.setattr(CallAssembler, "finish", watched)
    one = piece("1")

    def chunks() -> Iterator[Any]:
        yield head()
        yield piece('{"n": "')
        for _ in range(100_000):
            yield one
        yield piece('"}')
        yield end()

    response = await sdk.outcome(sdk.stream(chunks))
    assert response.tools_call_args == [{"n": "1" * 100_000}]
    (reader,) = readers
    assert len(list(reader.given_back())) < 10


@pytest.mark.parametrize("index", [10**9, -(10**9), 10**30, 1.5e300])
async def test_an_index_however_large_is_a_place_and_no_size(sdk: Sdk, index: Any) -> None:
    chunks = [head(index), piece("{}", index), end()]
    response = await sdk.outcome(sdk.stream(lambda: chunks))
    assert response.tools_call_name == ["get_time"]
    assert response.tools_call_ids == ["x"]


@pytest.mark.parametrize("streaming", [False, True])
async def test_ten_thousand_calls_are_refused_as_a_whole(sdk: Sdk, streaming: bool) -> None:
    entries = [
        {"id": f"c{n}", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}
        for n in range(10_000)
    ]
    if streaming:
        placed = [{**entry, "index": n} for n, entry in enumerate(entries)]
        chunks = [made(chunk({"tool_calls": placed})), end()]
        response = await sdk.outcome(sdk.stream(lambda: chunks))
    else:
        choice = {"index": 0, "message": {"tool_calls": entries}, "finish_reason": "stop"}
        completion = ChatCompletion.construct(choices=[choice])
        response = await sdk.outcome(sdk.complete(lambda: completion))
    assert len(response.tools_call_ids) == MAX_CALLS
    assert invalid(sdk) == {"too_many_calls"}


DEEP = {
    "cut off": "[" * 100_000,
    "closed": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "inside a text": json.dumps("[" * 100_000),
    "mixed": '{"a":[' * 50_000,
}


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize("normalize", [False, True])
async def test_depth_without_end_is_invalid_and_no_recursion(
    sdk: Sdk, name: str, normalize: bool
) -> None:
    sdk.guard.settings = Settings(retry_invalid_stream=False, normalize_arguments=normalize)
    text = DEEP[name]
    response = await sdk.outcome(sdk.stream(lambda: [head(), piece(text), end()]))
    assert response.tools_call_args == [{}]
    assert invalid(sdk) <= {"too_deep", "not_an_object", "invalid_json"}
    assert invalid(sdk)


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"a": value}
    return value


async def test_arguments_sent_as_a_deep_object_are_invalid(sdk: Sdk) -> None:
    value = nested(100_000)
    response = await sdk.outcome(sdk.stream(lambda: [head(), piece(value), end()]))
    assert response.tools_call_args == [{}]
    assert invalid(sdk)


@pytest.mark.parametrize("text", ['{"a": "\ud800"}', '{"\udfff": 1}', '{"a": "\\ud800"}', "\ud83d"])
async def test_unicode_that_cannot_be_sent_again_is_invalid(sdk: Sdk, text: str) -> None:
    response = await sdk.outcome(sdk.stream(lambda: [head(), piece(text), end()]))
    assert response.tools_call_args == [{}]
    assert invalid(sdk) == {"invalid_json"}


@pytest.mark.parametrize("where", ["name", "id"])
async def test_a_name_or_id_that_cannot_be_sent_again_does_not_break_the_answer(
    sdk: Sdk, where: str
) -> None:
    opened = head(call_id="\ud800") if where == "id" else head(name="get_\ud800")
    await sdk.outcome(sdk.stream(lambda: [opened, piece("{}"), end()]))


# --- wrong types in every field ------------------------------------------------------------

WHOLE_CALL = {
    "index": 0,
    "id": "x",
    "type": "function",
    "function": {"name": "get_time", "arguments": "{}"},
    "extra_content": {"google": {"thought_signature": "s"}},
}
WHOLE_DELTA = {"role": "assistant", "content": "Hm.", "tool_calls": [WHOLE_CALL],
               "reasoning_content": "r", "refusal": None}  # fmt: skip
WHOLE_CHUNK = {
    "id": "c",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "delta": WHOLE_DELTA, "finish_reason": None, "logprobs": None}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
WHOLE_COMPLETION = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": WHOLE_DELTA, "finish_reason": "tool_calls"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every part of `value`."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, key))


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return `value` with `new` at `path`."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put(value[path[0]], path[1:], new)  # type: ignore[index]
    return copy


ODD = [None, True, 0, -1, 2.5, float("nan"), "", "x", "\ud800", [], [None], ["x"], {}, {"a": 1}]


@pytest.mark.parametrize("path", [*places(WHOLE_CHUNK)], ids=lambda p: ".".join(map(str, p)))
async def test_a_wrong_type_in_a_field_of_a_chunk_is_no_fault_of_ours(
    sdk: Sdk, path: tuple[Any, ...]
) -> None:
    for odd in ODD:
        chunks = [made(put(WHOLE_CHUNK, path, odd)), piece(""), end()]
        await sdk.outcome(sdk.stream(lambda chunks=chunks: chunks))


@pytest.mark.parametrize("path", [*places(WHOLE_COMPLETION)], ids=lambda p: ".".join(map(str, p)))
async def test_a_wrong_type_in_a_field_of_a_completion_is_no_fault_of_ours(
    sdk: Sdk, path: tuple[Any, ...]
) -> None:
    for odd in ODD:
        completion = ChatCompletion.construct(**put(WHOLE_COMPLETION, path, odd))
        await sdk.outcome(sdk.complete(lambda completion=completion: completion))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(odd_json(WHOLE_CHUNK) | odd_json(WHOLE_CALL), max_size=5), st.booleans())
async def test_no_chunks_however_odd_are_a_fault_of_ours(
    sdk: Sdk, values: list[Any], normalize: bool
) -> None:
    sdk.guard.settings = Settings(normalize_arguments=normalize)
    await sdk.outcome(sdk.stream(lambda: [made(value) for value in values]))


# --- schemas and the event loop --------------------------------------------------------------


def reference_bomb() -> Any:
    definitions: dict[str, Any] = {
        f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)
    }
    return {"$defs": {**definitions, "a40": {}}, "properties": {"v": {"$ref": "#/$defs/a0"}}}


SCHEMAS: dict[str, Any] = {
    "reference bomb": reference_bomb(),
    "1 MB": {"properties": {f"p{n}": {"description": "x" * 100} for n in range(10_000)}},
    "10,000 deep": nested(10_000),
    "many subschemas": {"allOf": [{}] * 30_000},
    "many small ones": {"allOf": [{"type": "object"}] * 3_000},
    "catastrophic": {"properties": {"v": {"pattern": "^(b+)*$"}}},
    "just small enough": {"anyOf": [{"type": "string"}] * 70},
    "ids that are no URI": {"$id": "http://[::", "properties": {"v": {"$ref": "x"}}},
    "file": {"properties": {"v": {"$ref": "file:///etc/hostname"}}},
}
IN_LOOP_STEPS = dialect.MAX_STEPS + 1_000
"""What a check may take in the event loop: one of arguments, and judging a small schema."""


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("validation", ["structural", "strict"])
async def test_what_a_schema_costs_in_the_event_loop_is_bounded(
    sdk: Sdk, monkeypatch: pytest.MonkeyPatch, name: str, validation: Any
) -> None:
    """Counted in steps and not in time: one takes some ten microseconds anywhere."""
    steps = {"loop": 0, "beside": 0}
    run = dialect._run

    def counted(effort: Any, *more: Any) -> Any:
        before = effort.steps
        try:
            return run(effort, *more)
        finally:
            main = threading.current_thread() is threading.main_thread()
            steps["loop" if main else "beside"] += before - max(effort.steps, 0)

    monkeypatch.setattr(dialect, "_run", counted)
    sdk.guard.settings = Settings(tool_argument_validation=validation, retry_invalid_stream=False)
    schema = {**SCHEMAS[name], "required": ["w"]}
    chunks = [head(), piece(json.dumps({"v": "b" * 60 + "!"})), end()]
    for _ in range(2):
        steps["loop"] = 0
        await sdk.outcome(sdk.stream(lambda: chunks, tools_with(schema)))
        assert steps["loop"] <= IN_LOOP_STEPS
    assert steps["beside"] <= dialect.MAX_SCHEMA_STEPS + dialect.MAX_STEPS


# --- what is read afterwards -----------------------------------------------------------------

FORBIDDEN = [
    chr(code) for code in (0, 7, 8, 27, 0x7F, 0x85, 0x200B, 0x200E, 0x202E, 0x2066, 0xFEFF)
]
HOSTILE_NAME = "".join(FORBIDDEN) + "[CQ:at,qq=all] <script>alert(1)</script> **@everyone** `x`"
MARKUP = ("[CQ", "<script", "**", "@everyone", "`", "](http")


@example(HOSTILE_NAME, "SECRET-argument")
@settings(max_examples=60)
@given(st.text(max_size=300), st.text(max_size=40))
def test_the_result_of_a_refused_call_is_harmless_and_short(name: str, secret: str) -> None:
    from astrbot_tool_guard.core.calls.answers import assemble
    from astrbot_tool_guard.texts.texts import invalid_arguments_result

    schema = {
        "required": [name],
        "properties": {name: {"enum": [name] * 30}},
        "description": "PROSE",
    }
    tools = [{"type": "function", "function": {"name": name, "parameters": schema}}]
    for arguments in (json.dumps({secret: secret}), json.dumps({name: [secret]}), secret + "{"):
        entry = {"id": "x", "function": {"name": name, "arguments": arguments}}
        answer = {"choices": [{"message": {"tool_calls": [entry]}, "finish_reason": "stop"}]}
        for validation in ("structural", "strict"):
            found = assemble(completion=answer, tools=tools, validation=validation)
            for call in found.calls:
                problems = [(problem.path, problem.detail) for problem in call.problems]
                text = invalid_arguments_result(call.name, problems)
                assert len(text) <= 2_000
                assert not set(FORBIDDEN) & set(text)
                assert not any(mark in text for mark in MARKUP)
                assert "PROSE" not in text
                if len(secret) > 12 and secret not in name:
                    assert secret not in text
