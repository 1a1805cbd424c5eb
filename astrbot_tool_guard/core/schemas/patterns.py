# The parser of `re` is private and has no types.
# pyright: basic
"""Searching by the patterns of schemas that nobody vetted, or saying that it is not known.

Python's engine backtracks: what it does is bounded by the number of ways in which a
pattern can be laid over a text. That number is counted on the parsed pattern before
anything is searched, and where it is too large nothing is. A pattern means here what
ECMA-262 says, as JSON Schema has it; where Python would find something else, and the
text is one that shows it, nothing is known either.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

MAX_PATTERN: Final = 500
"""Characters of a pattern."""

MAX_SUBJECT: Final = 10_000
"""Characters of a text that is searched."""

MAX_MOVES: Final = 100_000
"""Moves of the engine that one search may come to."""

MAX_SET: Final = 64
"""Members of one set of characters."""

MAX_CACHED_PATTERNS: Final = 2_048

_PYTHONS_OWN = re.compile(r"\(\?P|\\a|\{,")
"""What Python reads in another way than ECMA-262, or alone."""

_ODD_BLANKS = frozenset("\x1c\x1d\x1e\x1f\x85")
"""Blanks to Python's Unicode engine and not to ECMA-262; U+FEFF is the reverse."""

_LINE_ENDS = frozenset("\r\u2028\u2029")
"""What `.` does not match in ECMA-262, beside the line feed."""


@dataclass(frozen=True, slots=True)
class _Pattern:
    engine: re.Pattern[str]
    ascii: re.Pattern[str]
    parsed: Any
    anchored: bool
    size: int
    ends: bool
    """Whether it asks for the end, which Python also sees before a last line feed."""
    dots: bool
    """Whether it asks for any character."""
    classes: bool
    """Whether it asks for digits, words or blanks, which Python has more of."""


def search(pattern: str, subject: str, *, trusted: bool = False) -> tuple[bool | None, int]:
    """Search `subject` by a pattern of a schema.

    Args:
        pattern: The pattern, as the schema has it.
        subject: The text.
        trusted: Whether the pattern is known to be harmless.

    Returns:
        Whether it was found, `None` where that is not known, and the moves it may
        have taken.
    """
    if len(pattern) > MAX_PATTERN or len(subject) > MAX_SUBJECT:
        return None, 0
    known = _parsed(pattern)
    if known is None:
        return None, 0
    length = len(subject)
    starts = 1 if known.anchored else length + 1
    try:
        moves = _capped(starts * _ways(known.parsed, length) * (2 * length + known.size))
    except _UnknownError:
        if not trusted:
            return None, 0
        moves = 0
    if moves > MAX_MOVES and not trusted:
        return None, 0
    if known.ends and subject.endswith("\n"):
        return None, 0
    if known.dots and not _LINE_ENDS.isdisjoint(subject):
        return None, 0
    if known.classes and "\ufeff" in subject:
        return None, 0
    found = known.engine.search(subject) is not None
    if known.classes and not (subject.isascii() and _ODD_BLANKS.isdisjoint(subject)):
        return (found if found == (known.ascii.search(subject) is not None) else None), 2 * moves
    return found, moves


class _UnknownError(Exception):
    """The pattern has a part whose cost is not known here, or that ECMA-262 does not have."""


@lru_cache(MAX_CACHED_PATTERNS)
def _parsed(pattern: str) -> _Pattern | None:
    """Return what is known of a pattern; `None` where it is Python's alone, or nobody's."""
    if _PYTHONS_OWN.search(pattern):
        return None
    try:
        from re import _parser  # type: ignore[attr-defined]

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # sets within sets, some day
            engine = re.compile(pattern)
            ascii_only = re.compile(pattern, re.ASCII)
            parsed = _parser.parse(pattern)
    except (re.error, OverflowError, RecursionError, ImportError, AttributeError):
        return None
    if engine.flags != re.UNICODE:  # `(?i)` and such, which ECMA-262 does not have
        return None
    words = list(_words(parsed))
    anchored = bool(parsed) and _word(parsed[0]) == "AT AT_BEGINNING"
    classes = any(word.startswith("CATEGORY") or "BOUNDARY" in word for word in words)
    return _Pattern(
        engine=engine,
        ascii=ascii_only,
        parsed=parsed,
        anchored=anchored,
        size=len(words),
        ends="AT AT_END" in words,
        dots="ANY" in words,
        classes=classes,
    )


def _word(item: Any) -> str:
    operator, argument = item
    return f"{operator} {argument}" if str(operator) in ("AT", "CATEGORY") else str(operator)


def _words(parsed: Iterable[Any]) -> Iterable[str]:
    """Yield the name of each part of a parsed pattern, however deep."""
    for item in parsed:
        yield _word(item)
        for below in _below(item):
            yield from _words(below)


def _below(item: Any) -> Iterable[Any]:
    operator, argument = str(item[0]), item[1]
    if operator == "IN":
        yield [each for each in argument if str(each[0]) == "CATEGORY"]
    elif operator == "BRANCH":
        yield from argument[1]
    elif operator == "SUBPATTERN":
        yield argument[3]
    elif operator in ("MAX_REPEAT", "MIN_REPEAT"):
        yield argument[2]
    elif operator in ("ASSERT", "ASSERT_NOT"):
        yield argument[1]


def _ways(parsed: Any, length: int) -> int:
    """Return in how many ways at most a sequence can be laid over a text of this length.

    Raises:
        _UnknownError: That is not known.
    """
    ways = 1
    items = list(parsed)
    for item, following in pairwise([*items, None]):
        ways = _capped(ways * _ways_of(item, following, length))
    return ways


def _ways_of(item: Any, following: Any, length: int) -> int:
    operator, argument = str(item[0]), item[1]
    if operator == "IN" and len(argument) > MAX_SET:
        raise _UnknownError
    if operator in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
        return 1
    if operator == "AT":
        if str(argument).endswith("_STRING"):  # \\A and \\Z are Python's alone
            raise _UnknownError
        return 1
    if operator == "BRANCH":
        return _capped(sum(_ways(each, length) for each in argument[1]))
    if operator == "SUBPATTERN":
        _, added, removed, inner = argument
        if added or removed:
            raise _UnknownError
        return _ways(inner, length)
    if operator in ("ASSERT", "ASSERT_NOT"):
        return _capped(1 + _ways(argument[1], length))
    if operator in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most, inner = int(argument[0]), int(argument[1]), argument[2]
        if least > 1 and inner.getwidth()[0] == 0:
            raise _UnknownError  # rounds that take nothing are not bounded by the text
        most = min(most, length)
        if _stops_at(inner, following):
            return 1  # where the next character fits, the repeated one does not
        each = _ways(inner, length)
        if each == 1:
            return max(most - least + 1, 1)
        total, power = int(least == 0), 1
        for count in range(1, most + 1):
            power *= each
            total += power if count >= least else 0
            if max(total, power) > MAX_MOVES:
                return MAX_MOVES + 1
        return max(total, power, 1)  # rounds that come to nothing in the end count, too
    raise _UnknownError


def _stops_at(inner: Any, following: Any) -> bool:
    """Whether a repeated single character cannot be the literal one that follows."""
    if following is None or str(following[0]) != "LITERAL" or len(inner) != 1:
        return False
    if following[1] >= 128:  # it depends on the engine what it is
        return False
    operator, argument = str(inner[0][0]), inner[0][1]
    if operator == "LITERAL":
        return argument != following[1]
    if operator == "NOT_LITERAL":
        return argument == following[1]
    return operator == "IN" and not _has(argument, following[1])


def _has(characters: Iterable[Any], code: int) -> bool:
    negated = found = False
    for operator, argument in characters:
        kind = str(operator)
        if kind == "NEGATE":
            negated = True
        elif kind == "LITERAL":
            found = found or argument == code
        elif kind == "RANGE":
            found = found or argument[0] <= code <= argument[1]
        else:
            found = found or _in_category(str(argument), chr(code))
    return found != negated


def _in_category(category: str, character: str) -> bool:
    letter = {"DIGIT": "d", "WORD": "w", "SPACE": "s"}.get(category.rpartition("_")[2])
    if letter is None:
        return True
    negated = "_NOT_" in category
    return (re.fullmatch(f"\\{letter}", character) is not None) != negated


def _capped(ways: int) -> int:
    return min(ways, MAX_MOVES + 1)
