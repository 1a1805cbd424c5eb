"""The scripts that find a Python, build the environment and run the checks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OLD = "exit 1"  # What the probe gives on a Python that is too old.
SHIM = "echo 'pyenv: python3.12: command not found' >&2; exit 127"
USABLE = 'echo "$0"'

Fake = Callable[[str, str], Path]


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    """Makes a program of a shell script, below a home that has nothing else."""

    def make(path: str, script: str) -> Path:
        program = tmp_path / path
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return program

    for tool in ("sh", "cat", "cksum", "rm", "dirname", "mkdir", "env"):
        (tmp_path / "system").mkdir(exist_ok=True)
        (tmp_path / "system" / tool).symlink_to(shutil.which(tool) or pytest.skip(tool))
    return make


def run(home: Path, *command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {"HOME": str(home), "PATH": f"{home}/bin:{home}/system"}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def find(home: Path) -> subprocess.CompletedProcess[str]:
    return run(home, "sh", "tools/find-python.sh")


def test_a_shim_and_an_old_python_do_not_stop_the_search(fake: Fake, tmp_path: Path) -> None:
    fake("bin/python3.12", SHIM)
    fake("bin/python3", OLD)
    usable = fake("bin/python", USABLE)
    assert find(tmp_path).stdout.strip() == str(usable)


def test_a_python_of_pyenv_is_found(fake: Fake, tmp_path: Path) -> None:
    fake("bin/python3.12", SHIM)
    fake(".pyenv/versions/3.10.1/bin/python", OLD)
    usable = fake(".pyenv/versions/3.12.1/bin/python", USABLE)
    assert find(tmp_path).stdout.strip() == str(usable)


def test_uv_is_asked_last(fake: Fake, tmp_path: Path) -> None:
    usable = fake("managed/python3.13", USABLE)
    fake("bin/uv", f"echo {usable}")
    fake("bin/python3", OLD)
    assert find(tmp_path).stdout.strip() == str(usable)


def test_the_python_found_by_uv_is_run_too(fake: Fake, tmp_path: Path) -> None:
    fake("bin/uv", f"echo {fake('managed/python3.13', SHIM)}")
    assert find(tmp_path).returncode == 1


def test_no_python_is_one_clear_line(fake: Fake, tmp_path: Path) -> None:
    fake("bin/python3", OLD)
    nothing = find(tmp_path)
    assert nothing.returncode == 1
    assert nothing.stdout == ""
    assert nothing.stderr.count("\n") == 1
    assert "3.12" in nothing.stderr
    assert "install" in nothing.stderr


@pytest.fixture
def clone(fake: Fake, tmp_path: Path) -> Path:
    """A folder with the set-up scripts, and a Python that only notes what it is told."""
    project = tmp_path / "clone"
    shutil.copytree(ROOT / "tools", project / "tools")
    (project / "requirements.txt").write_text("one\n")
    (project / "requirements-dev.txt").write_text("two\n")
    note = f'echo "$@" >>{tmp_path}/told\n'
    inner = '#!/bin/sh\\n[ "$1" = -c ] || ' + note.replace("\n", "\\n")
    fake(
        "bin/python3.12",
        f'case "$1" in -c) echo "$0";; --version) echo Python;; *) {note}'
        f'mkdir -p "$3/bin"; printf \'{inner}\' >"$3/bin/python"; '
        'env chmod +x "$3/bin/python";; esac',
    )
    (tmp_path / "system" / "chmod").symlink_to(shutil.which("chmod") or "")
    return project


def set_up(clone: Path) -> list[str]:
    """Run the set-up and return what Python was told to do."""
    told = clone.parent / "told"
    told.unlink(missing_ok=True)
    done = run(clone.parent, "sh", "tools/setup.sh", cwd=clone)
    assert done.returncode == 0, done.stderr
    return [line.split()[1] for line in told.read_text().splitlines()] if told.exists() else []


def test_the_environment_is_built_once(clone: Path) -> None:
    assert set_up(clone) == ["venv", "pip"]
    assert set_up(clone) == []


def test_other_requirements_are_installed_into_the_same_environment(clone: Path) -> None:
    set_up(clone)
    (clone / "requirements.txt").write_text("three\n")
    assert set_up(clone) == ["pip"]
    assert set_up(clone) == []


def test_a_half_built_environment_is_built_anew(clone: Path) -> None:
    set_up(clone)
    (clone / ".venv" / "installed").unlink()
    assert set_up(clone) == ["venv", "pip"]


def test_an_environment_whose_python_is_gone_is_built_anew(clone: Path) -> None:
    set_up(clone)
    (clone / ".venv" / "bin" / "python").write_text("#!/nowhere/python\n")
    assert set_up(clone) == ["venv", "pip"]


@pytest.mark.parametrize(
    ("fails", "status"), [("nothing", 0), ("lint", 1), ("test", 1), ("lint test", 1)]
)
def test_ci_runs_both_checks_and_fails_with_either(
    fake: Fake, tmp_path: Path, fails: str, status: int
) -> None:
    fake("bin/make", f'echo "made $1"; case " {fails} " in *" $1 "*) exit 2;; esac')
    os.symlink(shutil.which("bash") or "", tmp_path / "system" / "bash")
    done = run(tmp_path, "bash", ".ci/run")
    assert done.returncode == status
    assert done.stdout.split("\n")[:2] == ["made lint", "made test"]
