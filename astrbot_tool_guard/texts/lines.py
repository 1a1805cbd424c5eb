"""Lines of plain text about what came from outside: names that cannot drive a terminal, counts.

Names out of files and databases are other people's text. Nothing of it reaches a
terminal as a control character or as a second line.
"""

from __future__ import annotations


def shown(text: str) -> str:
    """Return text from outside as a terminal may show it: one line, no control characters."""
    return text if text.isprintable() else ascii(text)[1:-1]


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun in the right form."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
