"""The files that describe the project say the same thing everywhere."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]


def manifest(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def requirements(name: str) -> list[str]:
    return (ROOT / name).read_text(encoding="utf-8").split()


def test_both_manifests_have_the_same_content() -> None:
    assert manifest("plugin.yaml") == manifest("metadata.yaml")


def test_the_manifest_has_what_astrbot_requires() -> None:
    described = manifest("metadata.yaml")
    for field in ("name", "desc", "version", "author"):
        assert isinstance(described[field], str)
        assert described[field].strip()
    assert described["name"] == "astrbot_plugin_toolcall_guard"


@pytest.mark.parametrize(
    ("version", "supported"),
    [("4.26.5", False), ("4.26.6", True), ("4.27.4", True), ("4.29.3", True), ("5.0.0", False)],
)
def test_the_supported_versions_of_astrbot(version: str, supported: bool) -> None:
    assert (version in SpecifierSet(manifest("metadata.yaml")["astrbot_version"])) is supported


def test_the_version_is_one() -> None:
    version = manifest("metadata.yaml")["version"]
    assert project()["version"] == version
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_requirements_are_the_dependencies_of_the_project() -> None:
    assert sorted(requirements("requirements.txt")) == sorted(project()["dependencies"])


def test_the_checks_run_on_one_version_of_astrbot() -> None:
    assert "astrbot==4.29.3" in requirements("requirements-dev.txt")
