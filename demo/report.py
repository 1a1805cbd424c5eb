"""Draws a table of played scenarios for a terminal, however wide its characters are."""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Iterator, Sequence

MARGIN = "  "
MAX_LINES = 6
"""Lines of one fact before the rest is left out."""

Row = tuple[str, list[str], list[str]]


def render(title: str, rows: Sequence[Row], width: int | None = None) -> str:
    """Return a table: scenario, AstrBot alone, with the guard.

    Args:
        title: Stands above it.
        rows: A scenario's title and the lines of its two cells.
        width: Columns of the terminal; found out when not given.
    """
    width = max(72, min(160, width or shutil.get_terminal_size((110, 24)).columns))
    first = max(22, width // 6)
    cell = (width - first - 2 * len(MARGIN)) // 2
    widths = (first, cell, cell)
    rule = MARGIN.join("─" * column for column in widths)
    lines = [
        title,
        "",
        *_row(widths, "scenario", ["AstrBot alone"], ["with Tool Call Guard"]),
        rule,
    ]
    for scenario, alone, guarded in rows:
        lines += [*_row(widths, scenario, alone, guarded), rule]
    return "\n".join(lines)


def _row(widths: Sequence[int], title: str, *cells: list[str]) -> Iterator[str]:
    columns = [[title], *cells]
    wrapped = [
        [line for fact in facts for line in _wrap(fact, width)]
        for facts, width in zip(columns, widths, strict=True)
    ]
    for index in range(max(len(column) for column in wrapped)):
        parts = [column[index] if index < len(column) else "" for column in wrapped]
        padded = [_pad(part, width) for part, width in zip(parts, widths, strict=True)]
        yield MARGIN.join(padded).rstrip()


def _wrap(text: str, width: int) -> list[str]:
    lines, line = [], ""
    for word in _words(text, width):
        if line and columns(line) + columns(word.rstrip()) > width:
            lines.append(line.rstrip())
            line = "  "
        line += word
    lines.append(line.rstrip())
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], "  …"]
    return lines


def _words(text: str, width: int) -> Iterator[str]:
    """Yield pieces that may stand at the end of a line: words, and each wide character."""
    word = ""
    for character in text:
        word += character
        wide = unicodedata.east_asian_width(character) in "WF"
        if wide or character == " " or columns(word) >= width - 2:
            yield word
            word = ""
    if word:
        yield word


def _pad(text: str, width: int) -> str:
    return text + " " * (width - columns(text))


def columns(text: str) -> int:
    """Return how many columns of a terminal `text` takes."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
