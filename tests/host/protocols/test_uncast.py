"""Events read before the SDK makes models of them: nothing anybody sees is different."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import AsyncOpenAI, AsyncStream
from openai import BaseModel as SdkModel
from openai.types.chat import ChatCompletionChunk

from astrbot_tool_guard.host.protocols.chat_completions.uncast import as_chunk, events
from tests.support.answers import Chunks, chunk
from tests.support.model_server import ModelServer

ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, "", "x", "0", 0, 1, -1, 1.0, 1.5, True, False, [], {}, [None], {"x": 1}, ["x"]]
)


def fields(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(required, optional={**optional, "extra": ODD})


PIECES = st.sampled_from(["", " ", "{", '{"a": 1}', "}"])
ENTRIES = fields(
    {"index": st.just(0) | st.integers(0, 2) | ODD},
    {
        "id": st.sampled_from(["a", "b", None]) | ODD,
        "type": st.just("function") | ODD,
        "function": fields(
            {"arguments": PIECES | ODD}, {"name": st.sampled_from(["get_time", "f", None]) | ODD}
        )
        | ODD,
    },
)
DELTAS = fields(
    {},
    {
        "role": st.just("assistant") | ODD,
        "content": st.sampled_from([None, "", "Hello"]) | ODD,
        "reasoning_content": st.sampled_from([None, "", "Hm"]),
        "refusal": st.none() | ODD,
        "function_call": st.none() | ODD,
        "tool_calls": st.lists(ENTRIES, max_size=2) | st.none() | ODD,
    },
)
USAGE = fields({"prompt_tokens": st.just(1), "completion_tokens": ODD}, {"total_tokens": ODD})
CHOICES = fields(
    {"index": st.just(0) | ODD, "delta": DELTAS | DELTAS | ODD},
    {
        "finish_reason": st.sampled_from([None, "stop", "tool_calls", "length", "eos"]) | ODD,
        "logprobs": st.none() | ODD,
        "usage": USAGE,
    },
)
EVENTS = fields(
    {"choices": st.lists(CHOICES, min_size=1, max_size=1) | st.lists(CHOICES) | ODD},
    {
        "id": st.just("chatcmpl-1") | ODD,
        "object": st.just("chat.completion.chunk") | ODD,
        "created": st.just(1) | ODD,
        "model": st.just("model") | ODD,
        "service_tier": ODD,
        "usage": st.none() | USAGE | ODD,
    },
)


def pieces(
    index: Any = 0, delta: Any = None, choice: Any = None, event: Any = None
) -> dict[str, Any]:
    """Return an event with a piece of a call, with other values in the places given."""
    entry = {"index": index, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    whole = chunk({"tool_calls": [entry], **(delta or {})})
    whole["choices"][0] |= choice or {}
    return whole | (event or {})


COUNTS = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
NEARLY = [
    pieces(),
    *(pieces(index=each) for each in (1, "0", True, None, 0.0)),
    *(pieces(delta={"content": each}) for each in ("Hello", "", None)),
    *(pieces(delta={"reasoning_content": each}) for each in ("Hm", "", None)),
    *(pieces(delta={"role": each}) for each in ("assistant", "x", None)),
    *(pieces(delta={"tool_calls": each}) for each in ([], None, {}, "x", [None], ["{}"])),
    *(pieces(choice={"index": each}) for each in (1, None, "0")),
    *(pieces(choice={"finish_reason": each}) for each in ("stop", "", "eos")),
    *(pieces(choice=each) for each in ({"usage": COUNTS}, {"logprobs": {"content": []}})),
    *(pieces(event={"usage": each}) for each in (COUNTS, {}, None, 5)),
    *(pieces(event=each) for each in ({"choices": []}, {"choices": None}, {"created": "1"})),
]
"""Events with a piece of a call that differ from a plain one in one place."""


def inside(value: Any) -> Any:
    """Return everything that a model is made of, with the types of its parts."""
    if isinstance(value, SdkModel):
        parts = {name: inside(part) for name, part in value.__dict__.items()}
        extra = {name: inside(part) for name, part in (value.__pydantic_extra__ or {}).items()}
        return type(value), parts, extra, value.model_fields_set
    if isinstance(value, list | tuple):
        return type(value), [inside(part) for part in value]
    if isinstance(value, dict):
        return {name: inside(part) for name, part in value.items()}
    return type(value), value


def made_by_the_sdk(event: Any) -> Any:
    return ChatCompletionChunk.construct(**event)


@given(EVENTS | st.sampled_from(NEARLY))
def test_a_chunk_is_the_one_that_the_sdk_would_have_made(event: Any) -> None:
    assert inside(as_chunk(event)) == inside(made_by_the_sdk(event))


def test_what_is_no_json_object_stays_as_it_is() -> None:
    for event in (None, 5, "text", [{"choices": []}]):
        assert as_chunk(event) is event


@pytest.fixture
async def client(server: ModelServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(api_key="sk", base_url=server.url) as client:
        yield client


async def ask(client: AsyncOpenAI) -> AsyncStream[ChatCompletionChunk]:
    messages: list[Any] = [{"role": "user", "content": "Hello"}]
    return await client.chat.completions.create(model="model", messages=messages, stream=True)


async def test_the_events_of_the_sdks_stream_are_what_was_sent(
    server: ModelServer, client: AsyncOpenAI
) -> None:
    sent = [chunk({"content": "Hello"}), chunk({}, finish_reason="stop")]
    server.script(Chunks(sent))
    assert [event async for event in events(await ask(client), client)] == sent


async def test_a_stream_that_somebody_has_touched_is_read_as_it_is(
    server: ModelServer, client: AsyncOpenAI
) -> None:
    async def filtered(stream: Any) -> AsyncIterator[Any]:
        async for each in stream:
            yield each

    begun = await ask(client)
    await anext(begun)
    assert events(begun, client) is begun

    replaced: Any = await ask(client)
    replaced._iterator = filtered(replaced._iterator)
    assert events(replaced, client) is replaced

    another = filtered(await ask(client))
    assert events(another, client) is another
    assert len([each async for each in another]) > 1
