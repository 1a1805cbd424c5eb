"""The model server: as strict as a provider, and as obedient as a test needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.conftest import cases
from tests.support.answers import (
    Chunks,
    Completion,
    Cut,
    Gate,
    Held,
    Raw,
    call,
    calls,
    chunk,
    context_length,
    rate_limited,
    say,
)
from tests.support.model_server import ModelServer
from tests.support.strictness import refusal

USER = [{"role": "user", "content": "Hello."}]


def client(server: ModelServer) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=server.url, api_key="sk-test", max_retries=0)


async def ask(server: ModelServer, messages: Any = USER, **more: Any) -> Any:
    async with client(server) as asking:
        return await asking.chat.completions.create(model="model", messages=messages, **more)


async def stream(server: ModelServer, **more: Any) -> list[Any]:
    async with client(server) as asking:
        request: dict[str, Any] = {"model": "model", "messages": USER, "stream": True, **more}
        answer = await asking.chat.completions.create(**request)
        return [piece async for piece in answer]


def judged(messages: object) -> str | None:
    found = refusal({"messages": messages})
    return found and found.kind


@pytest.mark.parametrize("case", cases("req-"))
def test_it_refuses_for_pairing_exactly_what_does_not_pair(case: dict[str, Any]) -> None:
    body = case["input"]
    override = body.get("extra_body") or {}
    messages = override["messages"] if "messages" in override else body["messages"]
    assert (judged(messages) == "pairing") is not case["expect"]["valid"]


def assistant(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, **fields}


def answered(declared: dict[str, Any]) -> list[dict[str, Any]]:
    result = {"role": "tool", "tool_call_id": declared["id"], "content": "done"}
    return [*USER, assistant(tool_calls=[declared]), result]


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param(answered(call("")), id="nameless call"),
        pytest.param(answered(call("get weather")), id="name with a blank"),
        pytest.param(answered(call("get_time", '{"city": "Os')), id="arguments cut off"),
        pytest.param(answered(call("get_time", "[]")), id="arguments not an object"),
        pytest.param(answered(call("get_time", id="x" * 41)), id="overlong id"),
        pytest.param([*USER, assistant(content="Hi.", tool_calls=[])], id="empty list of calls"),
        pytest.param([*USER, assistant()], id="nothing said"),
        pytest.param([{"role": "human", "content": "Hi."}], id="unknown role"),
    ],
)
def test_it_refuses_what_pairs_but_is_malformed(messages: list[dict[str, Any]]) -> None:
    assert judged(messages) == "form"


def test_it_takes_a_healthy_group() -> None:
    assert judged(answered(call("get_weather", {"city": "Oslo"}))) is None


@pytest.mark.parametrize("messages", [None, "text", {}, [], [None], [[]], 7])
def test_wrong_types_are_refused_and_break_nothing(messages: object) -> None:
    assert judged(messages) == "pairing"


async def test_a_refusal_is_a_400_in_familiar_words(server: ModelServer) -> None:
    server.script(say("unused"))
    with pytest.raises(openai.BadRequestError, match="must be followed by tool messages"):
        await ask(server, [*USER, assistant(tool_calls=[call("get_time", id="a")]), *USER])
    assert server.unused == 1
    assert len(server.refused) == server.count == 1


async def test_one_reply_is_the_same_complete_and_streamed(server: ModelServer) -> None:
    reply = calls(call("get_weather", {"city": "Oslo"}, id="a"), content="Let me look it up.")
    server.script(reply, reply)
    whole = (await ask(server)).choices[0].message
    pieces = [c.choices[0].delta for c in await stream(server) if c.choices]
    assert "".join(piece.content or "" for piece in pieces) == whole.content
    parts = [part.function for piece in pieces for part in piece.tool_calls or ()]
    assert "".join(part.arguments or "" for part in parts) == whole.tool_calls[0].function.arguments
    assert [part.name for part in parts if part.name] == ["get_weather"]


async def test_usage_is_streamed_when_it_is_asked_for(server: ModelServer) -> None:
    plain = await stream(server)
    with_usage = await stream(server, stream_options={"include_usage": True})
    assert [c.usage for c in plain if c.usage] == []
    assert [c.usage.total_tokens for c in with_usage if c.usage] == [18]


async def test_chunks_and_completions_go_out_as_they_are(server: ModelServer) -> None:
    odd = {**chunk({"content": "x"}), "choices": None, "vendor": {"a": 1}}
    server.script(Chunks([odd, json.dumps(odd)], done=False), Completion({"data": "not a choice"}))
    request = {"model": "model", "messages": USER, "stream": True}
    async with httpx.AsyncClient() as asking:
        streamed = await asking.post(f"{server.url}/chat/completions", json=request)
        complete = await asking.post(f"{server.url}/chat/completions", json=request)
    assert streamed.text == f"data: {json.dumps(odd)}\n\n" * 2
    assert complete.json() == {"data": "not a choice"}


async def test_errors_and_the_key_are_noted_per_request(server: ModelServer) -> None:
    server.script(rate_limited(), context_length())
    with pytest.raises(openai.RateLimitError):
        await ask(server)
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        await ask(server, tools=[{"type": "function", "function": {"name": "get_time"}}])
    assert [request.key for request in server.requests] == ["sk-test", "sk-test"]
    assert server.requests[1].tools == ["get_time"]


async def test_the_fallback_may_be_a_function_of_the_request(server: ModelServer) -> None:
    server.fallback = lambda request: say(f"{len(request.messages)} messages")
    assert (await ask(server)).choices[0].message.content == "1 messages"


async def test_a_stream_is_cut_at_any_byte(server: ModelServer) -> None:
    whole = "".join(
        f"data: {json.dumps(c)}\n\n" for c in say("Hello.").chunks("model", usage=False)
    )
    for at in (0, 1, len(whole) // 2, len(whole)):
        server.script(Cut(say("Hello."), at))
        got, error = await read_raw(server)
        assert got.decode() == whole[:at]
        assert isinstance(error, httpx.RemoteProtocolError)
        assert server.requests[-1].ended == "cut"


async def read_raw(server: ModelServer) -> tuple[bytes, Exception | None]:
    """Return the bytes of one streamed body, and the error that ended it."""
    request = {"model": "model", "messages": USER, "stream": True}
    got = b""
    async with httpx.AsyncClient() as asking:
        try:
            url = f"{server.url}/chat/completions"
            async with asking.stream("POST", url, json=request) as response:
                async for data in response.aiter_raw():
                    got += data
        except httpx.HTTPError as error:
            return got, error
    return got, None


async def test_a_held_answer_waits_and_notices_that_the_client_left(server: ModelServer) -> None:
    gate = Gate()
    server.script(Held(say("Hello."), gate, after=1), Held(say("Hello."), gate, after=1))
    async with client(server) as asking:
        request: dict[str, Any] = {"model": "model", "messages": USER, "stream": True}
        answer = await asking.chat.completions.create(**request)
        await gate.reached.wait()
        assert server.requests[0].ended == "open"
        await answer.close()
    await server.idle()
    assert server.requests[0].ended == "left"
    gate.release.set()
    assert len(await stream(server)) > 1
    await server.idle()
    assert server.requests[1].ended == "sent"


async def test_raw_bytes_go_out_as_they_are(server: ModelServer) -> None:
    server.script(Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno"))
    async with httpx.AsyncClient() as asking:
        got = await asking.post(f"{server.url}/chat/completions", json={"messages": USER})
    assert got.text == "no"


def test_it_runs_in_a_thread() -> None:
    with ModelServer.in_thread() as server:
        got = httpx.post(f"{server.url}/chat/completions", json={"messages": USER})
        assert got.json()["choices"][0]["message"]["content"] == "OK."
        assert server.count == 1


def test_it_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"say": "one"}, {"status": 500, "message": "two"}]))
    command = [sys.executable, "-m", "tests.support.model_server", str(script)]
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        command, cwd=root, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        url = process.stdout.readline().strip()
        got = [
            httpx.post(f"{url}/chat/completions", json={"messages": USER}).status_code
            for _ in range(3)
        ]
        process.communicate()
    assert got == [200, 500, 200]
    assert process.returncode == 0
