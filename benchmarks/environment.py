"""The environment of what the guard is compared with: `.bench`, built when it has to be.

It is made from the Python that runs the guard, so that both sides run on the same.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
FOLDER = PROJECT / ".bench"


def python() -> Path:
    """Return the interpreter of the environment, and build that first where needed."""
    executable = FOLDER / "bin" / "python"
    stamp = FOLDER / "installed"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return executable
    print(f"Building {FOLDER.name}; the first time takes a few minutes.", file=sys.stderr)
    shutil.rmtree(FOLDER, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
    install = [executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*install, "-r", REQUIREMENTS], check=True)
    stamp.write_text(wanted)  # last, so that a half-built environment is built anew
    return executable


def versions() -> dict[str, str]:
    """Return the versions of everything that is measured."""
    found = dict(line.split("==") for line in REQUIREMENTS.read_text().split())
    found["astrbot"] = version("astrbot")
    found["python"] = ".".join(map(str, sys.version_info[:3]))
    return dict(sorted(found.items()))
