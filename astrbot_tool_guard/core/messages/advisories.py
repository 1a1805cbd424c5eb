"""Stored calls that pair and that providers refuse all the same.

Pairing is what the guard blocks for; this is what a doctor points at, and mends
only when asked to, since not every provider is as strict as this. The rule:
nothing is lost where a reading keeps it. Arguments that came as an object, or in
a form that holds one, become that object's text; only what no reading can make
an object of becomes `{}`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from ..calls.arguments import check, dumps
from ..model import Change, Repair
from .pairing import JsonObject, as_object, declared_calls, declared_ids, has_role, read_groups
from .repair import NewIds

MAX_NAME_LENGTH: Final = 64
MAX_ID_LENGTH: Final = 40
UNNAMED: Final = "unnamed_tool"
"""What a call without a name is called afterwards."""

AdvisoryKind = Literal[
    "empty_tool_calls",
    "missing_name",
    "illegal_name",
    "arguments_not_an_object",
    "overlong_id",
]
AdvisoryAction = Literal[
    "tool_calls_removed",
    "name_replaced",
    "arguments_rewritten",
    "arguments_emptied",
    "id_shortened",
]


@dataclass(frozen=True, slots=True)
class Advisory:
    """One thing that providers may refuse.

    Attributes:
        kind: What it is.
        message_index: Index of the message.
        call_index: Index into its `tool_calls`, or `None` for the message itself.
        detail: A sentence for people, without message content.
    """

    kind: AdvisoryKind
    message_index: int
    call_index: int | None
    detail: str

    def to_dict(self) -> dict[str, object]:
        """Return the advisory as a JSON object."""
        return {
            "kind": self.kind,
            "message_index": self.message_index,
            "call_index": self.call_index,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class _Mend:
    """An advisory, and what mends it: the call as it should be, and what that does."""

    advisory: Advisory
    action: AdvisoryAction
    done: str


def find_advisories(messages: object) -> tuple[Advisory, ...]:
    """Find what pairs in `messages` and may be refused all the same.

    Args:
        messages: A list of messages; anything else has no advisories.
    """
    if not isinstance(messages, list):
        return ()
    found: list[Advisory] = []
    for index, message in enumerate(cast("list[object]", messages)):
        _, mends = _mended_message(message, index)
        found.extend(mend.advisory for mend in mends)
        found.extend(_overlong_ids(message, index))
    return tuple(sorted(found, key=_place))


def mend_advisories(messages: object) -> Repair:
    """Mend what `find_advisories` finds.

    Args:
        messages: A list of messages, paired as far as it can be.

    Returns:
        The mended list, the same object when there was nothing to mend. Messages
        are neither added nor removed nor moved.
    """
    if not isinstance(messages, list):
        return Repair(messages, ())
    given = cast("list[object]", messages)
    changes: list[Change] = []
    mended: list[object] = []
    for index, message in enumerate(given):
        renewed, mends = _mended_message(message, index)
        mended.append(renewed)
        changes.extend(Change(mend.action, index, mend.done) for mend in mends)
    _shorten_ids(mended, changes)
    if not changes:
        return Repair(given, ())
    return Repair(mended, tuple(sorted(changes, key=_change_place)), tuple(range(len(given))))


def _mended_message(message: object, index: int) -> tuple[object, list[_Mend]]:
    """Return the message with its calls in order, and what that took."""
    fields = as_object(message)
    calls = None if fields is None else fields.get("tool_calls")
    if fields is None or not isinstance(calls, list) or not has_role(fields, "assistant"):
        return message, []
    if not calls:
        rest = {key: value for key, value in fields.items() if key != "tool_calls"}
        if rest.get("content") is None:
            rest["content"] = ""
        detail = "tool_calls is an empty list"
        advisory = Advisory("empty_tool_calls", index, None, detail)
        return rest, [_Mend(advisory, "tool_calls_removed", "the empty list was removed")]
    mends: list[_Mend] = []
    renewed: list[object] = []
    for call_index, call in enumerate(cast("list[object]", calls)):
        renewed.append(_mended_call(call, index, call_index, mends))
    return ({**fields, "tool_calls": renewed} if mends else message), mends


def _mended_call(call: object, index: int, call_index: int, mends: list[_Mend]) -> object:
    fields = as_object(call)
    if fields is None or isinstance(fields.get("custom"), Mapping):
        return call
    function = as_object(fields.get("function")) or {}
    name = _mended_name(function.get("name"))
    arguments = _mended_arguments(function)
    if name is not None:
        given = function.get("name")
        is_blank = not isinstance(given, str) or not given.strip()
        kind: AdvisoryKind = "missing_name" if is_blank else "illegal_name"
        what = "has a name providers refuse" if kind == "illegal_name" else "has no name"
        advisory = Advisory(kind, index, call_index, f"the call {what}")
        done = f"call {call_index} {what}; it is called {name} now"
        mends.append(_Mend(advisory, "name_replaced", done))
        function = {**function, "name": name}
    if arguments is not None:
        text, is_lossless = arguments
        detail = "the call's arguments are not the text of a JSON object"
        advisory = Advisory("arguments_not_an_object", index, call_index, detail)
        action: AdvisoryAction = "arguments_rewritten" if is_lossless else "arguments_emptied"
        what = "became the JSON text they stood for" if is_lossless else "became {}"
        mends.append(_Mend(advisory, action, f"the arguments of call {call_index} {what}"))
        function = {**function, "arguments": text}
    if name is None and arguments is None:
        return call
    return {**fields, "function": function}


_LEGAL_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAME_LENGTH}}}")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")


def _mended_name(name: object) -> str | None:
    """Return the name to use instead, or `None` when this one is legal.

    What is legal of a name is kept. Where something else had to go, eight digits
    of the whole name's hash keep two different tools two different names.
    """
    if not isinstance(name, str) or not name.strip():
        return UNNAMED
    if _LEGAL_NAME.fullmatch(name):
        return None
    mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    readable = _ILLEGAL.sub("_", name)[: MAX_NAME_LENGTH - len(mark) - 1].strip("_")
    return f"{readable or 'tool'}_{mark}"


def _mended_arguments(function: JsonObject) -> tuple[str, bool] | None:
    """Return the text to use instead and whether it loses nothing, or `None`."""
    given = function.get("arguments")
    if isinstance(given, str):
        read = check(given, cut_off=False, schema=None, validation="structural", normalize=True)
        if any(problem.kind in ("too_deep", "too_large") for problem in read.problems):
            return None  # JSON, as far as anybody can tell
        if read.arguments is None:
            return "{}", False
        if read.blank:
            return "{}", True
        return (dumps(read.arguments) or "{}", True) if read.normalized else None
    if given is None:
        return "{}", True
    value = as_object(given)
    text = None if value is None else dumps(value)
    if text is None or _mended_arguments({"arguments": text}) is not None:
        return "{}", False
    return text, True


def _overlong_ids(message: object, index: int) -> Iterator[Advisory]:
    fields = as_object(message)
    calls = None if fields is None else fields.get("tool_calls")
    if fields is None or not isinstance(calls, list) or not has_role(fields, "assistant"):
        return
    for call_index, call_id in enumerate(declared_ids(cast("list[object]", calls))):
        if _is_overlong(call_id):
            detail = f"the call's id is longer than {MAX_ID_LENGTH} characters"
            yield Advisory("overlong_id", index, call_index, detail)


def _is_overlong(call_id: object) -> bool:
    return isinstance(call_id, str) and len(call_id) > MAX_ID_LENGTH


def _shorten_ids(messages: list[object], changes: list[Change]) -> None:
    """Give overlong ids, on both sides of each group, the short form."""
    groups = read_groups(messages)
    new_ids = NewIds(messages, groups)
    for start in groups.declarations:
        calls = declared_calls(messages[start])
        overlong = [at for at, call_id in enumerate(declared_ids(calls)) if _is_overlong(call_id)]
        if not overlong:
            continue
        renamed: dict[object, str] = {}
        renewed = list(calls)
        for call_index in overlong:
            fields = cast("JsonObject", as_object(calls[call_index]))
            short = renamed.setdefault(fields["id"], new_ids.for_call(start, call_index))
            renewed[call_index] = {**fields, "id": short}
            changes.append(Change("id_shortened", start, f"call {call_index} got a short id"))
        declaration = cast("JsonObject", as_object(messages[start]))
        messages[start] = {**declaration, "tool_calls": renewed}
        _relabel_results(messages, start, renamed, changes)


def _relabel_results(
    messages: list[object], start: int, renamed: dict[object, str], changes: list[Change]
) -> None:
    for index in range(start + 1, len(messages)):
        fields = as_object(messages[index])
        if fields is None or not has_role(fields, "tool"):
            return
        result_id = fields.get("tool_call_id")
        if isinstance(result_id, str) and result_id in renamed:
            messages[index] = {**fields, "tool_call_id": renamed[result_id]}
            changes.append(Change("id_shortened", index, "the result got its call's short id"))


def _place(advisory: Advisory) -> tuple[int, int]:
    return advisory.message_index, -1 if advisory.call_index is None else advisory.call_index


def _change_place(change: Change) -> int:
    return -1 if change.message_index is None else change.message_index
