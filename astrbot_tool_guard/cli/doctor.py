"""The command `doctor DB`: what it prints, and what its exit code is.

Output is collected on the side and shown only when the work is done, so that a
database that fails half-way leaves one line on stderr and nothing on stdout.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Final

from ..doctor.database import Mended, examine_database, mend_database
from ..doctor.doctor import Diagnosis, Tally
from ..texts.lines import count, shown
from .terminal import ProgressBar

IN_MEMORY: Final = 1 << 20
"""Characters of output kept in memory before the rest goes to a temporary file."""


def run_doctor(
    database: Path,
    *,
    session: str | None,
    advisories: bool,
    apply: bool,
    plan: str | None,
    as_json: bool,
) -> bool:
    """Examine, and with `apply` mend, a stopped bot's database, and print what was found.

    Args:
        database: AstrBot's SQLite file.
        session: Only conversations of this `unified_msg_origin`.
        advisories: Whether what may be refused is mended too.
        apply: Whether anything is changed.
        plan: The only plan to apply, as a dry run printed it.
        as_json: Whether to print one JSON object.

    Returns:
        Whether everything is fine now.

    Raises:
        DatabaseError: There is nothing to judge, and nothing was changed.
    """
    with SpooledTemporaryFile(IN_MEMORY, "w+", encoding="utf-8", newline="") as output:
        report = _JsonReport(output.write) if as_json else _TextReport(output.write)
        bar = ProgressBar(sys.stderr)
        try:
            if apply:
                mended = mend_database(
                    database,
                    plan=plan,
                    session=session,
                    advisories=advisories,
                    see=report.see,
                    advance=bar.advance,
                )
                report.end_applied(mended)
                left = mended.after
            else:
                left = examine_database(
                    database,
                    session=session,
                    advisories=advisories,
                    see=report.see,
                    advance=bar.advance,
                )
                report.end_dry(left)
        finally:
            bar.end()
        output.seek(0)
        shutil.copyfileobj(output, sys.stdout)
    return left.states["ok"] == left.conversations


Write = Callable[[str], object]


class _JsonReport:
    """One JSON object, written piece by piece."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._separator = '{"conversations": ['

    def see(self, diagnosis: Diagnosis) -> None:
        self._write(self._separator + json.dumps(diagnosis.to_dict()))
        self._separator = ", "

    def end_dry(self, tally: Tally) -> None:
        self._end({"counts": tally.to_dict(), "plan": tally.plan, "applied": False})

    def end_applied(self, mended: Mended) -> None:
        self._end(
            {
                "counts": mended.tally.to_dict(),
                "plan": mended.tally.plan,
                "applied": mended.backup is not None,
                "backup": None if mended.backup is None else str(mended.backup),
                "counts_after": mended.after.to_dict(),
            }
        )

    def _end(self, rest: dict[str, object]) -> None:
        start = "" if self._separator == ", " else self._separator
        self._write(f"{start}], {json.dumps(rest)[1:]}\n")


class _TextReport:
    """A line for each conversation there is something to say of, and the counts."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def see(self, diagnosis: Diagnosis) -> None:
        if diagnosis.state == "ok" and not diagnosis.advisories:
            return
        said: list[str] = []
        if diagnosis.reason is not None:
            said.append(diagnosis.reason)
        if diagnosis.violations:
            said.append(count(len(diagnosis.violations), "violation"))
        if diagnosis.advisories:
            said.append(count(len(diagnosis.advisories), "advisory", "advisories"))
        said += [f"{action} {times}" for action, times in diagnosis.actions().items()]
        name = shown(f"{diagnosis.session} {diagnosis.conversation}")
        self._line(f"{diagnosis.state}: {name}: {', '.join(said)}")

    def end_dry(self, tally: Tally) -> None:
        self._line(_counts(tally))
        if tally.plan is not None:
            self._line(f"plan {tally.plan}: stop AstrBot, then add --apply {tally.plan}")

    def end_applied(self, mended: Mended) -> None:
        if mended.backup is None:
            self._line("nothing to change")
        else:
            changed = mended.tally.states["repairable"]
            self._line(f"{count(changed, 'conversation')} mended")
            self._line(
                f"violations: {mended.tally.violations} before, {mended.after.violations} now"
            )
            self._line(f"the database as it was: {shown(str(mended.backup))}")
        self._line(_counts(mended.after))

    def _line(self, line: str) -> None:
        self._write(line + "\n")


def _counts(tally: Tally) -> str:
    states = ("ok", "repairable", "unreadable")
    there = [f"{tally.states[state]} {state}" for state in states if tally.states[state]]
    return f"{count(tally.conversations, 'conversation')}: {', '.join(there) or 'none'}"
