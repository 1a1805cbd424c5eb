"""The value types of the core: frozen, slotted, comparable, free of behaviour.

What is found, planned and decided is one of these; what they mean is said in
the module that makes them (`pairing`, `repair`, `assembly`, `verdict`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
        action: What was done, from a closed set named in `repair`.
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
        changes: Every action, in order; empty when nothing had to change.
    """

    messages: object
    changes: tuple[Change, ...]
