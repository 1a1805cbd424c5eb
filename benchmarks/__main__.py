"""Measure everything, or compare with what was measured before: `python -m benchmarks`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import environment
from .rows import Row, quality_table, table

RESULTS = Path(__file__).with_name("results.json")
PARTS = {
    "core": "the core, beside the libraries that do such work",
    "host": "AstrBot with and without the guard",
    "loading": "AstrBot's start",
    "memory": "ten thousand turns",
}
LOG_LINES = 30


@dataclass(slots=True)
class Found:
    """What was measured.

    Attributes:
        rows: The lines of the table.
        quality: What each repair made of the damaged histories.
    """

    rows: list[Row] = field(default_factory=list[Row])
    quality: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])


def main() -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with results.json")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure these parts only")
    options = parser.parse_args()
    parts = options.only or list(PARTS)
    found = measure(parts)
    print(table(found.rows))
    if found.quality:
        print(f"\n{quality_table(found.quality)}")
    if options.check:
        return check(found, parts)
    if options.only:
        print(f"\n{RESULTS.name} is left as it is, since not everything was measured.")
    else:
        write(found)
    return 0


def measure(parts: list[str]) -> Found:
    """Measure some parts, each in a process of its own, one after the other."""
    found = Found()
    for part in parts:
        print(f"Measuring {PARTS[part]} …", file=sys.stderr)
        measured = run(part)
        found.rows += [Row(**row) for row in measured["rows"]]
        found.quality |= measured.get("quality", {})
    return found


def run(part: str) -> dict[str, Any]:
    """Return what the module of a part measured.

    Raises:
        SystemExit: It failed; the end of what it printed is shown.
    """
    python = environment.python() if part == "core" else Path(sys.executable)
    with tempfile.TemporaryDirectory(prefix="toolcall-guard-bench-") as folder:
        file, log = Path(folder, "found.json"), Path(folder, "log")
        with log.open("wb") as output:
            ran = subprocess.run(
                [python, "-m", f"benchmarks.{part}_rows", file],
                cwd=environment.PROJECT,
                # LiteLLM would look for a table of prices on the network.
                env={**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if ran.returncode:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            raise SystemExit("\n".join([*lines[-LOG_LINES:], f"measuring {part} failed"]))
        return json.loads(file.read_text(encoding="utf-8"))


def write(found: Found) -> None:
    """Write the results."""
    results = {
        "versions": environment.versions(),
        "rows": [row.to_dict() for row in found.rows],
        "quality": found.quality,
    }
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def check(found: Found, parts: list[str]) -> int:
    """Compare with the stored results; return 1 where something is clearly worse.

    What is worse at first is measured once more, since a busy machine is no step back.
    """
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    stored = {Row(**row).key: row for row in results["rows"]}
    steps = _steps(found, stored)
    if steps:
        again = _steps(measure(parts), stored)
        steps = {key: step for key, step in again.items() if key in steps}
    counted = found.quality.get("guard"), results["quality"].get("guard")
    if counted[0] is not None and counted[0] != counted[1]:
        steps["quality"] = f"quality of repair: {counted[0]}, was {counted[1]}"
    for step in steps.values():
        print(f"step back: {step}")
    print("no step back" if not steps else f"{len(steps)} rows are clearly worse")
    return 1 if steps else 0


def _steps(found: Found, stored: dict[str, dict[str, Any]]) -> dict[str, str]:
    steps = {row.key: row.step_back(stored.get(row.key)) for row in found.rows}
    return {key: step for key, step in steps.items() if step is not None}


if __name__ == "__main__":
    sys.exit(main())
