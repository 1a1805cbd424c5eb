"""Run AstrBot's own tests without and with the guard, and compare them test by test.

    python -m tools.astrbot_tests

The tests are those of AstrBot's source package that touch what the guard wraps. The
package is fetched from the package index, in the version that is installed here, and
kept below `.hosts/`. No test that passes without the guard may fail with it, unless it
pins exactly what the guard exists to change and is named in `PINNED`.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUITES = (
    "tests/agent",
    "tests/test_openai_source.py",
    "tests/test_tool_loop_agent_runner.py",
    "tests/test_openai_responses_source.py",
    "tests/test_conversation_checkpoint.py",
    "tests/test_openai_thinking_tags.py",
    "tests/test_request_retry.py",
)
PINNED: Mapping[str, str] = {}
"""Tests that may fail with the guard, each with the behaviour it pins. None does."""

PLUGIN = "astrbot_guarded"
SHOWN_LINES = 60


class SourceError(Exception):
    """AstrBot's source package cannot be had; the text is the installer's."""


def source(version: str) -> Path:
    """Return the folder of AstrBot's source package, fetched when it is not there.

    Raises:
        SourceError: It cannot be fetched.
    """
    folder = ROOT / ".hosts" / f"astrbot-{version}-source"
    if not (folder / "tests").is_dir():
        print(f"Fetching the source package of AstrBot {version} …", flush=True)
        archives = folder.with_name(f"{folder.name}-archive")
        shutil.rmtree(archives, ignore_errors=True)
        command = [sys.executable, "-m", "pip", "download", "-qq", "--no-deps"]
        command += ["--no-binary", "astrbot", "-d", str(archives), f"astrbot=={version}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = list(archives.glob("*.tar.gz"))
        if not found:
            raise SourceError(done.stderr.strip())
        with tarfile.open(found[0]) as archive:
            archive.extractall(archives, filter="data")
        shutil.rmtree(folder, ignore_errors=True)
        (archives / found[0].name.removesuffix(".tar.gz")).rename(folder)
        shutil.rmtree(archives)
    return folder


def outcomes(folder: Path, *, guarded: bool) -> tuple[dict[str, bool], str]:
    """Run the suites; return whether each test passed, and what pytest printed."""
    report = folder / f"report-{'guarded' if guarded else 'bare'}.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-o", "asyncio_default_fixture_loop_scope=function", f"--junitxml={report}"]
    environment = dict(os.environ)
    if guarded:
        command += ["-p", PLUGIN]
        environment |= {
            "PYTHONPATH": str(Path(__file__).parent),
            "GUARD_REPORT": str(_guard_report(folder)),
        }
    done = subprocess.run(
        [*command, *SUITES],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    passed: dict[str, bool] = {}
    if report.is_file():
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            name = f"{case.get('classname')}::{case.get('name')}"
            bad = any(case.find(tag) is not None for tag in ("failure", "error", "skipped"))
            passed[name] = passed.get(name, True) and not bad
    return passed, done.stdout


def _guard_report(folder: Path) -> Path:
    return folder / "report-guard.json"


def main() -> int:
    """Run and compare; return 0 when the guard broke nothing."""
    version = importlib.metadata.version("astrbot")
    try:
        folder = source(version)
    except SourceError as error:
        print(f"No source package of AstrBot {version}: {error}")
        return 1
    _guard_report(folder).unlink(missing_ok=True)
    bare, bare_output = outcomes(folder, guarded=False)
    guarded, output = outcomes(folder, guarded=True)
    good = {name for name, passed in bare.items() if passed}
    broken = sorted(name for name in good if not guarded.get(name, False))
    unpinned = [name for name in broken if name not in PINNED]
    idle = sorted(name for name in PINNED if name not in broken)
    if not good:
        print(bare_output)
    if unpinned:
        print("\n".join(output.splitlines()[-SHOWN_LINES:]))
    seams = _seams(folder)
    off = [name for name, (attached, _) in seams.items() if not attached]
    print(f"AstrBot {version}, {len(bare)} tests of its own: {len(good)} pass without the guard,")
    print(f"{sum(guarded.values())} with it.")
    print("Calls through the guard: " + ", ".join(f"{n} {c}" for n, (_, c) in seams.items()))
    for name in broken:
        print(f"BROKEN {name}" if name in unpinned else f"pinned {name}: {PINNED[name]}")
    for name in idle:
        print(f"NOT BROKEN, take it from the list: {name}")
    for name in off:
        print(f"NOT GUARDED: {name}")
    there = bool(seams) and not off and any(count for _, count in seams.values())
    if not there:
        print("The guard was not there.")
    wrong = len(unpinned) + len(idle) + (0 if there else 1)
    print(f"{len(good) - len(unpinned)} passed, {wrong} failed")
    return 0 if good and not wrong else 1


def _seams(folder: Path) -> dict[str, tuple[bool, int]]:
    try:
        return json.loads(_guard_report(folder).read_text(encoding="utf-8"))
    except OSError:
        return {}


if __name__ == "__main__":
    sys.exit(main())
