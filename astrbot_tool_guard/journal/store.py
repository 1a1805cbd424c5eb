"""The journal's file: SQLite, versioned, and never in the way.

The rule: an old file is migrated, a file that cannot be read is set aside under
another name and replaced, and nothing is ever deleted but rows beyond the
limits. Errors of SQLite and of the disk go to the caller, who owns the decision
to do without.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import aiosqlite

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE attempts (
        id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, session TEXT NOT NULL,
        provider TEXT NOT NULL, model TEXT NOT NULL, attempt INTEGER NOT NULL,
        transport TEXT NOT NULL, duration_ms REAL NOT NULL, ttft_ms REAL,
        finish_reason TEXT, usage TEXT, tool_calls_count INTEGER NOT NULL,
        outcome TEXT NOT NULL, reason TEXT, recovery_action TEXT, error TEXT
    );
    CREATE INDEX attempts_at ON attempts (at);
    CREATE TABLE incidents (
        id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, session TEXT NOT NULL,
        provider TEXT NOT NULL, model TEXT NOT NULL, kind TEXT NOT NULL,
        tools TEXT NOT NULL, problems TEXT NOT NULL, outcome TEXT NOT NULL,
        shapes TEXT NOT NULL, arguments TEXT
    );
    CREATE INDEX incidents_at ON incidents (at);
    CREATE INDEX incidents_session ON incidents (session, id);
    """,
)
"""Each script brings a file one version on; the version is SQLite's `user_version`."""

ATTEMPT_COLUMNS = (
    "at, session, provider, model, attempt, transport, duration_ms, ttft_ms, finish_reason, "
    "usage, tool_calls_count, outcome, reason, recovery_action, error"
)
INCIDENT_COLUMNS = "at, session, provider, model, kind, tools, problems, outcome, shapes, arguments"

Value = str | int | float | None
Row = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One incident as the journal keeps it.

    Attributes:
        id: Its number, short enough to type.
        at: Unix time in seconds.
        session: `unified_msg_origin`, or `""`.
        provider: AstrBot's provider id.
        model: The requested model.
        kind: What happened; an `IncidentKind`.
        tools: Names of the tools concerned.
        problems: Rules with indexes, or problem kinds with paths.
        outcome: What was done about it.
        shapes: Shape of the arguments per tool.
        arguments: Redacted arguments per tool, where they were captured.
    """

    id: int
    at: float
    session: str
    provider: str
    model: str
    kind: str
    tools: tuple[str, ...]
    problems: tuple[str, ...]
    outcome: str
    shapes: tuple[str, ...]
    arguments: tuple[str | None, ...] | None


class JournalStore:
    """An open journal file."""

    def __init__(self, db: aiosqlite.Connection) -> None:
        self._db = db

    @classmethod
    async def open(
        cls, path: Path, *, busy_seconds: float, migrations: Sequence[str] = MIGRATIONS
    ) -> tuple[JournalStore, Path | None]:
        """Open the file, making, migrating or replacing it as it needs.

        Args:
            path: The file; its folder is made where it is missing.
            busy_seconds: How long a locked file is waited for.
            migrations: The versions, for tests.

        Returns:
            The store, and where an unreadable older file was put.

        Raises:
            sqlite3.Error: The file is locked or cannot be written.
            OSError: The folder cannot be used.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return cls(await _open(path, busy_seconds, migrations)), None
        except _UnreadableError:
            aside = _set_aside(path)
        return cls(await _open(path, busy_seconds, migrations)), aside

    async def close(self) -> None:
        """Close the file."""
        await self._db.close()

    async def insert(self, attempts: Sequence[Row], incidents: Sequence[Row]) -> None:
        """Write rows in one transaction; all of them or none."""
        await self._db.execute("BEGIN IMMEDIATE")
        try:
            await self._insert("attempts", ATTEMPT_COLUMNS, attempts)
            await self._insert("incidents", INCIDENT_COLUMNS, incidents)
        except BaseException:
            await self._db.execute("ROLLBACK")
            raise
        await self._db.execute("COMMIT")

    async def _insert(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        if rows:
            marks = ", ".join("?" * (columns.count(",") + 1))
            await self._db.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", rows)

    async def prune(self, *, before: float, keep: int) -> None:
        """Delete rows older than `before`, and all but the newest `keep` of each table."""
        for table in ("attempts", "incidents"):
            await self._db.execute(
                f"DELETE FROM {table} WHERE at < ? OR id <= (SELECT max(id) FROM {table}) - ?",
                (before, keep),
            )

    async def incidents(self, session: str, limit: int) -> tuple[Entry, ...]:
        """Return the last incidents of `session`, newest first."""
        rows = await self._db.execute_fetchall(
            f"SELECT id, {INCIDENT_COLUMNS} FROM incidents WHERE session = ? "
            "ORDER BY id DESC LIMIT ?",
            (session, limit),
        )
        return tuple(_entry(row) for row in rows)

    async def incident(self, number: int) -> Entry | None:
        """Return one incident."""
        rows = await self._db.execute_fetchall(
            f"SELECT id, {INCIDENT_COLUMNS} FROM incidents WHERE id = ?", (number,)
        )
        return next((_entry(row) for row in rows), None)

    async def last_blocked(self, session: str) -> Entry | None:
        """Return the last blocked request of `session`."""
        rows = await self._db.execute_fetchall(
            f"SELECT id, {INCIDENT_COLUMNS} FROM incidents WHERE session = ? "
            "AND kind = 'request_blocked' ORDER BY id DESC LIMIT 1",
            (session,),
        )
        return next((_entry(row) for row in rows), None)

    async def counts(self, since: float) -> Mapping[str, int]:
        """Return counts since a time, under the names that `Tally.counts` uses."""
        outcomes = await self._db.execute_fetchall(
            "SELECT outcome, count(*) FROM attempts WHERE at >= ? GROUP BY outcome", (since,)
        )
        kinds = await self._db.execute_fetchall(
            "SELECT kind, count(*) FROM incidents WHERE at >= ? GROUP BY kind", (since,)
        )
        counts = {str(name): int(count) for name, count in (*outcomes, *kinds)}
        counts["requests"] = sum(int(count) for _, count in outcomes)
        return counts


class _UnreadableError(Exception):
    """The file is no journal of a version that is known here."""


_UNREADABLE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""SQLite's codes that speak of the file's content. `SQLITE_ERROR` is a statement that
does not fit the tables; the others (busy, read-only, full, I/O) may be over tomorrow."""


async def _open(path: Path, busy_seconds: float, migrations: Sequence[str]) -> aiosqlite.Connection:
    db = aiosqlite.connect(path, timeout=busy_seconds, isolation_level=None)
    # Python waits for a thread at its end, and for this one for ever where AstrBot ends
    # without `terminate`. Older versions of aiosqlite are the thread themselves.
    thread: Any = getattr(db, "_thread", db)
    thread.daemon = True
    await db
    try:
        # A killed process loses nothing that was committed; only a power cut may
        # take the last commits, never the file's soundness.
        await db.execute("PRAGMA journal_mode = WAL")
        await db.execute("PRAGMA synchronous = NORMAL")
        await _migrate(db, migrations)
        await _check(db)
    except BaseException as error:
        await db.close()
        if isinstance(error, sqlite3.Error) and error.sqlite_errorcode & 0xFF in _UNREADABLE:
            raise _UnreadableError from error
        raise
    return db


async def _check(db: aiosqlite.Connection) -> None:
    rows = await db.execute_fetchall("PRAGMA quick_check(1)")
    if [row[0] for row in rows] != ["ok"]:
        raise _UnreadableError
    for table, columns in (("attempts", ATTEMPT_COLUMNS), ("incidents", INCIDENT_COLUMNS)):
        await db.execute_fetchall(f"SELECT id, {columns} FROM {table} LIMIT 0")


async def _migrate(db: aiosqlite.Connection, migrations: Sequence[str]) -> None:
    version = await _version(db)
    if version == len(migrations):
        return
    await db.execute("BEGIN IMMEDIATE")
    try:
        # Read again under the lock: another process may have been quicker.
        version = await _version(db)
        if version > len(migrations):
            raise _UnreadableError
        for script in migrations[version:]:
            for statement in script.split(";"):
                if statement.strip():
                    await db.execute(statement)
        await db.execute(f"PRAGMA user_version = {len(migrations)}")
    except BaseException:
        await db.execute("ROLLBACK")
        raise
    await db.execute("COMMIT")


async def _version(db: aiosqlite.Connection) -> int:
    rows = list(await db.execute_fetchall("PRAGMA user_version"))
    return int(rows[0][0])


def _set_aside(path: Path) -> Path:
    """Rename a file and what SQLite keeps beside it; return its new name."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{stamp}-{number}")
    path.rename(aside)
    for suffix in ("-wal", "-shm"):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            beside.rename(aside.with_name(aside.name + suffix))
    return aside


def _entry(row: sqlite3.Row) -> Entry:
    number, at, session, provider, model, kind, tools, problems, outcome, shapes, arguments = row
    return Entry(
        id=number,
        at=at,
        session=session,
        provider=provider,
        model=model,
        kind=kind,
        tools=_texts(tools),
        problems=_texts(problems),
        outcome=outcome,
        shapes=_texts(shapes),
        arguments=None if arguments is None else cast("tuple[str | None, ...]", _texts(arguments)),
    )


def _texts(text: str) -> tuple[str, ...]:
    return tuple(cast("list[str]", json.loads(text)))
