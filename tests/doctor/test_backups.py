"""Backups: whole or not there, found by session, and not without end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from astrbot_tool_guard.doctor import backups as module
from astrbot_tool_guard.doctor.backups import KEPT_REPAIRS, Backup, Backups
from tests.core.messages.histories import user


def save(backups: Backups, session: str = "s", before: object = None, plan: str = "p") -> Backup:
    return backups.save(
        plan=plan, conversation="c", session=session, before=before or [user("天气")], after="f"
    )


def test_a_backup_is_read_back_as_it_was_saved(tmp_path: Path) -> None:
    saved = save(Backups(tmp_path / "made" / "on demand"))

    assert Backups(tmp_path / "made" / "on demand").of_session("s") == [saved]


def test_the_newest_comes_first_also_after_a_restart(tmp_path: Path) -> None:
    saved = [save(Backups(tmp_path), before=[user(str(number))]) for number in range(3)]

    assert Backups(tmp_path).of_session("s") == saved[::-1]


def test_sessions_do_not_see_each_other(tmp_path: Path) -> None:
    backups = Backups(tmp_path)
    save(backups, "qq:GroupMessage:../../1")

    assert backups.of_session("qq:GroupMessage:1") == []
    assert len(backups.of_session("qq:GroupMessage:../../1")) == 1
    assert all(path.parent == tmp_path for path in tmp_path.rglob("*"))


def test_only_the_last_few_repairs_of_each_session_are_kept_each_as_a_whole(
    tmp_path: Path,
) -> None:
    backups = Backups(tmp_path)
    save(backups, "other")
    saved = [save(backups, plan=f"p{number // 3}") for number in range(3 * (KEPT_REPAIRS + 2))]

    assert backups.of_session("s") == saved[:5:-1]
    assert len(backups.of_session("other")) == 1


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_only_the_owner_may_read_a_backup(tmp_path: Path) -> None:
    assert save(Backups(tmp_path)).path.stat().st_mode & 0o777 == 0o600


def test_a_discarded_backup_is_gone(tmp_path: Path) -> None:
    backups = Backups(tmp_path)
    saved = save(backups)
    backups.discard(saved)
    backups.discard(saved)

    assert backups.of_session("s") == []


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"plan": "p"}'])
def test_a_file_that_is_no_backup_is_passed_over(content: str, tmp_path: Path) -> None:
    backups = Backups(tmp_path)
    older, newer = save(backups), save(backups)
    newer.path.write_text(content)

    assert backups.of_session("s") == [older]


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert Backups(tmp_path / "none").of_session("s") == []


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_backup_that_fails_half_way_leaves_nothing(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(module.os, step, fail)

    with pytest.raises(OSError, match="No space left"):
        save(Backups(tmp_path))

    assert list(tmp_path.iterdir()) == []
