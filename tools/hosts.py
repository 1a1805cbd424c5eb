"""Run the tests that need AstrBot against the AstrBot versions that are supported.

    python -m tools.hosts                         # every supported line
    python -m tools.hosts --hosts oldest          # what the checks run besides the newest
    python -m tools.hosts --python 3.13 -- -x     # another Python; the rest goes to pytest

Each version gets an environment of its own below `.hosts/`, built from the package
index and kept until its requirements change. Prints one table; exits with 1 if a
version fails or cannot be built.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOSTS = ROOT / ".hosts"

OLDEST = "4.26.6"
VERSIONS = (OLDEST, "4.27.*", "4.28.*", "4.29.3")
"""The oldest and the newest that are supported, and the newest of each line between."""

TESTS = ("tests/host", "tests/project/test_bot.py")
NOT_NEEDED = ("astrbot", "import-linter", "pyright", "ruff", "uv", "-r")
"""What of `requirements-dev.txt` an environment for tests of one AstrBot does without."""

WORKERS = "2"
"""Processes, each with an AstrBot of its own."""

SHOWN = ("astrbot", "openai", "wrapt")
ENOUGH_LINES = 60
ASTRBOTS_OWN = re.compile(r"\[Core\]|^INTERNALERROR")
"""Lines of a failed run that say nothing about it."""


class BuildError(Exception):
    """An environment could not be built; the text is the installer's."""


@dataclass(frozen=True, slots=True)
class Result:
    """How the tests went on one AstrBot.

    Attributes:
        asked: The version as asked for.
        versions: The packages that were really there.
        python: The version of Python.
        passed: How many tests passed.
        failed: How many failed, or could not be run.
        skipped: How many were skipped.
        seconds: How long the tests took.
        output: What they printed.
    """

    asked: str
    versions: dict[str, str]
    python: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    output: str

    @property
    def ok(self) -> bool:
        """Whether every test passed, and there were any."""
        return self.failed == 0 and self.passed > 0


def requirements(version: str) -> list[str]:
    """Return what the environment of one AstrBot holds."""
    lines = [
        line.strip()
        for name in ("requirements.txt", "requirements-dev.txt")
        for line in (ROOT / name).read_text(encoding="utf-8").splitlines()
    ]
    kept = [line for line in lines if line and re.split(r"[=<>\[ ]", line)[0] not in NOT_NEEDED]
    return [f"astrbot=={version}", *kept]


def python_called(name: str) -> str:
    """Return the path of the Python that `name` (a path, or a version as `3.13`) means.

    Raises:
        BuildError: There is none that runs.
    """
    candidates = [name, f"python{name}"]
    if re.fullmatch(r"[0-9.]+", name):
        found = (Path.home() / ".pyenv" / "versions").glob(f"{name}*/bin/python")
        candidates += sorted(map(str, found), reverse=True)
    for candidate in candidates:
        # Each is run: a name on PATH may be a shim that only says that it is none.
        try:
            answer = _output([candidate, "-c", "import sys; print(sys.executable)"])
        except (OSError, subprocess.CalledProcessError):
            continue
        return answer.strip()
    raise BuildError(f"no Python called {name} runs here")


def environment(version: str, python: str) -> Path:
    """Return the interpreter of the environment for one AstrBot, built when it has to be.

    Args:
        version: AstrBot's version, `4.27.*` for the newest of a line.
        python: The Python it is built with.

    Raises:
        BuildError: It cannot be built.
    """
    tag = _output([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).strip()
    folder = HOSTS / f"astrbot-{version.replace('*', 'x')}-py{tag}"
    wanted = requirements(version)
    stamp = folder / "installed"
    checksum = hashlib.sha256("\n".join([python, *wanted]).encode()).hexdigest()
    interpreter = folder / "bin" / "python"
    if stamp.is_file() and stamp.read_text() == checksum:
        return interpreter
    print(f"Building {folder.relative_to(ROOT)} …", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    HOSTS.mkdir(exist_ok=True)
    uv = _uv()
    if uv is not None:
        _run([uv, "venv", "-q", "--python", python, str(folder)])
        _run([uv, "pip", "install", "-q", "--python", str(interpreter), *wanted])
    else:
        _run([python, "-m", "venv", str(folder)])
        _run([str(interpreter), "-m", "pip", "install", "-qq", *wanted])
    stamp.write_text(checksum)
    return interpreter


def run(version: str, python: str, more: Sequence[str]) -> Result:
    """Run the tests on one AstrBot.

    Args:
        version: As for `environment`.
        python: As for `environment`.
        more: Further arguments of pytest.

    Raises:
        BuildError: The environment cannot be built.
    """
    interpreter = environment(version, python)
    report = interpreter.parent.parent / "report.xml"
    report.unlink(missing_ok=True)
    command = [str(interpreter), "-m", "pytest", "-p", "no:cacheprovider", "--tb=short"]
    command += ["-n", WORKERS, "--dist", "loadfile", "--show-capture=no"]
    command += [f"--junitxml={report}", *TESTS, *more]
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    seconds = time.monotonic() - began
    report.with_name("output.txt").write_text(done.stdout, encoding="utf-8")
    passed, failed, skipped = _counts(report)
    if done.returncode != 0:
        failed = max(failed, 1)
    code = "import sys, importlib.metadata as m; "
    code += "print(sys.version.split()[0], *(m.version(name) for name in sys.argv[1:]))"
    found, *versions = _output([str(interpreter), "-c", code, *SHOWN]).split()
    return Result(
        version,
        dict(zip(SHOWN, versions, strict=True)),
        found,
        passed,
        failed,
        skipped,
        seconds,
        done.stdout,
    )


def table(results: Sequence[Result]) -> str:
    """Return the results as a table."""
    rows = [["AstrBot", "openai", "wrapt", "Python", "passed", "failed", "skipped", "seconds"]]
    rows += [
        [
            *(each.versions[name] for name in SHOWN),
            each.python,
            *map(str, (each.passed, each.failed, each.skipped, round(each.seconds))),
        ]
        for each in results
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _counts(report: Path) -> tuple[int, int, int]:
    if not report.is_file():
        return 0, 1, 0
    total = failed = skipped = 0
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        total += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped += int(suite.get("skipped", 0))
    return total - failed - skipped, failed, skipped


def _uv() -> str | None:
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.is_file() else shutil.which("uv")


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        raise BuildError(done.stdout.strip())


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; see the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tools.hosts", description=__doc__)
    parser.add_argument("--hosts", default="all", help="all, oldest, or versions with commas")
    parser.add_argument("--python", default=sys.executable, help="a path, or a version")
    parser.add_argument("pytest", nargs="*", help="further arguments of pytest, after --")
    options = parser.parse_args(arguments)
    named = {"all": VERSIONS, "oldest": (OLDEST,)}
    versions = named.get(options.hosts) or tuple(options.hosts.split(","))
    results: list[Result] = []
    unbuilt = 0
    for version in versions:
        try:
            result = run(version, python_called(options.python), options.pytest)
        except BuildError as error:
            print(f"AstrBot {version}: {error}", flush=True)
            unbuilt += 1
            continue
        if not result.ok:
            lines = [line for line in result.output.splitlines() if not ASTRBOTS_OWN.search(line)]
            print("\n".join(lines[-ENOUGH_LINES:]), flush=True)
        print(f"AstrBot {version}: {'ok' if result.ok else 'FAILED'}", flush=True)
        results.append(result)
    if results:
        print(table(results))
    # The last line is in the form that any continuous integration can count.
    passed, failed = (sum(getattr(each, name) for each in results) for name in ("passed", "failed"))
    print(f"{passed} passed, {failed + unbuilt} failed")
    return 0 if not unbuilt and all(each.ok for each in results) else 1


if __name__ == "__main__":
    sys.exit(main())
