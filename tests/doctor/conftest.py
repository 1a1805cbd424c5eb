"""Databases as AstrBot itself makes them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.core.messages.histories import declares, result, says, user


class Bot:
    """A stopped bot's database file, filled and read back without the doctor.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, content: object, *, session: str = "qq:FriendMessage:1", name: str = "") -> str:
        """Store a conversation: a list as AstrBot stores it, anything else as it is."""
        [conversation] = self.fill([content], session=session, names=[name] if name else None)
        return conversation

    def fill(
        self,
        contents: Iterable[object],
        *,
        session: str = "qq:FriendMessage:1",
        names: list[str] | None = None,
    ) -> list[str]:
        """Store many conversations and return their ids."""
        with closing(sqlite3.connect(self.path)) as connection, connection:
            (count,) = connection.execute("SELECT count(*) FROM conversations").fetchone()
            stored = [json.dumps(c) if isinstance(c, list) else c for c in contents]
            names = names or [f"conversation-{count + at}" for at in range(len(stored))]
            connection.executemany(
                "INSERT INTO conversations (conversation_id, platform_id, user_id, content, "
                "created_at, updated_at, token_usage) "
                "VALUES (?, 'qq', ?, ?, '2025-01-01', '2025-01-01', 7)",
                ((name, session, text) for name, text in zip(names, stored, strict=True)),
            )
        return names

    def rows(self) -> list[tuple[Any, ...]]:
        """Return every column of every conversation."""
        with closing(sqlite3.connect(self.path)) as connection:
            connection.text_factory = bytes
            return connection.execute("SELECT * FROM conversations ORDER BY rowid").fetchall()

    def text(self, conversation: str) -> Any:
        """Return the stored content of a conversation as it is."""
        with closing(sqlite3.connect(self.path)) as connection:
            query = "SELECT content FROM conversations WHERE conversation_id = ?"
            return connection.execute(query, (conversation,)).fetchone()[0]

    def history(self, conversation: str) -> Any:
        """Return the decoded content of a conversation."""
        return json.loads(self.text(conversation))

    def files(self) -> dict[str, bytes]:
        """Return everything that is in the database's folder."""
        return {path.name: path.read_bytes() for path in self.path.parent.iterdir()}


@pytest.fixture(scope="session")
async def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that AstrBot has just set up."""
    from astrbot.core.db.sqlite import SQLiteDatabase

    path = tmp_path_factory.mktemp("database") / "data_v4.db"
    database = SQLiteDatabase(str(path))
    await database.initialize()
    await database.engine.dispose()
    return path


@pytest.fixture
def stopped(empty_database: Path, tmp_path: Path) -> Bot:
    """A bot that is not running, with no conversations yet."""
    folder = tmp_path / "data"
    folder.mkdir()
    return Bot(Path(shutil.copy(empty_database, folder / "data_v4.db")))


def healthy() -> list[Any]:
    """Return a history there is nothing to say of."""
    return [user("hi"), declares("a"), result("a"), says("done")]


def broken() -> list[Any]:
    """Return a history with one call left open."""
    return [user("hi"), declares("a"), says("sorry")]
