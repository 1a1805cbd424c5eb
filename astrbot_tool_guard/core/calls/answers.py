"""Answers as a whole: what a model said, and which of its tool calls may run.

A streamed answer is put together by `assembly`; a complete one is decoded as it
is. From there both go one way: an id for each call, decoded arguments, a check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, get_args

from .. import jsontext
from ..ids import ordinal_id
from ..model import Assembly, DroppedCall, Problem, ToolCall, Validation
from ..plain import as_data, is_list, is_object
from ..schemas.schema import ToolSchema, declared_tools
from . import arguments
from .arguments import Checked
from .assembly import MAX_ANSWER_CHARS, CallAssembler
from .entries import (
    MAX_CALLS,
    Raw,
    argument_piece,
    is_name,
    read_entry,
    read_id,
    read_index,
    unknown_keys,
)

CUT_OFF: Final = frozenset({"length", "content_filter"})
"""Finish reasons that say that the answer ended before its time."""

IdSource = Callable[[int, frozenset[str]], str]
"""Makes the id of the call with this ordinal, avoiding the ids that are taken."""


def assemble(
    *,
    chunks: Iterable[object] | None = None,
    completion: object = None,
    tools: object = None,
    validation: Validation = "structural",
    normalize: bool = False,
    new_id: IdSource = ordinal_id,
) -> Assembly:
    """Read an answer and check its tool calls.

    Args:
        chunks: The `chat.completion.chunk` objects of a streamed answer, as JSON
            data or as models of the SDK.
        completion: A complete `chat.completion` object, likewise; one of the two
            is given.
        tools: The `tools` of the request.
        validation: How much is checked (`structural`, `strict`, `off`).
        normalize: Whether loss-free readings of arguments are accepted.
        new_id: Where the id of a call without a usable one comes from.

    Raises:
        TypeError: Neither or both of `chunks` and `completion` are given.
        ValueError: There is no such validation.
    """
    if (chunks is None) == (completion is None):
        raise TypeError("give either chunks or completion")
    if validation not in get_args(Validation):
        raise ValueError(f"validation is one of {', '.join(get_args(Validation))}")
    declared = declared_tools(tools)
    if chunks is not None:
        return _from_chunks(map(as_data, chunks), declared, validation, normalize, new_id)
    return _from_completion(as_data(completion), declared, validation, normalize, new_id)


def check_calls(
    raws: Sequence[Raw],
    declared: Mapping[str, ToolSchema | None],
    *,
    cut_off: bool,
    error: str | None,
    overflowed: bool,
    validation: Validation,
    normalize: bool,
    new_id: IdSource,
) -> tuple[ToolCall, ...]:
    """Give each call its id, decode its arguments and check them.

    Args:
        raws: The named calls in order.
        declared: The tools of the request (`schema.declared_tools`).
        cut_off: Whether the answer ended before its time.
        error: The sentence of a stream that ended in an error object.
        overflowed: Whether the answer began more calls than are kept.
        validation: How much is checked.
        normalize: Whether loss-free readings are accepted.
        new_id: Where new ids come from.
    """
    taken = frozenset(raw.id for raw in raws if raw.id is not None)
    used: set[str] = set()
    calls: list[ToolCall] = []
    for ordinal, raw in enumerate(raws):
        given = raw.id if raw.id is not None and raw.id not in used else None
        call_id = given if given is not None else new_id(ordinal, taken | used)
        used.add(call_id)
        checked = arguments.check(
            raw.text,
            cut_off=cut_off,
            schema=declared.get(raw.name),
            validation=validation,
            normalize=normalize,
        )
        problems = _answer_problems(raw, error, overflowed) + checked.problems
        calls.append(_call(raw, call_id, given is None, checked, problems))
    return tuple(calls)


def read_entries(entries: object, declared: Iterable[str]) -> tuple[list[Raw], list[DroppedCall]]:
    """Read the `tool_calls` of a complete answer, each entry as it is.

    Args:
        entries: The value of the message's `tool_calls`.
        declared: Names of the declared tools.
    """
    names = frozenset(declared)
    raws: list[Raw] = []
    dropped: list[DroppedCall] = []
    for entry in _items(entries):
        read = read_entry(entry)
        if len(raws) >= MAX_CALLS:
            dropped.append(DroppedCall("too_many_calls", None, None))
            break
        if read is None:
            dropped.append(DroppedCall("not_an_object", None, None))
            continue
        function = read.get("function")
        function = function if is_object(function) else {}
        name, given = function.get("name"), read_id(read.get("id"))
        value = function.get("arguments")
        text = None if value is None else jsontext.mend_surrogates(argument_piece(value))
        if not isinstance(name, str) or not is_name(name, names):
            dropped.append(DroppedCall("nameless", given, text))
            continue
        raws.append(Raw(name, given, text, unknown_keys(read)))
    return raws, dropped


def first_choice(choices: object, locked: object = None) -> Mapping[str, Any] | None:
    """Return the first choice of a chunk or completion, or `None`.

    Args:
        choices: The value of `choices`, whatever it is.
        locked: The `index` of the choice this answer is read from, once known.
    """
    found = [choice for choice in _items(choices) if is_object(choice)]
    if len(found) == 1 and (locked is None or found[0].get("index") == locked):
        return found[0]
    if locked is not None:
        return _at(found, locked)
    first = _at(found, 0)
    return first if first is not None else (found[0] if found else None)


def _at(choices: Iterable[dict[str, Any]], index: object) -> dict[str, Any] | None:
    """Return the choice with this index; one without an index is the first."""
    return next((c for c in choices if (read_index(c.get("index")) or 0) == index), None)


def error_sentence(answer: Mapping[str, Any]) -> str | None:
    """Return one sentence for an answer that is an error object, else `None`."""
    error = answer.get("error")
    if not error:
        return None
    named: Iterator[object] = iter(())
    if is_object(error):
        named = (error.get(key) for key in ("code", "type"))
    words = [str(each)[:64] for each in named if isinstance(each, str | int) and each != ""]
    return "the provider sent an error in the answer" + (f" ({', '.join(words)})" if words else "")


def _from_chunks(
    chunks: Iterable[object],
    declared: Mapping[str, ToolSchema | None],
    validation: Validation,
    normalize: bool,
    new_id: IdSource,
) -> Assembly:
    assembler = CallAssembler(declared)
    content: list[str] = []
    finish_reason: str | None = None
    error: str | None = None
    locked: object = None
    for chunk in chunks:
        entries = _only_entries(chunk, locked)
        if entries is not None:
            for entry in entries:
                assembler.add(entry)
            continue
        if not is_object(chunk):
            continue
        error = error_sentence(chunk)
        if error is not None:
            break
        choices = chunk.get("choices")
        if locked and first_choice(choices, 0):
            # Another choice came before the first one: it is not this answer.
            assembler, content, finish_reason, locked = CallAssembler(declared), [], None, 0
        choice = first_choice(choices, locked)
        if choice is None:
            continue
        locked = (read_index(choice.get("index")) or 0) if locked is None else locked
        delta = choice.get("delta")
        if is_object(delta):
            text = delta.get("content")
            if isinstance(text, str):
                content.append(text)
            for entry in _items(delta.get("tool_calls")):
                assembler.add(entry)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            finish_reason = reason
    raws, dropped = assembler.finish()
    calls = check_calls(
        raws,
        declared,
        cut_off=finish_reason is None or finish_reason in CUT_OFF,
        error=error,
        overflowed=assembler.overflowed,
        validation=validation,
        normalize=normalize,
        new_id=new_id,
    )
    text = "".join(content) if content else None
    return Assembly(text, finish_reason, error, calls, tuple(dropped))


def _only_entries(chunk: Any, locked: object) -> list[object] | None:
    """Return the call entries of a chunk that brings nothing else, as most chunks with calls do.

    `None` only means that the chunk has to be read properly.
    """
    try:
        (choice,) = chunk["choices"]
        delta = choice["delta"]
        entries = delta["tool_calls"]
        if (
            len(delta) == 1
            and choice["index"] == locked
            and not choice["finish_reason"]
            and is_list(entries)
            and not chunk.get("error")
        ):
            return entries
    except (AttributeError, LookupError, TypeError, ValueError):
        pass  # it is something else
    return None


def _from_completion(
    completion: object,
    declared: Mapping[str, ToolSchema | None],
    validation: Validation,
    normalize: bool,
    new_id: IdSource,
) -> Assembly:
    answer = completion if is_object(completion) else {}
    error = error_sentence(answer)
    choice = first_choice(answer.get("choices"))
    data = answer.get("data")
    if choice is None and is_object(data):
        choice = first_choice(data.get("choices"))
    choice = choice or {}
    message = choice.get("message")
    message = message if is_object(message) else {}
    reason = choice.get("finish_reason")
    finish_reason = reason if isinstance(reason, str) and reason else None
    raws, dropped = read_entries(message.get("tool_calls"), declared)
    calls = check_calls(
        raws,
        declared,
        cut_off=finish_reason in CUT_OFF,
        error=error,
        overflowed=any(each.reason == "too_many_calls" for each in dropped),
        validation=validation,
        normalize=normalize,
        new_id=new_id,
    )
    content = message.get("content")
    text = content if isinstance(content, str) else None
    return Assembly(text, finish_reason, error, calls, tuple(dropped))


def _answer_problems(raw: Raw, error: str | None, overflowed: bool) -> tuple[Problem, ...]:
    problems: list[Problem] = []
    if error is not None:
        problems.append(Problem("stream_error", "", "the answer ended in an error"))
    if overflowed:
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


def _items(value: object) -> Sequence[object]:
    """Return the members of a list; a single object stands for a list of it."""
    if is_list(value):
        return value
    return (value,) if is_object(value) else ()
