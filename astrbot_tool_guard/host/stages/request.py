"""The request stage: what is about to be sent is checked, and stopped or mended if it is broken.

The rule: the list that counts is the one the SDK would send, after everything that
AstrBot, its plugins and its configuration did to it. What is stopped is stopped by
an exception that names rules and indexes and holds nothing of the messages. What is
mended earlier, before AstrBot's clean-up deletes a result or its loop stores the
history, is checked here all the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from ...core.errors import protocol_error
from ...core.messages.pairing import find_violations
from ...core.messages.repair import repair_messages
from ...core.model import Change, Violation
from ...journal.events import AttemptRecord, EventBus, Incident, IncidentKind
from ..call import Call
from ..protocols.dialect import Dialect

REASON = "tool_pairing"


class RequestStage:
    """Checks requests and tells what it found.

    Args:
        events: Gets an incident per finding, and an attempt per stopped request.
        stands_aside: Whether AstrBot stops such requests itself: then they are
            mended in `repair` mode, and never stopped or told here.
    """

    def __init__(self, events: EventBus, *, stands_aside: bool = False) -> None:
        self._events = events
        self._stands_aside = stands_aside

    def settle(self, dialect: Dialect, request: dict[str, Any], call: Call) -> dict[str, Any]:
        """Return the arguments with which the SDK's function is to be called.

        Args:
            dialect: The protocol.
            request: The keyword arguments it was called with; never changed.
            call: Who asks.

        Returns:
            The same arguments, or in `repair` mode a copy with mended messages.

        Raises:
            ToolMessageProtocolError: The tool calls and results do not pair, and
                the mode is to stop such a request, or mending did not help.
        """
        if not call.checks_requests:
            return request
        request = _listed(request)
        messages = dialect.messages(request)
        violations = find_violations(messages)
        if not violations:
            return request
        if call.modes.request_guard == "repair":
            repair = repair_messages(messages)
            mended = dialect.replaced(request, repair.messages)
            if mended is not None and not find_violations(repair.messages):
                self.tell_repaired(repair.changes, call)
                return mended
        self._found(violations, call)
        return request

    def settle_payload(self, payload: dict[str, Any], call: Call) -> None:
        """Deal with the messages before AstrBot's clean-up sees them.

        In `repair` mode they are mended in `payload`, since the clean-up deletes
        results that can be kept. Otherwise a list on which the clean-up itself
        would fail is dealt with here: its `TypeError` says nothing to anybody.

        Raises:
            ToolMessageProtocolError: As `settle` does.
        """
        messages = payload.get("messages")
        if not call.checks_requests or not isinstance(messages, list):
            return
        if call.modes.request_guard == "repair":
            repair = repair_messages(messages)
            if repair.changes:
                payload["messages"] = repair.messages
                self.tell_repaired(repair.changes, call)
            return
        violations = find_violations(messages)
        # It fails on no list that pairs, and to look at each message takes its time.
        if violations and clean_up_fails(cast("list[object]", messages)):
            self._found(violations, call)

    def _found(self, violations: Sequence[Violation], call: Call) -> None:
        if self._stands_aside:
            return
        places = tuple(violation.where() for violation in violations)
        if call.modes.request_guard == "observe":
            self._tell("request_observed", places, "sent", call)
            return
        self._attempt(call)
        self._tell("request_blocked", places, "blocked", call)
        raise protocol_error(violations)

    def tell_repaired(self, changes: Iterable[Change], call: Call) -> None:
        """Tell what was mended for a request."""
        places = tuple(
            change.action
            if change.message_index is None
            else f"{change.action} at message {change.message_index}"
            for change in changes
        )
        self._tell("request_repaired", places, "repaired", call)

    def _attempt(self, call: Call) -> None:
        self._events.emit(
            AttemptRecord(
                attempt=1,
                provider=call.provider_id,
                model=call.model,
                session=call.session,
                transport=call.transport,
                started_at=time.time(),
                duration_ms=0.0,
                ttft_ms=None,
                finish_reason=None,
                usage=None,
                tool_calls_count=0,
                outcome="blocked",
                reason=REASON,
                protocol=call.protocol,
                turn=call.turn,
            )
        )

    def _tell(self, kind: IncidentKind, places: tuple[str, ...], outcome: str, call: Call) -> None:
        self._events.emit(
            Incident(
                kind=kind,
                at=time.time(),
                session=call.session,
                provider=call.provider_id,
                model=call.model,
                problems=places,
                outcome=outcome,
                turn=call.turn,
            )
        )


def _listed(request: dict[str, Any]) -> dict[str, Any]:
    """Return `request` with its messages as the list the SDK makes of any iterable."""
    messages = request.get("messages")
    if isinstance(messages, list | str | bytes | Mapping) or not isinstance(messages, Iterable):
        return request
    return {**request, "messages": list(cast("Iterable[object]", messages))}


def clean_up_fails(messages: list[object]) -> bool:
    """Tell whether AstrBot's `_sanitize_assistant_messages` would raise on a list.

    It puts ids into a set and walks through any `tool_calls` that is not empty.
    """
    return any(
        isinstance(message, dict) and not _can_be_cleaned(cast("dict[str, object]", message))
        for message in messages
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
