"""Answers as a whole: what a model said, and which of its tool calls may run.

The public way in, for Chat Completions. The bot goes the same way in two steps: it
reads with the same reader, and checks with the same function.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from ..ids import ordinal_id
from ..model import Assembly, Validation
from ..plain import as_data
from ..schemas.schema import declared_tools
from .chat_completions import ChatReader, read_completion
from .checking import IdSource, check_calls
from .reading import Answer


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
    answer = (
        read_completion(as_data(completion), declared)
        if chunks is None
        else _read_chunks(map(as_data, chunks), declared)
    )
    calls = check_calls(answer, declared, validation=validation, normalize=normalize, new_id=new_id)
    return Assembly(answer.text, answer.finish_reason, answer.error, calls, answer.dropped)


def _read_chunks(chunks: Iterable[object], declared: Iterable[str]) -> Answer:
    reader = ChatReader(declared)
    for chunk in chunks:
        reader.take(chunk)
    return reader.answer()
