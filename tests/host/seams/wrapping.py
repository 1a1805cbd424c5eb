"""What stands on the seams: the raw attributes, and how deep they are wrapped."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

from astrbot_tool_guard.host.seams import versions
from astrbot_tool_guard.host.seams.seams import Seam

SEAMS = tuple(
    value
    for value in vars(versions).values()
    if isinstance(value, Seam) and not (value.optional and find_spec(value.module) is None)
)
"""The seams of the AstrBot at hand."""


def owner_of(seam: Seam) -> tuple[type, str]:
    """Return the class and the attribute of a seam."""
    class_name, _, attribute = seam.path.partition(".")
    return getattr(importlib.import_module(seam.module), class_name), attribute


def on_seams() -> dict[str, Any]:
    """Return the object in the class's `__dict__` for each seam, by the seam's name."""
    found: dict[str, Any] = {}
    for seam in SEAMS:
        owner, attribute = owner_of(seam)
        found[seam.name] = vars(owner)[attribute]
    return found


def wrappers_on(seam: Seam) -> int:
    """Return how many wrapt wrappers lie on a seam."""
    import wrapt

    owner, attribute = owner_of(seam)
    current, count = vars(owner)[attribute], 0
    while isinstance(current, wrapt.BaseObjectProxy):
        current, count = current.__wrapped__, count + 1
    return count
