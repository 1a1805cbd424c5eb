"""What is fuzzed: one function for each entry point, which takes any input and checks it.

A target raises `AssertionError` where a law is broken, and lets every other exception
out: none is expected of any of them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from openai.types.chat import ChatCompletion

from astrbot_tool_guard import assemble, check_messages, find_violations, repair_messages
from astrbot_tool_guard.core.calls.assembly import MAX_CALLS
from astrbot_tool_guard.core.errors import ToolMessageProtocolError
from astrbot_tool_guard.core.messages.pairing import effective_messages
from astrbot_tool_guard.journal.events import AttemptRecord, EventBus, Incident
from astrbot_tool_guard.settings.settings import Settings

LOGGER = logging.getLogger("fuzz")
LOGGER.addHandler(logging.NullHandler())
LOGGER.propagate = False

Target = Callable[[Any], None]


def check(value: Any) -> None:
    """`check`: violations or none, and an error exactly where there are some."""
    messages = _messages(value)
    violations = find_violations(messages)
    assert violations == find_violations(messages)
    json.dumps([violation.to_dict() for violation in violations])
    raised: ToolMessageProtocolError | None = None
    try:
        check_messages(messages)
    except ToolMessageProtocolError as error:
        raised = error
    assert violations == (raised.violations if raised is not None else ())
    assert raised is None or 0 < len(str(raised)) < 2_000


def repair(value: Any) -> None:
    """`repair`: paired afterwards, idempotent, and the same object where nothing was wrong."""
    messages = _messages(value)
    before = json.dumps(messages)
    violations = find_violations(messages)
    mended = repair_messages(messages)
    assert json.dumps(messages) == before, "the input was changed"
    if not isinstance(messages, list):
        assert violations
        return
    assert find_violations(mended.messages) == ()
    if not violations:
        assert mended.messages is messages
        assert mended.changes == ()
    again = repair_messages(mended.messages)
    assert again.messages is mended.messages
    kept, given = _said(mended.messages), _said(messages)
    assert kept == given, "a text was lost"


def assemble_answer(value: Any) -> None:
    """`assemble`: a value, whose valid calls have what their tools require."""
    given = value if isinstance(value, dict) else {"chunks": value}
    tools = given.get("tools")
    chunks, completion = given.get("chunks"), given.get("completion")
    for validation in ("structural", "strict", "off"):
        if "completion" in given:
            answer = assemble(completion=completion or {}, tools=tools, validation=validation)
        else:
            parts = chunks if isinstance(chunks, list) else [chunks]
            answer = assemble(chunks=parts, tools=tools, validation=validation)
        ids = [call.id for call in answer.calls]
        assert all(ids)
        assert len(set(ids)) == len(ids) <= MAX_CALLS
        for call in answer.calls:
            assert call.name.strip()
            assert call.valid or validation != "off" or answer.error or answer.dropped
            if call.valid and validation != "off":
                assert isinstance(call.arguments, dict)
                json.dumps(call.arguments).encode()
        json.dumps(answer.to_dict())


def stream(value: Any) -> None:
    """The seam: whatever comes as events, no fault of ours, and calls AstrBot can store."""
    asyncio.run(_stream(value))


TARGETS: Mapping[str, tuple[Target, tuple[str, ...]]] = {
    "check": (check, ("req-",)),
    "repair": (repair, ("req-",)),
    "assemble": (assemble_answer, ("str-", "rsp-", "sch-")),
    "stream": (stream, ("str-", "rsp-", "sch-")),
}
"""By name: the target, and the classes of the corpus that are its seeds."""


async def _stream(value: Any) -> None:
    from astrbot_tool_guard.host.attempts import Clock
    from astrbot_tool_guard.host.call import Call
    from astrbot_tool_guard.host.protocols.chat_completions.sending import send
    from astrbot_tool_guard.host.protocols.chat_completions.uncast import as_chunk
    from astrbot_tool_guard.host.seams.faults import Faults
    from astrbot_tool_guard.host.stages.reading import AnswerDesk
    from astrbot_tool_guard.host.stages.response import ResponseStage

    given = value if isinstance(value, dict) else {"chunks": value}
    told: list[Any] = []
    events = EventBus(LOGGER)
    events.subscribe(told.append)
    desk = AnswerDesk(events, Faults(events), LOGGER, Clock())
    whole = isinstance(given.get("completion"), dict)
    call = Call(
        provider=None,
        provider_id="fuzz",
        model="model",
        session="",
        run=None,
        modes=Settings(retry_invalid_stream=False).modes,
        transport="complete" if whole else "stream",
        tools=given.get("tools"),
    )

    async def create(**_: Any) -> Any:
        if whole:
            return ChatCompletion.construct(**given["completion"])
        chunks = given.get("chunks")
        return _events([as_chunk(each) for each in (chunks if isinstance(chunks, list) else [])])

    came = await send(ResponseStage(desk), create, (), {"stream": not whole}, call)
    entries: list[Any] = []
    if whole:
        choice = came.choices[0] if isinstance(came.choices, list) and came.choices else None
        message = getattr(choice, "message", None)
        found = getattr(message, "tool_calls", None)
        entries = found if isinstance(found, list) else []
    else:
        async for chunk in came:
            for choice in chunk.choices or ():
                entries += choice.delta.tool_calls or ()
    faults = [each for each in told if isinstance(each, Incident) and each.kind == "guard_fault"]
    assert faults == []
    assert [each.outcome for each in told if isinstance(each, AttemptRecord)] in (
        ["accepted"],
        ["accepted_degraded"],
    )
    if not any(_is_named(entry) for entry in entries):
        return  # nothing but nameless calls is AstrBot's, as it came
    ids = [entry.id for entry in entries]
    assert all(isinstance(each, str) and each for each in ids)
    assert len(set(ids)) == len(ids)
    for entry in entries:
        assert entry.function.name.strip()
        assert isinstance(json.loads(entry.function.arguments), dict)


def _is_named(entry: Any) -> bool:
    name = getattr(getattr(entry, "function", None), "name", None)
    return isinstance(name, str) and bool(name.strip())


async def _events(chunks: list[Any]) -> Any:
    for each in chunks:
        yield each


def _messages(value: Any) -> Any:
    return effective_messages(value) if isinstance(value, dict) else value


def _said(messages: Any) -> list[Any]:
    """Return what everybody but the tools said, in order."""
    return [
        (message.get("role"), message.get("content"))
        for message in messages
        if isinstance(message, dict)
        and message.get("role") in ("system", "user", "assistant")
        and message.get("content")
    ]
