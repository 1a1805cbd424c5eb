"""Write `dist/astrbot_plugin_toolcall_guard.zip`: what an operator installs, and nothing else.

The same sources give the same bytes on every machine: members are sorted, carry a
fixed time and mode, and are stored, since compressed bytes depend on the zlib at hand.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = "astrbot_plugin_toolcall_guard"
TARGET = ROOT / "dist" / f"{NAME}.zip"

FILES = (
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "_conf_schema.json",
    "logo.png",
    "main.py",
    "metadata.yaml",
    "plugin.yaml",
    "requirements.txt",
)
FOLDERS = ((".astrbot-plugin", "*.json"), ("astrbot_tool_guard", "*.py"))


def members(root: Path = ROOT) -> Iterator[Path]:
    """Yield the packaged files, relative to `root`, in the order of the archive.

    Raises:
        FileNotFoundError: If one of the named files is not there.
    """
    found = [root / name for name in FILES]
    for folder, pattern in FOLDERS:
        found += (root / folder).rglob(pattern)
    for path in sorted(found):
        if not path.is_file():
            raise FileNotFoundError(path.relative_to(root))
        yield path.relative_to(root)


def build(target: Path = TARGET, root: Path = ROOT) -> Path:
    """Write the archive and return its path.

    Args:
        target: Where it goes; its folder is made.
        root: The sources.
    """
    contents = [(member.as_posix(), (root / member).read_bytes()) for member in members(root)]
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        # One top folder, named first, as in the archives that AstrBot downloads.
        archive.writestr(_entry(f"{NAME}/", 0o40755), b"")
        for name, data in contents:
            archive.writestr(_entry(f"{NAME}/{name}", 0o100644), data)
    return target


def _entry(name: str, mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    entry.create_system = 3
    entry.external_attr = mode << 16
    return entry


if __name__ == "__main__":
    try:
        written = build()
    except FileNotFoundError as missing:
        sys.exit(f"Not packaged: {missing} is missing.")
    print(f"{written.relative_to(ROOT)}: {written.stat().st_size:,} bytes")
