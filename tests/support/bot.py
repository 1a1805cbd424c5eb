"""A real AstrBot in this process, without dashboard and message platforms.

One to a process: AstrBot keeps its state in modules. `prepare_root(path)` must run
before anything imports `astrbot`; then

    bot = await Bot.start(server)
    turn = await bot.say("What is the weather?", session="alice", streaming=True)
    turn.text, turn.requests, turn.invocations
    bot.server.script(calls(call("get_weather", {"city": "Oslo"})), say("12 C"))
    await bot.set_history("alice", [...]); await bot.history("alice")
    name = await bot.load_plugin_from(zip_or_folder); await bot.reload(name)
    await bot.disable(name); await bot.enable(name); await bot.remove(name)
    bot.neighbour.on_request = hook        # another plugin, see `neighbour/main.py`
    async with bot.changed(fallbacks=["backup/model"]): ...
    with bot.provider_config("main/model", custom_extra_body={...}): ...
    await bot.stop()

A turn goes through AstrBot's whole pipeline and `say` returns when it is over.
The provider `main/model` has the keys `sk-main-1` and `sk-main-2`, `backup/model`
has `sk-backup`; both talk to `server`. No fallback is configured unless asked for.
A session is a name; `bot.umo(name)` is its `unified_msg_origin`. In tests the
fixture `bot` (conftest) is started once and `reset()` for each test.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import sys
from collections import UserDict
from collections.abc import AsyncIterator, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from .model_server import ModelServer, Request

NEIGHBOUR = "astrbot_plugin_neighbour"
MAIN = "main/model"
BACKUP = "backup/model"
PLATFORM = "harness"
ADMIN = "admin"
"""The one sender who is an administrator."""

_message_ids = itertools.count(1)


def prepare_root(root: Path) -> None:
    """Make `root` the AstrBot root of this process, with a configuration to start from.

    Raises:
        RuntimeError: If AstrBot is imported already, since it then has another root.
    """
    if "astrbot.core" in sys.modules:
        raise RuntimeError("astrbot was imported before prepare_root()")
    os.environ["ASTRBOT_ROOT"] = str(root)
    os.environ["ASTRBOT_DISABLE_METRICS"] = "1"
    sys.path.insert(0, str(root))
    (root / ".astrbot").touch()
    for folder in ("config", "plugins", "temp"):
        (root / "data" / folder).mkdir(parents=True)
    write_config(root, base_config("http://127.0.0.1:9/v1"))
    install_neighbour(root)


def install_neighbour(root: Path) -> None:
    """Put the other plugin into the plugin folder of `root`."""
    source = Path(__file__).with_name("neighbour")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, root / "data" / "plugins" / NEIGHBOUR, ignore=ignore)


def write_config(root: Path, config: Mapping[str, Any]) -> None:
    """Write `config` as the configuration of `root`; AstrBot adds what is missing."""
    path = root / "data" / "cmd_config.json"
    path.write_text(json.dumps(config), encoding="utf-8")


def base_config(api_base: str) -> dict[str, Any]:
    """Return a configuration whose two providers talk to `api_base`."""
    sources = (("main", ["sk-main-1", "sk-main-2"]), ("backup", ["sk-backup"]))
    return {
        "config_version": 5,
        "disable_metrics": True,
        "admins_id": [ADMIN],
        "platform_settings": {"rate_limit": {"time": 0, "count": 100_000}},
        "provider_sources": [
            {
                "id": name,
                "provider": "openai",
                "type": "openai_chat_completion",
                "provider_type": "chat_completion",
                "enable": True,
                "key": keys,
                "api_base": api_base,
                "timeout": 20,
                "proxy": "",
                "custom_headers": {},
            }
            for name, keys in sources
        ],
        "provider": [
            {
                "id": f"{name}/model",
                "enable": True,
                "provider_source_id": name,
                "model": "model",
                "modalities": ["text", "tool_use"],
                "custom_extra_body": {},
                "max_context_tokens": 32000,
            }
            for name, _ in sources
        ],
        # Where older versions of AstrBot look; later ones remove it.
        "provider_settings": {"default_provider_id": MAIN, "request_max_retries": 1},
        "agent_runner": {
            "runner_type": "local",
            "config": {
                "model": {
                    "provider_id": MAIN,
                    "fallback_provider_ids": [],
                    "request_max_retries": 1,
                }
            },
        },
    }


@dataclass(slots=True)
class Turn:
    """What came of one message.

    Attributes:
        texts: Text of each message the user got; a streamed one is joined.
        chains: The message chains as they were sent, streamed pieces one by one.
        requests: What reached the model server during the turn.
        invocations: The runs of the other plugin's tools during the turn.
        log: The log lines of the turn, as `LEVEL message`.
        event: The event that went through the pipeline.
    """

    texts: list[str] = field(default_factory=list)
    chains: list[Any] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    invocations: list[Any] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    event: Any = None

    @property
    def text(self) -> str:
        """Everything the user read, a message a line."""
        return "\n".join(self.texts)

    @property
    def refused(self) -> list[Request]:
        """Requests that the provider refused."""
        return [request for request in self.requests if request.refusal]


class Log:
    """Keeps what AstrBot and its plugins log, as `LEVEL message`."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, message: Any) -> None:
        """Keep one line; a sink of loguru, where all of AstrBot's loggers end."""
        record = message.record
        self.lines.append(f"{record['level'].name} {record['message']}")


OLDER_NAMES = {
    "provider_id": "default_provider_id",
    "fallback_provider_ids": "fallback_chat_models",
    "max_steps": "max_agent_step",
    "max_turns": "max_context_length",
    "trim_turns": "dequeue_context_length",
}


class _OlderSettings(UserDict[str, Any]):
    """The runner's settings where older versions of AstrBot have them, under today's names."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.data = settings

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(OLDER_NAMES.get(key, key))

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(OLDER_NAMES.get(key, key), value)


class Bot:
    """A running AstrBot; see the module's text. Made by `start`."""

    def __init__(self, lifecycle: Any, server: ModelServer, log: Log) -> None:
        self.lifecycle = lifecycle
        self.server = server
        self.log = log

    @classmethod
    async def start(cls, server: ModelServer) -> Bot:
        """Start AstrBot with `server`, which is running, as its model."""
        from astrbot.core import LogBroker, astrbot_config, core_lifecycle, db_helper
        from loguru import logger
        from openai import _base_client

        async def nothing(*_: Any) -> None:
            """Stand in for a start-up step that needs the network."""

        # Both fetch from the network at start.
        core_lifecycle.update_llm_metadata = nothing
        core_lifecycle.html_renderer.initialize = nothing  # type: ignore[method-assign]
        # Older AstrBots leave the SDK its own retries, with pauses between them.
        sdk: Any = _base_client
        sdk.INITIAL_RETRY_DELAY = sdk.MAX_RETRY_DELAY = 0
        log = Log()
        logger.add(log, level="DEBUG")
        fresh = base_config(server.url)
        for part in ("provider_sources", "provider"):
            astrbot_config[part] = fresh[part]
        lifecycle = core_lifecycle.AstrBotCoreLifecycle(LogBroker(), db_helper)
        await lifecycle.initialize()
        return cls(lifecycle, server, log)

    async def stop(self) -> None:
        """Stop AstrBot, as its own shutdown does."""
        await self.lifecycle.stop()

    def reset(self) -> None:
        """Forget requests, script, log and what the other plugin noted or hooks."""
        self.server.reset()
        self.neighbour.reset()
        self.log.lines.clear()

    async def forget_conversations(self) -> None:
        """Delete every stored conversation, whichever session's it is."""
        from sqlalchemy import text

        async with self.lifecycle.db.get_db() as database, database.begin():
            await database.execute(text("DELETE FROM conversations"))
        self.lifecycle.conversation_manager.session_conversations.clear()

    @property
    def context(self) -> Any:
        """The `Context` that AstrBot gives to plugins."""
        return self.lifecycle.star_context

    @property
    def plugins(self) -> Any:
        """AstrBot's plugin manager."""
        return self.lifecycle.plugin_manager

    @property
    def config(self) -> Any:
        """AstrBot's configuration."""
        return self.lifecycle.astrbot_config

    @property
    def neighbour(self) -> Any:
        """The other plugin's running instance."""
        return self.star(NEIGHBOUR)

    def star(self, name: str) -> Any:
        """Return the running instance of the plugin called `name`, or `None`."""
        metadata = self.context.get_registered_star(name)
        return metadata and metadata.star_cls

    def provider(self, provider_id: str = MAIN) -> Any:
        """Return a provider instance."""
        return self.context.get_provider_by_id(provider_id)

    @staticmethod
    def umo(session: str, *, group: bool = False) -> str:
        """Return the `unified_msg_origin` of a session of this harness."""
        kind = "GroupMessage" if group else "FriendMessage"
        return f"{PLATFORM}:{kind}:{session}"

    def event(
        self, text: str, *, session: str = "alice", sender: str | None = None, group: bool = False
    ) -> Any:
        """Return an event as a platform would bring it, which records what is sent."""
        from astrbot.core.message.components import Plain
        from astrbot.core.platform.astrbot_message import AstrBotMessage, Group, MessageMember
        from astrbot.core.platform.message_type import MessageType

        message = AstrBotMessage()
        message.type = MessageType.GROUP_MESSAGE if group else MessageType.FRIEND_MESSAGE
        message.self_id = "bot"
        message.session_id = session
        message.message_id = f"message-{next(_message_ids)}"
        message.sender = MessageMember(user_id=sender or session, nickname=sender or session)
        message.group = Group(group_id=session) if group else None
        message.message = [Plain(text)]
        message.message_str = text
        message.raw_message = None
        return _recording_event_type()(text, message, session)

    async def say(
        self,
        text: str,
        *,
        session: str = "alice",
        streaming: bool = False,
        sender: str | None = None,
        group: bool = False,
        extras: Mapping[str, Any] | None = None,
    ) -> Turn:
        """Send one message through the pipeline and wait for the end of the turn.

        Args:
            text: The message.
            session: The session's name.
            streaming: Whether AstrBot streams its answer.
            sender: The sender's id; without it the session's name. `ADMIN` is an
                administrator.
            group: Whether it is a group message.
            extras: Values for `event.set_extra`.
        """
        event = self.event(text, session=session, sender=sender, group=group)
        event.set_extra("enable_streaming", streaming)
        for key, value in (extras or {}).items():
            event.set_extra(key, value)
        return await self.run(event)

    async def run(self, event: Any) -> Turn:
        """Put an event of `event()` through the pipeline and wait for its end."""
        requests, invocations = len(self.server.requests), len(self.neighbour.invocations)
        lines = len(self.log.lines)
        await self.pipeline.execute(event)
        return Turn(
            texts=event.sent_texts,
            chains=event.sent_chains,
            requests=self.server.requests[requests:],
            invocations=self.neighbour.invocations[invocations:],
            log=self.log.lines[lines:],
            event=event,
        )

    @property
    def pipeline(self) -> Any:
        """The pipeline of the default configuration."""
        return self.lifecycle.pipeline_scheduler_mapping["default"]

    async def history(self, session: str = "alice", *, group: bool = False) -> list[dict[str, Any]]:
        """Return the stored messages of the session's current conversation."""
        manager, umo = self.lifecycle.conversation_manager, self.umo(session, group=group)
        conversation_id = await manager.get_curr_conversation_id(umo)
        if not conversation_id:
            return []
        conversation = await manager.get_conversation(umo, conversation_id)
        return json.loads(conversation.history)

    async def set_history(
        self, session: str, messages: Sequence[Mapping[str, Any]], *, group: bool = False
    ) -> str:
        """Start a conversation of the session with `messages`; return its id."""
        return await self.lifecycle.conversation_manager.new_conversation(
            self.umo(session, group=group), PLATFORM, content=list(messages)
        )

    async def load_plugin_from(self, source: Path) -> str:
        """Install a plugin as the WebUI does, from a zip file or a folder; return its name.

        Args:
            source: The zip file, which stays where it is, or a folder, which is copied.
        """
        upload = Path(os.environ["ASTRBOT_ROOT"]) / "data" / "temp" / "upload.zip"
        if source.is_dir():
            shutil.make_archive(str(upload.with_suffix("")), "zip", source)
        else:
            shutil.copyfile(source, upload)  # The installer deletes what it is given.
        installed = await self.plugins.install_plugin_from_file(str(upload))
        return cast(str, installed["name"])

    async def reload(self, name: str) -> tuple[bool, str | None]:
        """Reload a plugin; return AstrBot's success and error."""
        return await self.plugins.reload(name)

    async def disable(self, name: str) -> None:
        """Switch a plugin off, as the WebUI does."""
        await self.plugins.turn_off_plugin(name)

    async def enable(self, name: str) -> None:
        """Switch a plugin on again."""
        await self.plugins.turn_on_plugin(name)

    async def remove(self, name: str) -> None:
        """Uninstall a plugin with its configuration and data."""
        await self.plugins.uninstall_plugin(name, delete_config=True, delete_data=True)

    @contextlib.asynccontextmanager
    async def changed(
        self,
        *,
        fallbacks: Sequence[str] | None = None,
        request_max_retries: int | None = None,
        **runner: Any,
    ) -> AsyncIterator[None]:
        """Run with other agent settings, and put the old ones back.

        Args:
            fallbacks: Ids of the fallback providers.
            request_max_retries: AstrBot's attempts per request.
            runner: Groups of the runner's settings, e.g. `misc={"max_steps": 3}`.
        """
        model: dict[str, Any] = {}
        if fallbacks is not None:
            model["fallback_provider_ids"] = list(fallbacks)
        if request_max_retries is not None:
            model["request_max_retries"] = request_max_retries
        groups = {**runner, "model": {**runner.get("model", {}), **model}}
        wanted = {(g, key): value for g, values in groups.items() for key, value in values.items()}
        before = {setting: self._runner_values(setting[0])[setting[1]] for setting in wanted}
        await self._set_runner(wanted)
        try:
            yield
        finally:
            await self._set_runner(before)

    async def _set_runner(self, values: Mapping[tuple[str, str], Any]) -> None:
        for (group, key), value in values.items():
            self._runner_values(group)[key] = value
        await self.lifecycle.reload_pipeline_scheduler("default")

    def _runner_values(self, group: str) -> MutableMapping[str, Any]:
        # Looked up each time: AstrBot replaces the inner parts when it reloads.
        if "agent_runner" in self.config:
            return self.config["agent_runner"]["config"][group]
        return _OlderSettings(self.config["provider_settings"])

    @contextlib.contextmanager
    def provider_config(self, provider_id: str = MAIN, **values: Any) -> Iterator[None]:
        """Run with other values in a provider's own configuration, and put them back."""
        config = self.provider(provider_id).provider_config
        before = {key: config[key] for key in values if key in config}
        config.update(values)
        try:
            yield
        finally:
            for key in values:
                config.pop(key, None)
            config.update(before)

    async def settle(self) -> None:
        """Wait for the tasks that AstrBot leaves running after a turn."""
        current = asyncio.current_task()
        while pending := [task for task in asyncio.all_tasks() if _is_turn_task(task, current)]:
            await asyncio.wait(pending)


def _is_turn_task(task: asyncio.Task[Any], current: asyncio.Task[Any] | None) -> bool:
    return task is not current and "_record_internal_agent_stats" in repr(task.get_coro())


def _recording_event_type() -> Any:
    """Return the event class; late, since importing AstrBot takes seconds."""
    global _event_type
    if _event_type is None:
        _event_type = _make_event_type()
    return _event_type


_event_type: Any = None


def _make_event_type() -> Any:
    from astrbot.core.platform.astr_message_event import AstrMessageEvent
    from astrbot.core.platform.platform_metadata import PlatformMetadata

    class RecordingEvent(AstrMessageEvent):
        """An event of a platform that only remembers what it is told to send."""

        def __init__(self, text: str, message: Any, session: str) -> None:
            platform = PlatformMetadata(
                name=PLATFORM,
                description="test harness",
                id=PLATFORM,
                support_streaming_message=True,
            )
            super().__init__(text, message, platform, session)
            self.sent_texts: list[str] = []
            self.sent_chains: list[Any] = []

        async def send(self, message: Any) -> None:
            self.sent_chains.append(message)
            self.sent_texts.append(message.get_plain_text())
            await super().send(message)

        async def send_streaming(self, generator: Any, use_fallback: bool = False) -> None:
            pieces: list[str] = []
            async for chain in generator:
                self.sent_chains.append(chain)
                if chain.type == "break":
                    self._flush(pieces)
                else:
                    pieces.append(chain.get_plain_text())
            self._flush(pieces)
            await super().send_streaming(generator, use_fallback)

        def _flush(self, pieces: list[str]) -> None:
            if text := "".join(pieces):
                self.sent_texts.append(text)
            pieces.clear()

    return RecordingEvent
