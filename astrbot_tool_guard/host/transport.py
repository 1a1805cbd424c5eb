"""The transport of one call of a plugin author.

The rule: what is asked for here holds for this call alone, whatever the settings
say, and for nothing that the caller does beside it.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from .call import Transport

forced_transport: ContextVar[Transport | None] = ContextVar(
    "astrbot_tool_guard_transport", default=None
)
"""The transport that `call_llm` asks for, while it runs."""


async def call_llm(provider: Any, *, stream: bool | None = None, **text_chat_arguments: Any) -> Any:
    """Ask a chat provider of AstrBot, over the transport of your choice.

    Gateways that cut slow complete requests let a streamed one live. The answer is
    the same either way. Without an installed guard, or with an adapter that does
    not send through Chat Completions, this is `provider.text_chat`.

    Args:
        provider: An AstrBot chat provider.
        stream: `True` streams below the call, `False` does not, `None` leaves it to
            the settings.
        text_chat_arguments: What `provider.text_chat` takes.

    Returns:
        AstrBot's `LLMResponse`.

    Raises:
        ToolMessageProtocolError: The tool calls and results of the request do not
            pair; nothing was sent.
    """
    if stream is None:
        return await provider.text_chat(**text_chat_arguments)
    token = forced_transport.set("stream" if stream else "complete")
    try:
        return await provider.text_chat(**text_chat_arguments)
    finally:
        forced_transport.reset(token)
