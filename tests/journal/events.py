"""Events as the host emits them, for the tests of what watches it."""

from __future__ import annotations

from dataclasses import replace

from astrbot_tool_guard.journal.events import AttemptRecord, Incident

_ATTEMPT = AttemptRecord(
    attempt=1,
    provider="src/model",
    model="model",
    session="qq:FriendMessage:1",
    transport="stream",
    started_at=1_000_000.0,
    duration_ms=12.5,
    ttft_ms=3.0,
    finish_reason="tool_calls",
    usage={"prompt_tokens": 7, "completion_tokens": 2, "details": {"cached": 1}},
    tool_calls_count=1,
    outcome="accepted",
)
_INCIDENT = Incident(
    kind="request_blocked",
    at=1_000_000.0,
    session="qq:FriendMessage:1",
    provider="src/model",
    model="model",
    problems=("orphan_result at message 3",),
    outcome="blocked",
)


def attempt(**changes: object) -> AttemptRecord:
    return replace(_ATTEMPT, **changes)  # pyright: ignore[reportArgumentType]


def incident(**changes: object) -> Incident:
    return replace(_INCIDENT, **changes)  # pyright: ignore[reportArgumentType]
