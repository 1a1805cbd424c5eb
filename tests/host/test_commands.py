"""The commands in a real AstrBot, with the plugin as an operator installs it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.host.stages.lists import BROKEN
from tests.support.answers import Gate, Held, say
from tests.support.bot import ADMIN, MAIN, Bot
from tools.package import build

BLOCKED = "Nothing was sent to the model"
NO_PERMISSION = "权限不足"

SUBCOMMANDS = [
    "status",
    "on",
    "off",
    "set",
    "reset",
    "sessions",
    "log",
    "show",
    "explain",
    "doctor",
]


@pytest.fixture(scope="module")
async def plugin(running_bot: Bot, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The packaged plugin, installed; its name."""
    archive = build(tmp_path_factory.mktemp("package") / "plugin.zip")
    name = await running_bot.load_plugin_from(archive)
    yield name
    await running_bot.remove(name)


@pytest.fixture(autouse=True)
async def clean_slate(bot: Bot, plugin: str) -> AsyncIterator[None]:
    yield
    sessions = bot.star(plugin).guard.sessions
    for session in list(sessions.all()):
        await sessions.reset(session)


async def ask(bot: Bot, command: str, session: str = "alice", **options: Any) -> str:
    """Type a command as the administrator; return the answer, of which there is one."""
    turn = await bot.say(f"/toolguard {command}".strip(), session=session, sender=ADMIN, **options)
    assert turn.requests == []
    (text,) = turn.texts
    return text


async def break_history(bot: Bot, session: str = "alice", hello: str = "Hello?") -> None:
    """Give the session a conversation that AstrBot's clean-up leaves broken."""
    messages = [{"role": "user", "content": hello}, *BROKEN["unanswered_call"][1:]]
    await bot.set_history(session, messages)


class TestWhoAsks:
    @pytest.mark.parametrize("streaming", [False, True])
    @pytest.mark.parametrize("command", [*SUBCOMMANDS, "nonsense", ""])
    async def test_an_administrator_is_answered_and_the_model_hears_nothing(
        self, bot, command, streaming
    ):
        assert await ask(bot, command, streaming=streaming)

    @pytest.mark.parametrize(
        "command", [*SUBCOMMANDS, "set request_guard off", "off now", "nonsense", ""]
    )
    async def test_anybody_else_is_refused_and_changes_nothing(self, bot, plugin, command):
        turn = await bot.say(f"/toolguard {command}".strip(), session="alice", sender="mallory")
        (text,) = turn.texts
        assert NO_PERMISSION in text
        assert turn.requests == []
        assert bot.star(plugin).guard.sessions.all() == {}

    async def test_the_chinese_name_works_and_is_answered_in_chinese(self, bot):
        turn = await bot.say("/工具守卫 status", session="alice", sender=ADMIN)
        assert turn.text.startswith("工具调用守卫")
        turn = await bot.say("/工具守卫", session="alice", sender=ADMIN)
        assert "/toolguard" in turn.text

    async def test_a_word_that_only_begins_like_the_command_is_for_the_model(self, bot):
        bot.server.script(say("Hello."))
        turn = await bot.say("/toolguards are nice", session="alice", sender=ADMIN)
        assert turn.text == "Hello."
        assert len(turn.requests) == 1

    async def test_in_a_group_it_speaks_of_the_group(self, bot, plugin):
        turn = await bot.say("/toolguard off", session="room", sender=ADMIN, group=True)
        assert "now off" in turn.text
        overridden = bot.star(plugin).guard.sessions.all()
        assert list(overridden) == [bot.umo("room", group=True)]

    async def test_commands_keep_working_when_the_group_is_renamed(self, bot, plugin):
        from astrbot.core.star import command_management

        group = next(
            command
            for command in await command_management.list_commands()
            if command["plugin"] == plugin
        )
        try:
            await command_management.rename_command(group["handler_full_name"], "guard", [])
            turn = await bot.say("/guard nonsense", session="alice", sender=ADMIN)
            assert "There is no command nonsense" in turn.text
            turn = await bot.say("/guard", session="alice", sender=ADMIN)
            assert "status" in turn.text
        finally:
            await command_management.rename_command(
                group["handler_full_name"], "toolguard", ["工具守卫"]
            )
        assert await ask(bot, "status")

    async def test_the_webui_lists_every_subcommand_as_an_administrators(self, plugin):
        from astrbot.core.star import command_management

        (group,) = [
            command
            for command in await command_management.list_commands()
            if command["plugin"] == plugin
        ]
        assert {sub["current_fragment"] for sub in group["sub_commands"]} >= set(SUBCOMMANDS)
        assert {sub["permission"] for sub in group["sub_commands"]} == {"admin"}


class TestLanguage:
    async def test_a_command_is_answered_in_the_language_of_the_conversation(self, bot):
        await bot.set_history("alice", [{"role": "user", "content": "你好，帮我查一下天气"}])
        assert (await ask(bot, "status")).startswith("工具调用守卫")
        await bot.set_history("alice", [{"role": "user", "content": "Hello, how are you?"}])
        assert (await ask(bot, "status")).startswith("Tool Call Guard")

    async def test_a_fresh_chat_is_answered_in_english(self, bot):
        assert (await ask(bot, "status", session="fresh")).startswith("Tool Call Guard")

    async def test_what_astrbot_adds_to_a_message_does_not_count(self, bot):
        parts = [
            {"type": "text", "text": "现在几点"},
            {"type": "text", "text": "<system_reminder>Current datetime</system_reminder>"},
        ]
        await bot.set_history("alice", [{"role": "user", "content": parts}])
        assert (await ask(bot, "on")).startswith("本会话")


class TestWhatTheyDo:
    async def test_a_block_names_the_command_that_explains_it(self, bot):
        await break_history(bot)
        turn = await bot.say("Hello?", session="alice")
        assert BLOCKED in turn.text
        assert "/toolguard explain" in turn.text
        explained = await ask(bot, "explain")
        assert ": a tool call has no result" in explained
        assert "/toolguard doctor" in explained
        assert MAIN in explained
        assert "No request of this session" in await ask(bot, "explain", session="bob")

    async def test_log_and_show_tell_of_this_session(self, bot):
        await break_history(bot)
        await bot.say("Hello?", session="alice")
        (line,) = (await ask(bot, "log 1")).splitlines()
        number = re.match(r"#(\d+) \d\d-\d\d \d\d:\d\d request blocked", line)
        assert number
        shown = await ask(bot, f"show {number[1]}")
        assert ": a tool call has no result" in shown
        assert bot.umo("alice") in shown
        assert "No incidents" in await ask(bot, "log", session="nobody")
        assert "There is no incident 999999" in await ask(bot, "show 999999")

    async def test_off_lets_the_request_go_and_on_stops_it_again(self, bot):
        await break_history(bot)
        bot.server.strict = False
        assert "now off" in await ask(bot, "off")
        assert "off here (this session)" in await ask(bot, "status")
        turn = await bot.say("Hello?", session="alice")
        assert len(turn.requests) == 1
        await ask(bot, "on")
        await break_history(bot)
        turn = await bot.say("Hello?", session="alice")
        assert turn.requests == []
        assert BLOCKED in turn.text

    async def test_a_setting_holds_for_its_session_and_reset_drops_it(self, bot):
        assert (
            await ask(bot, "set request_guard observe") == "This session: request_guard = observe"
        )
        assert "request_guard: observe (this session)" in await ask(bot, "status")
        assert "request_guard: block (global)" in await ask(bot, "status", session="bob")
        assert f"{bot.umo('alice')}: request_guard=observe" in await ask(bot, "sessions")
        assert "global settings again" in await ask(bot, "reset")
        assert "request_guard: block (global)" in await ask(bot, "status")
        assert "No session" in await ask(bot, "sessions")

    async def test_a_switch_that_says_false_is_off(self, bot, plugin):
        await ask(bot, "set retry_invalid_stream false")
        overrides = bot.star(plugin).guard.sessions.get(bot.umo("alice"))
        assert overrides == {"retry_invalid_stream": False}

    async def test_a_wrong_key_or_value_is_answered_with_the_valid_ones(self, bot):
        unknown = await ask(bot, "set colour blue")
        assert "no setting colour" in unknown
        assert "request_guard: block, repair, observe, off" in unknown
        assert await ask(bot, "set request_guard maybe") == (
            "request_guard takes: block, repair, observe, off"
        )

    async def test_an_unknown_subcommand_is_answered_with_the_tree(self, bot):
        answer = await ask(bot, "statsu now")
        assert "There is no command statsu" in answer
        assert all(f"  {command}" in answer for command in SUBCOMMANDS)

    async def test_status_names_versions_and_every_seam(self, bot, plugin):
        from astrbot.core.config.default import VERSION

        status = await ask(bot, "status")
        assert f"AstrBot {VERSION}" in status
        assert re.search(r"openai \d+\.\d+", status)
        for seam in bot.star(plugin).guard.status():
            assert seam.name in status


class TestAtTheSameTime:
    async def test_two_sessions_with_different_modes_interleave_while_one_streams(self, bot):
        await break_history(bot, "alice")
        await break_history(bot, "bob")
        bot.server.strict = False
        await ask(bot, "set request_guard observe", session="alice")
        gate = Gate()
        bot.server.script(Held(say("This was sent for Alice."), gate, after=3))
        alice = asyncio.create_task(bot.say("Hello?", session="alice", streaming=True))
        await gate.reached.wait()
        turn = await bot.say("Hello?", session="bob", streaming=True)
        assert BLOCKED in turn.text
        assert turn.requests == []
        await ask(bot, "set request_guard off", session="bob")
        bot.server.script(say("This was sent for Bob."))
        turn = await bot.say("Hello?", session="bob", streaming=True)
        assert turn.text == "This was sent for Bob."
        await ask(bot, "reset", session="alice")
        gate.release.set()
        assert (await alice).text == "This was sent for Alice."
        await break_history(bot, "alice")
        assert BLOCKED in (await bot.say("Hello?", session="alice", streaming=True)).text

    @pytest.mark.skipif(
        version("astrbot").startswith("4.26."),
        reason="4.26 fails by itself when more turns run at once than its database pool holds",
    )
    async def test_thirty_sessions_at_once_each_get_their_own_mode(self, bot):
        bot.server.strict = False
        bot.server.fallback = say("Sent.")
        modes = {f"session-{n}": ("block", "observe", "off")[n % 3] for n in range(30)}
        for session, mode in modes.items():
            await break_history(bot, session)
            await ask(bot, f"set request_guard {mode}", session=session)
        turns = await asyncio.gather(
            *(bot.say("Hello?", session=session, streaming=True) for session in modes)
        )
        for mode, turn in zip(modes.values(), turns, strict=True):
            assert (BLOCKED in turn.text) == (mode == "block")
            assert (turn.text == "Sent.") == (mode != "block")
        assert bot.server.count == 20

    async def test_a_reload_breaks_nothing_that_is_under_way(self, bot, plugin):
        """Saving the panel reloads the plugin, whatever is streaming."""
        gate = Gate()
        bot.server.script(Held(say("The answer to the end."), gate, after=3))
        turn = asyncio.create_task(bot.say("Hello?", session="carol", streaming=True))
        await gate.reached.wait()
        assert await bot.reload(plugin) == (True, None)
        gate.release.set()
        assert (await turn).text == "The answer to the end."
        await break_history(bot, "carol")
        assert BLOCKED in (await bot.say("Hello?", session="carol", streaming=True)).text


class TestDoctor:
    async def test_a_blocked_conversation_is_diagnosed_repaired_and_answers_again(self, bot):
        await break_history(bot, "dora")
        before = await bot.history("dora")
        assert BLOCKED in (await bot.say("Hello?", session="dora")).text
        found = await ask(bot, "doctor", session="dora")
        assert "Repairable" in found
        assert await bot.history("dora") == before
        plan = re.search(r"doctor apply (\w+)", found)
        assert plan
        assert "repaired: 1" in await ask(bot, f"doctor apply {plan[1]}", session="dora")
        bot.server.script(say("Answered again."))
        turn = await bot.say("Hello?", session="dora")
        assert turn.text == "Answered again."
        assert turn.refused == []
        assert await ask(bot, "doctor", session="dora") == "The conversation is fine."

    async def test_undo_puts_the_conversation_back(self, bot):
        await break_history(bot, "una")
        before = await bot.history("una")
        plan = re.search(r"doctor apply (\w+)", await ask(bot, "doctor", session="una"))
        assert plan
        await ask(bot, f"doctor apply {plan[1]}", session="una")
        assert await bot.history("una") != before
        assert "Put back 1" in await ask(bot, "doctor undo", session="una")
        assert await bot.history("una") == before

    async def test_all_speaks_of_every_session(self, bot):
        for session in ("one", "two"):
            await break_history(bot, session)
        first, *rest = (await ask(bot, "doctor all", session="dora")).splitlines()
        counted = re.match(r"(\d+) conversations: \d+ fine, (\d+) repairable", first)
        assert counted
        assert int(counted[1]) >= int(counted[2]) >= 2
        assert any("harness:FriendMessage:" in line for line in rest)

    async def test_a_failure_is_one_line_without_its_text(self, bot, plugin, monkeypatch):
        async def fail(*_: object) -> str:
            raise RuntimeError("SELECT secret FROM conversations")

        monkeypatch.setattr(bot.star(plugin).commands, "_doctor", SimpleNamespace(answer=fail))
        assert await ask(bot, "doctor") == "The command failed; the log says why."
        assert not any("secret" in line for line in bot.log.lines)
        assert any("a command failed with RuntimeError" in line for line in bot.log.lines)


class TestOverrides:
    async def test_they_survive_a_reload(self, bot, plugin):
        await ask(bot, "set request_guard off")
        before = bot.star(plugin).guard
        assert await bot.reload(plugin) == (True, None)
        assert bot.star(plugin).guard is not before
        assert "request_guard: off (this session)" in await ask(bot, "status")

    async def test_they_survive_switching_the_plugin_off_and_on(self, bot, plugin):
        await ask(bot, "off")
        await bot.disable(plugin)
        await bot.enable(plugin)
        assert "off here (this session)" in await ask(bot, "status")

    async def test_without_its_file_the_bot_goes_on(self, bot, plugin):
        """A folder that cannot be used costs the journal, and one warning."""
        from astrbot.core.utils.astrbot_path import get_astrbot_plugin_data_path

        folder = Path(get_astrbot_plugin_data_path()) / plugin
        await bot.disable(plugin)
        aside = folder.rename(folder.with_name("aside"))
        folder.write_text("not a folder")
        bot.log.lines.clear()
        try:
            await bot.enable(plugin)
            assert len([line for line in bot.log.lines if "journal is off" in line]) == 1
            await break_history(bot)
            assert BLOCKED in (await bot.say("Hello?", session="alice")).text
            assert "a tool call has no result" in await ask(bot, "explain")
            assert "There is no journal" in await ask(bot, "log")
            assert "There is no journal" in await ask(bot, "status")
        finally:
            await bot.disable(plugin)
            folder.unlink()
            aside.rename(folder)
            await bot.enable(plugin)
        assert "no journal" not in await ask(bot, "status")
