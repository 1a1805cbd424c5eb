"""Tool Call Guard: pairs tool calls with their results, and checks calls before they run.

The names below are the public contract. Each is loaded when it is first used, so
importing the package costs nothing, and the pure ones need neither AstrBot nor
the OpenAI SDK.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .core.calls.answers import assemble
    from .core.errors import ToolMessageProtocolError
    from .core.messages.pairing import check_messages, find_violations
    from .core.messages.repair import repair_messages
    from .core.model import Change, Repair, Violation
    from .host.guard import Guard, install
    from .host.transport import call_llm
    from .journal.events import AttemptRecord, Incident
    from .settings.settings import Settings

__all__ = [
    "AttemptRecord",
    "Change",
    "Guard",
    "Incident",
    "Repair",
    "Settings",
    "ToolMessageProtocolError",
    "Violation",
    "assemble",
    "call_llm",
    "check_messages",
    "find_violations",
    "install",
    "repair_messages",
]

_HOME: Final = {
    "AttemptRecord": ".journal.events",
    "Change": ".core.model",
    "Guard": ".host.guard",
    "Incident": ".journal.events",
    "Repair": ".core.model",
    "Settings": ".settings.settings",
    "ToolMessageProtocolError": ".host.shared_error",
    "Violation": ".core.model",
    "assemble": ".core.calls.answers",
    "call_llm": ".host.transport",
    "check_messages": ".core.messages.pairing",
    "find_violations": ".core.messages.pairing",
    "install": ".host.guard",
    "repair_messages": ".core.messages.repair",
}


def __getattr__(name: str) -> object:
    """Load a public name from its module when it is first asked for (PEP 562)."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(home, __name__)
    value = module.shared_error() if name == "ToolMessageProtocolError" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
