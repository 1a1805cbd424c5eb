"""What an administrator can ask and change in a chat, and the answers.

The rule: an answer is text in the chat's language, short enough for a phone, and
every command answers, whatever was typed. Nothing here knows AstrBot's events:
`main.py` says who asks and where, and sends what comes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from ..journal.counts import Counts
from ..journal.events import Incident
from ..journal.journal import Journal
from ..journal.store import Entry
from ..settings.sessions import SessionOverrides
from ..settings.settings import Settings
from ..settings.specs import MODE_SPECS
from ..texts.catalogue import COUNTERS, KINDS, ORIGINS, OUTCOMES, SEAM_PROBLEMS, SUBCOMMANDS
from ..texts.texts import Language, clean, listed, problem_text, say, word
from .chat import Chat
from .doctor_commands import DoctorCommands

LOG_LINES = 5
MAX_LOG_LINES = 20
MAX_SESSIONS = 10
MAX_PROBLEMS = 5
MAX_TOOLS = 3
MAX_SHAPE = 160


class SeamLine(Protocol):
    """What `status` reads of a seam."""

    @property
    def name(self) -> str:
        """The seam's name."""
        ...

    @property
    def attached(self) -> bool:
        """Whether our wrapper is in force."""
        ...

    @property
    def covered_by(self) -> str | None:
        """The module whose wrapper lies on top of ours."""
        ...

    @property
    def problem(self) -> str | None:
        """What is wrong, if anything."""
        ...

    @property
    def put_back(self) -> int:
        """How often it was taken off by somebody and put back by us."""
        ...


class Commands:
    """The command group, without AstrBot.

    Args:
        settings: Returns the settings in force.
        sessions: The overrides of single sessions.
        journal: What is remembered.
        doctor: Answers `doctor` and what follows it.
        tally: What was counted since the start.
        seams: Returns what became of each seam.
        versions: Returns versions by name, as `status` shows them; `""` is the plugin's.
    """

    def __init__(
        self,
        *,
        settings: Callable[[], Settings],
        sessions: SessionOverrides,
        journal: Journal,
        doctor: DoctorCommands,
        tally: Counts,
        seams: Callable[[], Iterable[SeamLine]],
        versions: Callable[[], Mapping[str, str]],
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._journal = journal
        self._doctor = doctor
        self._tally = tally
        self._seams = seams
        self._versions = versions

    async def status(self, chat: Chat) -> str:
        """Say what is in force here and why, and what happened so far."""
        settings, overrides = self._settings(), self._sessions.get(chat.session)
        modes = settings.resolve(chat.provider, overrides)
        why = {
            name: word(ORIGINS, settings.origin(name, chat.provider, overrides), chat.language)
            for name in MODE_SPECS
        }
        versions = self._versions()
        version = versions.get("", "")
        lines = [
            say(
                "on_here" if modes.enabled else "off_here",
                chat.language,
                version=version and f" {version}",
                why=why["enabled"],
            )
        ]
        for name in MODE_SPECS:
            if name != "enabled":
                value = _shown(getattr(modes, name))
                lines.append(say("mode", chat.language, name=name, value=value, why=why[name]))
        lines.append(" · ".join(f"{name} {v}" for name, v in versions.items() if name))
        lines += self._seam_lines(chat.language)
        lines.append(self._counted("since_start", self._tally.counts(), chat.language))
        day = await self._journal.counts_of_last_day()
        if day is not None:
            lines.append(self._counted("last_day", day, chat.language))
        else:
            lines.append(say("no_journal", chat.language))
        return "\n".join(lines)

    async def on(self, chat: Chat) -> str:
        """Switch the guard on in this session."""
        stored = await self._set(chat, "enabled", True)
        return "\n".join([say("switched_on", chat.language), *stored])

    async def off(self, chat: Chat) -> str:
        """Switch the guard off in this session."""
        stored = await self._set(chat, "enabled", False)
        return "\n".join([say("switched_off", chat.language, command=chat.command), *stored])

    async def reset(self, chat: Chat) -> str:
        """Drop all overrides of this session."""
        try:
            there_were = await self._sessions.reset(chat.session)
        except Exception:
            return "\n".join([say("reset", chat.language), say("not_stored", chat.language)])
        return say("reset" if there_were else "nothing_to_reset", chat.language)

    async def set(self, chat: Chat, words: str) -> str:
        """Change one setting for this session.

        Args:
            chat: Where.
            words: The key and the value as typed.
        """
        key, _, value = words.strip().partition(" ")
        name = key.lower().replace("-", "_")
        spec = MODE_SPECS.get(name)
        if spec is None:
            first = say("no_such_key", chat.language, name=clean(key, 40))
            usage = say("set_usage", chat.language, command=chat.command)
            return "\n".join([first if key else usage, *_choices(chat.language)])
        try:
            usable = spec.read(value)
        except ValueError:
            return say("bad_value", chat.language, name=name, values=", ".join(spec.accepts))
        stored = await self._set(chat, name, usable)
        return "\n".join([say("set", chat.language, name=name, value=_shown(usable)), *stored])

    async def sessions(self, chat: Chat) -> str:
        """List the sessions with overrides."""
        found = list(self._sessions.all().items())
        if not found:
            return say("no_sessions", chat.language)
        lines = [
            f"{clean(session, 60)}: "
            + ", ".join(f"{name}={_shown(value)}" for name, value in overrides.items())
            for session, overrides in found[:MAX_SESSIONS]
        ]
        if len(found) > MAX_SESSIONS:
            lines.append(say("more", chat.language, count=len(found) - MAX_SESSIONS))
        return "\n".join(lines)

    async def log(self, chat: Chat, words: str = "") -> str:
        """List the last incidents of this session.

        Args:
            chat: Where.
            words: How many, as typed.
        """
        typed = words.strip()[:4]
        count = int(typed) if typed.isdecimal() else 0 if typed else LOG_LINES
        if not 1 <= count <= MAX_LOG_LINES:
            return say("log_usage", chat.language, command=chat.command, most=MAX_LOG_LINES)
        entries = await self._journal.incidents(chat.session, count)
        if not entries:
            return say("no_incidents" if self._journal.working else "no_journal", chat.language)
        return "\n".join(_log_line(entry, chat.language) for entry in entries)

    async def show(self, chat: Chat, words: str) -> str:
        """Show one incident of this session in full.

        Args:
            chat: Where.
            words: Its number, as typed.
        """
        number = words.strip().lstrip("#")
        if not self._journal.working:
            return say("no_journal", chat.language)
        if not number.isdecimal():
            return say("show_usage", chat.language, command=chat.command)
        entry = await self._journal.incident(int(number[:18]))
        if entry is None or entry.session != chat.session:
            return say("no_such_incident", chat.language, id=clean(number, 20))
        return "\n".join(_in_full(entry, chat.language))

    async def explain(self, chat: Chat) -> str:
        """Say why the last request of this session was blocked, and what helps."""
        blocked = self._tally.last_blocked(chat.session)
        blocked = blocked or await self._journal.last_blocked(chat.session)
        if blocked is None:
            return say("not_blocked", chat.language)
        return "\n".join(
            [
                say("explained", chat.language, at=_time(blocked.at)),
                *_problems(blocked, chat.language),
                say(
                    "field_provider",
                    chat.language,
                    provider=clean(blocked.provider, 40),
                    model=clean(blocked.model, 40),
                ),
                say("what_to_do", chat.language, command=chat.command, prefix=chat.prefix),
            ]
        )

    async def doctor(self, chat: Chat, words: str = "") -> str:
        """Examine and mend stored conversations; see `DoctorCommands`."""
        return await self._doctor.answer(chat, words)

    async def unknown(self, chat: Chat, words: str) -> str:
        """Answer a subcommand that is none, or none at all, with the tree.

        Args:
            chat: Where.
            words: What was typed after the group's name.
        """
        typed = words.split()
        lines = [say("unknown", chat.language, name=clean(typed[0], 30))] if typed else []
        lines.append(chat.command)
        lines += [f"  {name} - {word(SUBCOMMANDS, name, chat.language)}" for name in SUBCOMMANDS]
        return "\n".join(lines)

    async def _set(self, chat: Chat, name: str, value: object) -> list[str]:
        """Override a setting; return what is to be said about its keeping."""
        try:
            await self._sessions.set(chat.session, name, value)
        except Exception:
            return [say("not_stored", chat.language)]
        return []

    def _seam_lines(self, language: Language) -> list[str]:
        plain: list[str] = []
        lines: list[str] = []
        for seam in self._seams():
            if not seam.attached:
                problem = word(SEAM_PROBLEMS, seam.problem or "taken_off", language)
                lines.append(say("detached", language, name=seam.name, problem=problem))
            elif seam.covered_by:
                by = clean(seam.covered_by, 60)
                lines.append(say("covered", language, name=seam.name, by=by))
            elif seam.put_back:
                lines.append(say("put_back", language, name=seam.name, count=seam.put_back))
            else:
                plain.append(seam.name)
        names = ", ".join(plain) or say("nothing", language)
        return [say("attached", language, names=names), *lines]

    @staticmethod
    def _counted(key: str, counts: Mapping[str, int], language: Language) -> str:
        shown = [
            f"{word(COUNTERS, name, language)} {counts[name]}"
            for name in COUNTERS
            if counts.get(name)
        ]
        return say(key, language, counts=listed(shown, language) or say("nothing", language))


def _choices(language: Language) -> list[str]:
    return [
        say("choices", language, name=name, values=", ".join(spec.accepts))
        for name, spec in MODE_SPECS.items()
    ]


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _time(at: float) -> str:
    return time.strftime("%m-%d %H:%M", time.localtime(at))


def _log_line(entry: Entry, language: Language) -> str:
    parts = [f"#{entry.id} {_time(entry.at)} {word(KINDS, entry.kind, language)}"]
    parts += [clean(tool, 30) for tool in entry.tools[:1]]
    parts += [problem_text(problem, language) for problem in entry.problems[:1]]
    rest = max(len(entry.problems), len(entry.tools)) - 1
    return " · ".join(parts) + (f" (+{rest})" if rest > 0 else "")


def _problems(incident: Incident | Entry, language: Language) -> list[str]:
    lines = [
        say("field_problem", language, value=problem_text(problem, language))
        for problem in incident.problems[:MAX_PROBLEMS]
    ]
    rest = len(incident.problems) - MAX_PROBLEMS
    return [*lines, say("more", language, count=rest)] if rest > 0 else lines


def _in_full(entry: Entry, language: Language) -> list[str]:
    lines = [
        f"#{entry.id} {_time(entry.at)} {word(KINDS, entry.kind, language)}",
        say("field_session", language, value=clean(entry.session, 80)),
        say(
            "field_provider",
            language,
            provider=clean(entry.provider, 40),
            model=clean(entry.model, 40),
        ),
        *_problems(entry, language),
    ]
    captured = entry.arguments or ()
    for at, tool in enumerate(entry.tools[:MAX_TOOLS]):
        # A shape is made of our own words; captured arguments are the model's.
        redacted = captured[at] if at < len(captured) else None
        shape = entry.shapes[at][:MAX_SHAPE] if at < len(entry.shapes) else "?"
        shown = clean(redacted, MAX_SHAPE) if redacted else shape
        lines.append(say("field_tool", language, name=clean(tool, 40), shape=shown))
    if len(entry.tools) > MAX_TOOLS:
        lines.append(say("more", language, count=len(entry.tools) - MAX_TOOLS))
    lines.append(say("field_outcome", language, value=word(OUTCOMES, entry.outcome, language)))
    return lines
