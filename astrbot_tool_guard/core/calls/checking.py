"""From calls as they were read to checked ones: an id for each, decoded arguments, a check.

The same for every protocol, and for streamed and complete answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ..model import Problem, ToolCall, Validation
from ..schemas.schema import ToolSchema
from . import arguments
from .arguments import Checked
from .assembly import MAX_ANSWER_CHARS
from .entries import MAX_CALLS, Raw
from .reading import Answer

IdSource = Callable[[int, frozenset[str]], str]
"""Makes the id of the call with this ordinal, avoiding the ids that are taken."""

NO_IDS: Final = frozenset[str]()


def check_calls(
    answer: Answer,
    declared: Mapping[str, ToolSchema | None],
    *,
    validation: Validation,
    normalize: bool,
    new_id: IdSource,
    used: frozenset[str] = NO_IDS,
) -> tuple[ToolCall, ...]:
    """Give each call of an answer its id, decode its arguments and check them.

    Args:
        answer: The answer as it was read.
        declared: The tools of the request (`schema.declared_tools`).
        validation: How much is checked.
        normalize: Whether loss-free readings are accepted.
        new_id: Where new ids come from.
        used: Ids that no call may have, since the request has them already.
    """
    taken = used | {raw.id for raw in answer.raws if raw.id is not None}
    had = set(used)
    calls: list[ToolCall] = []
    for ordinal, raw in enumerate(answer.raws):
        given = raw.id if raw.id is not None and raw.id not in had else None
        call_id = given if given is not None else new_id(ordinal, frozenset(taken | had))
        had.add(call_id)
        checked = arguments.check(
            raw.text,
            cut_off=answer.cut_off,
            schema=declared.get(raw.name),
            validation=validation,
            normalize=normalize,
        )
        problems = _answer_problems(raw, answer) + checked.problems
        calls.append(_call(raw, call_id, given is None, checked, problems))
    return tuple(calls)


def nameless_calls(answer: Answer, new_id: IdSource) -> tuple[ToolCall, ...]:
    """Return the calls of an answer that is nothing but calls without a name.

    They are the host's, which tells the model what is wrong; without an id it would
    lose the turn instead.

    Args:
        answer: Such an answer.
        new_id: Where new ids come from.
    """
    found = [each for each in answer.dropped if each.reason == "nameless"]
    taken = {each.id for each in found if each.id is not None}
    calls: list[ToolCall] = []
    for ordinal, each in enumerate(found):
        call_id = each.id or new_id(ordinal, frozenset(taken))
        taken.add(call_id)
        raw = Raw("", each.id, each.raw_arguments, {})
        calls.append(_call(raw, call_id, each.id is None, Checked(None, False), ()))
    return tuple(calls)


def _answer_problems(raw: Raw, answer: Answer) -> tuple[Problem, ...]:
    problems: list[Problem] = []
    if answer.error is not None:
        problems.append(Problem("stream_error", "", "the answer ended in an error"))
    if answer.overflowed:
        problems.append(Problem("too_many_calls", "", f"more than {MAX_CALLS} calls at once"))
    if raw.oversized:
        problems.append(Problem("too_large", "", f"more than {MAX_ANSWER_CHARS} characters"))
    return tuple(problems)


def _call(
    raw: Raw, call_id: str, generated: bool, checked: Checked, problems: tuple[Problem, ...]
) -> ToolCall:
    return ToolCall(
        name=raw.name,
        id=call_id,
        id_generated=generated,
        raw_arguments=raw.text,
        arguments=checked.arguments,
        blank=checked.blank,
        normalized=checked.normalized,
        missing=checked.missing,
        problems=problems,
        unchecked=checked.unchecked,
        extras=raw.extras,
    )
