"""Telling whose an exception is."""

from __future__ import annotations

import traceback
from pathlib import Path

import astrbot_tool_guard

PACKAGE = str(Path(astrbot_tool_guard.__file__).parent)


def is_ours(error: BaseException) -> bool:
    """Tell whether an exception, or one behind it, came up in our own code."""
    seen: BaseException | None = error
    while seen is not None:
        frames = traceback.extract_tb(seen.__traceback__)
        if frames and frames[-1].filename.startswith(PACKAGE):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
