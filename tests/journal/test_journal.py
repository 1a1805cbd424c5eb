"""The journal keeps what it promises, and never stands in the way."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from astrbot_tool_guard.journal.events import EventBus
from astrbot_tool_guard.journal.journal import BATCH_SECONDS, MAX_QUEUED, PRUNE_EVERY, Journal
from astrbot_tool_guard.journal.store import MIGRATIONS, JournalStore
from astrbot_tool_guard.settings.settings import JournalSettings

from .events import attempt, incident

NOW = 1_000_000.0
DAY = 86_400.0
SESSION = "qq:FriendMessage:1"
PROJECT = Path(__file__).parents[2]
LOGGER = logging.getLogger("test-journal")


@pytest.fixture(autouse=True)
def only_our_lines(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What an earlier test left behind may log at any time."""
    with caplog.filtering(logging.Filter(LOGGER.name)):
        yield


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "journal.sqlite3"


@asynccontextmanager
async def opened(path: Path, *, now: float = NOW, **settings: object) -> AsyncIterator[Journal]:
    journal = Journal(
        path,
        JournalSettings(**settings),  # pyright: ignore[reportArgumentType]
        LOGGER,
        clock=lambda: now,
        busy_seconds=0,
    )
    await journal.open()
    try:
        yield journal
    finally:
        await journal.close()


def rows(path: Path, query: str = "SELECT count(*) FROM incidents") -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


async def test_an_incident_is_found_again_with_all_its_facts(path):
    async with opened(path) as journal:
        journal.observe(
            incident(
                kind="response_degraded",
                tools=("get_weather",),
                problems=("required_missing city",),
                outcome="not run",
                arguments=('{"city": "Oslo"}',),
            )
        )
        (entry,) = await journal.incidents(SESSION, 5)
        assert await journal.incident(entry.id) == entry
    assert (entry.kind, entry.session, entry.provider) == (
        "response_degraded",
        SESSION,
        "src/model",
    )
    assert entry.at == NOW
    assert entry.tools == ("get_weather",)
    assert entry.problems == ("required_missing city",)
    assert entry.outcome == "not run"
    assert entry.shapes == ('{"city": string(4)}',)
    assert entry.arguments is None


async def test_an_attempt_is_kept_with_the_fields_of_the_design(path):
    async with opened(path) as journal:
        journal.observe(
            attempt(
                outcome="discarded",
                reason="stream_invalid_tool_call",
                recovery_action="retry_streaming",
            )
        )
    assert rows(
        path,
        "SELECT at, session, provider, model, attempt, transport, duration_ms, ttft_ms, "
        "finish_reason, usage, tool_calls_count, outcome, reason, recovery_action FROM attempts",
    ) == [
        (
            NOW,
            SESSION,
            "src/model",
            "model",
            1,
            "stream",
            12.5,
            3.0,
            "tool_calls",
            '{"prompt_tokens": 7, "completion_tokens": 2}',
            1,
            "discarded",
            "stream_invalid_tool_call",
            "retry_streaming",
        )
    ]


async def test_arguments_leave_no_trace_in_the_file_unless_capture_is_on(path):
    secret = "Meet me at Karl Johans gate"
    async with opened(path) as journal:
        journal.observe(incident(arguments=(f'{{"note": "{secret}"}}', f'{{"note": "{secret}')))
        await journal.flush()
        written = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"string(27)" in written
    assert secret.encode() not in written


async def test_captured_arguments_are_redacted(path):
    async with opened(path, capture_arguments=True) as journal:
        journal.observe(incident(arguments=('{"city": "Oslo", "api_key": "hunter2"}', None)))
        (entry,) = await journal.incidents(SESSION, 1)
    assert entry.arguments == ('{"city": "Oslo", "api_key": "***"}', None)


async def test_a_session_reads_its_own_incidents_newest_first(path):
    async with opened(path) as journal:
        for at in range(5):
            journal.observe(incident(at=NOW + at))
            journal.observe(incident(at=NOW + at, session="other"))
        entries = await journal.incidents(SESSION, 3)
        blocked = await journal.last_blocked(SESSION)
    assert [entry.at for entry in entries] == [NOW + 4, NOW + 3, NOW + 2]
    assert blocked == entries[0]


async def test_the_last_day_is_counted_by_outcome_and_kind(path):
    async with opened(path, now=NOW) as journal:
        journal.observe(attempt(started_at=NOW - DAY - 1))
        journal.observe(attempt(started_at=NOW - 5))
        journal.observe(attempt(started_at=NOW - 4, outcome="blocked"))
        journal.observe(incident(at=NOW - 4))
        journal.observe(incident(at=NOW - DAY - 1))
        counts = await journal.counts_of_last_day()
    assert counts == {"requests": 2, "accepted": 1, "blocked": 1, "request_blocked": 1}


async def test_what_was_observed_is_written_on_close(path):
    async with opened(path) as journal:
        for _ in range(300):
            journal.observe(incident())
    assert rows(path) == [(300,)]


async def test_events_are_written_without_anybody_asking(path):
    """The first event of a batch is written at once; a kill loses one pause at most."""
    assert BATCH_SECONDS <= 1
    async with opened(path) as journal:
        written = asyncio.Event()
        insert = JournalStore.insert

        async def noting(store, attempts, incidents):
            await insert(store, attempts, incidents)
            written.set()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(JournalStore, "insert", noting)
            journal.observe(incident())
            await written.wait()
        assert rows(path) == [(1,)]


async def test_a_hundred_sessions_at_once_lose_nothing_and_mix_nothing(path):
    bus = EventBus(LOGGER)
    async with opened(path) as journal:
        bus.subscribe(journal.observe)

        async def session(name: str) -> None:
            for at in range(20):
                bus.emit(attempt(session=name))
                bus.emit(incident(session=name, at=NOW + at, tools=(f"tool_of_{name}",)))
                await asyncio.sleep(0)
                if at % 7 == 0:
                    assert all(e.session == name for e in await journal.incidents(name, 50))

        await asyncio.gather(*(session(f"s{number}") for number in range(100)))
        for number in range(100):
            entries = await journal.incidents(f"s{number}", 50)
            assert [entry.at for entry in entries] == [NOW + at for at in reversed(range(20))]
            assert {entry.tools for entry in entries} == {(f"tool_of_s{number}",)}
    assert rows(path, "SELECT count(*) FROM attempts") == [(2000,)]


async def test_the_oldest_entries_go_first_when_the_disk_is_too_slow(path, caplog):
    async with opened(path) as journal:
        for at in range(MAX_QUEUED + 3):
            journal.observe(incident(at=NOW + at))
        await journal.flush()
        assert rows(path, "SELECT count(*), min(at) FROM incidents") == [(MAX_QUEUED, NOW + 3)]
    assert warnings(caplog) == [
        "Tool Call Guard: the disk was too slow; 3 journal entries were lost"
    ]


class TestLimits:
    async def test_old_entries_are_deleted_at_the_start(self, path):
        async with opened(path) as journal:
            journal.observe(incident(at=NOW - 10 * DAY))
            journal.observe(attempt(started_at=NOW - 10 * DAY))
            journal.observe(incident(at=NOW - DAY))
        async with opened(path, keep_days=7):
            assert rows(path) == [(1,)]
            assert rows(path, "SELECT count(*) FROM attempts") == [(0,)]

    async def test_only_the_newest_rows_stay(self, path):
        async with opened(path, keep_rows=100) as journal:
            for at in range(PRUNE_EVERY + 1):
                journal.observe(incident(at=NOW + at))
            await journal.flush()
            assert rows(path, "SELECT count(*), max(at) FROM incidents") == [
                (100, NOW + PRUNE_EVERY)
            ]

    async def test_a_number_is_never_used_again(self, path):
        async with opened(path) as journal:
            journal.observe(incident(at=NOW - 10 * DAY))
            (first,) = await journal.incidents(SESSION, 1)
        async with opened(path, keep_days=1) as journal:
            assert await journal.incident(first.id) is None
            journal.observe(incident())
            (second,) = await journal.incidents(SESSION, 1)
        assert second.id > first.id

    async def test_every_row_is_bounded(self, path):
        huge = "x" * 1_000_000
        async with opened(path, capture_arguments=True) as journal:
            journal.observe(
                incident(
                    session=huge,
                    provider=huge,
                    model=huge,
                    tools=(huge,) * 1000,
                    problems=(huge,) * 1000,
                    outcome=huge,
                    arguments=(f'{{"{huge}": "{huge}"}}',) * 1000,
                )
            )
            journal.observe(attempt(session=huge, finish_reason=huge, error=huge, usage={huge: 1}))
        assert path.stat().st_size < 200_000


class TestFaults:
    async def test_it_stays_off_when_it_is_switched_off(self, path):
        async with opened(path, enabled=False) as journal:
            journal.observe(incident())
            assert not journal.working
            assert await journal.incidents(SESSION, 5) == ()
            assert await journal.counts_of_last_day() is None
        assert not path.exists()

    async def refused(self, journal: Journal, caplog: pytest.LogCaptureFixture, words: str):
        """Assert that a faulty file costs one warning and nothing else."""
        for _ in range(3):
            journal.observe(incident())
            await journal.flush()
        assert not journal.working
        assert await journal.incidents(SESSION, 5) == ()
        (line,) = warnings(caplog)
        assert line.startswith("Tool Call Guard: the journal is off until the next start")
        assert words in line

    async def test_a_folder_that_cannot_be_made(self, tmp_path, caplog):
        (tmp_path / "data").write_text("a file where the folder should be")
        async with opened(tmp_path / "data" / "journal.sqlite3") as journal:
            await self.refused(journal, caplog, "FileExistsError")

    async def test_a_path_that_is_a_folder(self, path, caplog):
        path.mkdir(parents=True)
        async with opened(path) as journal:
            await self.refused(journal, caplog, "unable to open database file")

    async def test_a_read_only_file(self, path, caplog, monkeypatch):
        # Tests may run as root, whom no permission stops: SQLite's own read-only mode does.
        async with opened(path):
            pass
        connect = sqlite3.connect
        monkeypatch.setattr(
            sqlite3,
            "connect",
            lambda file, **options: connect(f"file:{file}?mode=ro", uri=True, **options),
        )
        async with opened(path) as journal:
            await self.refused(journal, caplog, "readonly database")

    async def test_a_locked_file_at_the_start(self, path, caplog):
        async with opened(path):
            pass
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            async with opened(path) as journal:
                await self.refused(journal, caplog, "database is locked")
        async with opened(path) as journal:
            assert journal.working

    async def test_a_file_that_is_locked_while_running(self, path, caplog):
        async with opened(path) as journal:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                await self.refused(journal, caplog, "database is locked")

    async def test_a_full_disk(self, path):
        """Run in a process of its own, whose files may not grow any more."""
        script = """
            import asyncio, logging, resource, signal, sys
            from pathlib import Path
            from astrbot_tool_guard.journal.journal import Journal
            from astrbot_tool_guard.settings.settings import JournalSettings
            from tests.journal.events import incident

            async def main():
                logging.basicConfig(stream=sys.stdout, format="%(message)s")
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                journal = Journal(Path(sys.argv[1]), JournalSettings(), logging.getLogger())
                await journal.open()
                resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))
                for _ in range(50):
                    for _ in range(100):
                        journal.observe(incident(problems=("p" * 160,) * 20))
                    await journal.flush()
                print("working", journal.working)
                await journal.close()

            asyncio.run(main())
        """
        process = await run_python(script, path)
        output = (await process.communicate())[0].decode()
        assert process.returncode == 0, output
        first, last = output.strip().splitlines()
        assert first.startswith("Tool Call Guard: the journal is off until the next start")
        assert last == "working False"
        assert rows(path, "PRAGMA quick_check") == [("ok",)]

    @pytest.mark.parametrize(
        "damage",
        [
            lambda data: b"this is no database" * 1000,
            lambda data: data[: len(data) // 2],
            lambda data: data[:100],
            lambda data: data[:4096] + b"\xa5" * (len(data) - 4096),
        ],
        ids=["other content", "cut in half", "cut to its header", "overwritten"],
    )
    async def test_a_damaged_file_is_set_aside_and_a_new_one_begun(self, path, caplog, damage):
        async with opened(path) as journal:
            for _ in range(300):
                journal.observe(incident())
        damaged = damage(path.read_bytes())
        path.write_bytes(damaged)
        async with opened(path) as journal:
            journal.observe(incident())
            assert len(await journal.incidents(SESSION, 500)) == 1
        (aside,) = path.parent.glob("*.damaged-*")
        assert aside.read_bytes() == damaged
        (line,) = warnings(caplog)
        assert aside.name in line

    async def test_a_second_damaged_file_does_not_replace_the_first(self, path):
        for _ in range(3):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"no database at all, and long enough for a header" * 10)
            async with opened(path) as journal:
                assert journal.working
            path.unlink()
        assert len(list(path.parent.glob("*.damaged-*"))) == 3

    async def test_a_file_damaged_while_running_is_given_up_and_set_aside_at_the_next_start(
        self, path, caplog
    ):
        async with opened(path) as journal:
            for _ in range(300):
                journal.observe(incident())
            await journal.flush()
            size = path.stat().st_size
            with path.open("r+b") as file:
                file.write(b"\xff" * size)
            for beside in path.parent.glob("*-wal"):
                with beside.open("r+b") as file:
                    file.write(b"\xff" * beside.stat().st_size)
            assert await journal.incidents("nobody", 5) == ()
            journal.observe(incident())
            await journal.flush()
        before = len(warnings(caplog))
        assert before <= 1
        async with opened(path) as journal:
            assert journal.working
        assert list(path.parent.glob("*.damaged-*"))

    async def test_another_programs_database_is_set_aside(self, path):
        path.parent.mkdir()
        with closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE attempts (x)")
            db.commit()
        async with opened(path) as journal:
            assert journal.working
        (aside,) = path.parent.glob("*.damaged-*")
        assert rows(aside, "SELECT count(*) FROM attempts") == [(0,)]

    async def test_a_newer_versions_file_is_set_aside(self, path):
        async with opened(path):
            pass
        with closing(sqlite3.connect(path)) as db:
            db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
        async with opened(path) as journal:
            assert journal.working
        assert list(path.parent.glob("*.damaged-*"))

    async def test_a_caller_who_is_cancelled_leaves_the_journal_working(self, path):
        async with opened(path) as journal:
            for _ in range(20):
                journal.observe(incident())
                asking = asyncio.create_task(journal.incidents(SESSION, 5))
                await asyncio.sleep(0)
                asking.cancel()
                await asyncio.wait([asking])
            await journal.flush()
            assert journal.working
            assert rows(path) == [(20,)]

    async def test_a_kill_in_mid_write_loses_nothing_that_was_flushed(self, path):
        script = """
            import asyncio, logging, sys
            from pathlib import Path
            from astrbot_tool_guard.journal.journal import Journal
            from astrbot_tool_guard.settings.settings import JournalSettings
            from tests.journal.events import incident

            async def main():
                journal = Journal(Path(sys.argv[1]), JournalSettings(keep_days=3650),
                                  logging.getLogger(), clock=lambda: 1_000_000.0)
                await journal.open()
                total = 0
                while True:
                    for _ in range(50):
                        journal.observe(incident())
                    total += 50
                    await journal.flush()
                    print(total, flush=True)

            asyncio.run(main())
        """
        process = await run_python(script, path)
        assert process.stdout
        for _ in range(20):
            flushed = int(await process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        await process.communicate()
        async with opened(path) as journal:
            assert journal.working
            assert not list(path.parent.glob("*.damaged-*"))
            ((count,),) = rows(path)
            assert int(str(count)) >= flushed
            assert int(str(count)) % 50 == 0


class TestVersions:
    async def test_an_older_file_is_brought_on_with_its_rows(self, path):
        older, _ = await JournalStore.open(path, busy_seconds=0)
        await older.insert([], [(NOW, "s", "p", "m", "k", "[]", "[]", "o", "[]", None)])
        await older.close()
        newer = (*MIGRATIONS, "ALTER TABLE incidents ADD COLUMN note TEXT DEFAULT 'none'")
        store, aside = await JournalStore.open(path, busy_seconds=0, migrations=newer)
        await store.close()
        assert aside is None
        assert rows(path, "SELECT session, note FROM incidents") == [("s", "none")]
        assert rows(path, "PRAGMA user_version") == [(len(newer),)]

    async def test_a_migration_that_fails_changes_nothing(self, path):
        older, _ = await JournalStore.open(path, busy_seconds=0)
        await older.insert([], [(NOW, "s", "p", "m", "k", "[]", "[]", "o", "[]", None)])
        await older.close()
        broken = (
            *MIGRATIONS,
            "ALTER TABLE incidents ADD COLUMN note TEXT; UPDATE incidents SET session = NULL",
        )
        with pytest.raises(sqlite3.IntegrityError):
            await JournalStore.open(path, busy_seconds=0, migrations=broken)
        assert rows(path, "SELECT session FROM incidents") == [("s",)]
        assert rows(path, "PRAGMA user_version") == [(len(MIGRATIONS),)]
        assert "note" not in {row[1] for row in rows(path, "PRAGMA table_info(incidents)")}


async def run_python(script: str, path: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        textwrap.dedent(script),
        str(path),
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_a_process_that_ends_without_closing_it_does_end(path: Path) -> None:
    code = """
        import asyncio, logging, sys
        from pathlib import Path
        from astrbot_tool_guard.journal.journal import Journal
        from astrbot_tool_guard.settings.settings import JournalSettings

        async def main():
            await Journal(Path(sys.argv[1]), JournalSettings(), logging.getLogger()).open()
            sys.exit(7)

        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(path)]
    # It ends in a second, or never.
    ended = subprocess.run(command, cwd=PROJECT, timeout=120, check=False, capture_output=True)
    assert ended.returncode == 7, ended.stderr


async def test_the_file_is_closed_when_the_writer_was_cancelled(path: Path) -> None:
    async with opened(path) as journal:
        assert journal._writer is not None
        journal._writer.cancel()
    assert journal._store is None
