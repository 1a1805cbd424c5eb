"""Another plugin: a handful of tools that note their calls, and hooks to fill.

It stands for everything in a real bot that is neither AstrBot nor the guard, and
it knows nothing of either's tests: who wants to steer it, sets its attributes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from astrbot.api.event import AstrMessageEvent, filter
from astrbot.api.star import Context, Star
from astrbot.core.agent.tool import FunctionTool

STRING = {"type": "string"}
TOOLS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "get_weather": (
        "The weather in a city.",
        {"city": {**STRING, "description": "Name of the city."}, "days": {"type": "integer"}},
        ["city"],
    ),
    "get_time": ("The time of day.", {}, []),
    "save_note": (
        "Save a note.",
        {"text": STRING, "tags": {"type": "array", "items": STRING}},
        ["text"],
    ),
    "search_notes": ("Search the notes.", {"query": STRING, "limit": {"type": "integer"}}, []),
    "write_page": ("Write a page.", {"path": STRING, "body": STRING}, ["path", "body"]),
    "set_switch": (
        "Turn a switch on or off.",
        {"name": STRING, "on": {"type": "boolean"}},
        ["name", "on"],
    ),
}


@dataclass(frozen=True, slots=True)
class Invocation:
    """One run of a tool."""

    tool: str
    arguments: dict[str, Any]
    session: str


class Neighbour(Star):
    """The plugin.

    Attributes:
        invocations: Every run of a tool, in order.
        results: What a tool returns: a value, or a function of its arguments.
        on_request: Called with the event and AstrBot's `ProviderRequest`.
        on_tool: Called with the event, the tool and its arguments before it runs.
        on_tool_done: Called with the event, tool, arguments and result.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.reset()
        context.add_llm_tools(*(_make_tool(self, name) for name in TOOLS))

    def reset(self) -> None:
        """Forget what was noted, and hook nothing."""
        self.invocations: list[Invocation] = []
        self.results: dict[str, Any] = {}
        self.on_request: Callable[..., Any] | None = None
        self.on_tool: Callable[..., Any] | None = None
        self.on_tool_done: Callable[..., Any] | None = None

    @filter.on_llm_request()
    async def before_request(self, event: AstrMessageEvent, request: Any) -> None:
        await _call(self.on_request, event, request)

    @filter.on_using_llm_tool()
    async def before_tool(self, event: AstrMessageEvent, tool: Any, arguments: Any) -> None:
        await _call(self.on_tool, event, tool, arguments)

    @filter.on_llm_tool_respond()
    async def after_tool(
        self, event: AstrMessageEvent, tool: Any, arguments: Any, result: Any
    ) -> None:
        await _call(self.on_tool_done, event, tool, arguments, result)

    async def run(self, tool: str, session: str, arguments: dict[str, Any]) -> str:
        """Note one run of a tool and return its result."""
        self.invocations.append(Invocation(tool, arguments, session))
        result = self.results.get(tool, f"{tool} done")
        return str(await _call(result, **arguments) if callable(result) else result)


class NotedTool(FunctionTool):
    """A tool that hands its calls to the plugin."""

    async def call(self, context: Any, **kwargs: Any) -> str:
        """Run the tool."""
        event = context.context.event
        plugin: Neighbour = self.plugin  # type: ignore[attr-defined]
        return await plugin.run(self.name, event.unified_msg_origin, kwargs)


def _make_tool(plugin: Neighbour, name: str) -> FunctionTool:
    description, properties, required = TOOLS[name]
    parameters = {"type": "object", "properties": properties, "required": required}
    tool = NotedTool(name=name, description=description, parameters=parameters)
    tool.plugin = plugin  # type: ignore[attr-defined]
    return tool


async def _call(hook: Callable[..., Any] | None, *args: Any, **kwargs: Any) -> Any:
    if hook is None:
        return None
    result = hook(*args, **kwargs)
    return await result if inspect.isawaitable(result) else result
