"""One call's arguments: from the pieces of a stream to a checked object.

Plain joining decides. A reading of repetition is tried only on a join that no
JSON text can begin with, so that no legal stream, whole or cut off anywhere,
can be harmed by it. Nothing is ever completed, guessed or taken in part.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, Final

from .. import jsontext
from ..jsontext import JsonTextError
from ..model import Problem, Validation
from ..plain import is_object
from ..schemas.problems import missing_required
from ..schemas.schema import ToolSchema

MAX_ARGUMENT_CHARS: Final = 4 * 1024 * 1024
"""Characters of one call's arguments beyond which it is refused."""

MAX_STRICT_CHARS: Final = 256 * 1024
"""Characters beyond which arguments are not checked against the whole schema."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What is known of one call's arguments; see `model.ToolCall` for the fields."""

    arguments: dict[str, Any] | None
    blank: bool
    normalized: bool = False
    missing: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    unchecked: tuple[str, ...] = ()


def join(pieces: Sequence[str]) -> str:
    """Return the argument text that the pieces of one streamed call stand for.

    Gateways repeat themselves: a final chunk holds the whole object again, a
    placeholder `{}` comes first, each piece holds all before it. These readings
    are tried in this order, and only where plain joining is beyond repair.
    """
    text = jsontext.mend_surrogates("".join(pieces))
    if len(text) > MAX_ARGUMENT_CHARS:
        return pieces[-1] if is_cumulative(pieces) else text
    if _sound(text):
        return text
    boundaries = list(accumulate(map(len, pieces)))
    found = jsontext.documents(text, boundaries) if boundaries[-1] == len(text) else None
    if found:
        rest = _without_leading_empty(found)
        first = held(rest[0][1])
        if all(jsontext.same(first, held(value)) for _, value in rest[1:]):
            whole = [part for part, value in rest if is_object(value)]
            return whole[0] if whole else rest[0][0]
    leading = _EMPTY_OBJECT.match(text)
    if leading and _whole(text[leading.end() :]):
        return text[leading.end() :]
    if len(pieces) > 1 and (
        _each_begins_with_the_one_before(pieces) or pieces[-1].startswith("".join(pieces[:-1]))
    ):
        return pieces[-1]
    return text


def check(
    raw: str | None,
    *,
    cut_off: bool,
    schema: ToolSchema | None,
    validation: Validation,
    normalize: bool,
) -> Checked:
    """Decode and check one call's argument text.

    Args:
        raw: The text, or `None` where none came.
        cut_off: Whether the answer ended before its time (`finish_reason`
            `length` or `content_filter`, or a stream without one).
        schema: The tool's declared schema; `None` for a tool that the request
            did not declare, which is only decoded.
        validation: How much is checked.
        normalize: Whether loss-free readings are accepted (see `_normalized`).
    """
    if raw is None or not raw.strip(jsontext.WHITESPACE):
        if cut_off and validation != "off":
            problem = _TRUNCATED[True]
            required = schema.required if schema else ()
            return Checked(None, True, missing=required, problems=(problem,))
        read = _against(schema, {}, Checked({}, True), validation, 0)
        return replace(read, arguments=None) if cut_off else read
    value, normalized = _decode(raw, normalize, schema, cut_off)
    if isinstance(value, Problem):
        return Checked(None, False, problems=() if validation == "off" else (value,))
    if value is None:
        return _against(schema, {}, Checked({}, True), validation, 0)
    return _against(schema, value, Checked(value, False, normalized), validation, len(raw))


def _against(
    schema: ToolSchema | None,
    value: dict[str, Any],
    read: Checked,
    validation: Validation,
    size: int,
) -> Checked:
    """Check decoded arguments against what the request declared."""
    if schema is None:
        return read
    missing = tuple(name for name in schema.required if name not in value)
    if validation == "off":
        counts = read.blank and missing and not schema.invalid
        return replace(read, missing=missing if counts else ())
    if not missing and validation == "structural":
        return read
    unchecked = schema.unchecked
    if schema.invalid:
        return replace(read, unchecked=unchecked)
    problems = tuple(missing_required(name) for name in missing)
    if validation == "strict" and size > MAX_STRICT_CHARS:
        unchecked = ("arguments_too_large",)
    elif validation == "strict":
        found, unchecked = schema.validate(value)
        problems = tuple(dict.fromkeys(problems + found)) if found else problems
    if not (missing or problems or unchecked):
        return read
    return replace(read, missing=missing, problems=problems, unchecked=unchecked)


_EMPTY_OBJECT = re.compile(r"[ \t\n\r]*\{[ \t\n\r]*\}")


def _sound(text: str) -> bool:
    try:
        jsontext.loads(text)
    except JsonTextError:
        return jsontext.is_prefix(text)
    return True


def _whole(text: str) -> bool:
    try:
        jsontext.loads(text)
    except JsonTextError:
        return False
    return True


def _without_leading_empty(found: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    start = 0
    while start < len(found) - 1 and found[start][1] == {}:
        start += 1
    return found[start:]


def held(value: Any) -> Any:
    """Return the object that a string literal holds, else the value itself."""
    if isinstance(value, str):
        try:
            inner = jsontext.loads(value)
        except JsonTextError:
            return value
        return inner if is_object(inner) else value
    return value


def is_cumulative(pieces: Sequence[str]) -> bool:
    """Whether each of more than two pieces begins with the one before.

    No document begins with its own beginning twice, so no legal stream is like that.
    """
    return len(pieces) > 2 and _each_begins_with_the_one_before(pieces)


def _each_begins_with_the_one_before(pieces: Sequence[str]) -> bool:
    return all(later.startswith(earlier) for earlier, later in pairwise(pieces))


def _decode(
    raw: str, normalize: bool, schema: ToolSchema | None, cut_off: bool
) -> tuple[Any, bool]:
    """Return the object (`None` for the text `null`) or the problem; and if it was normalized."""
    if len(raw) > MAX_ARGUMENT_CHARS:
        return Problem("too_large", "", f"more than {MAX_ARGUMENT_CHARS} characters"), False
    problem = Problem("not_an_object", "", "the arguments must be a JSON object")
    try:
        value = jsontext.loads(raw)
    except JsonTextError as fault:
        if fault.kind == "too_deep":
            problem = Problem("too_deep", "", str(fault))
        elif fault.kind == "no_json" and jsontext.is_prefix(raw):
            problem = _TRUNCATED[cut_off]
        else:
            problem = Problem("invalid_json", "", "the arguments are not valid JSON")
    else:
        if is_object(value):
            unwrapped = _unwrapped(value, schema) if normalize else value
            return unwrapped, unwrapped is not value
        if value is None:
            return None, False
    read = _normalized(raw, schema) if normalize else None
    return (problem, False) if read is None else (read, True)


_TRUNCATED: Final = (
    Problem("truncated", "", "the arguments end before the JSON object does"),
    # With the same limit the same arguments are cut off again.
    Problem(
        "truncated", "", "the answer was cut off before the arguments ended; send less at once"
    ),
)
_UNREADABLE: Final = object()
_INFO_STRING = re.compile(r"[A-Za-z0-9_+-]*")


def _normalized(raw: str, schema: ToolSchema | None) -> dict[str, Any] | None:
    """Return the object that `raw` holds by a reading that loses nothing.

    One code fence around everything, raw control characters inside strings,
    JSON encoded twice, `[]` or `""` for a tool that requires nothing, and one
    wrapping `arguments` key that the schema does not declare.
    """
    text = raw.strip(jsontext.WHITESPACE)
    if len(text) > 6 and text.startswith("```") and text.endswith("```"):
        text = text[3:-3]
        text = text[_INFO_STRING.match(text).end() :]  # pyright: ignore[reportOptionalMemberAccess] -- matches anything
    value = _lenient(text)
    if isinstance(value, str):
        value = _lenient(value) if value.strip(jsontext.WHITESPACE) else ""
    if value is None:
        return {}  # as the text `null` is
    if value in ([], "") and schema is not None and schema.requires_nothing:
        return {}
    return _unwrapped(value, schema) if is_object(value) else None


def _unwrapped(value: dict[str, Any], schema: ToolSchema | None) -> dict[str, Any]:
    inner = value.get("arguments")
    if (
        is_object(inner)
        and len(value) == 1
        and schema is not None
        and not schema.may_declare("arguments")
    ):
        return inner
    return value


def _lenient(text: str) -> Any:
    try:
        return jsontext.loads(text, control_characters=True)
    except JsonTextError:
        return _UNREADABLE


def dumps(value: object) -> str | None:
    """Return the JSON text of arguments that came as a value, or `None` if it has none."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return None
