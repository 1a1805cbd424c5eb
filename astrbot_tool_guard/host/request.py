"""The request stage: what is about to be sent is checked, and stopped if it is broken.

The rule: the list that counts is the one the SDK would send, after everything that
AstrBot, its plugins and its configuration did to it. What is stopped is stopped by
an exception that names rules and indexes and holds nothing of the messages.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from ..core.errors import ToolMessageProtocolError
from ..core.model import Violation
from ..core.pairing import effective_messages, find_violations
from ..events import AttemptRecord, EventBus, Incident, IncidentKind
from ..settings import Modes
from .call import Call

REASON = "tool_pairing"


class RequestStage:
    """Checks requests and tells what it found.

    Args:
        events: Gets an incident per finding, and an attempt per stopped request.
    """

    def __init__(self, events: EventBus) -> None:
        self._events = events

    def check(self, request: Mapping[str, Any], call: Call) -> None:
        """Check what `AsyncCompletions.create` is about to send.

        Args:
            request: Its keyword arguments.
            call: Who asks.

        Raises:
            ToolMessageProtocolError: The tool calls and results do not pair, and
                the mode is to stop such a request.
        """
        if not _checks(call.modes):
            return
        violations = find_violations(_as_sent(effective_messages(request)))
        if violations:
            self._found(violations, call)

    def check_payload(self, payload: Mapping[str, Any], call: Call) -> None:
        """Check a payload that AstrBot's own clean-up would fail on.

        Raises:
            ToolMessageProtocolError: As `check` does, where the clean-up would
                raise a `TypeError` that says nothing to anybody.
        """
        messages = payload.get("messages")
        if not _checks(call.modes) or not clean_up_fails(messages):
            return
        if violations := find_violations(messages):
            self._found(violations, call)

    def _found(self, violations: Sequence[Violation], call: Call) -> None:
        blocks = call.modes.request_guard != "observe"
        self._tell("request_blocked" if blocks else "request_observed", violations, call)
        if blocks:
            raise ToolMessageProtocolError(violations)

    def _tell(self, kind: IncidentKind, violations: Iterable[Violation], call: Call) -> None:
        now = time.time()
        if kind == "request_blocked":
            self._events.emit(
                AttemptRecord(
                    attempt=1,
                    provider=call.provider_id,
                    model=call.model,
                    session=call.session,
                    transport=call.transport,
                    started_at=now,
                    duration_ms=0.0,
                    ttft_ms=None,
                    finish_reason=None,
                    usage=None,
                    tool_calls_count=0,
                    outcome="blocked",
                    reason=REASON,
                )
            )
        self._events.emit(
            Incident(
                kind=kind,
                at=now,
                session=call.session,
                provider=call.provider_id,
                model=call.model,
                problems=tuple(violation.where() for violation in violations),
                outcome="blocked" if kind == "request_blocked" else "sent",
            )
        )


def _checks(modes: Modes) -> bool:
    return modes.enabled and modes.request_guard != "off"


def _as_sent(messages: object) -> object:
    """Return the list that a tuple becomes in JSON."""
    return list(cast("tuple[object, ...]", messages)) if isinstance(messages, tuple) else messages


def clean_up_fails(messages: object) -> bool:
    """Tell whether AstrBot's `_sanitize_assistant_messages` would raise on a list.

    It puts ids into a set and walks through any `tool_calls` that is not empty.
    """
    if not isinstance(messages, list):
        return False
    return any(
        isinstance(message, dict) and not _can_be_cleaned(cast("dict[str, object]", message))
        for message in cast("list[object]", messages)
    )


def _can_be_cleaned(message: dict[str, object]) -> bool:
    try:
        if message.get("role") == "tool":
            hash(message.get("tool_call_id"))
        elif message.get("role") == "assistant" and message.get("tool_calls"):
            for call in cast("Iterable[object]", message["tool_calls"]):
                if isinstance(call, dict):
                    hash(cast("dict[str, object]", call).get("id"))
    except TypeError:
        return False
    return True
