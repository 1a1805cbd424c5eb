"""Where the supported versions of AstrBot differ in what the tests use of it, as data.

The product's own differences are in `astrbot_tool_guard.host.seams.versions`.
"""

from __future__ import annotations

from typing import Any

from .answers import Answer, Failure

TOOL_CALLS_MODEL = ("to_openai_tool_calls_model", "to_openai_to_calls_model")
"""The method of `LLMResponse` that makes what is stored: today's name, and the older one."""


def stored_calls(response: Any) -> Any:
    """Return the tool calls of an `LLMResponse` as AstrBot stores them."""
    return next(getattr(response, name) for name in TOOL_CALLS_MODEL if hasattr(response, name))()


def requests_until_it_fails(bot: Any, failure: Answer) -> int:
    """Return how often the SDK asks before a failure reaches who asked.

    Older AstrBots leave it its own retries, of answers that say it is overloaded.
    """
    retried = isinstance(failure, Failure) and failure.status >= 500
    return 1 + (bot.provider().client.max_retries if retried else 0)
