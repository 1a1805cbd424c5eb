"""Stored conversations as a doctor sees them, and what a store of them has to do.

The rule: whoever keeps conversations implements this protocol, and whoever mends
them knows nothing else of the keeper.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """One conversation as it is stored.

    Attributes:
        id: AstrBot's conversation id.
        session: The `unified_msg_origin` it belongs to.
        history: The decoded messages; `None` for an empty conversation.
        problem: Why the stored content cannot be decoded, else `None`.
    """

    id: str
    session: str
    history: object
    problem: str | None = None

    def fingerprint(self) -> str:
        """Return what tells this content from any other."""
        return fingerprint(self.history)


def fingerprint(history: object) -> str:
    """Return a hash of a history; the same content has the same one in every store."""
    return hashlib.sha256(json.dumps(history, sort_keys=True).encode()).hexdigest()


class ConversationStore(Protocol):
    """Where a running bot keeps its conversations."""

    def conversations(self, session: str | None) -> AsyncIterator[StoredConversation]:
        """Yield the conversations of a session, or all of them, one at a time."""
        ...

    async def load(self, conversation_id: str) -> StoredConversation | None:
        """Return one conversation as it is stored now, or `None` when it is gone."""
        ...

    def lock(self, session: str) -> AbstractAsyncContextManager[object]:
        """Hold what keeps a turn of this session from being saved meanwhile."""
        ...

    async def save(self, conversation: StoredConversation, history: list[object]) -> None:
        """Replace the content of a conversation, and nothing else of it."""
        ...
