"""The playground's model: it answers by looking at the last message, no more."""

from __future__ import annotations

import re
from typing import Any

from tests.support.answers import Answer, call, calls, say
from tests.support.model_server import Request

HELP = """\
weather in Oslo / 奥斯陆的天气   the model calls a tool, and another one with "and the time"
break / 弄坏                     breaks the stored history of this chat; then type anything
cut                              the model's tool call is cut off in the middle of its arguments
anything else                    the model answers with text"""

CITY = re.compile(r"weather in ([A-Z][\w-]*)|([\u4e00-\u9fff]{2,4})的?天气")


def answer(request: Request) -> Answer:
    """Return what the model says to `request`."""
    last = request.messages[-1]
    text = _text_of(last.get("content"))
    if last["role"] == "tool":
        results = [_text_of(message["content"]) for message in _trailing_results(request.messages)]
        return say(f"The tools say: {'; '.join(results)}.")
    if not request.tools:
        return say("Playground")  # The title that the WebUI asks for.
    line = text.strip().lower()
    if line == "cut":
        return calls(call("get_weather", '{"city": "Os'), finish_reason="length")
    wanted: list[dict[str, Any]] = []
    if "weather" in line or "天气" in line:
        found = CITY.search(text)
        city = next(filter(None, found.groups()), "Oslo") if found else "Oslo"
        wanted.append(call("get_weather", {"city": city}))
    if "time" in line or "时间" in line:
        wanted.append(call("get_time"))
    if wanted:
        return calls(*wanted)
    return say(f"You said: {text.strip()}")


def _trailing_results(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for message in reversed(messages):
        if message["role"] != "tool":
            break
        results.insert(0, message)
    return results


def _text_of(content: Any) -> str:
    if isinstance(content, list):
        # The first part is what the user typed; AstrBot adds reminders after it.
        return next((part["text"] for part in content if part.get("type") == "text"), "")
    return str(content or "")
