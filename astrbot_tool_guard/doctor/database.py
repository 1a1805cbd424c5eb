"""A stopped bot's database: the conversations in AstrBot's SQLite file.

Looking needs nothing but the right to read, and leaves neither a changed byte nor
a new file. Mending holds the whole file for itself, writes a backup next to it,
and then changes what has to be changed in one transaction: all of it or nothing.
A row that stays as it is is not written, and in a row that is, every message that
stays as it is keeps its very text.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from ..texts.lines import shown
from .doctor import Diagnosis, Tally, diagnose
from .stored import StoredConversation

PATIENCE: Final = 2.0
"""Seconds to wait for somebody else's short transaction."""

COLUMNS: Final = ("conversation_id", "user_id", "content")

See = Callable[[Diagnosis], object]
Advance = Callable[[int, int], object]
"""Is told how much of how much is done."""


class DatabaseError(Exception):
    """The file cannot be examined or mended, and is as it was; one line says why."""


@dataclass(frozen=True, slots=True)
class Row:
    """One conversation's row.

    Attributes:
        rowid: Where it is.
        text: The stored JSON, or `None` where it is none.
        conversation: What it holds.
    """

    rowid: int
    text: str | None
    conversation: StoredConversation


@dataclass(frozen=True, slots=True)
class Mended:
    """What `mend_database` did.

    Attributes:
        tally: What was found before.
        backup: The copy of the file as it was; `None` when nothing had to change.
        after: What is found now.
    """

    tally: Tally
    backup: Path | None
    after: Tally


def examine_database(
    path: Path,
    *,
    session: str | None = None,
    advisories: bool = False,
    see: See,
    advance: Advance | None = None,
) -> Tally:
    """Look at every conversation, one after the other.

    Args:
        path: AstrBot's database, `data/data_v4.db`.
        session: Only conversations of this `unified_msg_origin`.
        advisories: Whether the plan also mends what may be refused.
        see: Gets each diagnosis.
        advance: Gets the number of conversations done and of all.

    Returns:
        The counts and the plan's id.

    Raises:
        DatabaseError: It cannot be examined.
    """
    with _faults_told(path), closing(_open_to_read(path)) as connection:
        _check_schema(connection)
        return _examine(connection, session, advisories, see, advance)


def mend_database(
    path: Path,
    *,
    plan: str | None = None,
    session: str | None = None,
    advisories: bool = False,
    see: See,
    advance: Advance | None = None,
) -> Mended:
    """Look at every conversation and mend what is broken, all of it or nothing.

    Args:
        path: AstrBot's database; AstrBot must not be running on it.
        plan: Only carry out this plan of a dry run; `None` takes whatever is found.
        session: Only conversations of this `unified_msg_origin`.
        advisories: Whether what may be refused is mended too.
        see: Gets each diagnosis of the content before.
        advance: Gets the number of conversations done and of all.

    Raises:
        DatabaseError: It cannot be mended, is in use, or is not what the plan was
            made from; nothing was changed.
    """
    with _faults_told(path), closing(_open_alone(path)) as connection:
        _check_schema(connection)
        before = _examine(connection, session, advisories, see, advance)
        if plan is not None and plan != before.plan:
            now = f"the plan is {before.plan} now" if before.plan else "nothing has to change now"
            raise DatabaseError(f"plan {plan} does not fit: {now}")
        if before.plan is None:
            return Mended(before, None, before)
        backup = _back_up(connection, path, before.plan)
        connection.execute("BEGIN IMMEDIATE")
        after = Tally()
        for row in _rows(connection, session):
            after.add(_mend(connection, row, advisories))
        connection.execute("COMMIT")
        return Mended(before, backup, after)


# Opening


def _open_to_read(path: Path) -> sqlite3.Connection:
    uri = f"{_existing(path).absolute().as_uri()}?mode=ro"
    # A file that was closed in order has no log beside it; reading it then needs no
    # lock and, unlike plain `mode=ro`, leaves none behind.
    if not any(path.with_name(path.name + end).exists() for end in ("-wal", "-journal")):
        uri += "&immutable=1"
    return _connect(uri)


def _open_alone(path: Path) -> sqlite3.Connection:
    """Open the file so that nobody else can, until it is closed.

    A running bot keeps its connections open, and with them a lock on the file:
    it is noticed also while it does nothing.
    """
    connection = _connect(f"{_existing(path).absolute().as_uri()}?mode=rw")
    try:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _existing(path: Path) -> Path:
    if path.is_dir():
        raise DatabaseError(f"{shown(str(path))}: Is a directory")
    if not path.exists():
        raise DatabaseError(f"{shown(str(path))}: No such file or directory")
    return path


def _connect(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)
    connection.text_factory = bytes  # a row that is not UTF-8 is a finding, not an exception
    return connection


@contextmanager
def _faults_told(path: Path) -> Iterator[None]:
    """Turn what SQLite has to say into one line."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the extended codes' family
        reason = _REASONS.get(code, " ".join(str(error).split()))
        raise DatabaseError(f"{shown(str(path))}: {reason}") from None
    except OSError as error:
        raise DatabaseError(f"{shown(str(path))}: {error.strerror or error}") from None


_REASONS: Final = {
    sqlite3.SQLITE_BUSY: "the database is in use; stop AstrBot first",
    sqlite3.SQLITE_LOCKED: "the database is in use; stop AstrBot first",
    sqlite3.SQLITE_NOTADB: "this is no SQLite database",
    sqlite3.SQLITE_CORRUPT: "the database is damaged",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "the database cannot be written",
}


def _check_schema(connection: sqlite3.Connection) -> None:
    columns = {
        _text(name) for _, name, *_ in connection.execute("PRAGMA table_info(conversations)")
    }
    if not columns.issuperset(COLUMNS):
        raise DatabaseError(
            "there is no table of conversations as AstrBot 4 has it; is this data_v4.db?"
        )


# Reading


def _examine(
    connection: sqlite3.Connection,
    session: str | None,
    advisories: bool,
    see: See,
    advance: Advance | None,
) -> Tally:
    tally = Tally()
    total = 0
    if advance is not None:
        counted = f"SELECT count(*) FROM conversations {_condition(session)}"
        (total,) = connection.execute(counted, {"session": session}).fetchone()
    for row in _rows(connection, session):
        diagnosis, _ = diagnose(row.conversation, advisories=advisories)
        tally.add(diagnosis)
        see(diagnosis)
        if advance is not None:
            advance(tally.conversations, total)
    return tally


def _rows(connection: sqlite3.Connection, session: str | None) -> Iterator[Row]:
    """Yield the rows in their order, one in memory at a time."""
    cursor = connection.execute(
        "SELECT rowid, conversation_id, user_id, content FROM conversations "
        f"{_condition(session)} ORDER BY rowid",
        {"session": session},
    )
    for rowid, conversation_id, user_id, content in cursor:
        text, history, problem = _decoded(content)
        stored = StoredConversation(_text(conversation_id), _text(user_id), history, problem)
        yield Row(rowid, text, stored)


def _condition(session: str | None) -> str:
    return "" if session is None else "WHERE user_id = :session"


def _decoded(content: object) -> tuple[str | None, object, str | None]:
    """Return the stored text, the history in it, and why there is none."""
    if content is None:
        return None, None, None
    if not isinstance(content, bytes):
        return None, None, "the content is not JSON text"
    try:
        text = content.decode()
        return text, json.loads(text), None
    except UnicodeDecodeError:
        return None, None, "the content is not UTF-8 text"
    except RecursionError:
        return None, None, "the content is nested too deeply"
    except ValueError:
        return None, None, "the content is not JSON"


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return "" if value is None else str(value)


# Writing


def _back_up(connection: sqlite3.Connection, path: Path, plan: str) -> Path:
    """Copy the file, and give the copy its name only when it is whole."""
    backup = _free_name(path, plan)
    partial = backup.with_name(backup.name + ".partial")
    partial.unlink(missing_ok=True)
    try:
        # Nobody may read the copy who may not read the database.
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with closing(sqlite3.connect(partial)) as copy:
            connection.backup(copy)
        shutil.copymode(path, partial)
        with open(partial, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, backup)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return backup


def _free_name(path: Path, plan: str) -> Path:
    number = 1
    while True:
        end = f".before-{plan}" if number == 1 else f".before-{plan}-{number}"
        name = path.with_name(path.name + end)
        if not name.exists():
            return name
        number += 1


def _mend(connection: sqlite3.Connection, row: Row, advisories: bool) -> Diagnosis:
    """Mend one row where it is broken, and return what is to be said of it afterwards."""
    diagnosis, _ = diagnose(row.conversation, advisories=advisories)
    if diagnosis.state != "repairable":
        return diagnosis
    values, texts = _pieces(cast("str", row.text))
    stored = StoredConversation(row.conversation.id, row.conversation.session, values)
    _, history = diagnose(stored, advisories=advisories)
    text_of = {id(value): text for value, text in zip(values, texts, strict=True)}
    mended = [text_of.get(id(message)) or json.dumps(message) for message in history]
    connection.execute(
        "UPDATE conversations SET content = ? WHERE rowid = ?",
        (f"[{', '.join(mended)}]", row.rowid),
    )
    after = StoredConversation(stored.id, stored.session, history)
    return diagnose(after, advisories=advisories)[0]


def _pieces(text: str) -> tuple[list[object], list[str]]:
    """Split the text of a JSON list into its elements' values and their very texts."""
    values: list[object] = []
    texts: list[str] = []
    position = _skip(text, text.index("[") + 1)
    while text[position] != "]":
        value, end = _DECODER.raw_decode(text, position)
        values.append(value)
        texts.append(text[position:end])
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)
    return values, texts


_DECODER: Final = json.JSONDecoder()
_BLANK: Final = re.compile(r"[ \t\n\r]*")


def _skip(text: str, position: int) -> int:
    return cast("re.Match[str]", _BLANK.match(text, position)).end()
