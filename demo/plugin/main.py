"""The playground's vandal: the line `break` breaks the stored history of its chat.

It leaves a call without its result, as a crash, a manual edit or another plugin does.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from astrbot.api.event import AstrMessageEvent, filter
from astrbot.api.star import Context, Star

NEIGHBOUR = "astrbot_plugin_neighbour"
HALF_A_GROUP = [
    {"role": "user", "content": "Compare Oslo and Rome."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{city}",
                "type": "function",
                "function": {"name": "get_weather", "arguments": json.dumps({"city": city})},
            }
            for city in ("Oslo", "Rome")
        ],
    },
    {"role": "tool", "tool_call_id": "call_Oslo", "content": "Oslo: 12 °C"},
    {"role": "assistant", "content": "Oslo has 12 °C."},
]


class Playground(Star):
    """The plugin."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)

    @filter.on_astrbot_loaded()
    async def furnish(self) -> None:
        """Give the tools something to say."""
        neighbour = self.context.get_registered_star(NEIGHBOUR)
        if neighbour and neighbour.star_cls:
            plugin: Any = neighbour.star_cls
            results: dict[str, Any] = plugin.results
            results["get_weather"] = lambda city, days=1: f"{city}: 12 °C, light rain"
            results["get_time"] = "noon"

    @filter.regex(r"^\s*(break|弄坏)\s*$")
    async def break_history(self, event: AstrMessageEvent) -> AsyncIterator[Any]:
        """Leave a call of the stored conversation without its result."""
        manager, origin = self.context.conversation_manager, event.unified_msg_origin
        current = await manager.get_curr_conversation_id(origin)
        if current is None:
            current = await manager.new_conversation(origin, event.get_platform_id())
        conversation = await manager.get_conversation(origin, current)
        history = json.loads(conversation.history) if conversation else []
        await manager.update_conversation(origin, current, history=[*history, *HALF_A_GROUP])
        yield event.plain_result(
            "The stored history of this chat now holds a tool call without a result. "
            "Type any line to see what happens.\n"
            "这个会话的历史里现在有一个没有结果的工具调用。随便发一句话看看。"
        )
        event.stop_event()
