"""The plugin as AstrBot loads it: its life cycle and what AstrBot calls.

The rule: thin. What is decided and done stands in `astrbot_tool_guard`; here it is
started, stopped, and given what only AstrBot has. AstrBot does not call `terminate`
when `initialize` fails, so `initialize` rolls back by itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from astrbot.api import logger
from astrbot.api.star import Context, Star

from .astrbot_tool_guard.host.guard import Guard, install
from .astrbot_tool_guard.sessions import SessionOverrides
from .astrbot_tool_guard.settings import Settings


class ToolCallGuard(Star):
    """Tool Call Guard.

    Attributes:
        guard: The installed guard, while the plugin is on.
    """

    def __init__(self, context: Context, config: Mapping[str, object] | None = None) -> None:
        super().__init__(context)
        self.config = config
        self.guard: Guard | None = None

    async def initialize(self) -> None:
        """Start the guard."""
        try:
            await self._start()
        except BaseException:
            await self.terminate()
            raise

    async def terminate(self) -> None:
        """Stop the guard and take everything of it off AstrBot."""
        guard, self.guard = self.guard, None
        if guard is not None:
            guard.uninstall()

    async def _start(self) -> None:
        settings, warnings = Settings.parse(self.config)
        sessions = SessionOverrides(self.get_kv_data, self.put_kv_data)
        for warning in (*warnings, *await sessions.load()):
            logger.warning("Tool Call Guard: %s", warning)
        self.guard = install(settings, sessions=sessions)
        self.guard.watch(self.context.get_all_providers)
