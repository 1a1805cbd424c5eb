"""How arguments may be written down: their shape, or a redacted form.

The rule: a shape holds no content. It has the types and sizes of values, and
keys only where they look like property names, since a model can put content
into a key. The redacted form is for an operator who asked for it: values under
keys that look like secrets, and values that look like one, are masked; long
strings are cut.
"""

from __future__ import annotations

import json
import re
from typing import cast

MAX_DECODED = 100_000
"""Argument texts longer than this, in characters, are not decoded but measured."""
MAX_SHAPE = 400
MAX_REDACTED = 2000
_MAX_DEPTH = 6
_MAX_ITEMS = 20
_MAX_STRING = 80

_PROPERTY_NAME = re.compile(r"[^\W\d][\w.$-]{0,39}")
_SECRET_KEY = re.compile(
    r"pass(?:word|wd|phrase|code)?|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|auth|credential|cookie|bearer|signature|密码|口令|密钥|令牌|验证码",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    r"\b(?:sk|pk|ghp|gho|xox[abp]|AKIA)[-_A-Za-z0-9]{12,}"  # common key prefixes
    r"|\beyJ[\w-]+\.[\w-]+\.[\w-]*"  # a JSON web token
    r"|\bBearer\s+\S+"
    r"|\b(?=[\w+/=-]*\d)(?=[\w+/=-]*[A-Za-z])[\w+/=-]{32,}",  # long and random
    re.IGNORECASE,
)
_MASK = "***"


def shape(arguments: str | None) -> str:
    """Return the shape of one call's arguments, as in `{"city": string(4)}`.

    Args:
        arguments: The argument text as the model sent it.
    """
    if arguments is None:
        return "absent"
    decoded = _decode(arguments)
    return f"text({len(arguments)})" if decoded is _UNDECODED else _cut(_shape(decoded), MAX_SHAPE)


def redact(arguments: str | None) -> str | None:
    """Return the arguments in the form that may be stored when told to capture.

    Args:
        arguments: The argument text as the model sent it.
    """
    if arguments is None:
        return None
    decoded = _decode(arguments)
    if decoded is _UNDECODED:
        # Nothing says where a value ends in broken text: from the first key that
        # looks like a secret on, nothing is kept.
        head = arguments[: _MAX_STRING * 2]
        secret = _SECRET_KEY.search(head)
        return _string(head[: secret.start()] + _MASK if secret else head, len(arguments))
    return _cut(json.dumps(_redacted(decoded), ensure_ascii=False), MAX_REDACTED)


class _Undecoded:
    """The type of the one value that stands for text that is no JSON."""


_UNDECODED = _Undecoded()


def _decode(text: str) -> object:
    if len(text) > MAX_DECODED:
        return _UNDECODED
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError):
        return _UNDECODED


def _shape(value: object, depth: int = 0) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return f"string({len(value)})"
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        if depth >= _MAX_DEPTH:
            return f"object({len(members)})"
        parts = [
            f"{_shape_of_key(key)}: {_shape(member, depth + 1)}"
            for key, member in list(members.items())[:_MAX_ITEMS]
        ]
        return "{" + ", ".join(parts + _more(len(members))) + "}"
    items = cast("list[object]", value)
    if depth >= _MAX_DEPTH:
        return f"array({len(items)})"
    shapes = [_shape(item, depth + 1) for item in items[:_MAX_ITEMS]]
    if len(items) > 1 and len(set(shapes)) == 1 and len(items) <= _MAX_ITEMS:
        return f"[{len(items)} x {shapes[0]}]"
    return "[" + ", ".join(shapes + _more(len(items))) + "]"


def _shape_of_key(key: str) -> str:
    return f'"{key}"' if _PROPERTY_NAME.fullmatch(key) else f"key({len(key)})"


def _more(count: int) -> list[str]:
    return [f"and {count - _MAX_ITEMS} more"] if count > _MAX_ITEMS else []


def _redacted(value: object, depth: int = 0) -> object:
    if isinstance(value, str):
        return _string(value, len(value))
    if isinstance(value, dict):
        members = cast("dict[str, object]", value)
        if depth >= _MAX_DEPTH:
            return f"object({len(members)})"
        return {
            _string(key, len(key)): _MASK
            if _SECRET_KEY.search(key)
            else _redacted(member, depth + 1)
            for key, member in list(members.items())[:_MAX_ITEMS]
        }
    if isinstance(value, list):
        items = cast("list[object]", value)
        if depth >= _MAX_DEPTH:
            return f"array({len(items)})"
        return [_redacted(item, depth + 1) for item in items[:_MAX_ITEMS]]
    return value


def _string(text: str, length: int) -> str:
    masked = _SECRET_VALUE.sub(_MASK, text[: _MAX_STRING * 2])[:_MAX_STRING]
    return f"{masked}…({length})" if length > _MAX_STRING else masked


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
