"""Reading Chat Completions: which choice counts, what is a delta, what passes, when it ends.

The one reader of this protocol, for the command line and for the bot alike. Text,
reasoning and usage pass at once; pieces of calls and the finish are held. Only the
first choice is the answer, but for gateways that put text and calls into choices of
their own. Whatever comes is read without trusting its shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ..model import DroppedCall
from ..plain import is_list, is_object
from .assembly import CallAssembler
from .entries import read_index
from .reading import NOT_MUTED, Answer, Muted, error_sentence, is_cut_off, items
from .whole import read_entries

REASONING: Final = "reasoning_content"
"""The delta's field in which most providers send reasoning."""

MAX_HELD: Final = 4_096
"""Runs and events that are kept for giving back."""

MAX_CHOICES: Final = 8
"""Choices beside the first whose calls are looked at."""

_SILENT: Final = frozenset({"role", "tool_calls"})
"""Fields of a delta that say nothing by themselves, or are held."""


class ChatReader:
    """Reads one streamed answer; see `reading.AnswerReader`.

    Args:
        declared: Names of the tools the request declared.
        reasoning_key: The delta's field in which the provider sends reasoning.
        muted: What of it is not passed on at once.
        many: Whether the request asked for several answers: then the other choices
            are other answers.
        collects: Whether `message` is asked for at the end.

    Attributes:
        last: The last event that came.
        error: One sentence where an error came.
    """

    def __init__(
        self,
        declared: Iterable[str],
        *,
        reasoning_key: str = REASONING,
        muted: Muted = NOT_MUTED,
        many: bool = False,
        collects: bool = False,
    ) -> None:
        self._declared = frozenset(declared)
        self._calls = CallAssembler(self._declared)
        self._others: dict[int, CallAssembler] = {}
        self._place: int | None = None
        self._many = many
        self._reasoning_key = reasoning_key
        self._muted = {"content"} if muted.text else set[str]()
        if muted.reasoning:
            self._muted.add(reasoning_key)
        self._spoken: set[str] = set()
        self._message = _Message() if collects else None
        self._held: _Held | None = _Held()
        self._ended = False
        self.last: Any = None
        self.text: list[str] = []
        self.reasoned = False
        self.finish_reason: str | None = None
        self.usage: Any = None
        self.error: str | None = None

    def take(self, event: Any) -> Any:
        """Take the next event and return what of it passes on now."""
        if self._take_pieces(event) or not is_object(event) or self._ended:
            return None
        if (sentence := error_sentence(event)) is not None:
            self.error, self._ended = sentence, True
            return None
        self.last = event
        if event.get("usage") is not None:
            self.usage = event["usage"]
        choice = self._choice(event.get("choices"))
        if choice is None:
            return _only_usage(event)
        self.error = error_sentence(choice) or self.error
        self.usage = choice.get("usage") or self.usage
        delta = self._delta(choice)
        if delta is None:
            self._finished(choice)
            if self.finish_reason is not None:
                self._hold(event, choice, {})
            return _only_usage(event)
        return self._read(event, choice, delta)

    def answer(self) -> Answer:
        """Return the answer, once the stream has ended."""
        raws, dropped = self._calls.finish()
        overflowed = self._calls.overflowed
        readings = set[str](getattr(self._calls, "readings", ()))
        if not raws and self._speaks_for_others():
            for place in sorted(self._others):
                other = self._others[place]
                more, odd = other.finish()
                raws, dropped = raws + more, dropped + odd
                overflowed = overflowed or other.overflowed
                readings |= set[str](getattr(other, "readings", ()))
            if raws:
                readings.add("calls_in_other_choice")
        if raws and self.finish_reason is None and self.error is None:
            readings.add("no_finish_reason")
        return Answer(
            tuple(raws),
            tuple(dropped),
            "".join(self.text) if self.text else None,
            self.finish_reason,
            self.usage,
            self.error,
            cut_off=self.finish_reason is None or is_cut_off(self.finish_reason),
            overflowed=overflowed,
            readings=frozenset(readings),
        )

    def message(self, *, calls: bool) -> dict[str, Any]:
        """Return the fields of the whole message, without its calls.

        Args:
            calls: Whether calls go with it.
        """
        return {} if self._message is None else self._message.fields(calls=calls)

    def given_back(self) -> Iterator[Any]:
        """Yield what is held, as events in the order they came, without what passed."""
        yield from self._held.events(self.last) if self._held is not None else ()

    # --- one event -----------------------------------------------------------------

    def _take_pieces(self, event: Any) -> bool:
        """Take an event that brings pieces of tool calls and nothing else, which is most."""
        try:
            (choice,) = event["choices"]
            delta = choice["delta"]
            entries = delta["tool_calls"]
            if (
                not is_list(entries)
                or not entries
                or self._ended
                or choice["index"] != self._place
                or choice.get("finish_reason")
                or choice.get("usage")
                or choice.get("error")
                or event.get("usage") is not None
                or event.get("error")
                or any(self._adds(key, delta[key]) for key in delta if key not in _SILENT)
            ):
                return False
        except (AttributeError, LookupError, TypeError, ValueError):
            return False
        self.last = event
        if self._message is not None:
            self._message.add(delta)
        for entry in entries:
            self._calls.add(entry)
        if (held := self._room()) is not None:  # last: what fails before is not taken at all
            held.pieces(entries)
        return True

    def _read(self, event: dict[str, Any], choice: dict[str, Any], delta: dict[str, Any]) -> Any:
        if self._message is not None:
            self._message.add(delta)
        entries = items(delta.get("tool_calls"))
        text = delta.get("content")
        if isinstance(text, str) and text:
            self.text.append(text)
        if delta.get(self._reasoning_key):
            self.reasoned = True
        self._finished(choice)
        for entry in entries:
            self._calls.add(entry)
        ends = bool(choice.get("finish_reason"))
        as_it_came = (
            delta is choice.get("delta")
            and choice.get("index") == 0
            and len(items(event.get("choices"))) == 1
        )
        if as_it_came and not entries and not ends and not self._muted:
            self._spoken.update(delta)
            return event
        rest = {
            key: value
            for key, value in delta.items()
            if key != "tool_calls" and key not in self._muted
        }
        adds = any(self._adds(key, value) for key, value in rest.items())
        passed = None
        if adds or event.get("usage"):
            passed = _with_choice(event, choice, rest, None)
            self._spoken.update(rest)
        if entries or ends:
            self._hold(event, choice, {key: delta[key] for key in _SILENT if key in delta})
        return passed

    def _adds(self, key: str, value: object) -> bool:
        """Whether a field says something: an empty one does so once.

        AstrBot tells reasoning that is empty from none at all, and stores the one as the
        other's opposite.
        """
        if key == "role" or value is None:
            return False
        return bool(value) or key not in self._spoken

    def _hold(self, event: dict[str, Any], choice: dict[str, Any], delta: dict[str, Any]) -> None:
        if (held := self._room()) is not None:  # last, as in `_take_pieces`
            held.event(_with_choice(event, choice, delta, choice.get("finish_reason")))

    def _room(self) -> _Held | None:
        if self._held is not None and (self._calls.full or self._held.full):
            self._held = None
        return self._held

    def _finished(self, choice: Mapping[str, Any]) -> None:
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self.finish_reason = reason

    # --- which choice, and what of it -----------------------------------------------

    def _choice(self, choices: object) -> dict[str, Any] | None:
        """Return the choice this answer is read from: the one with index 0, else the first."""
        found = [choice for choice in items(choices) if is_object(choice)]
        if self._place and _at(found, 0) is not None:
            # Another choice came before the first one: it is not this answer.
            self._others[self._place] = self._calls
            self._calls, self._place = CallAssembler(self._declared), 0
            self.text, self.finish_reason = [], None
        chosen = _first(found, self._place)
        if chosen is not None and self._place is None:
            self._place = read_index(chosen.get("index")) or 0
        if not self._many and len(found) > (chosen is not None):
            for other in found:
                if other is not chosen:
                    self._take_other(other)
        return chosen

    def _take_other(self, choice: dict[str, Any]) -> None:
        place = read_index(choice.get("index")) or 0
        if place == self._place:
            return
        delta = choice.get("delta") or choice.get("message")
        entries = items(delta.get("tool_calls")) if is_object(delta) else ()
        if entries and place not in self._others and len(self._others) < MAX_CHOICES:
            self._others[place] = CallAssembler(self._declared)
        if entries and place in self._others:
            for entry in entries:
                self._others[place].add(entry)

    def _speaks_for_others(self) -> bool:
        return bool(self._others) and self.finish_reason == "tool_calls"

    def _delta(self, choice: dict[str, Any]) -> dict[str, Any] | None:
        """Return the delta; a whole `message` in its place, where no delta has said anything."""
        delta, message = choice.get("delta"), choice.get("message")
        if is_object(message) and not delta:
            said = self.text or self.reasoned or self._calls.started
            return {} if said else message
        return delta if is_object(delta) else None


def read_completion(completion: object, declared: Iterable[str], *, many: bool = False) -> Answer:
    """Read a complete answer, each call as it is.

    Args:
        completion: The `chat.completion` object, as plain data.
        declared: Names of the declared tools.
        many: As in `ChatReader`.
    """
    answer = completion if is_object(completion) else {}
    choices, data = answer.get("choices"), answer.get("data")
    if _first(items(choices), None) is None and is_object(data):
        choices = data.get("choices")
    found = [choice for choice in items(choices) if is_object(choice)]
    choice = _first(found, None) or {}
    message = _object(choice.get("message"))
    reason = choice.get("finish_reason")
    finish_reason = reason if isinstance(reason, str) and reason else None
    names = frozenset(declared)
    readings = set[str]()
    raws, dropped = read_entries(message.get("tool_calls"), names, readings)
    if not raws and not many and finish_reason == "tool_calls":
        for other in found[: MAX_CHOICES + 1]:
            if other is not choice:
                entries = _object(other.get("message")).get("tool_calls")
                more, odd = read_entries(entries, names, readings)
                raws, dropped = raws + more, dropped + odd
        if raws:
            readings.add("calls_in_other_choice")
    content = message.get("content")
    return Answer(
        tuple(raws),
        tuple(dropped),
        content if isinstance(content, str) else None,
        finish_reason,
        answer.get("usage"),
        error_sentence(answer) or error_sentence(choice),
        cut_off=is_cut_off(finish_reason),
        overflowed=_overflowed(dropped),
        readings=frozenset(readings),
    )


def _overflowed(dropped: Iterable[DroppedCall]) -> bool:
    return any(each.reason == "too_many_calls" for each in dropped)


def _first(choices: Iterable[Any], place: int | None) -> dict[str, Any] | None:
    """Return the choice at `place`; without one the one with index 0, else the first."""
    found = [choice for choice in choices if is_object(choice)]
    if place is not None:
        return _at(found, place)
    return _at(found, 0) or (found[0] if found else None)


def _at(choices: Iterable[dict[str, Any]], index: int) -> dict[str, Any] | None:
    """Return the choice with this index; one without an index is the first."""
    return next((c for c in choices if (read_index(c.get("index")) or 0) == index), None)


def _object(value: object) -> dict[str, Any]:
    return value if is_object(value) else {}


def _only_usage(event: dict[str, Any]) -> dict[str, Any] | None:
    """Return what passes of an event that has nothing of the answer itself.

    AstrBot and the SDK's accumulator stumble over choices of another shape, and
    would take those of a second answer for this one.
    """
    choices, usage = event.get("choices"), event.get("usage")
    if not choices and (choices is not None or not usage):
        return event
    return {**event, "choices": []} if usage else None


def _with_choice(
    event: Mapping[str, Any], choice: Mapping[str, Any], delta: object, finish_reason: object
) -> dict[str, Any]:
    """Return an event like this one whose one choice is the first, with this delta."""
    part = {key: value for key, value in choice.items() if key != "message"}
    # The SDK's accumulator takes the index for a place in a list.
    part |= {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {**event, "choices": [part]}


class _Held:
    """What is held of a stream, small: bare pieces for one place are kept as one run."""

    __slots__ = ("_index", "_kept", "_run")

    def __init__(self) -> None:
        self._kept: list[dict[str, Any] | list[Any] | tuple[Any, list[str]]] = []
        self._run: list[str] | None = None
        self._index: object = None

    @property
    def full(self) -> bool:
        """Whether no more is kept: a fault then loses the calls, and not the text."""
        return len(self._kept) > MAX_HELD

    def pieces(self, entries: list[Any]) -> None:
        """Hold the call entries of an event that has nothing else."""
        entry = entries[0]
        try:
            function = entry["function"]
            bare = len(entries) == 1 and len(entry) == 2 and len(function) == 1
            if bare and type(piece := function["arguments"]) is str:
                if self._run is None or entry["index"] != self._index:
                    self._run, self._index = [], entry["index"]
                    self._kept.append((self._index, self._run))
                self._run.append(piece)
                return
        except (LookupError, TypeError):
            pass  # it is something else
        self._run = None
        self._kept.append(entries)

    def event(self, event: dict[str, Any]) -> None:
        """Hold a whole event."""
        self._run = None
        self._kept.append(event)

    def events(self, last: Any) -> Iterator[dict[str, Any]]:
        """Yield what is held as events that are like `last` in everything else."""
        for kept in self._kept:
            if isinstance(kept, dict):
                yield kept
                continue
            entries: list[Any] = kept if isinstance(kept, list) else []
            if isinstance(kept, tuple):
                index, run = kept
                entries = [{"index": index, "function": {"arguments": "".join(run)}}]
            event = {key: value for key, value in _object(last).items() if key != "usage"}
            choice = {"index": 0, "delta": {"tool_calls": entries}, "finish_reason": None}
            yield {**event, "choices": [choice]}


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
            elif is_list(value) and is_list(self._others.get(name)):
                self._others[name] = [*self._others[name], *value]
            elif value is not None:
                self._others[name] = value

    def fields(self, *, calls: bool) -> dict[str, Any]:
        texts: dict[str, Any] = {name: "".join(pieces) for name, pieces in self._texts.items()}
        # A stream begins with an empty text where a complete answer with calls has null.
        content = texts.pop("content", None)
        return {"content": content or None if calls else content, **texts, **self._others}
