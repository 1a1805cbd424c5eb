"""The words of a problem: declared names as they may stand in one, bounded in length."""

from __future__ import annotations

from typing import Final

from ..model import Problem

MAX_NAME_CHARS: Final = 64


def shown(name: object) -> str:
    """Return a declared name as it may stand in a problem: bounded in length."""
    text = str(name)
    return text if len(text) <= MAX_NAME_CHARS else text[: MAX_NAME_CHARS - 1] + "…"


def missing_required(name: str, parent: str = "") -> Problem:
    """Return the problem of a required property that is absent."""
    path = f"{parent}.{shown(name)}" if parent else shown(name)
    return Problem("missing_required", path, f'"{shown(name)}" is required')
