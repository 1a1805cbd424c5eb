"""Reading one streamed answer: what passes at once, and what is held to its end.

The rule: text, reasoning and usage pass at once, as the very chunks that came. Held
are the pieces of tool calls and the finish chunk, since pieces may ride in it or
follow it. What is held can be given back as it came, should the guard itself fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import Choice, ChoiceDelta

from ....core.calls.answers import CUT_OFF
from ....core.calls.assembly import CallAssembler
from .answers import plain, plain_entry, rechoiced, text_chunk, without
from .uncast import as_chunk

MAX_HELD = 4_096
"""Chunks that are kept for giving back; beyond it a fault loses the calls, not the text.

So it is beyond the characters that the assembler keeps."""


class StreamReader:
    """Takes the events of one streamed answer.

    Args:
        declared: Names of the tools the request declared.
        reasoning_key: The delta's field in which the provider sends reasoning.
        shown: Text of a discarded answer that the user has read; this answer's
            text is then held back until it is known what of it is new.
        mute_reasoning: Whether reasoning was shown already and is held back, too.
        collects: Whether the message is wanted as a whole at the end.

    Attributes:
        assembler: The calls.
        finish_reason: As the provider sent it, `None` while it did not.
        usage: The last usage object that came.
        text: The pieces of text that came.
        reasoned: Whether reasoning came.
    """

    def __init__(
        self,
        declared: Iterable[str],
        reasoning_key: str,
        *,
        shown: str = "",
        mute_reasoning: bool = False,
        collects: bool = False,
    ) -> None:
        self._declared = frozenset(declared)
        self.assembler = CallAssembler(self._declared)
        self.finish_reason: str | None = None
        self.usage: Any = None
        self._last: Any = None
        self.text: list[str] = []
        self.reasoned = False
        self._reasoning_key = reasoning_key
        self._shown = shown
        self._mute_reasoning = mute_reasoning
        self._message = _Message() if collects else None
        self._index: int | None = None
        self._held: list[Any] | None = []

    @property
    def cut_off(self) -> bool:
        """Whether the answer ended before its time."""
        return self.finish_reason is None or self.finish_reason in CUT_OFF

    @property
    def last(self) -> ChatCompletionChunk | None:
        """The last chunk that came."""
        return as_chunk(self._last)

    def take(self, event: Any) -> ChatCompletionChunk | None:
        """Take the next event; return what of it passes on now.

        Args:
            event: A chunk, as the SDK's model or as the object it is made of.
        """
        if isinstance(event, dict) and self._take_pieces(event):
            return None
        chunk = as_chunk(event)
        if not isinstance(chunk, ChatCompletionChunk):
            return None  # an event that is no object; AstrBot would fail on it
        self._last = chunk
        if chunk.usage is not None:
            self.usage = chunk.usage
        choice = self._choice(chunk.choices)
        delta = None if choice is None else choice.delta
        if choice is None or not isinstance(delta, ChoiceDelta):
            if choice is not None:
                self._finished(choice)
            return _only_usage(chunk)
        if self._message is not None:
            self._message.add(plain(delta))
        if extra := choice.__pydantic_extra__:
            self.usage = extra.get("usage") or self.usage
        entries = delta.tool_calls
        content = delta.content
        if isinstance(content, str) and content:
            self.text.append(content)
        if self._speaks(delta):
            self.reasoned = True
        alone = len(chunk.choices) == 1  # the SDK would take another one at its place for it
        if alone and not entries and not choice.finish_reason and not self._quiet:
            return chunk
        return self._part(chunk, choice, delta, entries)

    def message(self, *, calls: bool) -> dict[str, Any]:
        """Return the fields of the whole message, without its calls.

        Args:
            calls: Whether calls go with it.
        """
        return {} if self._message is None else self._message.fields(calls=calls)

    def given_back(self) -> Iterator[ChatCompletionChunk]:
        """Yield what is held as it came, without the text that passed already."""
        for chunk in map(as_chunk, self._held or ()):
            choice = chunk.choices[0]
            yield rechoiced(chunk, choice, without(choice.delta, "content", self._reasoning_key))

    def unseen(self, *, final: bool) -> ChatCompletionChunk | None:
        """Return what of the text that was held back the user has not read.

        A continuation of what was shown is shown. Another wording is shown only
        where it is the answer itself, and not what goes with a call.

        Args:
            final: Whether the answer has no calls.
        """
        if not self._shown:
            return None
        text = "".join(self.text)
        if text.startswith(self._shown):
            text = text[len(self._shown) :]
        elif self._shown.startswith(text) or not final:
            text = ""
        elif text:
            text = "\n" + text
        return text_chunk(self.last, text) if text else None

    def _take_pieces(self, event: dict[str, Any]) -> bool:
        """Take an event that brings pieces of tool calls and nothing else, which is most."""
        try:
            (choice,) = event["choices"]
            delta = choice["delta"]
            entries = delta["tool_calls"]
            if (
                not isinstance(entries, list)
                or not entries
                or choice["index"] != 0
                or self._index not in (None, 0)
                or choice.get("finish_reason")
                or choice.get("usage")
                or event.get("usage") is not None
                or any(key != "tool_calls" and _says(delta[key]) for key in delta)
                # The SDK makes a number of some indexes that are none.
                or any(type(entry["index"]) is not int for entry in entries)
            ):
                return False
        except (AttributeError, LookupError, TypeError, ValueError):
            return False
        self._last, self._index = event, 0
        if self._message is not None:
            self._message.add(delta)
        for entry in entries:
            self.assembler.add(entry)
        self._hold(event)  # last: what fails before is not taken at all
        return True

    @property
    def _quiet(self) -> bool:
        return bool(self._shown) or self._mute_reasoning

    def _choice(self, choices: Any) -> Choice | None:
        """Return the choice this answer is read from: the one with index 0, else the first."""
        if not isinstance(choices, list) or not choices:
            return None
        choice = choices[0]
        if self._index is None or not isinstance(choice, Choice) or choice.index != self._index:
            found = [each for each in choices if isinstance(each, Choice)]
            if self._index is None and found:
                self._index = min(map(_place, found), key=bool)
            elif self._index and any(_place(each) == 0 for each in found):
                # Another choice came before the first one: it is not this answer.
                self._index, self.finish_reason = 0, None
                self.assembler = CallAssembler(self._declared)
            choice = next((each for each in found if _place(each) == self._index), None)
        if choice is not None and choice.index != 0:
            choice.index = 0  # the SDK's accumulator takes it for a place in a list
        return choice

    def _finished(self, choice: Any) -> None:
        reason = choice.finish_reason
        if isinstance(reason, str) and reason:
            self.finish_reason = reason

    def _speaks(self, delta: ChoiceDelta) -> bool:
        extra = delta.__pydantic_extra__
        return bool(extra and extra.get(self._reasoning_key))

    def _part(
        self, chunk: ChatCompletionChunk, choice: Any, delta: Any, entries: Any
    ) -> ChatCompletionChunk | None:
        """Hold what is to be held of a chunk, and return the rest of it."""
        self._finished(choice)
        for entry in entries if isinstance(entries, list) else (entries,) if entries else ():
            self.assembler.add(plain_entry(entry))
        names = ["tool_calls"]
        if self._shown:
            names.append("content")
        if self._mute_reasoning:
            names.append(self._reasoning_key)
        rest = without(delta, *names)
        passed = None
        if chunk.usage or any(_says(value) for value in plain(rest).values()):
            passed = rechoiced(chunk, choice, rest, "finish_reason")
        if entries or choice.finish_reason:
            if len(chunk.choices) > 1:
                chunk = chunk.model_copy()
                chunk.choices = [choice]
            self._hold(chunk)  # last: what fails before is not taken at all
        return passed

    def _hold(self, event: Any) -> None:
        if self._held is None:
            return
        if len(self._held) >= MAX_HELD or self.assembler.full:
            self._held = None
            return
        self._held.append(event)


def _only_usage(chunk: ChatCompletionChunk) -> ChatCompletionChunk | None:
    """Return what passes of a chunk that has nothing of the answer itself.

    AstrBot and the SDK's accumulator stumble over choices of another shape, and
    would take those of a second answer for this one.
    """
    if not chunk.choices and (chunk.choices is not None or not chunk.usage):
        return chunk
    if not chunk.usage:
        return None
    copy = chunk.model_copy()
    copy.choices = []
    return copy


def _place(choice: Choice) -> int:
    return choice.index if type(choice.index) is int else 0


def _says(value: object) -> bool:
    return bool(value) and value != "assistant"


class _Message:
    """Adds up the deltas of a stream to the fields of one message."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._others: dict[str, Any] = {}

    def add(self, delta: Mapping[str, Any]) -> None:
        for name, value in delta.items():
            if name in ("role", "tool_calls", "function_call"):
                continue
            if isinstance(value, str):
                self._texts.setdefault(name, []).append(value)
            elif isinstance(value, list) and isinstance(self._others.get(name), list):
                self._others[name] = [*self._others[name], *value]
            elif value is not None:
                self._others[name] = value

    def fields(self, *, calls: bool) -> dict[str, Any]:
        texts: dict[str, Any] = {name: "".join(pieces) for name, pieces in self._texts.items()}
        # A stream begins with an empty text where a complete answer with calls has null.
        content = texts.pop("content", None)
        return {"content": content or None if calls else content, **texts, **self._others}
