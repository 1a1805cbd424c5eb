"""The value types of the core: frozen, slotted, comparable, free of behaviour.

What is found, planned and decided is one of these; what they mean is said in
the module that makes them (`pairing`, `repair`, `assembly`, `verdict`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Rule = Literal[
    "messages_not_a_list",
    "message_not_an_object",
    "tool_calls_not_a_list",
    "tool_call_not_an_object",
    "missing_call_id",
    "invalid_call_id",
    "duplicate_call_id",
    "unanswered_call",
    "missing_result_id",
    "invalid_result_id",
    "duplicate_result",
    "orphan_result",
]


@dataclass(frozen=True, slots=True)
class Violation:
    """One place where a message list breaks a rule of pairing.

    Attributes:
        rule: The rule's name.
        message_index: Index into the list of messages; `None` when the list
            itself is at fault.
        call_index: Index into that message's `tool_calls`; `None` where the
            message as a whole, or a `tool` message, is meant.
        tool_call_id: The id involved when it is a non-empty string.
        detail: A sentence for people, without message content.
    """

    rule: Rule
    message_index: int | None
    call_index: int | None
    tool_call_id: str | None
    detail: str

    def where(self) -> str:
        """Return the rule with its indexes, as in `orphan_result at message 3`."""
        if self.message_index is None:
            return self.rule
        at = f"{self.rule} at message {self.message_index}"
        return at if self.call_index is None else f"{at}, call {self.call_index}"

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object of the public contract."""
        return {
            "rule": self.rule,
            "message_index": self.message_index,
            "call_index": self.call_index,
            "tool_call_id": self.tool_call_id,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class Change:
    """One thing a repair did.

    Attributes:
        action: What was done: `Action` in `repair` names the closed set.
        message_index: Index of the message concerned in the *input*, or `None`.
        detail: A sentence for people, without message content.
    """

    action: str
    message_index: int | None
    detail: str

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object of the public contract."""
        return {
            "action": self.action,
            "message_index": self.message_index,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class Repair:
    """A mended message list and what was done to it.

    Attributes:
        messages: The mended list; the very object that was given when nothing
            had to change.
        changes: Every action, by message; empty when nothing had to change.
        origins: For each message of a mended list its index in the input, `None`
            for an added one; empty when nothing had to change.
    """

    messages: object
    changes: tuple[Change, ...]
    origins: tuple[int | None, ...] = ()


ProblemKind = Literal[
    "truncated",
    "invalid_json",
    "not_an_object",
    "too_large",
    "too_deep",
    "too_many_calls",
    "stream_error",
    "missing_required",
    "schema",
]
Validation = Literal["structural", "strict", "off"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why a tool call cannot be run.

    Attributes:
        kind: What is wrong, from a closed set.
        path: The declared property at fault, as in `route.stops[2].city`; `""`
            for the arguments as a whole. A key the schema does not declare
            shows as `*`, since it came from the model.
        detail: What was expected, in words that echo neither the arguments nor
            the schema's prose.
    """

    kind: ProblemKind
    path: str
    detail: str

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object of the public contract."""
        return {"kind": self.kind, "path": self.path, "detail": self.detail}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One whole tool call, decoded and checked.

    Attributes:
        name: The tool's name, as the model wrote it.
        id: A usable id: the provider's, or one from the caller's source.
        id_generated: Whether `id` is ours.
        raw_arguments: The argument text as read from the answer; `None` where
            none came.
        arguments: The object the text decodes to, `{}` where it counts as
            empty, else `None`.
        blank: Whether no argument text but white space, null or nothing came.
        normalized: Whether `arguments` is a loss-free reading of text that is
            not the JSON of that object itself.
        missing: Top-level required names that `arguments` lacks.
        problems: Why the call must not run; empty for a valid call.
        unchecked: What of the schema was not checked, and why.
        extras: Unknown keys of the call, as they came; under `function` those that
            stood inside of that.
    """

    name: str
    id: str
    id_generated: bool
    raw_arguments: str | None
    arguments: dict[str, Any] | None
    blank: bool
    normalized: bool
    missing: tuple[str, ...]
    problems: tuple[Problem, ...]
    unchecked: tuple[str, ...]
    extras: Mapping[str, Any]

    @property
    def valid(self) -> bool:
        """Whether the call may run."""
        return not self.problems

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object of the public contract."""
        return {
            **self.extras,
            "name": self.name,
            "id": self.id,
            "id_generated": self.id_generated,
            "raw_arguments": self.raw_arguments,
            "arguments": self.arguments,
            "normalized": self.normalized,
            "valid": self.valid,
            "problems": [problem.to_dict() for problem in self.problems],
            "unchecked": list(self.unchecked),
        }


@dataclass(frozen=True, slots=True)
class DroppedCall:
    """A call entry that cannot be a call: it has no name, or is no object.

    Attributes:
        reason: `nameless`, `not_an_object` or `too_many_calls`.
        id: Its id where it had a usable one.
        raw_arguments: Its argument text, so that nothing is lost.
    """

    reason: Literal["nameless", "not_an_object", "too_many_calls"]
    id: str | None
    raw_arguments: str | None

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object of the public contract."""
        return {"reason": self.reason, "id": self.id, "raw_arguments": self.raw_arguments}


@dataclass(frozen=True, slots=True)
class Assembly:
    """An answer read as a whole.

    Attributes:
        content: The answer's text, or `None`.
        finish_reason: As the provider sent it; `None` where none came.
        error: One sentence where the answer ended in an error object.
        calls: The named calls, in the order they are to run.
        dropped: What could not be a call.
    """

    content: str | None
    finish_reason: str | None
    error: str | None
    calls: tuple[ToolCall, ...]
    dropped: tuple[DroppedCall, ...]

    @property
    def ok(self) -> bool:
        """Whether every call may run and the answer did not end in an error."""
        return self.error is None and all(call.valid for call in self.calls)

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object of the public contract."""
        return {
            "content": self.content,
            "finish_reason": self.finish_reason,
            "error": self.error,
            "calls": [call.to_dict() for call in self.calls],
            "dropped": [call.to_dict() for call in self.dropped],
        }
