"""A stopped bot's database: looked at without a trace, mended all of it or nothing."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from astrbot_tool_guard.core.messages.matching import NEUTRAL_RESULT
from astrbot_tool_guard.doctor import database
from astrbot_tool_guard.doctor.database import (
    DatabaseError,
    Mended,
    examine_database,
    mend_database,
)
from astrbot_tool_guard.doctor.doctor import Diagnosis, Tally
from tests.core.messages.histories import damaged_lists, declares, result, says, user
from tests.doctor.conftest import Bot, broken, healthy

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for locks that a test holds on purpose."""
    monkeypatch.setattr(database, "PATIENCE", 0.0)


def examine(bot: Bot, **options: Any) -> tuple[Tally, list[Diagnosis]]:
    seen: list[Diagnosis] = []
    return examine_database(bot.path, see=seen.append, **options), seen


def mend(bot: Bot, **options: Any) -> Mended:
    return mend_database(bot.path, see=lambda _: None, **options)


class TestLooking:
    def test_tells_each_conversation_apart(self, stopped: Bot) -> None:
        stopped.add(healthy())
        stopped.add(broken(), session="qq:GroupMessage:2")
        stopped.add("[1, 2")
        stopped.add([user("hi"), {**says("hello"), "tool_calls": []}])

        tally, seen = examine(stopped)

        assert [(d.conversation, d.session, d.state) for d in seen] == [
            ("conversation-0", "qq:FriendMessage:1", "ok"),
            ("conversation-1", "qq:GroupMessage:2", "repairable"),
            ("conversation-2", "qq:FriendMessage:1", "unreadable"),
            ("conversation-3", "qq:FriendMessage:1", "ok"),
        ]
        assert seen[1].actions() == {"result_added": 1}
        assert [a.kind for a in seen[3].advisories] == ["empty_tool_calls"]
        assert tally.to_dict() == {
            "conversations": 4,
            "ok": 2,
            "repairable": 1,
            "unreadable": 1,
            "violations": 1,
            "advisories": 1,
        }

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b'["\xff"]', "the content is not UTF-8 text"),
            ("[", "the content is not JSON"),
            ("[" * 100_000, "the content is nested too deeply"),
            ('{"role": "user"}', "the messages are an object, not a list"),
            ('"text"', "the messages are a string, not a list"),
            (7, "the content is not JSON text"),
        ],
    )
    def test_a_damaged_row_is_a_finding(self, content: Any, reason: str, stopped: Bot) -> None:
        stopped.add(content)
        stopped.add(broken())

        tally, seen = examine(stopped)

        assert [(d.state, d.reason) for d in seen] == [("unreadable", reason), ("repairable", None)]
        assert tally.states["unreadable"] == 1

    @pytest.mark.parametrize("content", [None, "null", "[]"])
    def test_an_empty_conversation_is_fine(self, content: Any, stopped: Bot) -> None:
        stopped.add(content)

        tally, _ = examine(stopped, advisories=True)

        assert tally.states["ok"] == 1
        assert tally.plan is None

    def test_leaves_no_trace(self, stopped: Bot) -> None:
        stopped.add(broken())
        before = stopped.files()

        examine(stopped)

        assert stopped.files() == before

    def test_sees_what_a_killed_bot_left_in_its_log(self, stopped: Bot) -> None:
        kill_while_writing(stopped.path, "UPDATE conversations SET user_id = 'late'")
        stopped.add(broken())
        kill_while_writing(stopped.path, "UPDATE conversations SET user_id = 'late'")
        before = stopped.files()

        _, seen = examine(stopped)

        assert seen[0].session == "late"
        assert {name: stopped.files()[name] for name in ("data_v4.db", "data_v4.db-wal")} == {
            name: before[name] for name in ("data_v4.db", "data_v4.db-wal")
        }

    def test_works_beside_a_running_bot(self, stopped: Bot) -> None:
        stopped.add(broken())

        with running(stopped):
            tally, _ = examine(stopped)

        assert tally.states["repairable"] == 1

    def test_only_one_session_on_request(self, stopped: Bot) -> None:
        stopped.add(broken(), session="one")
        stopped.add(broken(), session="two")
        stopped.add(broken(), session="two'; --")

        assert examine(stopped, session="two")[0].conversations == 1
        assert examine(stopped, session="two'; --")[0].conversations == 1
        assert examine(stopped, session="none")[0].conversations == 0

    def test_the_same_content_has_the_same_plan(self, stopped: Bot) -> None:
        stopped.add(broken())
        plan = examine(stopped)[0].plan

        assert plan is not None
        assert len(plan) == 8
        assert examine(stopped)[0].plan == plan
        stopped.add(healthy())
        assert examine(stopped)[0].plan == plan
        stopped.add(broken())
        assert examine(stopped)[0].plan != plan

    def test_a_plan_says_whether_advisories_are_mended(self, stopped: Bot) -> None:
        stopped.add([*broken(), {**says("hello"), "tool_calls": []}])

        assert examine(stopped)[0].plan != examine(stopped, advisories=True)[0].plan

    def test_tells_how_far_it_is(self, stopped: Bot) -> None:
        for _ in range(3):
            stopped.add(healthy(), session="one")
        stopped.add(healthy(), session="two")
        steps: list[tuple[int, int]] = []

        examine(stopped, session="one", advance=lambda done, total: steps.append((done, total)))

        assert steps == [(1, 3), (2, 3), (3, 3)]


class TestMending:
    def test_mends_what_is_broken_after_a_backup(self, stopped: Bot) -> None:
        stopped.add(healthy())
        stopped.add(broken())
        stopped.add("[")
        before = stopped.rows()

        mended = mend(stopped)

        assert stopped.history("conversation-1") == [
            *(user("hi"), declares("a"), result("a", NEUTRAL_RESULT), says("sorry"))
        ]
        assert mended.tally.to_dict() | {"ok": 2, "repairable": 0, "violations": 0} == (
            mended.after.to_dict()
        )
        assert mended.backup is not None
        assert mended.backup.name == f"data_v4.db.before-{mended.tally.plan}"
        assert mended.backup.parent == stopped.path.parent
        assert Bot(mended.backup).rows() == before
        assert set(stopped.files()) == {"data_v4.db", mended.backup.name}
        assert examine(stopped)[0].plan is None

    def test_changes_no_other_row_and_no_other_column(self, stopped: Bot) -> None:
        stopped.add(healthy())
        stopped.add(broken(), name="sick")
        stopped.add(b'["\xff"]')
        before = stopped.rows()
        with closing(sqlite3.connect(stopped.path)) as connection:
            info = connection.execute("PRAGMA table_info(conversations)").fetchall()
        at = [name for _, name, *_ in info].index("content")

        mend(stopped)

        after = stopped.rows()
        assert after[0] == before[0]
        assert after[2] == before[2]
        assert after[1][:at] + after[1][at + 1 :] == before[1][:at] + before[1][at + 1 :]

    def test_messages_that_were_right_keep_their_very_text(self, stopped: Bot) -> None:
        texts = [
            '{"role":"user",  "content":"\\u5929\\u6c14 caf\\u00e9 ü"}',
            '{"role": "_checkpoint", "content": {"id": "c-1"}, "unknown": [1.0, 1e400, NaN, -0]}',
            '{"content": [{"type": "image_url", "image_url": {"url": "A\\/B"}}],"role":"user"}',
            json.dumps(declares("a")),
            '{"twice": 1, "twice": 2, "role": "user", "content": "\\ud83d"}',
        ]
        name = stopped.add("[ " + "\n,\t".join([*texts[:4], "null", texts[4]]) + " ]\n")

        mend(stopped)

        neutral = {"role": "tool", "tool_call_id": "a", "content": NEUTRAL_RESULT}
        added = json.dumps(neutral)
        assert stopped.text(name) == f"[{', '.join([*texts[:4], added, texts[4]])}]"

    def test_what_astrbot_wrote_is_written_as_astrbot_writes(self, stopped: Bot) -> None:
        name = stopped.add([user("天气 😀"), *broken()])

        mend(stopped)

        assert stopped.text(name) == json.dumps(stopped.history(name))

    def test_checkpoints_stay(self, stopped: Bot) -> None:
        mark = {"role": "_checkpoint", "content": {"id": "1"}}
        name = stopped.add([user("hi"), declares("a"), mark, result("a"), result("b"), mark])

        mend(stopped)

        assert stopped.history(name) == [user("hi"), declares("a"), mark, result("a"), mark]

    def test_nothing_to_mend_leaves_no_trace(self, stopped: Bot) -> None:
        stopped.add(healthy())
        stopped.add("[")
        before = stopped.files()

        mended = mend(stopped)

        assert mended.backup is None
        assert stopped.files() == before

    def test_twice_is_once(self, stopped: Bot) -> None:
        stopped.add(broken())
        mend(stopped)
        before = stopped.files()

        assert mend(stopped).backup is None
        assert stopped.files() == before

    def test_only_one_session_on_request(self, stopped: Bot) -> None:
        one, two = stopped.add(broken(), session="one"), stopped.add(broken(), session="two")

        mended = mend(stopped, session="one")

        assert mended.tally.conversations == 1
        assert len(stopped.history(one)) == 4
        assert stopped.history(two) == broken()

    def test_advisories_are_mended_on_request(self, stopped: Bot) -> None:
        call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{oops"}}
        declaration = {"role": "assistant", "content": None, "tool_calls": [call]}
        name = stopped.add([user("hi"), declaration, result("a")])

        assert mend(stopped).backup is None
        mended = mend(stopped, advisories=True)

        assert stopped.history(name)[1]["tool_calls"][0]["function"]["arguments"] == "{}"
        assert mended.tally.advisories == 1
        assert mended.after.advisories == 0

    def test_the_plan_of_a_dry_run_is_carried_out(self, stopped: Bot) -> None:
        stopped.add(broken())

        assert mend(stopped, plan=examine(stopped)[0].plan).backup is not None

    def test_a_plan_that_no_longer_fits_changes_nothing(self, stopped: Bot) -> None:
        stopped.add(broken())
        plan = examine(stopped)[0].plan
        stopped.add(broken())
        before = stopped.files()

        with pytest.raises(DatabaseError, match=f"^plan {plan} does not fit: the plan is "):
            mend(stopped, plan=plan)

        assert stopped.files() == before

    def test_a_plan_that_has_been_carried_out_changes_nothing(self, stopped: Bot) -> None:
        stopped.add(broken())
        plan = mend(stopped).tally.plan

        with pytest.raises(DatabaseError, match="nothing has to change now"):
            mend(stopped, plan=plan)

    def test_a_backup_never_replaces_another_one(self, stopped: Bot) -> None:
        name = stopped.add(broken())
        first = mend(stopped).backup
        with closing(sqlite3.connect(stopped.path)) as connection, connection:
            connection.execute("UPDATE conversations SET content = ?", (json.dumps(broken()),))

        second = mend(stopped).backup

        assert first is not None
        assert second is not None
        assert second.name == first.name + "-2"
        assert Bot(first).history(name) == Bot(second).history(name) == broken()

    @given(data=st.lists(damaged_lists(), min_size=1, max_size=4))
    @settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_any_damage_is_mended(
        self, data: list[list[Any]], empty_database: Path, tmp_path: Path
    ) -> None:
        bot = Bot(Path(shutil.copy(empty_database, tmp_path / "any.db")))
        names = [bot.add(history) for history in data]

        mended = mend(bot)

        assert mended.after.states["ok"] == len(data)
        assert mended.after.violations == 0
        for name, history in zip(names, data, strict=True):
            said = [m["content"] for m in history if isinstance(m, dict) and m["role"] != "tool"]
            kept = [m["content"] for m in bot.history(name) if m["role"] != "tool"]
            assert [text or "" for text in kept] == [text or "" for text in said]


class TestInUse:
    def test_a_running_bot_is_noticed_even_when_it_does_nothing(self, stopped: Bot) -> None:
        stopped.add(broken())
        before = stopped.rows()

        with running(stopped), pytest.raises(DatabaseError, match="in use; stop AstrBot first"):
            mend(stopped)

        assert stopped.rows() == before
        assert not list(stopped.path.parent.glob("*before*"))

    def test_a_locked_database_cannot_be_looked_at(self, stopped: Bot) -> None:
        with closing(sqlite3.connect(stopped.path, isolation_level=None)) as connection:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            with pytest.raises(DatabaseError, match="in use; stop AstrBot first"):
                examine(stopped)

    def test_of_two_doctors_one_is_sent_away(self, stopped: Bot) -> None:
        stopped.add(broken())
        complaints: list[str] = []

        def second_doctor(_: Diagnosis) -> None:
            with pytest.raises(DatabaseError) as refused:
                mend(stopped)
            complaints.append(str(refused.value))

        mended = mend_database(stopped.path, see=second_doctor)

        assert complaints == [f"{stopped.path}: the database is in use; stop AstrBot first"]
        assert mended.after.states["ok"] == 1

    def test_nobody_writes_between_the_look_and_the_change(self, stopped: Bot) -> None:
        stopped.add(broken())

        def bot_starts(_: Diagnosis) -> None:
            with (
                closing(sqlite3.connect(stopped.path, timeout=0)) as connection,
                pytest.raises(sqlite3.OperationalError, match="locked"),
            ):
                connection.execute("UPDATE conversations SET content = NULL")

        assert mend_database(stopped.path, see=bot_starts).after.states["ok"] == 1


class TestUnusable:
    def test_no_file(self, tmp_path: Path) -> None:
        self.assert_refused(tmp_path / "none.db", "No such file or directory")
        assert not list(tmp_path.iterdir())

    def test_a_folder(self, tmp_path: Path) -> None:
        self.assert_refused(tmp_path, "Is a directory")

    def test_no_database(self, tmp_path: Path) -> None:
        path = tmp_path / "some.db"
        path.write_bytes(b"no database " * 1000)

        self.assert_refused(path, "this is no SQLite database")
        assert path.read_bytes() == b"no database " * 1000

    def test_an_empty_file(self, tmp_path: Path) -> None:
        path = tmp_path / "some.db"
        path.touch()

        self.assert_refused(path, "no table of conversations")

    @pytest.mark.parametrize(
        "table",
        [
            "webchat_conversation (user_id TEXT, cid TEXT, history TEXT)",
            "conversations (conversation_id TEXT, history TEXT)",
        ],
    )
    def test_an_older_schema(self, table: str, tmp_path: Path) -> None:
        path = tmp_path / "data_v3.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"CREATE TABLE {table}")
        before = path.read_bytes()

        self.assert_refused(path, "no table of conversations as AstrBot 4 has it")
        assert path.read_bytes() == before

    def test_a_damaged_file(self, stopped: Bot) -> None:
        stopped.fill([broken()] * 200)
        data = bytearray(stopped.path.read_bytes())
        data[len(data) // 2 : len(data) // 2 + 20_000] = b"\xa5" * 20_000
        stopped.path.write_bytes(data)

        self.assert_refused(stopped.path, "the database is damaged")
        assert stopped.files() == {"data_v4.db": bytes(data)}

    def assert_refused(self, path: Path, reason: str) -> None:
        for work in (examine_database, mend_database):
            with pytest.raises(DatabaseError, match=reason) as refused:
                work(path, see=lambda _: None)
            assert "\n" not in str(refused.value)
            assert refused.value.__cause__ is None


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_nobody_may_read_the_backup_who_may_not_read_the_database(stopped: Bot) -> None:
    stopped.add(broken())
    stopped.path.chmod(0o600)

    mend(stopped)

    modes = {path.name: path.stat().st_mode & 0o777 for path in stopped.path.parent.iterdir()}
    assert len(modes) == 2
    assert set(modes.values()) == {0o600}


class TestFaults:
    def test_a_backup_that_cannot_be_written_stops_everything(
        self, stopped: Bot, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stopped.add(broken())
        before = stopped.files()
        monkeypatch.setattr(database.os, "replace", fail_with(OSError(28, "No space left")))

        with pytest.raises(DatabaseError, match="No space left"):
            mend(stopped)

        assert stopped.files() == before

    def test_a_change_that_fails_takes_all_of_it_back(
        self, stopped: Bot, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = stopped.add(broken()), stopped.add(broken())
        done: list[str] = []
        mend_one = database._mend

        def fail_at_the_second(connection: Any, row: Any, advisories: bool) -> Diagnosis:
            if done:
                raise sqlite3.OperationalError("disk I/O error")
            done.append(row.conversation.id)
            return mend_one(connection, row, advisories)

        monkeypatch.setattr(database, "_mend", fail_at_the_second)
        with pytest.raises(DatabaseError, match="disk I/O error"):
            mend(stopped)

        assert done == [first]
        assert stopped.history(first) == stopped.history(second) == broken()

    @pytest.mark.parametrize("moment", ["_back_up", "_mend"])
    def test_a_kill_leaves_the_database_as_it_was(self, moment: str, stopped: Bot) -> None:
        first, second = stopped.add(broken()), stopped.add(broken())
        script = f"""
            import os, sys
            from pathlib import Path
            from astrbot_tool_guard.doctor import database

            work = database.{moment}

            def work_and_die(*arguments):
                work(*arguments)
                os._exit(9)

            database.{moment} = work_and_die
            database.mend_database(Path(sys.argv[1]), see=id)
        """
        killed = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), stopped.path], cwd=ROOT, check=False
        )

        assert killed.returncode == 9
        assert stopped.history(first) == stopped.history(second) == broken()
        [backup] = stopped.path.parent.glob("*.before-????????")
        assert Bot(backup).rows() == stopped.rows()
        assert mend(stopped).after.states["ok"] == 2


def test_memory_does_not_grow_with_the_number_of_conversations(
    empty_database: Path, tmp_path: Path
) -> None:
    history = [*broken(), user("x" * 2000)]

    def peak(conversations: int) -> int:
        bot = Bot(Path(shutil.copy(empty_database, tmp_path / f"{conversations}.db")))
        bot.fill([history] * conversations)
        tracemalloc.start()
        try:
            assert mend(bot).after.states["ok"] == conversations
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(10)  # whatever is cached at the first use
    assert peak(400) < peak(40) + 100_000


def fail_with(error: Exception) -> Any:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@contextmanager
def running(bot: Bot) -> Iterator[None]:
    """Hold the database as a bot does that has been started and does nothing."""
    with closing(sqlite3.connect(bot.path)) as connection:
        connection.execute("SELECT count(*) FROM conversations").fetchone()
        yield


def kill_while_writing(path: Path, statement: str) -> None:
    """Run a statement in a process that ends without closing the database."""
    script = (
        "import os, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1])\n"
        "connection.execute(sys.argv[2])\n"
        "connection.commit()\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", script, path, statement], check=True)
