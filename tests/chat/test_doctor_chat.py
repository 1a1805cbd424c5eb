"""The doctor in a chat: what it says before and after, and that it asks first."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from astrbot_tool_guard.chat.chat import Chat
from astrbot_tool_guard.chat.doctor_commands import DoctorCommands
from astrbot_tool_guard.doctor.backups import Backups
from astrbot_tool_guard.doctor.doctor import Doctor
from astrbot_tool_guard.doctor.stored import StoredConversation
from astrbot_tool_guard.texts.texts import Language

SESSION = "qq:FriendMessage:1"
USER = {"role": "user", "content": "How is the weather at Karl Johans gate?"}
FINE = [USER, {"role": "assistant", "content": "Rain."}]


def called(arguments: str = "{}", *ids: str) -> dict[str, Any]:
    calls = [
        {"id": id_, "type": "function", "function": {"name": "f", "arguments": arguments}}
        for id_ in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(id_: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": "Rain."}


BROKEN = [USER, called("{}", "a", "b"), result("a"), result("gone")]
REFUSED = [USER, called("{not json", "a"), result("a")]


class Store:
    """Conversations in memory; each is its session's only one."""

    def __init__(self, **histories: object) -> None:
        self.histories: dict[str, object] = dict(histories)

    async def conversations(self, session: str | None) -> AsyncIterator[StoredConversation]:
        for name in list(self.histories):
            if (found := await self.load(name)) and session in (None, found.session):
                yield found

    async def load(self, conversation_id: str) -> StoredConversation | None:
        if conversation_id not in self.histories:
            return None
        history = self.histories[conversation_id]
        problem = "the content is not JSON" if history == "damaged" else None
        owner = SESSION if conversation_id == "mine" else f"qq:FriendMessage:{conversation_id}"
        return StoredConversation(conversation_id, owner, history, problem)

    def lock(self, session: str) -> AbstractAsyncContextManager[object]:
        return asyncio.Lock()

    async def save(self, conversation: StoredConversation, history: list[object]) -> None:
        self.histories[conversation.id] = history


class Ask:
    def __init__(self, store: Store, folder: Path, current: str | None = "mine") -> None:
        async def conversation_of(session: str) -> str | None:
            return current

        doctor = Doctor(store, Backups(folder / "backups"))
        self._commands = DoctorCommands(doctor, conversation_of)

    async def __call__(self, words: str = "", language: Language = "en") -> str:
        return await self._commands.answer(Chat(SESSION, language), words)


def plan_in(answer: str) -> str:
    found = re.search(r"doctor apply (\w+)", answer)
    assert found, answer
    return found[1]


async def test_a_session_without_a_conversation_is_told_so(tmp_path):
    assert await Ask(Store(), tmp_path, current=None)() == "This session has no conversation."
    assert await Ask(Store(), tmp_path)() == "This session has no conversation."


async def test_a_healthy_conversation_is_fine(tmp_path):
    ask = Ask(Store(mine=FINE, other=FINE), tmp_path)
    assert await ask() == "The conversation is fine."
    assert await ask("all") == "All 2 conversations are fine."
    assert await ask("", "zh") == "对话没有问题。"


async def test_a_dry_run_says_what_it_would_do_and_changes_nothing(tmp_path):
    store = Store(mine=BROKEN)
    answer = await Ask(store, tmp_path)()
    lines = answer.splitlines()
    assert lines[0] == "Repairable; problems: 2."
    assert "say that a result is missing ×1" in lines[1]
    assert "drop a surplus result ×1" in lines[1]
    assert lines[2].startswith("Nothing was changed. /toolguard doctor apply ")
    assert store.histories["mine"] is BROKEN


async def test_applying_repairs_with_counts_and_undo_puts_it_back(tmp_path):
    store = Store(mine=BROKEN)
    ask = Ask(store, tmp_path)
    applied = await ask(f"apply {plan_in(await ask())}")
    assert applied.startswith("Conversations repaired: 1; problems 2 → 0.")
    assert await ask() == "The conversation is fine."
    assert await ask("undo") == "Put back 1 conversations."
    assert store.histories["mine"] == BROKEN
    assert await ask("undo") == "There is nothing to undo."


async def test_a_conversation_that_moved_on_is_left_alone_and_told(tmp_path):
    store = Store(mine=BROKEN)
    ask = Ask(store, tmp_path)
    plan = plan_in(await ask())
    moved = store.histories["mine"] = [*BROKEN, USER]
    answer = await ask(f"apply {plan}")
    assert answer == "No conversation was repaired.\n1 changed in the meantime and were left alone."
    assert store.histories["mine"] is moved


async def test_a_plan_is_asked_for_by_its_id(tmp_path):
    assert "There is no plan nope. Type /toolguard doctor first." in await Ask(
        Store(mine=BROKEN), tmp_path
    )("apply nope")


async def test_all_names_sessions_and_sums_up(tmp_path):
    store = Store(mine=BROKEN, fine=FINE, damaged="damaged", **{f"b{n}": BROKEN for n in range(20)})
    answer = await Ask(store, tmp_path)("all")
    lines = answer.splitlines()
    assert lines[0] == "23 conversations: 1 fine, 21 repairable, 1 unreadable."
    assert f"{SESSION}: Repairable; problems: 2." in lines
    assert "qq:FriendMessage:damaged: Unreadable: the content is not JSON" in lines
    assert "... and 14 more" in lines
    assert len(lines) <= 14
    assert plan_in(answer)


async def test_all_says_once_what_a_session_has(tmp_path, monkeypatch):
    store = Store(one=BROKEN, two=BROKEN, three="damaged", fine=FINE)

    async def all_of_one_session(name: str) -> StoredConversation:
        found = await Store.load(store, name)
        assert found
        return replace(found, session=SESSION)

    monkeypatch.setattr(store, "load", all_of_one_session)
    lines = (await Ask(store, tmp_path)("all")).splitlines()
    assert lines[1] == f"{SESSION}: 2 repairable, 1 unreadable"


async def test_all_is_applied_as_a_whole(tmp_path):
    store = Store(mine=BROKEN, other=BROKEN)
    ask = Ask(store, tmp_path)
    answer = await ask(f"apply {plan_in(await ask('all'))}")
    assert answer.startswith("Conversations repaired: 2; problems 4 → 0.")
    assert await ask("all") == "All 2 conversations are fine."


async def test_what_providers_may_refuse_is_listed_and_mended_on_request(tmp_path):
    store = Store(mine=REFUSED)
    ask = Ask(store, tmp_path)
    answer = await ask()
    assert "providers may refuse: arguments that are no JSON object ×1" in answer
    assert "/toolguard doctor --advisories mends these too." in answer
    assert "doctor apply" not in answer
    answer = await ask("--advisories")
    assert "empty arguments ×1" in answer
    await ask(f"apply {plan_in(answer)}")
    assert await ask() == "The conversation is fine."
    assert "/toolguard doctor all --advisories" in await Ask(Store(mine=REFUSED), tmp_path)("all")


@pytest.mark.parametrize("words", ["help", "apply", "apply a b", "undo 1", "all all"])
async def test_what_it_does_not_know_is_answered_with_what_it_does(tmp_path, words):
    assert "Usage: /toolguard doctor" in await Ask(Store(mine=BROKEN), tmp_path)(words)


async def test_a_backup_that_cannot_be_written_stops_the_repair(tmp_path):
    store = Store(mine=BROKEN)
    ask = Ask(store, tmp_path)
    (tmp_path / "backups").write_text("a file where the folder should be")
    answer = await ask(f"apply {plan_in(await ask())}")
    assert answer.startswith("No conversation was repaired.\nA backup could not be written")
    assert store.histories["mine"] is BROKEN


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize("words", ["", "all", "--advisories", "all --advisories"])
async def test_no_word_of_a_conversation_is_said(tmp_path, words, language):
    store = Store(mine=[*BROKEN, *REFUSED[1:]], damaged="damaged")
    answer = await Ask(store, tmp_path)(words, language)
    assert not re.search("Karl|Rain|not json", answer)
