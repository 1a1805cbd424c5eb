"""What was measured, beside its goal and beside what was measured before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

Values = tuple[float, float, float]
"""The lower quartile, the median and the upper quartile of the rounds."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        what: What is measured.
        against: What it is compared with.
        value: The median: ours as a multiple of theirs, unless `unit` says otherwise.
        low: The lower quartile of the rounds.
        high: The upper quartile.
        goal: What the value may be at most; `None` where it is only shown.
        slack: How far above the stored value is no clear step back, as a factor.
        room: The same as a difference, for values near zero; the wider one counts.
        unit: What the value counts.
    """

    what: str
    against: str
    value: float
    low: float
    high: float
    goal: float | None = None
    slack: float = 1.25
    room: float = 0.02
    unit: str = "x"

    @classmethod
    def of(cls, what: str, against: str, values: Values, **more: Any) -> Row:
        """Return a row of three figures."""
        low, middle, high = values
        return cls(what, against, middle, low, high, **more)

    @property
    def key(self) -> str:
        """What tells this row from the others."""
        return f"{self.what} / {self.against}"

    @property
    def verdict(self) -> str:
        """Whether the goal is met, in a word."""
        if self.goal is None:
            return ""
        return "met" if self.value <= self.goal else "MISSED"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, rounded to what is worth reading."""
        fields = asdict(self)
        for name in ("value", "low", "high"):
            fields[name] = float(f"{fields[name]:.4g}")
        return fields

    def step_back(self, stored: Mapping[str, Any] | None) -> str | None:
        """Return what is wrong where this is clearly worse than what is stored."""
        if stored is None:
            return None
        limit = max(stored["value"] * self.slack, stored["value"] + self.room)
        if self.value <= limit:
            return None
        return f"{self.key}: {self.value:.3g}, was {stored['value']:.3g}, limit {limit:.3g}"


def table(rows: Iterable[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| what | against | value | quartiles | goal | |", "|---|---|---|---|---|---|"]
    for row in rows:
        goal = "" if row.goal is None else f"≤ {row.goal:g}"
        spread = f"{row.low:.3g} – {row.high:.3g}"
        value = f"{row.value:.3g} {'×' if row.unit == 'x' else row.unit}"
        lines.append(
            f"| {row.what} | {row.against} | {value} | {spread} | {goal} | {row.verdict} |"
        )
    return "\n".join(lines)


def quality_table(quality: Mapping[str, Mapping[str, int]]) -> str:
    """Return the counts of every repair as a Markdown table."""
    lines = [
        "| repair | valid afterwards | results lost | texts lost | calls lost | raised |",
        "|---|---|---|---|---|---|",
    ]
    for name, counts in quality.items():
        share = counts["valid"] / counts["histories"]
        # Rounded down, so that 100% means all.
        shown = f"{int(share * 1000) / 10:g}%"
        lost = " | ".join(str(counts[f"{each}_lost"]) for each in ("results", "texts", "calls"))
        lines.append(f"| {name} | {shown} | {lost} | {counts['raised']} |")
    return "\n".join(lines)
