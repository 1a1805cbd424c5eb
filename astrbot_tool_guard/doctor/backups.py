"""Contents of conversations as they were before a doctor changed them.

One file for each conversation that was changed. A file is complete when it has
its name: it is written beside it, brought to the disk and then renamed, and only
after that may the conversation be changed. Those of a session's last few repairs are
kept, each repair as a whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

KEPT_REPAIRS: Final = 10
"""Repairs of one session whose backups are kept."""


@dataclass(frozen=True, slots=True)
class Backup:
    """One conversation before and after a change.

    Attributes:
        path: The file that holds it.
        plan: Id of the plan that was applied.
        conversation: AstrBot's conversation id.
        session: The `unified_msg_origin` it belongs to.
        before: The history as it was.
        after: Fingerprint of what it became.
    """

    path: Path
    plan: str
    conversation: str
    session: str
    before: object
    after: str


class Backups:
    """The backups in one folder, which is made when the first one is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(
        self, *, plan: str, conversation: str, session: str, before: object, after: str
    ) -> Backup:
        """Write a backup to the disk; those of its session's older repairs go.

        Raises:
            OSError: The file cannot be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"{self._next_number():08d}-{_tag(session)}-{_tag(plan)}.json"
        path = self._folder / name
        content = {
            "plan": plan,
            "conversation": conversation,
            "session": session,
            "before": before,
            "after": after,
        }
        partial = path.with_suffix(".partial")
        try:
            with open(partial, "w", encoding="utf-8", opener=_for_the_owner) as file:
                json.dump(content, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        self._prune(session)
        return Backup(path, plan, conversation, session, before, after)

    def of_session(self, session: str) -> list[Backup]:
        """Return the backups of a session, the newest first; unreadable ones are passed over."""
        read = (_read(path) for path in reversed(self._paths(session)))
        return [backup for backup in read if backup is not None and backup.session == session]

    def discard(self, backup: Backup) -> None:
        """Delete a backup that has served its purpose."""
        backup.path.unlink(missing_ok=True)

    def _prune(self, session: str) -> None:
        repairs: set[str] = set()
        for path in reversed(self._paths(session)):
            repairs.add(path.stem.split("-")[2])
            if len(repairs) > KEPT_REPAIRS:
                with contextlib.suppress(OSError):
                    path.unlink()

    def _paths(self, session: str) -> list[Path]:
        return sorted(self._folder.glob(f"*-{_tag(session)}-*.json"))

    def _next_number(self) -> int:
        numbers = (path.name.partition("-")[0] for path in self._folder.glob("*-*.json"))
        return max((int(number) for number in numbers if number.isdecimal()), default=0) + 1


def _for_the_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)  # whole conversations are in it


def _tag(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _read(path: Path) -> Backup | None:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Backup(
            path=path,
            plan=str(content["plan"]),
            conversation=str(content["conversation"]),
            session=str(content["session"]),
            before=content["before"],
            after=str(content["after"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
