"""`python -m astrbot_tool_guard doctor DB`: what it prints and how it ends."""

from __future__ import annotations

import io
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from astrbot_tool_guard.__main__ import main
from astrbot_tool_guard.cli.terminal import ProgressBar
from astrbot_tool_guard.doctor import database
from tests.core.messages.histories import says, user
from tests.doctor.conftest import Bot, broken, empty_database, healthy, stopped

__all__ = ["empty_database", "stopped"]  # fixtures

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], stopped: Bot) -> Any:
    """Run the command on the stopped bot; return its exit code, output and complaints."""

    def run_command(*options: str) -> tuple[int, str, str]:
        code = main(["doctor", str(stopped.path), *options])
        output, complaints = capsys.readouterr()
        return code, output, complaints

    return run_command


class TestDryRun:
    def test_a_healthy_database_is_fine(self, run: Any, stopped: Bot) -> None:
        stopped.add(healthy())

        assert run() == (0, "1 conversation: 1 ok\n", "")

    def test_an_empty_database_is_fine(self, run: Any) -> None:
        assert run() == (0, "0 conversations: none\n", "")

    def test_prints_a_line_for_each_finding_and_the_plan(self, run: Any, stopped: Bot) -> None:
        stopped.add(healthy())
        stopped.add(broken(), session="qq:GroupMessage:7")
        stopped.add("[")
        stopped.add([user("hi"), {**says("x"), "tool_calls": []}], session="a\x1b[2J\nb")
        before = stopped.files()

        code, output, complaints = run()
        *lines, counts, plan = output.splitlines()

        assert (code, complaints) == (1, "")
        assert lines == [
            "repairable: qq:GroupMessage:7 conversation-1: 1 violation, result_added 1",
            "unreadable: qq:FriendMessage:1 conversation-2: the content is not JSON",
            "ok: a\\x1b[2J\\nb conversation-3: 1 advisory",
        ]
        assert counts == "4 conversations: 2 ok, 1 repairable, 1 unreadable"
        assert plan.startswith("plan ")
        assert plan.endswith(f"then add --apply {plan.split()[1][:8]}")
        assert stopped.files() == before

    def test_json_is_one_object(self, run: Any, stopped: Bot) -> None:
        stopped.add(healthy())
        stopped.add(broken())

        code, output, _ = run("--json")
        report = json.loads(output)

        assert code == 1
        assert set(report) == {"conversations", "counts", "plan", "applied"}
        assert [c["state"] for c in report["conversations"]] == ["ok", "repairable"]
        assert report["conversations"][1]["violations"][0]["rule"] == "unanswered_call"
        assert report["conversations"][1]["changes"][0]["action"] == "result_added"
        assert report["counts"]["repairable"] == 1
        assert report["applied"] is False

    def test_json_of_an_empty_database(self, run: Any) -> None:
        code, output, _ = run("--json")

        assert code == 0
        assert json.loads(output)["conversations"] == []

    def test_advisories_alone_are_fine_until_they_are_asked_for(
        self, run: Any, stopped: Bot
    ) -> None:
        stopped.add([user("hi"), {**says("x"), "tool_calls": []}])

        assert run()[0] == 0
        assert run("--advisories")[0] == 1

    def test_one_session(self, run: Any, stopped: Bot) -> None:
        stopped.add(broken(), session="one")
        stopped.add(healthy(), session="two")

        assert run("--session", "two")[:2] == (0, "1 conversation: 1 ok\n")
        assert run("--session", "one")[0] == 1


class TestApply:
    def test_mends_and_says_where_the_old_database_is(self, run: Any, stopped: Bot) -> None:
        stopped.add(broken())

        code, output, complaints = run("--apply")

        [backup] = stopped.path.parent.glob("*.before-*")
        assert (code, complaints) == (0, "")
        assert output.splitlines()[1:] == [
            "1 conversation mended",
            "violations: 1 before, 0 now",
            f"the database as it was: {backup}",
            "1 conversation: 1 ok",
        ]
        assert run()[0] == 0

    def test_json_has_both_counts_and_the_backup(self, run: Any, stopped: Bot) -> None:
        stopped.add(broken())
        plan = json.loads(run("--json")[1])["plan"]

        code, output, _ = run("--json", "--apply", plan)
        report = json.loads(output)

        assert code == 0
        assert report["applied"] is True
        assert report["plan"] == plan
        assert Path(report["backup"]).exists()
        assert (report["counts"]["violations"], report["counts_after"]["violations"]) == (1, 0)

    def test_with_nothing_to_mend_writes_nothing(self, run: Any, stopped: Bot) -> None:
        stopped.add("[")
        before = stopped.files()

        code, output, _ = run("--apply")

        assert code == 1
        assert output.splitlines()[-2:] == [
            "nothing to change",
            "1 conversation: 1 unreadable",
        ]
        assert json.loads(run("--apply", "--json")[1])["backup"] is None
        assert stopped.files() == before

    def test_with_another_plan_changes_nothing(self, run: Any, stopped: Bot) -> None:
        stopped.add(broken())
        before = stopped.files()

        code, output, complaints = run("--apply", "00000000")

        assert (code, output) == (2, "")
        assert complaints.startswith("astrbot_tool_guard: plan 00000000 does not fit: ")
        assert complaints.count("\n") == 1
        assert stopped.files() == before

    def test_advisories_on_request(self, run: Any, stopped: Bot) -> None:
        name = stopped.add([user("hi"), {**says("x"), "tool_calls": []}])

        assert run("--apply", "--advisories")[0] == 0
        assert stopped.history(name) == [user("hi"), says("x")]


class TestUnusable:
    @pytest.mark.parametrize("options", [[], ["--json"], ["--apply"]])
    def test_is_one_line_on_stderr(
        self, options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "some.db"
        path.write_bytes(b"no database" * 100)

        code = main(["doctor", str(path), *options])

        assert code == 2
        assert capsys.readouterr() == (
            "",
            f"astrbot_tool_guard: {path}: this is no SQLite database\n",
        )

    def test_a_database_in_use(
        self, run: Any, stopped: Bot, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(database, "PATIENCE", 0.0)
        stopped.add(broken())

        with closing(sqlite3.connect(stopped.path)) as connection:
            connection.execute("SELECT count(*) FROM conversations").fetchone()
            assert run("--apply") == (
                2,
                "",
                f"astrbot_tool_guard: {stopped.path}: the database is in use; stop AstrBot first\n",
            )

    def test_a_fault_half_way_prints_nothing_but_its_line(self, run: Any, stopped: Bot) -> None:
        stopped.fill([broken()] * 300)
        data = bytearray(stopped.path.read_bytes())
        data[-60_000:-40_000] = b"\xa5" * 20_000
        stopped.path.write_bytes(data)

        code, output, complaints = run()

        assert (code, output) == (2, "")
        assert complaints.endswith("the database is damaged\n")


def test_as_a_process_it_loads_neither_astrbot_nor_the_sdk(stopped: Bot) -> None:
    stopped.add(broken())
    script = (
        "import sys\n"
        "from astrbot_tool_guard.__main__ import main\n"
        "code = main(['doctor', sys.argv[1], '--json'])\n"
        "print(sorted({'astrbot', 'openai', 'wrapt', 'pydantic'} & set(sys.modules)), code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, stopped.path],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )

    assert done.stdout.splitlines()[-1] == "[] 1"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class TestProgressBar:
    def test_appears_only_when_work_takes_long(self) -> None:
        now = [0.0]
        terminal = Terminal()
        bar = ProgressBar(terminal, clock=lambda: now[0])

        bar.advance(1, 4)
        assert terminal.getvalue() == ""
        now[0] = 1.0
        bar.advance(2, 4)
        bar.advance(3, 4)
        assert terminal.getvalue() == "\r[" + "#" * 15 + " " * 15 + "] 2 of 4"
        bar.end()
        assert terminal.getvalue().endswith("\r\x1b[K")

    def test_draws_nothing_where_nobody_looks(self) -> None:
        now = [0.0]
        log = io.StringIO()
        bar = ProgressBar(log, clock=lambda: now[0])
        now[0] = 100.0

        bar.advance(1, 2)
        bar.end()

        assert log.getvalue() == ""
