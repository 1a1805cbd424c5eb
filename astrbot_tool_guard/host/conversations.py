"""The conversations of the running bot, as a doctor reads and mends them.

The rule: AstrBot's database is read in small pieces, so that any number of
conversations takes little memory, and written through AstrBot's own manager, under
the lock that AstrBot holds for a turn: what a turn is about to save cannot be
overwritten, and cannot overwrite.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from astrbot.core.db.po import ConversationV2
from astrbot.core.utils.session_lock import session_lock_manager
from sqlalchemy import Text, type_coerce
from sqlmodel import col, select

from ..doctor.stored import StoredConversation

ROWS_AT_ONCE = 20


class BotConversations:
    """The store of a running bot; implements `stored.ConversationStore`.

    Args:
        manager: AstrBot's `ConversationManager`, as plugins find it in their context.
    """

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    async def current(self, session: str) -> str | None:
        """Return the id of the conversation that a session is in now, if there is one."""
        return await self._manager.get_curr_conversation_id(session) or None

    async def conversations(self, session: str | None) -> AsyncIterator[StoredConversation]:
        """Yield the conversations of a session, or all of them, the oldest first."""
        after = 0
        while rows := await self._rows(after, session):
            for number, conversation_id, owner, content in rows:
                after = number
                yield _stored(conversation_id, owner, content)

    async def load(self, conversation_id: str) -> StoredConversation | None:
        """Return one conversation as it is stored now, or `None` when it is gone."""
        query = _READ.where(col(ConversationV2.conversation_id) == conversation_id)
        async with self._manager.db.get_db() as database:
            row = (await database.execute(query)).one_or_none()
        return None if row is None else _stored(*row[1:])

    def lock(self, session: str) -> AbstractAsyncContextManager[object]:
        """Hold AstrBot's lock of a session, which it holds from reading to saving a turn."""
        return session_lock_manager.acquire_lock(session)

    async def save(self, conversation: StoredConversation, history: list[object]) -> None:
        """Replace the content of a conversation; its title, persona and usage stay."""
        await self._manager.update_conversation(
            conversation.session, conversation.id, history=history
        )

    async def _rows(self, after: int, session: str | None) -> Sequence[Any]:
        number = col(ConversationV2.inner_conversation_id)
        query = _READ.where(number > after).order_by(number).limit(ROWS_AT_ONCE)
        if session is not None:
            query = query.where(col(ConversationV2.user_id) == session)
        async with self._manager.db.get_db() as database:
            return (await database.execute(query)).all()


# The text as it is stored: one row that is no JSON does not hide the others.
_READ = select(
    col(ConversationV2.inner_conversation_id),
    col(ConversationV2.conversation_id),
    col(ConversationV2.user_id),
    type_coerce(col(ConversationV2.content), Text),
)


def _stored(conversation_id: str, session: str, content: object) -> StoredConversation:
    if content is None:
        return StoredConversation(conversation_id, session, None)
    try:
        history = json.loads(content) if isinstance(content, str | bytes) else content
    except (ValueError, RecursionError):
        return StoredConversation(conversation_id, session, None, "the content is not JSON")
    return StoredConversation(conversation_id, session, history)
