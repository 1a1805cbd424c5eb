"""A pytest plugin: AstrBot's own tests with the guard installed in its default settings.

The guard goes on when every test module has been imported, so that AstrBot is set up
exactly as its tests set it up. What passed through it is written to the file named by
`GUARD_REPORT`: a comparison in which the guard was not there would prove nothing.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

# Not left on the path: AstrBot's tests import a `tests` package, and we have one, too.
sys.path.insert(0, str(ROOT))
importlib.import_module("astrbot_tool_guard")
sys.path.remove(str(ROOT))

_guard: Any = None
_passed: Counter[str] = Counter()


def pytest_collection_finish() -> None:
    """Install the guard, and count what passes through each of its wrappers."""
    global _guard
    from astrbot_tool_guard.host.guard import install
    from astrbot_tool_guard.host.seams.seams import Seam, Seams

    attach = Seams.attach

    def counting(self: Seams, wrappers: Mapping[Seam, Any]) -> None:
        attach(self, {seam: _counted(seam.name, wrapper) for seam, wrapper in wrappers.items()})

    Seams.attach = counting  # type: ignore[method-assign]
    _guard = install()


def pytest_sessionfinish() -> None:
    """Write down where the guard was and what passed through it, and take it off."""
    if _guard is None:
        return
    seams = {each.name: (each.attached, _passed[each.name]) for each in _guard.status()}
    Path(os.environ["GUARD_REPORT"]).write_text(json.dumps(seams), encoding="utf-8")
    _guard.uninstall()


def _counted(name: str, wrapper: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*arguments: Any) -> Any:
        _passed[name] += 1
        return wrapper(*arguments)

    return counted
