"""One `ToolMessageProtocolError`, also with an AstrBot that has its own.

The rule: whoever catches it by our name catches AstrBot's, and whoever catches
AstrBot's catches ours. No AstrBot of today has one; where a later one does, this is
found out without importing anything, since the command line never imports AstrBot.
"""

from __future__ import annotations

import sys
from typing import Final

from ..core import errors

NAME: Final = "ToolMessageProtocolError"
PLACES: Final = ("astrbot.core.exceptions", "astrbot.core.provider.sources.openai_source")
"""Where AstrBot keeps its exceptions, and where it builds the requests."""


def astrbots_own() -> type[Exception] | None:
    """Return AstrBot's own error type, if the AstrBot of this process has one."""
    for place in PLACES:
        found = getattr(sys.modules.get(place), NAME, None)
        if isinstance(found, type) and issubclass(found, Exception):
            return found
    return None


def shared_error() -> type[Exception]:
    """Return the type to catch: AstrBot's own, or ours where there is none.

    With AstrBot's own, what we raise is from now on an instance of it, too.
    """
    own = astrbots_own()
    errors.be_also(own)
    return own or errors.ToolMessageProtocolError
