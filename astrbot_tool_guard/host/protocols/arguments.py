"""What of a checked call an adapter of AstrBot is given to read, in any protocol."""

from __future__ import annotations

import json
from typing import Any

from ...core.model import ToolCall


def argument_text(call: ToolCall) -> str:
    """Return the argument text that AstrBot is given for a call.

    AstrBot decodes it again and stores what it got, so it is always the JSON of an
    object: `{}` for a call that will not run because its text is none. Only where
    nothing is checked does a text that is none pass as it came.
    """
    if call.arguments is None:
        return "{}" if call.problems else call.raw_arguments or "{}"
    if call.blank or call.raw_arguments is None:
        return "{}"
    if call.normalized:
        return json.dumps(call.arguments, ensure_ascii=False)
    return call.raw_arguments


def argument_object(call: ToolCall) -> dict[str, Any]:
    """Return the same for a protocol whose arguments are an object."""
    return call.arguments or {}
