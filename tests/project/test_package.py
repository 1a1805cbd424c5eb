"""What `make package` writes is what AstrBot installs, loads and unloads."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from tests.support.bot import Bot
from tools.package import NAME, ROOT, build, members


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist") / f"{NAME}.zip")


def contents(package: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(package) as archive:
        assert archive.testzip() is None
        return {
            name.removeprefix(f"{NAME}/"): archive.read(name)
            for name in archive.namelist()
            if not name.endswith("/")
        }


def test_it_holds_what_an_operator_needs(package: Path) -> None:
    names = set(contents(package))
    assert names >= {"main.py", "metadata.yaml", "_conf_schema.json", "requirements.txt"}
    assert names >= {"logo.png", "README.md", "CHANGELOG.md", "LICENSE"}
    assert ".astrbot-plugin/i18n/zh-CN.json" in names
    assert "astrbot_tool_guard/core/messages/pairing.py" in names


def test_it_holds_nothing_of_the_workshop(package: Path) -> None:
    tops = {name.partition("/")[0] for name in contents(package)}
    assert not tops & {"tests", "demo", "tools", "benchmarks", ".ci", "Makefile", "pyproject.toml"}
    assert not [name for name in contents(package) if "__pycache__" in name]


def test_every_source_of_the_plugin_is_in_it(package: Path) -> None:
    packaged = set(contents(package))
    sources = {p.relative_to(ROOT).as_posix() for p in (ROOT / "astrbot_tool_guard").rglob("*.py")}
    assert sources <= packaged


def test_the_bytes_depend_on_the_sources_alone(package: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    for member in reversed(list(members())):
        target = copy / member
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / member).read_bytes())
        target.chmod(0o700)
        os.utime(target, (1, 1))
    program = "import sys, tools.package as p, pathlib as l; p.build(*map(l.Path, sys.argv[1:]))"
    again = tmp_path / "again.zip"
    environment = os.environ | {"PYTHONHASHSEED": "7", "TZ": "Asia/Shanghai"}
    arguments = [sys.executable, "-c", program, str(again), str(copy)]
    subprocess.run(arguments, check=True, cwd=ROOT, env=environment)
    assert again.read_bytes() == package.read_bytes()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"CHANGELOG\.md"):
        build(tmp_path / "none.zip", tmp_path)
    assert not (tmp_path / "none.zip").exists()


def test_the_logo_is_square_and_small(package: Path) -> None:
    logo = contents(package)["logo.png"]
    with Image.open(io.BytesIO(logo)) as image:
        assert image.size == (256, 256)
    assert len(logo) < 64_000


def test_no_file_looks_like_an_unresolved_merge(package: Path) -> None:
    # The plugin market refuses such a line in any file.
    marker = b"=" * 7
    bad = [name for name, data in contents(package).items() if marker in data.splitlines()]
    assert bad == []


async def test_astrbot_installs_loads_and_removes_it(bot: Bot, package: Path) -> None:
    name = await bot.load_plugin_from(package)
    try:
        assert name == NAME
        metadata = bot.context.get_registered_star(NAME)
        assert metadata.activated
        assert metadata.display_name == "Tool Call Guard"
        assert metadata.root_dir_name == NAME
        assert bot.star(NAME) is not None
        assert await bot.reload(NAME) == (True, None)
    finally:
        await bot.remove(NAME)
    assert bot.star(NAME) is None
    assert not (Path(os.environ["ASTRBOT_ROOT"]) / "data" / "plugins" / NAME).exists()
