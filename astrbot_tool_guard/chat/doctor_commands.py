"""The doctor in a chat: look first, then carry out exactly what was shown.

The rule: `doctor` and `doctor all` change nothing; they end with the command that
would. What is said of a conversation is its session, what is wrong and how much of
it, never a word of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping

from ..doctor.doctor import Applied, Diagnosis, Doctor, Examination, Undone
from ..texts.catalogue import PROBLEMS
from ..texts.texts import Language, clean, listed, say, word
from .chat import Chat

MAX_FINDINGS = 8
MAX_KINDS = 6
_ADVISORIES = frozenset({"--advisories", "advisories"})


class DoctorCommands:
    """`doctor`, `doctor all`, `doctor apply ID` and `doctor undo`.

    Args:
        doctor: Does the work.
        current: Returns the id of a session's current conversation, if it has one.
    """

    def __init__(self, doctor: Doctor, current: Callable[[str], Awaitable[str | None]]) -> None:
        self._doctor = doctor
        self._current = current

    async def answer(self, chat: Chat, words: str) -> str:
        """Answer what was typed after `doctor`."""
        typed = words.lower().split()
        advisories = any(each in _ADVISORIES for each in typed)
        match [each for each in typed if each not in _ADVISORIES]:
            case []:
                return await self._examine_current(chat, advisories)
            case ["all"]:
                found = await self._doctor.examine(advisories=advisories)
                return _lines(_examined_all(found, chat, advisories))
            case ["apply", plan]:
                return await self._apply(chat, plan)
            case ["undo"]:
                return _lines(_undone(await self._doctor.undo(chat.session), chat.language))
            case _:
                return say("doctor_usage", chat.language, command=chat.command)

    async def _examine_current(self, chat: Chat, advisories: bool) -> str:
        conversation = await self._current(chat.session)
        if not conversation:
            return say("no_conversation", chat.language)
        found = await self._doctor.examine(conversation=conversation, advisories=advisories)
        if not found.tally.conversations:
            return say("no_conversation", chat.language)
        if not found.findings:
            return say("healthy", chat.language)
        return _lines(_examined_one(found, chat, advisories))

    async def _apply(self, chat: Chat, plan: str) -> str:
        applied = await self._doctor.apply(plan)
        if applied is None:
            return say("no_such_plan", chat.language, id=clean(plan, 20), command=chat.command)
        return _lines(_applied(applied, chat))


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _examined_one(found: Examination, chat: Chat, advisories: bool) -> Iterable[str]:
    (diagnosis,) = found.findings
    yield _state(diagnosis, chat.language)
    if diagnosis.changes:
        yield say("would_change", chat.language, changes=_counted(diagnosis.actions(), chat))
    yield from _advisories(found, chat, advisories, scope="")
    yield from _next(found, chat)


def _examined_all(found: Examination, chat: Chat, advisories: bool) -> Iterable[str]:
    tally = found.tally
    if not found.findings:
        yield say("all_healthy", chat.language, count=tally.conversations)
        return
    yield say(
        "examined",
        chat.language,
        count=tally.conversations,
        ok=tally.states["ok"],
        repairable=tally.states["repairable"],
        unreadable=tally.states["unreadable"],
    )
    broken = [each for each in found.findings if each.state != "ok"]
    by_session: dict[str, list[Diagnosis]] = {}
    for diagnosis in broken:
        by_session.setdefault(diagnosis.session, []).append(diagnosis)
    for session, findings in list(by_session.items())[:MAX_FINDINGS]:
        yield _finding(session, findings, chat.language)
    if len(by_session) > MAX_FINDINGS:
        yield say("more", chat.language, count=len(by_session) - MAX_FINDINGS)
    changes: Counter[str] = Counter()
    for diagnosis in broken:
        changes.update(diagnosis.actions())
    if changes:
        yield say("would_change", chat.language, changes=_counted(changes, chat))
    yield from _advisories(found, chat, advisories, scope=" all")
    yield from _next(found, chat)


def _finding(session: str, findings: list[Diagnosis], language: Language) -> str:
    if len(findings) == 1:
        text = _state(findings[0], language)
    else:
        states = Counter(each.state for each in findings)
        text = say(
            "in_session",
            language,
            repairable=states["repairable"],
            unreadable=states["unreadable"],
        )
    return say("finding", language, session=clean(session, 60), text=text)


def _state(diagnosis: Diagnosis, language: Language) -> str:
    match diagnosis.state:
        case "ok":
            return say("healthy", language)
        case "repairable":
            # What may be refused is no violation, but it is what the plan would mend.
            problems = len(diagnosis.violations) or len(diagnosis.advisories)
            return say("repairable", language, count=problems)
        case "unreadable":
            return say("unreadable", language, reason=clean(diagnosis.reason or "?", 100))


def _advisories(found: Examination, chat: Chat, included: bool, scope: str) -> Iterable[str]:
    kinds = Counter(each.kind for diagnosis in found.findings for each in diagnosis.advisories)
    if kinds and not included:
        yield say("advisories", chat.language, found=_counted(kinds, chat))
        yield say("advisories_too", chat.language, command=chat.command, scope=scope)


def _next(found: Examination, chat: Chat) -> Iterable[str]:
    if found.plan is not None:
        yield say("to_apply", chat.language, command=chat.command, plan=found.plan)


def _counted(counts: Mapping[str, int], chat: Chat) -> str:
    named = [
        f"{word(PROBLEMS, name, chat.language)} ×{count}"
        for name, count in list(counts.items())[:MAX_KINDS]
    ]
    rest = len(counts) - MAX_KINDS
    if rest > 0:
        named.append(say("more", chat.language, count=rest))
    return listed(named, chat.language)


def _applied(applied: Applied, chat: Chat) -> Iterable[str]:
    if applied.repaired:
        yield say(
            "applied",
            chat.language,
            count=applied.repaired,
            before=applied.violations_before,
            after=applied.violations_after,
            command=chat.command,
        )
    else:
        yield say("none_applied", chat.language)
    yield from _left_alone(applied.moved_on, applied.gone, chat.language)
    if applied.stopped:
        yield say("no_backup", chat.language)


def _undone(undone: Undone | None, language: Language) -> Iterable[str]:
    if undone is None:
        yield say("nothing_to_undo", language)
        return
    if undone.restored:
        yield say("undone", language, count=undone.restored)
    else:
        yield say("none_undone", language)
    yield from _left_alone(undone.moved_on, undone.gone, language)


def _left_alone(moved_on: int, gone: int, language: Language) -> Iterable[str]:
    if moved_on:
        yield say("moved_on", language, count=moved_on)
    if gone:
        yield say("gone", language, count=gone)
