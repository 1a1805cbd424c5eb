"""The answers to the commands: right, short enough for a phone, and harmless."""

from __future__ import annotations

import logging
import re
import string
import unicodedata
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

import pytest

from astrbot_tool_guard.chat.chat import Chat
from astrbot_tool_guard.chat.commands import Commands
from astrbot_tool_guard.chat.doctor_commands import DoctorCommands
from astrbot_tool_guard.core.calls.verdict import Reason
from astrbot_tool_guard.core.messages.advisories import AdvisoryAction, AdvisoryKind
from astrbot_tool_guard.core.messages.repair import Action
from astrbot_tool_guard.core.model import ProblemKind, Rule
from astrbot_tool_guard.journal.counts import Counts
from astrbot_tool_guard.journal.events import Event, IncidentKind
from astrbot_tool_guard.journal.journal import Journal
from astrbot_tool_guard.settings.sessions import SessionOverrides
from astrbot_tool_guard.settings.settings import JournalSettings, Origin, Settings
from astrbot_tool_guard.settings.specs import MODE_SPECS
from astrbot_tool_guard.texts import catalogue, texts

from ..journal.events import attempt, incident

NOW = 1_000_000.0
SESSION = "qq:FriendMessage:1"
MAX_LINES = 24
MAX_CHARACTERS = 1200
MAX_LINE = 260


@dataclass(frozen=True)
class Seam:
    name: str
    attached: bool = True
    covered_by: str | None = None
    problem: str | None = None
    put_back: int = 0


class Console:
    """The commands over real settings, sessions, journal and tally."""

    def __init__(self, path: Path, *, journal: JournalSettings) -> None:
        self.settings = Settings(providers={"src/model": {"request_guard": "observe"}})
        self.sessions = SessionOverrides()
        self.tally = Counts()
        self.journal = Journal(path, journal, logging.getLogger("test"), clock=lambda: NOW)
        self.seams: list[Seam] = [Seam("sdk request"), Seam("agent step")]
        self.commands = Commands(
            settings=lambda: self.settings,
            sessions=self.sessions,
            journal=self.journal,
            doctor=cast("DoctorCommands", None),  # see test_doctor_chat
            tally=self.tally,
            seams=lambda: self.seams,
            versions=lambda: {"": "1.0.0", "AstrBot": "4.29.3", "openai": "3.57.0"},
        )

    def emit(self, *events: Event) -> None:
        for event in events:
            self.tally.observe(event)
            self.journal.observe(event)

    async def ask(self, line: str, language: texts.Language = "en", **chat: Any) -> str:
        name, _, words = line.partition(" ")
        command = getattr(self.commands, name)
        takes_words = name in {"set", "log", "show", "unknown"}
        here = Chat(**{"session": SESSION, "language": language, **chat})
        return await (command(here, words) if takes_words else command(here))


@pytest.fixture
async def console(tmp_path: Path) -> AsyncIterator[Console]:
    console = Console(tmp_path / "journal.sqlite3", journal=JournalSettings())
    await console.journal.open()
    yield console
    await console.journal.close()


@pytest.fixture
def without_journal(tmp_path: Path) -> Console:
    return Console(tmp_path / "journal.sqlite3", journal=JournalSettings(enabled=False))


class TestStatus:
    async def test_it_says_what_is_in_force_and_why(self, console):
        await console.sessions.set(SESSION, "normalize_arguments", True)
        assert await console.ask("status", provider="src/model") == "\n".join(
            [
                "Tool Call Guard 1.0.0: on here (global)",
                "request_guard: observe (provider)",
                "tool_argument_validation: structural (global)",
                "retry_invalid_stream: true (global)",
                "stream_transport: auto (global)",
                "normalize_arguments: true (this session)",
                "AstrBot 4.29.3 · openai 3.57.0",
                "Attached: sdk request, agent step",
                "Since start: none",
                "Last day: none",
            ]
        )

    async def test_it_says_so_in_chinese(self, console):
        console.settings = Settings(enabled=False)
        status = await console.ask("status", "zh")
        assert status.startswith(
            "工具调用守卫 1.0.0：本会话停用（全局）\nrequest_guard：block（全局）"
        )

    async def test_the_reason_for_being_off_is_the_level_that_decides(self, console):
        console.settings = Settings(enabled=False, providers={"p": {"enabled": True}})
        assert "off here (global)" in await console.ask("status")
        assert "on here (provider)" in await console.ask("status", provider="p")
        await console.ask("off")
        assert "off here (this session)" in await console.ask("status", provider="p")

    async def test_each_seam_is_named_with_what_became_of_it(self, console):
        console.seams += [
            Seam("provider errors", covered_by="data.plugins.other.main"),
            Seam("provider stream", attached=False, problem="missing"),
            Seam("model answers", attached=False),
            Seam("provider fallback", put_back=2),
        ]
        status = await console.ask("status")
        assert "Attached: sdk request, agent step\n" in status
        assert "provider errors: attached, covered by data.plugins.other.main" in status
        assert "provider stream: not attached, not in this AstrBot" in status
        assert "model answers: not attached, taken off by another plugin" in status
        assert "provider fallback: taken off 2 times, put back" in status

    async def test_it_counts_since_the_start_and_over_the_last_day(self, console):
        console.emit(
            attempt(started_at=NOW - 90_000),
            attempt(started_at=NOW, outcome="blocked"),
            incident(at=NOW),
            incident(at=NOW - 90_000, kind="response_retried"),
        )
        status = await console.ask("status")
        assert "Since start: requests 2, blocked 1, retried 1" in status
        assert "Last day: requests 1, blocked 1" in status


class TestSwitches:
    async def test_every_setting_can_be_set_to_each_of_its_values(self, console):
        for name, spec in MODE_SPECS.items():
            for value in spec.accepts:
                answer = await console.ask(f"set {name} {value}")
                assert answer == f"This session: {name} = {value}"
                in_force = console.settings.resolve("", console.sessions.get(SESSION))
                assert str(getattr(in_force, name)).lower() == value

    @pytest.mark.parametrize("typed", ["Request-Guard OFF", "  request_guard   off  "])
    async def test_it_takes_what_a_phone_makes_of_a_key(self, console, typed):
        assert await console.ask(f"set {typed}") == "This session: request_guard = off"

    @pytest.mark.parametrize("typed", ["request_guard", "request_guard repairs", "enabled maybe"])
    async def test_a_wrong_value_is_answered_with_the_right_ones(self, console, typed):
        assert "takes: " in await console.ask(f"set {typed}")
        assert console.sessions.get(SESSION) is None

    async def test_a_wrong_key_is_answered_with_every_key(self, console):
        for typed in ("", "nope 1", "keep_days 3"):
            answer = await console.ask(f"set {typed}")
            assert all(name in answer for name in MODE_SPECS)
        assert "Usage: !toolguard set" in await console.ask("set", prefix="!")

    async def test_a_change_that_is_not_stored_says_so(self, console):
        async def full(key: str, value: object) -> None:
            raise OSError("disk full")

        console.sessions._save = full
        for command in ("off", "on", "set request_guard off", "reset"):
            assert "could not be stored" in await console.ask(command)

    async def test_reset_says_when_there_was_nothing(self, console):
        assert await console.ask("reset") == "This session has no settings of its own."


class TestRecords:
    async def test_log_shows_time_what_tool_and_count(self, console):
        console.emit(
            incident(kind="response_degraded", tools=("get_weather", "get_time"), problems=("x y",))
        )
        (line,) = (await console.ask("log")).splitlines()
        assert line.startswith("#1 ")
        assert line.endswith("invalid tool call not run · get_weather · x y (+1)")

    @pytest.mark.parametrize(("typed", "lines"), [("", 5), ("1", 1), ("20", 20)])
    async def test_log_shows_as_many_as_asked_for(self, console, typed, lines):
        console.emit(*[incident()] * 30)
        assert len((await console.ask(f"log {typed}")).splitlines()) == lines

    @pytest.mark.parametrize("typed", ["0", "21", "-1", "many", "9" * 6000])
    async def test_log_says_what_it_takes(self, console, typed):
        assert await console.ask(f"log {typed}") == "Usage: /toolguard log [1-20]"

    async def test_show_has_the_shape_of_the_arguments_and_not_the_arguments(self, console):
        console.emit(
            incident(
                kind="response_degraded",
                tools=("get_weather",),
                problems=("missing_required route.unit",),
                outcome="not_run",
                arguments=('{"city": "Oslo"}',),
            )
        )
        lines = (await console.ask("show #1")).splitlines()
        assert lines[1:] == [
            f"Session: {SESSION}",
            "Model: src/model · model",
            "Problem: route.unit: a required property is missing",
            'Tool get_weather: {"city": string(4)}',
            "Outcome: not run",
        ]

    @pytest.mark.parametrize("typed", ["", "abc", "-1", "1 2"])
    async def test_show_says_what_it_takes(self, console, typed):
        assert "Usage: /toolguard show ID" in await console.ask(f"show {typed}")

    @pytest.mark.parametrize("typed", ["7", "9" * 6000])
    async def test_show_says_when_there_is_no_such_number(self, console, typed):
        assert "There is no incident" in await console.ask(f"show {typed}")

    async def test_explain_translates_the_rules_and_tells_what_helps(self, console):
        console.emit(incident(problems=("unanswered_call at message 4, call 0", "orphan_result")))
        english, chinese = await console.ask("explain"), await console.ask("explain", "zh")
        assert "Problem: messages[4]: a tool call has no result" in english
        assert "Problem: a tool result belongs to no call" in english
        assert "/toolguard set request_guard repair" in english
        assert "问题：消息 messages[4]：有一个工具调用没有结果" in chinese

    async def test_explain_remembers_across_a_restart(self, console):
        console.emit(incident())
        console.tally._blocked.clear()
        assert "a tool result belongs to no call" in await console.ask("explain")

    async def test_explain_works_without_a_journal(self, without_journal):
        without_journal.emit(incident())
        assert "a tool result belongs to no call" in await without_journal.ask("explain")

    @pytest.mark.parametrize("command", ["log", "show 1"])
    async def test_without_a_journal_the_others_say_so(self, without_journal, command):
        assert "There is no journal" in await without_journal.ask(command)


class TestOnAPhone:
    """Whatever happened, an answer is bounded and holds nothing that acts."""

    HUGE = "<b>@all</b>\u202e\x07[CQ:at,qq=all] " + "x" * 5000

    @pytest.fixture
    async def worst(self, console: Console, tmp_path: Path) -> AsyncIterator[Console]:
        captured = Console(
            tmp_path / "captured.sqlite3", journal=JournalSettings(capture_arguments=True)
        )
        await captured.journal.open()
        for kind in catalogue.KINDS:
            captured.emit(
                *[
                    incident(
                        kind=kind,
                        provider=self.HUGE,
                        model=self.HUGE,
                        tools=(self.HUGE,) * 50,
                        problems=("unanswered_call at message 1000000, call 10000", self.HUGE) * 50,
                        outcome=self.HUGE,
                        arguments=(f'{{"note": "{"@all <b> " * 500}"}}',) * 50,
                    )
                ]
                * 20
            )
        for number in range(100):
            await captured.sessions.set(f"{self.HUGE}{number}", "request_guard", "repair")
            await captured.sessions.set(f"{self.HUGE}{number}", "enabled", False)
        captured.seams = [Seam(f"name of seam {n}", covered_by=self.HUGE) for n in range(3)]
        captured.seams += [Seam(f"seam number {n}") for n in range(10)]
        captured.emit(*[attempt()] * 10)
        yield captured
        await captured.journal.close()

    @pytest.mark.parametrize("language", ["zh", "en"])
    @pytest.mark.parametrize(
        "command",
        ["status", "on", "off", "reset", "set", "set request_guard x", "sessions", "log",
         "log 20", "show 1", "explain", "unknown", f"unknown {HUGE}", f"set {HUGE} x"],
    )  # fmt: skip
    async def test_every_answer_is_short_and_harmless(self, worst, command, language):
        answer = await worst.ask(command, language)
        lines = answer.splitlines()
        assert len(lines) <= MAX_LINES
        assert max(map(len, lines)) <= MAX_LINE
        if command != "log 20":  # asked for in so many lines
            assert len(answer) <= MAX_CHARACTERS
        assert not {unicodedata.category(c) for c in answer.replace("\n", "")} & {"Cc", "Cf"}
        assert not any(mark in answer for mark in ("<b>", "@all", "[CQ"))


class TestCatalogue:
    TABLES = (
        catalogue.ANSWERS,
        catalogue.PROBLEMS,
        catalogue.KINDS,
        catalogue.OUTCOMES,
        catalogue.COUNTERS,
        catalogue.SUBCOMMANDS,
        catalogue.SEAM_PROBLEMS,
        catalogue.ORIGINS,
    )

    @pytest.mark.parametrize(
        ("table", "closed_set"),
        [
            (catalogue.RULES, Rule),
            (catalogue.KINDS, IncidentKind),
            (catalogue.ORIGINS, Origin),
        ],
    )
    def test_a_closed_set_is_named_whole(self, table, closed_set):
        assert set(table) == set(get_args(closed_set))

    @pytest.mark.parametrize(
        "closed_set", [Rule, ProblemKind, Reason, Action, AdvisoryKind, AdvisoryAction]
    )
    def test_every_problem_and_every_change_has_a_text(self, closed_set):
        assert set(get_args(closed_set)) <= set(catalogue.PROBLEMS)

    def test_each_text_has_the_same_placeholders_in_both_languages(self):
        for table in self.TABLES:
            for text in table.values():
                fields = [
                    {name for _, name, _, _ in string.Formatter().parse(version) if name}
                    for version in text
                ]
                assert fields[0] == fields[1]

    def test_each_chinese_text_is_chinese_and_each_english_one_is_not(self):
        for table in self.TABLES:
            for text in table.values():
                chinese, english = (re.sub(r"\{\w+\}", "", version) for version in text)
                assert not texts._HAN.search(english)
                assert texts._HAN.search(chinese) or not re.search(r"[a-z]", english)

    def test_no_text_is_there_for_nothing(self):
        folder = Path(texts.__file__).parents[1]
        sources = [
            folder / name
            for name in ("chat/commands.py", "chat/doctor_commands.py", "texts/texts.py")
        ]
        sources.append(folder.parent / "main.py")
        said = "".join(source.read_text("utf-8") for source in sources)
        assert [key for key in catalogue.ANSWERS if f'"{key}"' not in said] == []
