"""The doctor of a running bot: look first, change only what was looked at, take it back."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from astrbot_tool_guard.core.messages.matching import NEUTRAL_RESULT
from astrbot_tool_guard.doctor.backups import KEPT_REPAIRS, Backups
from astrbot_tool_guard.doctor.doctor import MAX_PLANS, Applied, Doctor, Undone
from astrbot_tool_guard.doctor.stored import StoredConversation, fingerprint
from tests.core.messages.histories import declares, result, says, user
from tests.doctor.conftest import broken, healthy

MENDED = [user("hi"), declares("a"), result("a", NEUTRAL_RESULT), says("sorry")]
MALFORMED = [
    user("hi"),
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{oops"}}
        ],
    },
    result("a"),
]


class Store:
    """Conversations in memory, which may only be saved under their session's lock.

    Attributes:
        kept: Session and JSON text of each conversation.
        locked: The sessions whose lock is held.
        saved: The conversations that were saved, in order.
        turn: Runs once, at the next time that a lock is taken, before it is held.
    """

    def __init__(self) -> None:
        self.kept: dict[str, tuple[str, str]] = {}
        self.locked: set[str] = set()
        self.saved: list[str] = []
        self.turn: Any = None
        self.fault: Exception | None = None

    def put(self, conversation: str, history: object, session: str = "s") -> None:
        self.kept[conversation] = (session, json.dumps(history))

    def history(self, conversation: str) -> Any:
        return json.loads(self.kept[conversation][1])

    async def conversations(self, session: str | None) -> AsyncIterator[StoredConversation]:
        for conversation, (owner, _) in list(self.kept.items()):
            if session in (None, owner):
                stored = await self.load(conversation)
                assert stored is not None
                yield stored

    async def load(self, conversation_id: str) -> StoredConversation | None:
        if conversation_id not in self.kept:
            return None
        session, text = self.kept[conversation_id]
        try:
            return StoredConversation(conversation_id, session, json.loads(text))
        except ValueError:
            return StoredConversation(conversation_id, session, None, "the content is not JSON")

    @asynccontextmanager
    async def lock(self, session: str) -> AsyncIterator[None]:
        turn, self.turn = self.turn, None
        if turn is not None:
            turn()
        assert session not in self.locked
        self.locked.add(session)
        try:
            yield
        finally:
            self.locked.remove(session)

    async def save(self, conversation: StoredConversation, history: list[object]) -> None:
        assert conversation.session in self.locked
        if self.fault is not None:
            raise self.fault
        self.saved.append(conversation.id)
        self.put(conversation.id, history, conversation.session)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def backups(tmp_path: Path) -> Backups:
    return Backups(tmp_path / "backups")


@pytest.fixture
def doctor(store: Store, backups: Backups) -> Doctor:
    return Doctor(store, backups)


async def plan_of(doctor: Doctor, **options: Any) -> str:
    plan = (await doctor.examine(**options)).plan
    assert plan is not None
    return plan


class TestExamining:
    async def test_names_what_there_is_to_say_of_and_counts_the_rest(
        self, store: Store, doctor: Doctor
    ) -> None:
        store.put("fine", healthy())
        store.put("sick", broken())
        store.put("odd", MALFORMED)
        store.put("lost", {"role": "user"})
        store.kept["torn"] = ("s", "[")
        before = copy.deepcopy(store.kept)

        examination = await doctor.examine()

        assert [(d.conversation, d.state, d.reason) for d in examination.findings] == [
            ("sick", "repairable", None),
            ("odd", "ok", None),
            ("lost", "unreadable", "the messages are an object, not a list"),
            ("torn", "unreadable", "the content is not JSON"),
        ]
        assert examination.findings[0].actions() == {"result_added": 1}
        assert examination.tally.to_dict() == {
            "conversations": 5,
            "ok": 2,
            "repairable": 1,
            "unreadable": 2,
            "violations": 1,
            "advisories": 1,
        }
        assert store.kept == before
        assert store.saved == []

    async def test_one_session_or_one_conversation_on_request(
        self, store: Store, doctor: Doctor
    ) -> None:
        store.put("1", broken(), session="one")
        store.put("2", broken(), session="one")
        store.put("3", broken(), session="two")

        assert (await doctor.examine()).tally.conversations == 3
        assert (await doctor.examine(session="one")).tally.conversations == 2
        assert (await doctor.examine(conversation="2")).tally.conversations == 1
        assert (await doctor.examine(conversation="none")).tally.conversations == 0

    async def test_nothing_to_change_is_no_plan(self, store: Store, doctor: Doctor) -> None:
        store.put("fine", healthy())

        assert (await doctor.examine()).plan is None

    async def test_the_same_contents_have_the_same_plan(self, store: Store, doctor: Doctor) -> None:
        store.put("sick", broken())
        plan = await plan_of(doctor)

        assert await plan_of(doctor) == plan
        store.put("sick", [*broken(), user("more")])
        assert await plan_of(doctor) != plan


class TestApplying:
    async def test_mends_what_the_plan_was_made_from(self, store: Store, doctor: Doctor) -> None:
        store.put("fine", healthy())
        store.put("sick", broken())

        applied = await doctor.apply(await plan_of(doctor))

        assert applied == Applied(1, 0, 0, violations_before=1, violations_after=0)
        assert store.history("sick") == MENDED
        assert store.saved == ["sick"]
        assert (await doctor.examine()).plan is None

    async def test_an_unknown_plan_changes_nothing(self, store: Store, doctor: Doctor) -> None:
        store.put("sick", broken())
        await doctor.examine()

        assert await doctor.apply("12345678") is None
        assert store.saved == []

    async def test_a_plan_is_carried_out_once(self, store: Store, doctor: Doctor) -> None:
        store.put("sick", broken())
        plan = await plan_of(doctor)
        await doctor.apply(plan)

        assert await doctor.apply(plan) is None

    async def test_what_has_moved_on_is_left_alone(self, store: Store, doctor: Doctor) -> None:
        store.put("sick", broken())
        store.put("busy", broken())
        store.put("gone", broken())
        plan = await plan_of(doctor)
        store.put("busy", [*broken(), user("a new turn")])
        del store.kept["gone"]

        applied = await doctor.apply(plan)

        assert applied == Applied(1, 1, 1, violations_before=1, violations_after=0)
        assert store.saved == ["sick"]

    async def test_a_turn_that_ends_while_the_lock_is_awaited_is_not_overwritten(
        self, store: Store, doctor: Doctor
    ) -> None:
        store.put("sick", broken())
        plan = await plan_of(doctor)
        grown = [*broken(), user("a new turn")]
        store.turn = lambda: store.put("sick", grown)

        applied = await doctor.apply(plan)

        assert applied == Applied(0, 1, 0, 0, 0)
        assert store.history("sick") == grown

    async def test_advisories_are_mended_when_the_plan_says_so(
        self, store: Store, doctor: Doctor
    ) -> None:
        store.put("odd", MALFORMED)
        assert (await doctor.examine()).plan is None

        applied = await doctor.apply(await plan_of(doctor, advisories=True))

        assert applied == Applied(1, 0, 0, violations_before=0, violations_after=0)
        assert (await doctor.examine()).tally.advisories == 0

    async def test_only_the_last_plans_are_remembered(self, store: Store, doctor: Doctor) -> None:
        store.put("sick", broken())
        first = await plan_of(doctor)
        for number in range(MAX_PLANS):
            store.put("sick", [*broken(), user(str(number))])
            last = await plan_of(doctor)
        store.put("sick", broken())

        assert await doctor.apply(first) is None
        assert await doctor.apply(last) == Applied(0, 1, 0, 0, 0)

    async def test_the_old_content_is_on_the_disk_before_the_change(
        self, store: Store, doctor: Doctor, backups: Backups
    ) -> None:
        store.put("sick", broken())
        plan = await plan_of(doctor)
        store.fault = RuntimeError("killed")

        with pytest.raises(RuntimeError, match="killed"):
            await doctor.apply(plan)

        [backup] = backups.of_session("s")
        assert (backup.conversation, backup.before, backup.plan) == ("sick", broken(), plan)
        assert backup.after == fingerprint(MENDED)
        assert store.history("sick") == broken()

    async def test_without_a_backup_there_is_no_change_and_what_was_done_is_told(
        self, store: Store, backups: Backups, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        save, room = backups.save, 2

        def filling(**values: Any) -> Any:
            nonlocal room
            room -= 1
            if room < 0:
                raise OSError(28, "No space left on device")
            return save(**values)

        monkeypatch.setattr(backups, "save", filling)
        doctor = Doctor(store, backups)
        for name in ("one", "two", "three", "four"):
            store.put(name, broken())

        applied = await doctor.apply(await plan_of(doctor))

        assert applied == Applied(2, 0, 0, 2, 0, stopped=True)
        assert len(store.saved) == 2
        assert [store.history(name) for name in ("three", "four")] == [broken(), broken()]

    async def test_undo_puts_back_however_many_conversations_a_repair_changed(
        self, store: Store, backups: Backups
    ) -> None:
        names = [f"c{number}" for number in range(KEPT_REPAIRS * 2)]
        for name in names:
            store.put(name, broken())
        doctor = Doctor(store, backups)
        await doctor.apply(await plan_of(doctor))

        assert await doctor.undo("s") == Undone(len(names), 0, 0)
        assert all(store.history(name) == broken() for name in names)

    async def test_of_two_doctors_the_second_finds_it_done(
        self, store: Store, backups: Backups
    ) -> None:
        store.put("sick", broken())
        one, two = Doctor(store, backups), Doctor(store, backups)
        plan = await plan_of(one)
        await plan_of(two)

        assert (await one.apply(plan), await two.apply(plan)) == (
            Applied(1, 0, 0, 1, 0),
            Applied(0, 1, 0, 0, 0),
        )


class TestUndoing:
    async def test_puts_the_old_content_back(self, store: Store, doctor: Doctor) -> None:
        store.put("sick", broken())
        await doctor.apply(await plan_of(doctor))

        assert await doctor.undo("s") == Undone(restored=1, moved_on=0, gone=0)
        assert store.history("sick") == broken()
        assert await doctor.undo("s") is None

    async def test_without_a_repair_there_is_nothing_to_undo(self, doctor: Doctor) -> None:
        assert await doctor.undo("s") is None

    async def test_a_conversation_that_moved_on_stays(self, store: Store, doctor: Doctor) -> None:
        store.put("sick", broken())
        await doctor.apply(await plan_of(doctor))
        grown = [*MENDED, user("a new turn")]
        store.put("sick", grown)

        assert await doctor.undo("s") == Undone(restored=0, moved_on=1, gone=0)
        assert store.history("sick") == grown

    async def test_a_conversation_that_is_gone_is_counted_once(
        self, store: Store, doctor: Doctor
    ) -> None:
        store.put("sick", broken())
        await doctor.apply(await plan_of(doctor))
        del store.kept["sick"]

        assert await doctor.undo("s") == Undone(restored=0, moved_on=0, gone=1)
        assert await doctor.undo("s") is None

    async def test_takes_back_all_of_the_last_repair_and_only_of_this_session(
        self, store: Store, doctor: Doctor
    ) -> None:
        store.put("first", [*broken(), user("first")])
        await doctor.apply(await plan_of(doctor))
        for conversation, session in (("second", "s"), ("third", "s"), ("other", "t")):
            store.put(conversation, broken(), session)
        await doctor.apply(await plan_of(doctor))

        assert await doctor.undo("s") == Undone(restored=2, moved_on=0, gone=0)
        assert store.history("second") == store.history("third") == broken()
        assert store.history("other") == MENDED
        assert await doctor.undo("s") == Undone(restored=1, moved_on=0, gone=0)
        assert store.history("first") == [*broken(), user("first")]

    async def test_a_backup_without_its_change_is_passed_over(
        self, store: Store, doctor: Doctor
    ) -> None:
        store.put("first", broken())
        await doctor.apply(await plan_of(doctor))
        store.put("second", broken())
        plan = await plan_of(doctor)
        store.fault = RuntimeError("killed")
        with pytest.raises(RuntimeError):
            await doctor.apply(plan)
        store.fault = None

        assert await doctor.undo("s") == Undone(restored=1, moved_on=0, gone=0)
        assert store.history("first") == broken()

    async def test_works_after_a_restart(
        self, store: Store, doctor: Doctor, backups: Backups
    ) -> None:
        store.put("sick", broken())
        await doctor.apply(await plan_of(doctor))

        assert await Doctor(store, backups).undo("s") == Undone(1, 0, 0)


async def test_a_diagnosis_is_json(store: Store, doctor: Doctor) -> None:
    store.put("sick", [*broken(), *MALFORMED])

    [diagnosis] = (await doctor.examine()).findings

    assert json.loads(json.dumps(diagnosis.to_dict())) == {
        "conversation": "sick",
        "session": "s",
        "state": "repairable",
        "reason": None,
        "violations": [violation.to_dict() for violation in diagnosis.violations],
        "advisories": [advisory.to_dict() for advisory in diagnosis.advisories],
        "changes": [change.to_dict() for change in diagnosis.changes],
    }
