"""`make fuzz`: every target for a while, guided by the code that is reached.

    python -m tests.fuzz [--seconds 60] [--seed N] [--target NAME]

A value that reaches code which no value before it has reached is changed further.
What breaks a law is printed with its seed and written to `.hypothesis/fuzz/`, to
become a case of the corpus. Ends with 1 when anything was found.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import traceback
import types
from pathlib import Path
from typing import Any

import astrbot_tool_guard

from .mutation import Mutator, seeds
from .targets import TARGETS, Target

PACKAGE = str(Path(astrbot_tool_guard.__file__).parent)
FOUND = Path(__file__).parents[2] / ".hypothesis" / "fuzz"


class Reached:
    """Counts the lines of ours that were ever reached; a line costs something once."""

    def __init__(self) -> None:
        self.lines = 0
        self._tool = sys.monitoring.COVERAGE_ID

    def __enter__(self) -> Reached:
        events = sys.monitoring.events
        sys.monitoring.use_tool_id(self._tool, "fuzz")
        sys.monitoring.register_callback(self._tool, events.LINE, self._line)
        sys.monitoring.set_events(self._tool, events.LINE)
        return self

    def __exit__(self, *_: object) -> None:
        sys.monitoring.set_events(self._tool, 0)
        sys.monitoring.free_tool_id(self._tool)

    def _line(self, code: types.CodeType, _line: int) -> Any:
        if code.co_filename.startswith(PACKAGE):
            self.lines += 1
        return sys.monitoring.DISABLE


def fuzz(name: str, target: Target, found: list[Any], seconds: float, seed: int) -> tuple[int, int]:
    """Run one target; return how many values it took and how many broke a law."""
    mutator = Mutator(found, random.Random(seed))
    deadline = time.monotonic() + seconds
    taken = broken = 0
    with Reached() as reached:
        while time.monotonic() < deadline:
            value = mutator.value()
            before = reached.lines
            try:
                target(value)
            except Exception:
                broken += 1
                FOUND.mkdir(parents=True, exist_ok=True)
                path = FOUND / f"{name}-{seed}-{taken}.json"
                path.write_text(json.dumps(value, indent=1), encoding="utf-8")
                print(f"{name}: {path}\n{traceback.format_exc(limit=-3)}", flush=True)
            taken += 1
            if reached.lines > before:
                mutator.keep(value)
        print(f"{name}: {taken} values, {reached.lines} lines reached, {broken} broke a law")
    return taken, broken


def main() -> int:
    """Run the command line; see the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=float, default=60.0, help="for all targets together")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--target", choices=TARGETS, default=None)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    names = [options.target] if options.target else list(TARGETS)
    print(f"seed {seed}")
    taken = broken = 0
    for name in names:
        target, prefixes = TARGETS[name]
        came = fuzz(name, target, seeds(prefixes), options.seconds / len(names), seed)
        taken, broken = taken + came[0], broken + came[1]
    print(f"{taken - broken} passed, {broken} failed")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
