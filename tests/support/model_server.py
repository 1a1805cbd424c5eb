"""A strict Chat Completions provider on loopback: real HTTP/1.1 and server-sent events.

    async with ModelServer() as server:
        server.script(calls(call("get_time")), say("It is noon."))
        ...  # point a provider's api_base at server.url
        assert server.count == 2

Each request is judged as a strict provider judges it (`strictness`) and refused
with 400, without using up a scripted answer; `strict = False` lets everything in.
What came in stands in `requests`. When the script is empty, `fallback` answers: a
value, or a function of the request. `reset()` forgets requests and script.

`ModelServer.in_thread()` runs one beside the caller, and
`python -m tests.support.model_server SCRIPT.json` in a process of its own: the
script is a list of answers (`answers.from_json`), given over and over; the URL is
the first line printed, and the end of standard input ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from itertools import cycle
from pathlib import Path
from typing import Any, Literal, Self

from .answers import (
    Answer,
    Chunks,
    Completion,
    Cut,
    Failure,
    Gate,
    Held,
    Raw,
    Reply,
    from_json,
    say,
)
from .strictness import Refusal, refusal

MAX_HEAD_BYTES = 1 << 16


@dataclass(slots=True)
class Request:
    """One request as it arrived.

    Attributes:
        path: The path and query.
        headers: Header values under lower-case names.
        body: The JSON body.
        refusal: Why it was refused, where it was.
        ended: How the answer ended: still `open`, sent to its end, `cut` as the
            script said, or the client `left` first.
    """

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    refusal: Refusal | None = None
    ended: Literal["open", "sent", "cut", "left"] = "open"

    @property
    def key(self) -> str:
        """The API key it came with."""
        return self.headers.get("api-key") or self.headers.get("authorization", "")[7:]

    @property
    def messages(self) -> Any:
        """The messages that were sent."""
        return self.body.get("messages")

    @property
    def model(self) -> str:
        """The model asked for."""
        return str(self.body.get("model"))

    @property
    def stream(self) -> bool:
        """Whether a stream was asked for."""
        return bool(self.body.get("stream"))

    @property
    def tools(self) -> list[str]:
        """Names of the declared tools."""
        return [tool["function"]["name"] for tool in self.body.get("tools") or ()]


Responder = Callable[[Request], Answer]


class ModelServer:
    """The server; see the module's text.

    Args:
        strict: Whether broken requests are refused.
    """

    def __init__(self, *, strict: bool = True) -> None:
        self.strict = strict
        self.fallback: Answer | Responder = say("OK.")
        self.requests: list[Request] = []
        self._script: deque[Answer] = deque()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Future[None]] = set()
        self._port = 0

    @property
    def url(self) -> str:
        """The `api_base` of a provider that talks to this server."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def count(self) -> int:
        """How many requests arrived."""
        return len(self.requests)

    @property
    def refused(self) -> list[Request]:
        """The requests that were refused."""
        return [request for request in self.requests if request.refusal]

    @property
    def unused(self) -> int:
        """How many scripted answers are left."""
        return len(self._script)

    def script(self, *answers: Answer) -> None:
        """Queue `answers` for the next requests that are not refused."""
        self._script.extend(answers)

    def reset(self) -> None:
        """Forget requests and script, and answer as a new server does."""
        self.requests.clear()
        self._script.clear()
        self.fallback = say("OK.")
        self.strict = True

    async def start(self) -> None:
        """Listen on a free port of the loopback interface."""
        self._server = await asyncio.start_server(
            self._connection, "127.0.0.1", 0, limit=MAX_HEAD_BYTES
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and drop every connection."""
        if self._server is not None:
            self._server.close()
            for writer in tuple(self._connections):
                writer.transport.abort()
            await self._server.wait_closed()
            self._server = None

    async def idle(self) -> None:
        """Wait until every answer that was begun has ended."""
        while self._serving:
            await asyncio.wait(self._serving)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @classmethod
    @contextlib.contextmanager
    def in_thread(cls, **options: Any) -> Iterator[Self]:
        """Run a server in a thread of its own, with its own event loop."""
        server = cls(**options)
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="model-server", daemon=True)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(server.start(), loop).result()
            yield server
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while (incoming := await _read_request(reader)) is not None:
                if not await self._serve(incoming, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _serve(
        self, incoming: _Incoming, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer one request; return whether the connection can take another."""
        path = incoming.path.partition("?")[0]
        if incoming.method == "GET" and path.endswith("/models"):
            body = {"object": "list", "data": [{"id": "model", "object": "model"}]}
            await _send(writer, _json_answer(200, body))
            return True
        if not path.endswith("/chat/completions"):
            await _send(writer, _json_answer(404, {"error": {"message": "Not found."}}))
            return True
        try:
            body = json.loads(incoming.body)
        except ValueError:
            body = {}
        request = Request(incoming.path, incoming.headers, body)
        self.requests.append(request)
        over = asyncio.get_running_loop().create_future()
        self._serving.add(over)
        try:
            kept = await self._answer(request, reader, writer)
            request.ended = "sent" if kept else "cut"
            return kept
        except (ConnectionError, _ClientLeftError):
            request.ended = "left"
            return False
        finally:
            self._serving.discard(over)
            over.set_result(None)

    async def _answer(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if self.strict and (refused := refusal(request.body)):
            request.refusal = refused
            await _send(writer, _json_answer(400, refused.body()))
            return True
        answer = self._script.popleft() if self._script else self.fallback
        if callable(answer):
            answer = answer(request)
        cut: Cut | None = None
        gates: dict[int, Gate] = {}
        while isinstance(answer, Cut | Held):
            if isinstance(answer, Cut):
                cut = answer
            else:
                gates[answer.after] = answer.gate
            answer = answer.answer
        body = _Body(writer, reader, gates, None if cut is None else cut.after)
        if isinstance(answer, Raw):
            await body.gate()
            await _send(writer, answer.data)
            return False
        await body.gate()
        try:
            await _send_answer(request, answer, body)
        except _CutError:
            return False
        if cut is None:
            await _send(writer, b"0\r\n\r\n")
        return cut is None


class _ClientLeftError(Exception):
    """The client closed the connection while an answer waited at a gate."""


class _CutError(Exception):
    """The body has reached the byte at which its connection is cut."""


class _Body:
    """The body of one answer: pieces go out as HTTP chunks, past gates and up to a cut."""

    def __init__(
        self,
        writer: asyncio.StreamWriter,
        reader: asyncio.StreamReader,
        gates: Mapping[int, Gate],
        limit: int | None,
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._gates = gates
        self._left = limit
        self._sent = 0

    async def head(self, status: int, content_type: str, headers: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Type: {content_type}"]
        lines += ["Transfer-Encoding: chunked", "Connection: keep-alive"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        await _send(self._writer, ("\r\n".join(lines) + "\r\n\r\n").encode())

    async def piece(self, data: bytes) -> None:
        if self._left is not None:
            data, whole = data[: self._left], len(data)
            self._left -= len(data)
            if data:
                await self._chunk(data)
            if len(data) < whole:
                raise _CutError
        else:
            await self._chunk(data)
        self._sent += 1
        await self.gate()

    async def gate(self) -> None:
        """Wait at the gate that stands after what has been sent, if there is one."""
        if (gate := self._gates.get(self._sent)) is None:
            return
        gate.reached.set()
        release = asyncio.ensure_future(gate.release.wait())
        left = asyncio.ensure_future(self._reader.read(1))
        try:
            await asyncio.wait({release, left}, return_when=asyncio.FIRST_COMPLETED)
            if left.done():
                raise _ClientLeftError
        finally:
            for waiting in (release, left):
                waiting.cancel()
            await asyncio.gather(release, left, return_exceptions=True)

    async def _chunk(self, data: bytes) -> None:
        await _send(self._writer, b"%x\r\n%b\r\n" % (len(data), data))


async def _send_answer(
    request: Request, answer: Reply | Completion | Chunks | Failure, body: _Body
) -> None:
    if isinstance(answer, Reply):
        if request.stream:
            wants_usage = (request.body.get("stream_options") or {}).get("include_usage", False)
            answer = Chunks(list(answer.chunks(request.model, usage=wants_usage)))
        else:
            answer = Completion(answer.completion(request.model))
    match answer:
        case Failure():
            await body.head(answer.status, "application/json", answer.headers)
            await body.piece(json.dumps(answer.body()).encode())
        case Completion():
            await body.head(200, "application/json", {})
            await body.piece(json.dumps(answer.body).encode())
        case Chunks():
            await body.head(200, "text/event-stream; charset=utf-8", {})
            for chunk in answer.chunks:
                data = chunk if isinstance(chunk, str) else json.dumps(chunk)
                await body.piece(b"data: %b\n\n" % data.encode())
            if answer.done:
                await body.piece(b"data: [DONE]\n\n")


@dataclass(frozen=True, slots=True)
class _Incoming:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


async def _read_request(reader: asyncio.StreamReader) -> _Incoming | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *rest = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers: dict[str, str] = {}
    for line in filter(None, rest):
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return _Incoming(method, path, headers, body)


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


def _json_answer(status: int, body: Mapping[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\nConnection: keep-alive\r\n\r\n"
    )
    return head.encode() + data


async def _main(script: str) -> None:
    answers = cycle([from_json(answer) for answer in json.loads(script)])
    async with ModelServer(strict=False) as server:
        server.fallback = lambda _: next(answers)
        print(server.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]).read_text(encoding="utf-8")))
