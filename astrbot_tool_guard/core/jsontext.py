"""JSON text: strict decoding, what a text may still become, and equality.

The standard decoder is lenient where providers are not (`NaN`, numbers beyond a
double, lone surrogates), and it cannot tell a text that was cut off from one
that was never JSON. Both differences decide here whether a tool runs, so this
module draws them exactly, by RFC 8259.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from .plain import is_list, is_object

MAX_DEPTH: Final = 100
"""Nesting of arrays and objects beyond which a text is refused."""

WHITESPACE: Final = " \t\n\r"
_NUMBERS: Final = (int, float)


class Balance:
    """Follows a growing text to the end of its one object, array or string.

    Each character is looked at once, however often `closed` is asked, so that a
    stream that repeats a name on every piece stays linear.
    """

    __slots__ = ("_depth", "_ended", "_escaped", "_overrun", "_quoted", "_started")

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = self._escaped = False
        self._started = self._ended = self._overrun = False

    @property
    def closed(self) -> bool:
        """Whether brackets and quotes are closed, and nothing solid follows."""
        return self._ended and not self._overrun

    @property
    def overrun(self) -> bool:
        """Whether something solid follows the end, or comes before the beginning."""
        return self._overrun

    def feed(self, text: str) -> None:
        """Take the next piece of the text."""
        at = 0
        while at < len(text) and not self._overrun:
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            match = (_IN_STRING if self._quoted else _MARK).search(text, at)
            if match is None:
                self._overrun = self._ended and bool(text[at:].strip(WHITESPACE))
                return
            before, char, at = text[at : match.start()], match[0], match.end()
            if self._ended:
                self._overrun = True
            elif self._quoted:
                if char == "\\":
                    self._escaped = True
                else:
                    self._quoted = False
                    self._ended = self._depth == 0
            elif not self._started and before.strip(WHITESPACE):
                self._overrun = True
            elif char == '"':
                self._started = self._quoted = True
            else:
                self._started = True
                self._depth += 1 if char in "{[" else -1
                self._ended = self._depth <= 0


class JsonTextError(ValueError):
    """A text is not JSON that can be used and sent again.

    Attributes:
        kind: `no_json` where the grammar is broken, `unusable` where a value
            cannot be sent again, `too_deep`.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def loads(text: str, *, control_characters: bool = False) -> Any:
    """Decode `text` strictly; of duplicate keys the last wins.

    Args:
        text: The whole JSON text; JSON white space around it is allowed.
        control_characters: Whether raw control characters inside strings pass.

    Raises:
        JsonTextError: The text is not JSON, holds `NaN`, an infinity, a number
            beyond a double or a lone surrogate, or is nested too deeply.
    """
    decoder = _LENIENT if control_characters else _STRICT
    try:
        value = decoder.decode(text)
    except JsonTextError:
        raise
    except RecursionError:
        raise JsonTextError("too_deep", f"nested more than {MAX_DEPTH} levels") from None
    except ValueError as error:
        # The decoder's exception holds the whole text: it must not travel on.
        position = getattr(error, "pos", None)
        raise JsonTextError("no_json", f"not JSON at character {position}") from None
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise JsonTextError("too_deep", f"nested more than {MAX_DEPTH} levels")
    if not _sendable(text, value):
        raise JsonTextError("unusable", "a lone surrogate cannot be sent again")
    return value


def is_prefix(text: str) -> bool:
    """Whether some JSON text begins with `text` (a complete one included)."""
    return _Scan(text).is_prefix()


def documents(text: str, boundaries: Sequence[int]) -> list[tuple[str, Any]] | None:
    """Split `text` into whole documents that each end at a boundary.

    Args:
        text: Documents in a row, white space between them allowed.
        boundaries: Offsets at which a document may end, ascending.

    Returns:
        Each document's text and value, or `None` where `text` is anything else.
    """
    ends = set(boundaries)
    found: list[tuple[str, Any]] = []
    position = _skip(text, 0)
    while position < len(text):
        try:
            value, end = _STRICT.raw_decode(text, position)
        except (ValueError, RecursionError):
            return None
        after = _skip(text, end)
        if not any(offset in ends for offset in range(end, after + 1)):
            return None
        found.append((text[position:end], value))
        position = after
    return found


def same(left: Any, right: Any) -> bool:
    """Whether two decoded values are the same JSON (`1` is `1.0`, not `true`)."""
    if is_object(left) and is_object(right):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if is_list(left) and is_list(right):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
        return left == right
    return type(left) is type(right) and left == right


def is_sendable(text: str) -> bool:
    """Whether a text can be sent, which one with a lone surrogate cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def mend_surrogates(text: str) -> str:
    """Join surrogate pairs that were cut apart between two pieces of a stream."""
    if is_sendable(text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        return text


def _float(literal: str) -> float:
    value = float(literal)
    if value - value != 0.0:
        raise JsonTextError("unusable", "a number is beyond a double")
    return value


def _int(literal: str) -> int:
    if len(literal) > 308:
        _float(literal)
    return int(literal)


def _constant(_literal: str) -> Any:
    raise JsonTextError("unusable", "NaN and Infinity are not JSON")


_STRICT = json.JSONDecoder(parse_float=_float, parse_int=_int, parse_constant=_constant)
_LENIENT = json.JSONDecoder(
    parse_float=_float, parse_int=_int, parse_constant=_constant, strict=False
)
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def _depth(value: Any) -> int:
    deepest = 0
    level: list[Any] = [value]
    while level:
        below: list[Any] = []
        nested = False
        for item in level:
            if is_object(item):
                below.extend(item.values())
                nested = True
            elif is_list(item):
                below.extend(item)
                nested = True
        if not nested:
            return deepest
        deepest += 1
        if deepest > MAX_DEPTH:
            return deepest
        level = below
    return deepest


def _sendable(text: str, value: Any) -> bool:
    if not is_sendable(text):
        return False
    escaped = _SURROGATE_ESCAPE.search(text) is not None
    return not escaped or is_sendable(json.dumps(value, ensure_ascii=False))


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in WHITESPACE:
        position += 1
    return position


_STRING_BODY = re.compile(
    r'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+'
)
_ESCAPE_BEGUN = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_NUMBER_RUN = re.compile(r"[-+.eE0-9]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\Z")
_NUMBER_BEGUN = re.compile(
    r"-?(?:(?:0|[1-9][0-9]*)(?:\.(?:[0-9]+(?:[eE][+-]?[0-9]*)?)?|[eE][+-]?[0-9]*)?)?\Z"
)
_WORD = re.compile(r"[a-zA-Z]+")
_WORDS = ("true", "false", "null")
_BLANKS = re.compile(r"[ \t\n\r]*+")


_IN_STRING = re.compile(r'["\\]')
_MARK = re.compile(r'["{}\[\]]')


class _Scan:
    """A walk over a text by the grammar, with a stack instead of recursion."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def is_prefix(self) -> bool:
        text, expect = self._text, "value"
        stack: list[str] = []
        while True:
            match = _BLANKS.match(text, self._at)
            self._at = match.end() if match else self._at
            if self._at >= len(text):
                return True
            char = text[self._at]
            if expect == "end":
                return False
            if expect in ("value", "value or ]"):
                if char == "]" and expect == "value or ]":
                    self._at += 1
                    stack.pop()
                    expect = self._after(stack)
                elif char in "{[":
                    self._at += 1
                    stack.append(char)
                    expect = "key or }" if char == "{" else "value or ]"
                else:
                    verdict = self._scalar(char)
                    if verdict is not None:
                        return verdict
                    expect = self._after(stack)
            elif expect in ("key", "key or }"):
                if char == "}" and expect == "key or }":
                    self._at += 1
                    stack.pop()
                    expect = self._after(stack)
                elif char == '"':
                    verdict = self._string()
                    if verdict is not None:
                        return verdict
                    expect = ":"
                else:
                    return False
            elif expect == ":":
                if char != ":":
                    return False
                self._at += 1
                expect = "value"
            else:  # a comma, or the end of what is open
                self._at += 1
                if char == ",":
                    expect = "key" if stack[-1] == "{" else "value"
                elif char == ("}" if stack[-1] == "{" else "]"):
                    stack.pop()
                    expect = self._after(stack)
                else:
                    return False

    @staticmethod
    def _after(stack: list[str]) -> str:
        return ", or close" if stack else "end"

    def _scalar(self, char: str) -> bool | None:
        """Step over a scalar; a verdict where the text ends in it or is broken."""
        if char == '"':
            return self._string()
        text = self._text
        if char == "-" or char.isdigit():
            match = _NUMBER_RUN.match(text, self._at)
            if not match:
                return False
            self._at = match.end()
            begun = self._at == len(text)
            return _closed(begun, (_NUMBER_BEGUN if begun else _NUMBER).match(match[0]) is not None)
        match = _WORD.match(text, self._at)
        if not match:
            return False
        self._at = match.end()
        begun = self._at == len(text)
        word = match[0]
        fits = any(w.startswith(word) for w in _WORDS) if begun else word in _WORDS
        return _closed(begun, fits)

    def _string(self) -> bool | None:
        match = _STRING_BODY.match(self._text, self._at)
        assert match, "called at a quote only"
        self._at = match.end()
        if self._at == len(self._text):
            return True
        if self._text[self._at] == '"':
            self._at += 1
            return None
        return _ESCAPE_BEGUN.match(self._text, self._at) is not None


def _closed(begun: bool, fits: bool) -> bool | None:
    """Go on after a whole token; answer where it does not fit or ends the text."""
    if not fits:
        return False
    return True if begun else None
