"""Remembers attempts and incidents in a file, in the background.

The rule: a chat turn never waits for the disk. `observe` builds a bounded row
and puts it into a bounded queue; one task writes batches. What goes wrong with
the file switches the journal off until the next start, with one warning, and
nothing else happens. A process that is killed loses what came within the last
`BATCH_SECONDS`.

Rows hold no message content, and of arguments their shape only, unless
`capture_arguments` is on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sqlite3
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

from ..settings.settings import JournalSettings
from ..texts.texts import clean
from .events import AttemptRecord, Event, Incident
from .redaction import redact, shape
from .store import Entry, JournalStore, Row

BATCH_SECONDS = 0.5
"""Pause between two batches, in which events collect."""
MAX_QUEUED = 10_000
"""Rows waiting for the disk; the oldest give way."""
PRUNE_EVERY = 500
"""Rows after which the limits are enforced again."""

_DAY = 86_400.0
_MAX_LIST = 20

T = TypeVar("T")


class Journal:
    """The journal of one running plugin.

    Args:
        path: The file.
        settings: What is kept.
        logger: Where its own faults are told.
        clock: Unix time in seconds.
        batch_seconds: See `BATCH_SECONDS`.
        busy_seconds: How long a locked file is waited for, off the event loop.
    """

    def __init__(
        self,
        path: Path,
        settings: JournalSettings,
        logger: logging.Logger,
        *,
        clock: Callable[[], float] = time.time,
        batch_seconds: float = BATCH_SECONDS,
        busy_seconds: float = 5.0,
    ) -> None:
        self._path = path
        self._settings = settings
        self._logger = logger
        self._clock = clock
        self._batch_seconds = batch_seconds
        self._busy_seconds = busy_seconds
        self._store: JournalStore | None = None
        self._queue: deque[tuple[str, Row]] = deque(maxlen=MAX_QUEUED)
        self._overflow = 0
        self._since_prune = 0
        self._given_up = False
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self._closing = False
        self._flushes: list[asyncio.Future[None]] = []
        self._writer: asyncio.Task[None] | None = None

    @property
    def working(self) -> bool:
        """Whether events are being kept."""
        return self._store is not None

    async def open(self) -> None:
        """Open the file and start writing; a fault is told, never raised."""
        if not self._settings.enabled:
            return
        try:
            self._store, aside = await JournalStore.open(
                self._path, busy_seconds=self._busy_seconds
            )
            await self._prune(self._store)
        except Exception as error:
            # A plugin must start without its journal, whatever ails the disk.
            await self._give_up(error)
            return
        if aside is not None:
            self._logger.warning(
                "Tool Call Guard: the journal was unreadable; it was set aside as %s "
                "and a new one begun",
                aside.name,
            )
        self._writer = asyncio.create_task(self._write_on(), name="toolcall-guard-journal")

    def observe(self, event: Event) -> None:
        """Queue one event; returns at once. Subscribe it to an `EventBus`."""
        if self._store is None:
            return
        if len(self._queue) == MAX_QUEUED:
            self._overflow += 1
        self._queue.append(_row(event, capture=self._settings.capture_arguments))
        self._wake.set()

    async def flush(self) -> None:
        """Return when everything observed so far is written, or given up."""
        if self._writer is None or self._writer.done():
            return
        done = asyncio.get_running_loop().create_future()
        self._flushes.append(done)
        self._wake.set()
        self._hurry.set()
        await done

    async def close(self) -> None:
        """Write what is queued and close the file."""
        self._closing = True
        self._wake.set()
        self._hurry.set()
        if self._writer is not None:
            await asyncio.wait([self._writer])  # however it ends, the file is closed
        store, self._store = self._store, None
        if store is not None:
            await _close(store)

    async def incidents(self, session: str, limit: int) -> tuple[Entry, ...]:
        """Return the last incidents of `session`, newest first."""
        return await self._ask(lambda store: store.incidents(session, limit), ())

    async def incident(self, number: int) -> Entry | None:
        """Return one incident, if it is still there."""
        return await self._ask(lambda store: store.incident(number), None)

    async def last_blocked(self, session: str) -> Entry | None:
        """Return the last blocked request of `session`, if it is still there."""
        return await self._ask(lambda store: store.last_blocked(session), None)

    async def counts_of_last_day(self) -> Mapping[str, int] | None:
        """Return the counts of the last 24 hours, or `None` without a journal."""
        since = self._clock() - _DAY
        return await self._ask(lambda store: store.counts(since), None)

    async def _ask(self, question: Callable[[JournalStore], Awaitable[T]], otherwise: T) -> T:
        await self.flush()
        if self._store is None:
            return otherwise
        try:
            return await question(self._store)
        except Exception as error:
            await self._give_up(error)
            return otherwise

    async def _write_on(self) -> None:
        """Write batches until closed.

        Only this task writes, so that nobody who is cancelled while waiting for
        the disk can leave a transaction open.
        """
        try:
            while not self._closing:
                await self._wake.wait()
                self._wake.clear()
                flushes, self._flushes = self._flushes, []
                await self._write_batch()
                _release(flushes)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), self._batch_seconds)
                self._hurry.clear()
            await self._write_batch()
        finally:
            _release(self._flushes)

    async def _write_batch(self) -> None:
        store, rows = self._store, list(self._queue)
        self._queue.clear()
        if store is None or not rows:
            return
        try:
            await store.insert(
                [row for table, row in rows if table == "attempts"],
                [row for table, row in rows if table == "incidents"],
            )
            self._since_prune += len(rows)
            if self._since_prune >= PRUNE_EVERY:
                await self._prune(store)
        except Exception as error:
            # Whatever it is, the bot goes on without its journal.
            await self._give_up(error)
        if self._overflow:
            self._logger.warning(
                "Tool Call Guard: the disk was too slow; %d journal entries were lost",
                self._overflow,
            )
            self._overflow = 0

    async def _prune(self, store: JournalStore) -> None:
        self._since_prune = 0
        before = self._clock() - self._settings.keep_days * _DAY
        await store.prune(before=before, keep=self._settings.keep_rows)

    async def _give_up(self, error: Exception) -> None:
        """Do without the file until the next start; say so once."""
        store, self._store = self._store, None
        self._queue.clear()
        if not self._given_up:
            self._given_up = True
            self._logger.warning(
                "Tool Call Guard: the journal is off until the next start; "
                "the bot goes on: %s (%s)",
                clean(error, 120),
                type(error).__name__,
            )
        if store is not None:
            await _close(store)


def _release(flushes: list[asyncio.Future[None]]) -> None:
    for done in flushes:
        if not done.done():
            done.set_result(None)


async def _close(store: JournalStore) -> None:
    # A file that is gone or full may refuse even this; there is nothing to save.
    with contextlib.suppress(sqlite3.Error, OSError, ValueError):
        await store.close()


def _row(event: Event, *, capture: bool) -> tuple[str, Row]:
    """Return the table and the row of an event: bounded, and without content."""
    if isinstance(event, AttemptRecord):
        return "attempts", (
            event.started_at,
            _text(event.session, 200),
            _text(event.provider, 120),
            _text(event.model, 120),
            event.attempt,
            event.transport,
            event.duration_ms,
            event.ttft_ms,
            event.finish_reason and clean(event.finish_reason),
            _usage(event.usage),
            event.tool_calls_count,
            event.outcome,
            event.reason,
            event.recovery_action,
            event.error and clean(event.error),
        )
    return "incidents", _incident_row(event, capture=capture)


def _incident_row(incident: Incident, *, capture: bool) -> Row:
    arguments = incident.arguments[:_MAX_LIST]
    return (
        incident.at,
        _text(incident.session, 200),
        _text(incident.provider, 120),
        _text(incident.model, 120),
        incident.kind,
        json.dumps([clean(tool) for tool in incident.tools[:_MAX_LIST]]),
        json.dumps([clean(problem, 160) for problem in incident.problems[:_MAX_LIST]]),
        clean(incident.outcome, 120),
        json.dumps([shape(text) for text in arguments]),
        json.dumps([redact(text) for text in arguments]) if capture else None,
    )


def _usage(usage: Mapping[str, object] | None) -> str | None:
    """Keep the counters of a provider's usage; whatever else stands in it is not ours."""
    if usage is None:
        return None
    counters = {
        clean(key, 40): value
        for key, value in list(usage.items())[:_MAX_LIST]
        if isinstance(value, int | float)
    }
    return json.dumps(counters)


def _text(value: object, limit: int) -> str:
    """Return an id as SQLite takes it: no lone surrogates, bounded."""
    return str(value)[:limit].encode("utf-8", "replace").decode()
