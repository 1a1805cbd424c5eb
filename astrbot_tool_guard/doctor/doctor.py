"""Find and mend broken stored conversations: look first, change only what was looked at.

A dry run yields a plan. Applying it changes a conversation only while its content
is still what the plan was made from, only after its old content is safe, and only
under the lock that keeps a running turn from saving meanwhile. What has moved on
is left alone and counted. Where conversations are kept is not known here: a store
implements `stored.ConversationStore`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Final, Literal, cast

from ..core.messages.advisories import Advisory
from ..core.messages.history import mend_history
from ..core.model import Change, Violation
from .backups import Backup, Backups
from .stored import ConversationStore, StoredConversation, fingerprint

State = Literal["ok", "repairable", "unreadable"]

MAX_PLANS: Final = 32
"""How many dry runs a doctor remembers; an older plan has to be made again."""

PLAN_ID_LENGTH: Final = 8


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is to be said of one conversation.

    Attributes:
        conversation: AstrBot's conversation id.
        session: The `unified_msg_origin` it belongs to.
        state: `ok` when nothing would change.
        violations: What does not pair.
        advisories: What pairs and may be refused by a provider all the same.
        changes: What a repair would do.
        reason: Why it is unreadable, else `None`.
        before: Fingerprint of the stored content.
        after: Fingerprint of the mended content.
    """

    conversation: str
    session: str
    state: State
    violations: tuple[Violation, ...] = ()
    advisories: tuple[Advisory, ...] = ()
    changes: tuple[Change, ...] = ()
    reason: str | None = None
    before: str = ""
    after: str = ""

    def actions(self) -> dict[str, int]:
        """Return how often a repair would do what."""
        return dict(Counter(change.action for change in self.changes))

    def to_dict(self) -> dict[str, object]:
        """Return the diagnosis as a JSON object."""
        return {
            "conversation": self.conversation,
            "session": self.session,
            "state": self.state,
            "reason": self.reason,
            "violations": [violation.to_dict() for violation in self.violations],
            "advisories": [advisory.to_dict() for advisory in self.advisories],
            "changes": [change.to_dict() for change in self.changes],
        }


def diagnose(
    stored: StoredConversation, *, advisories: bool = False
) -> tuple[Diagnosis, list[object]]:
    """Examine one conversation.

    Args:
        stored: The conversation.
        advisories: Whether what may be refused is mended too.

    Returns:
        The diagnosis, and the mended history where it is repairable.
    """
    mended = mend_history(stored.history, advisories="mend" if advisories else "find")
    reason = stored.problem
    if reason is None and stored.history is not None and not isinstance(stored.history, list):
        reason = mended.violations[0].detail
    if reason is not None:
        return Diagnosis(stored.id, stored.session, "unreadable", reason=reason), []
    history = cast("list[object]", mended.history or [])
    diagnosis = Diagnosis(
        conversation=stored.id,
        session=stored.session,
        state="repairable" if mended.changes else "ok",
        violations=mended.violations,
        advisories=mended.advisories,
        changes=mended.changes,
        before=stored.fingerprint() if mended.changes else "",
        after=fingerprint(history) if mended.changes else "",
    )
    return diagnosis, history


@dataclass(slots=True)
class Tally:
    """Adds up diagnoses one at a time, so that any number of them takes no memory.

    Attributes:
        conversations: How many were looked at.
        states: How many of them are in which state.
        violations: Violations in all of them.
        advisories: Advisories in all of them.
    """

    conversations: int = 0
    states: Counter[State] = field(default_factory=Counter[State])
    violations: int = 0
    advisories: int = 0
    _hash: hashlib._Hash = field(default_factory=hashlib.sha256)

    def add(self, diagnosis: Diagnosis) -> None:
        """Count a diagnosis, and make what it would change part of the plan."""
        self.conversations += 1
        self.states[diagnosis.state] += 1
        self.violations += len(diagnosis.violations)
        self.advisories += len(diagnosis.advisories)
        if diagnosis.state == "repairable":
            entry = f"{diagnosis.conversation}\0{diagnosis.before}\0{diagnosis.after}\n"
            self._hash.update(entry.encode("utf-8", "surrogatepass"))

    @property
    def plan(self) -> str | None:
        """The id of the plan: equal for equal contents and changes, `None` without any."""
        return self._hash.hexdigest()[:PLAN_ID_LENGTH] if self.states["repairable"] else None

    def to_dict(self) -> dict[str, int]:
        """Return the counts as a JSON object."""
        return {
            "conversations": self.conversations,
            "ok": self.states["ok"],
            "repairable": self.states["repairable"],
            "unreadable": self.states["unreadable"],
            "violations": self.violations,
            "advisories": self.advisories,
        }


@dataclass(frozen=True, slots=True)
class Examination:
    """What a dry run found.

    Attributes:
        plan: Id of the plan to apply, or `None` when nothing would change.
        findings: The conversations there is something to say of; not those that
            are fine.
        tally: The counts, over all of them.
    """

    plan: str | None
    findings: tuple[Diagnosis, ...]
    tally: Tally


@dataclass(frozen=True, slots=True)
class Applied:
    """What applying a plan did.

    Attributes:
        repaired: Conversations that were mended.
        moved_on: Conversations left alone, since they changed after the dry run.
        gone: Conversations that are no longer there.
        violations_before: Violations in the mended ones, before.
        violations_after: Violations in them now.
        stopped: Whether a backup could not be written; what comes after it is unchanged.
    """

    repaired: int
    moved_on: int
    gone: int
    violations_before: int
    violations_after: int
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Undone:
    """What an undo did with the last repair of a session.

    Attributes:
        restored: Conversations that are as they were before.
        moved_on: Conversations left alone, since they changed after the repair.
        gone: Conversations that are no longer there.
    """

    restored: int
    moved_on: int
    gone: int


@dataclass(frozen=True, slots=True)
class _Plan:
    entries: tuple[Diagnosis, ...]
    advisories: bool


class Doctor:
    """Examines and mends the conversations of a running bot.

    Args:
        store: Where they are kept.
        backups: Where their old contents go.
    """

    def __init__(self, store: ConversationStore, backups: Backups) -> None:
        self._store = store
        self._backups = backups
        self._plans: OrderedDict[str, _Plan] = OrderedDict()

    async def examine(
        self,
        *,
        session: str | None = None,
        conversation: str | None = None,
        advisories: bool = False,
    ) -> Examination:
        """Look at conversations without changing anything.

        Args:
            session: Only those of this session.
            conversation: Only the one with this id.
            advisories: Whether the plan also mends what may be refused.
        """
        tally = Tally()
        findings: list[Diagnosis] = []
        if conversation is None:
            async for stored in self._store.conversations(session):
                self._look_at(stored, advisories, tally, findings)
                await asyncio.sleep(0)  # a bot with many conversations goes on answering
        elif (stored := await self._store.load(conversation)) is not None:
            self._look_at(stored, advisories, tally, findings)
        if tally.plan is not None:
            entries = tuple(found for found in findings if found.state == "repairable")
            self._plans[tally.plan] = _Plan(entries, advisories)
            self._plans.move_to_end(tally.plan)
            while len(self._plans) > MAX_PLANS:
                self._plans.popitem(last=False)
        return Examination(tally.plan, tuple(findings), tally)

    async def apply(self, plan_id: str) -> Applied | None:
        """Carry out a plan of an earlier dry run, once.

        Returns:
            What was done, or `None` when there is no such plan. It stops at the
            first conversation whose backup cannot be written.
        """
        plan = self._plans.pop(plan_id, None)
        if plan is None:
            return None
        outcomes: Counter[str] = Counter()
        before = after = 0
        stopped = False
        for entry in plan.entries:
            async with self._store.lock(entry.session):
                outcome, left = await self._carry_out(plan_id, entry, plan.advisories)
            if stopped := outcome == "no_backup":
                break
            outcomes[outcome] += 1
            if outcome == "repaired":
                before += len(entry.violations)
                after += left
        return Applied(
            repaired=outcomes["repaired"],
            moved_on=outcomes["moved_on"],
            gone=outcomes["gone"],
            violations_before=before,
            violations_after=after,
            stopped=stopped,
        )

    async def undo(self, session: str) -> Undone | None:
        """Put back what the last repair of a session changed.

        A conversation that changed since then stays as it is, and so does its backup.

        Returns:
            What was done, or `None` when nothing is left to undo.
        """
        outcomes: Counter[str] = Counter()
        plan: str | None = None
        for backup in await asyncio.to_thread(self._backups.of_session, session):
            if plan is not None and backup.plan != plan:
                break
            async with self._store.lock(session):
                outcome = await self._put_back(backup)
            if outcome is not None:
                plan = backup.plan
                outcomes[outcome] += 1
        if plan is None:
            return None
        return Undone(outcomes["restored"], outcomes["moved_on"], outcomes["gone"])

    def _look_at(
        self,
        stored: StoredConversation,
        advisories: bool,
        tally: Tally,
        findings: list[Diagnosis],
    ) -> None:
        diagnosis, _ = diagnose(stored, advisories=advisories)
        tally.add(diagnosis)
        if diagnosis.state != "ok" or diagnosis.advisories:
            findings.append(diagnosis)

    async def _carry_out(
        self, plan_id: str, entry: Diagnosis, advisories: bool
    ) -> tuple[Literal["repaired", "moved_on", "gone", "no_backup"], int]:
        """Mend one conversation, whose session's lock is held; and count what is left."""
        stored = await self._store.load(entry.conversation)
        if stored is None:
            return "gone", 0
        diagnosis, history = diagnose(stored, advisories=advisories)
        if diagnosis.before != entry.before or diagnosis.after != entry.after:
            return "moved_on", 0
        try:
            await asyncio.to_thread(
                self._backups.save,
                plan=plan_id,
                conversation=stored.id,
                session=stored.session,
                before=stored.history,
                after=diagnosis.after,
            )
        except OSError:
            return "no_backup", 0
        await self._store.save(stored, history)
        left, _ = diagnose(StoredConversation(stored.id, stored.session, history))
        return "repaired", len(left.violations)

    async def _put_back(self, backup: Backup) -> Literal["restored", "moved_on", "gone"] | None:
        stored = await self._store.load(backup.conversation)
        if stored is None:
            await asyncio.to_thread(self._backups.discard, backup)
            return "gone"
        now = stored.fingerprint()
        if now == fingerprint(backup.before):
            # The bot ended between the backup and the change: there is nothing to undo.
            await asyncio.to_thread(self._backups.discard, backup)
            return None
        if now != backup.after:
            return "moved_on"
        await self._store.save(stored, cast("list[object]", backup.before))
        await asyncio.to_thread(self._backups.discard, backup)
        return "restored"
