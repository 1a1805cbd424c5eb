"""The plugin as AstrBot loads it: its life cycle and what AstrBot calls.

The rule: thin. What is decided and done stands in `astrbot_tool_guard`; here it is
started, stopped, and given what only AstrBot has. AstrBot does not call `terminate`
when `initialize` fails, so `initialize` rolls back by itself.

Annotations here are not put off (`from __future__ import annotations`): AstrBot reads
those of the commands, and 4.26 takes a name in quotes for a default value.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from astrbot import logger
from astrbot.api.event import AstrMessageEvent, filter
from astrbot.api.provider import ProviderRequest
from astrbot.api.star import Context, Star
from astrbot.core.star.filter.command import GreedyStr
from astrbot.core.utils.astrbot_path import get_astrbot_plugin_data_path

from .astrbot_tool_guard.chat.chat import Chat
from .astrbot_tool_guard.chat.commands import Commands
from .astrbot_tool_guard.chat.doctor_commands import DoctorCommands
from .astrbot_tool_guard.doctor.backups import Backups
from .astrbot_tool_guard.doctor.doctor import Doctor
from .astrbot_tool_guard.host import console
from .astrbot_tool_guard.host.conversations import BotConversations
from .astrbot_tool_guard.host.guard import Guard, install
from .astrbot_tool_guard.journal.counts import Counts
from .astrbot_tool_guard.journal.journal import Journal
from .astrbot_tool_guard.settings.sessions import SessionOverrides
from .astrbot_tool_guard.settings.settings import Settings
from .astrbot_tool_guard.texts.texts import say

admin_only = filter.permission_type(filter.PermissionType.ADMIN)


class ToolCallGuard(Star):
    """Tool Call Guard.

    Attributes:
        guard: The installed guard, while the plugin is on.
        journal: What it remembers.
        commands: What its administrators ask, while the plugin is on.
    """

    def __init__(self, context: Context, config: Mapping[str, object] | None = None) -> None:
        super().__init__(context)
        self.config = config
        self.guard: Guard | None = None
        self.journal: Journal | None = None
        self.commands: Commands | None = None

    async def initialize(self) -> None:
        """Start the guard."""
        console.bind_once(self)
        try:
            await self._start()
        except BaseException:
            await self.terminate()
            raise

    async def terminate(self) -> None:
        """Stop the guard and take everything of it off AstrBot."""
        self.commands = None
        guard, self.guard = self.guard, None
        if guard is not None:
            guard.uninstall()
        journal, self.journal = self.journal, None
        if journal is not None:
            await journal.close()

    async def _start(self) -> None:
        settings, warnings = Settings.parse(self.config)
        sessions = SessionOverrides(self.get_kv_data, self.put_kv_data)
        for warning in (*warnings, *await sessions.load()):
            logger.warning("Tool Call Guard: %s", warning)
        folder = Path(get_astrbot_plugin_data_path()) / self.name
        self.journal = Journal(folder / "journal.sqlite3", settings.journal, logger)
        await self.journal.open()
        self.guard = guard = install(settings, sessions=sessions)
        guard.watch(self.context.get_all_providers)
        tally = Counts()
        guard.subscribe(tally.observe)
        guard.subscribe(self.journal.observe)
        conversations = BotConversations(self.context.conversation_manager)
        doctor = Doctor(conversations, Backups(folder / "backups"))
        self.commands = Commands(
            settings=lambda: guard.settings,
            sessions=sessions,
            journal=self.journal,
            doctor=DoctorCommands(doctor, conversations.current),
            tally=tally,
            seams=guard.status,
            versions=partial(console.versions, self.context, self.name),
        )

    @filter.on_llm_request()
    async def look_at_the_seams(self, event: AstrMessageEvent, request: ProviderRequest) -> None:
        """Put back what another plugin took off; this one hook still comes when all is gone."""
        if self.guard is not None:
            self.guard.check()

    # --- the commands, as AstrBot knows them; their docstrings show in its WebUI ---------

    @filter.custom_filter(console.WithSubcommand)
    @filter.command_group("toolguard", alias={"工具守卫"})
    def toolguard(self) -> None:
        """工具调用守卫 / Tool Call Guard."""

    @admin_only
    @toolguard.command("status")
    async def toolguard_status(self, event: AstrMessageEvent) -> AsyncIterator[Any]:
        """状态、接入点和计数 / State, seams and counts."""
        yield await self._answer(event, Commands.status)

    @admin_only
    @toolguard.command("on")
    async def toolguard_on(self, event: AstrMessageEvent) -> AsyncIterator[Any]:
        """在本会话启用 / Switch on in this session."""
        yield await self._answer(event, Commands.on)

    @admin_only
    @toolguard.command("off")
    async def toolguard_off(self, event: AstrMessageEvent) -> AsyncIterator[Any]:
        """在本会话停用 / Switch off in this session."""
        yield await self._answer(event, Commands.off)

    @admin_only
    @toolguard.command("set")
    async def toolguard_set(self, event: AstrMessageEvent, words: GreedyStr) -> AsyncIterator[Any]:
        """修改本会话的一项设置 / Change one setting for this session."""
        yield await self._answer(event, partial(Commands.set, words=words))

    @admin_only
    @toolguard.command("reset")
    async def toolguard_reset(self, event: AstrMessageEvent) -> AsyncIterator[Any]:
        """撤销本会话的全部设置 / Drop all settings of this session."""
        yield await self._answer(event, Commands.reset)

    @admin_only
    @toolguard.command("sessions")
    async def toolguard_sessions(self, event: AstrMessageEvent) -> AsyncIterator[Any]:
        """有单独设置的会话 / Sessions with settings of their own."""
        yield await self._answer(event, Commands.sessions)

    @admin_only
    @toolguard.command("log")
    async def toolguard_log(self, event: AstrMessageEvent, words: GreedyStr) -> AsyncIterator[Any]:
        """本会话最近的问题 / Last incidents of this session."""
        yield await self._answer(event, partial(Commands.log, words=words))

    @admin_only
    @toolguard.command("show")
    async def toolguard_show(self, event: AstrMessageEvent, words: GreedyStr) -> AsyncIterator[Any]:
        """一个问题的全部内容 / One incident in full."""
        yield await self._answer(event, partial(Commands.show, words=words))

    @admin_only
    @toolguard.command("explain")
    async def toolguard_explain(self, event: AstrMessageEvent) -> AsyncIterator[Any]:
        """上次请求为什么被拦截 / Why the last request was blocked."""
        yield await self._answer(event, Commands.explain)

    @admin_only
    @toolguard.command("doctor")
    async def toolguard_doctor(
        self, event: AstrMessageEvent, words: GreedyStr
    ) -> AsyncIterator[Any]:
        """检查并修复对话 / Check and mend conversations."""
        yield await self._answer(event, partial(Commands.doctor, words=words))

    @admin_only
    @filter.custom_filter(partial(console.Unanswered, toolguard.parent_group))
    async def toolguard_unknown(self, event: AstrMessageEvent) -> AsyncIterator[Any]:
        """Answer what is no subcommand; without this it would go to the model."""
        words = console.rest_of(self.toolguard.parent_group, event)
        yield await self._answer(event, partial(Commands.unknown, words=words[1] if words else ""))

    async def _answer(self, event: AstrMessageEvent, ask: Callable[..., Awaitable[str]]) -> Any:
        """Return the answer to a command as AstrBot sends it."""
        # However the sending goes, a command is nothing for the model.
        event.should_call_llm(True)
        session = event.unified_msg_origin
        setting = self.guard.settings.language if self.guard else "auto"
        language = await console.chat_language(self.context, event, setting)
        if self.commands is None:
            return event.plain_result(say("not_running", language))
        chat = Chat(
            session=session,
            language=language,
            provider=await console.provider_in_use(self.context, session),
            prefix=console.wake_prefix(self.context, session),
        )
        try:
            text = await ask(self.commands, chat)
        except Exception as error:
            # The error's text may hold what was in a conversation: SQL errors do.
            logger.error("Tool Call Guard: a command failed with %s", type(error).__name__)
            text = say("failed", language)
        return event.plain_result(text).use_t2i(False).use_markdown(False)
