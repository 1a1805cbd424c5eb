"""Fragments of streamed tool calls -> whole calls, and answers as a whole.

The rule of the module: a piece goes to the call that is open at its place, and
only a name opens a second call at one place. Ids and names are adopted once and
never joined to themselves. What a call's pieces stand for is decided in
`arguments.join` when the stream has ended, never while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from . import arguments, jsontext
from .arguments import Checked
from .ids import ordinal_id
from .jsontext import Balance, JsonTextError
from .model import Assembly, DroppedCall, Problem, ToolCall, Validation
from .plain import is_list, is_object
from .schema import ToolSchema, declared_tools

MAX_CALLS: Final = 128
"""Calls of one answer; OpenAI's own limit of declared tools is the same."""

MAX_ANSWER_CHARS: Final = 8 * 1024 * 1024
"""Characters of argument text of one answer; beyond it nothing more is kept."""

MAX_PIECES: Final = 65_536
"""Pieces of one call that are kept apart; more are joined."""

MAX_NAME_CHARS: Final = 4_096
"""Characters of a name; what would make it longer names nothing."""

MAX_ID_CHARS: Final = 256 * 1024
"""Characters of an id, in which some gateways put a whole thought signature."""

MAX_IDS: Final = 64
"""Ids that one call is known by, and unknown keys that travel with it."""

CUT_OFF: Final = frozenset({"length", "content_filter"})
"""Finish reasons that say that the answer ended before its time."""

_ENTRY_KEYS: Final = frozenset({"index", "id", "type", "function"})

IdSource = Callable[[int, frozenset[str]], str]
"""Makes the id of the call with this ordinal, avoiding the ids that are taken."""


@dataclass(frozen=True, slots=True)
class Raw:
    """One call as read, before it is decoded and checked.

    Attributes:
        name: Its name, `""` for a nameless call.
        id: Its usable id, or `None`.
        text: Its argument text, `None` where none came.
        extras: Its unknown keys.
        oversized: Whether argument text was given up for its size.
    """

    name: str
    id: str | None
    text: str | None
    extras: Mapping[str, Any]
    oversized: bool = False


@dataclass(slots=True, eq=False)
class _Call:
    index: int | None
    name: str = ""
    id: str | None = None
    ids: set[str] = field(default_factory=set[str])
    pieces: list[str] = field(default_factory=list[str])
    extras: dict[str, Any] = field(default_factory=dict[str, Any])
    again_over: _Call | None = None
    oversized: bool = False
    solid: bool = False
    """Whether a piece of argument text that is not blank came."""
    balance: Balance = field(default_factory=Balance)
    followed: int = 0
    """How many pieces `balance` has seen."""
    document: bool | None = None
    """Whether the balanced text decodes; `None` while nobody asked."""
    folded: _Call | None = None


class CallAssembler:
    """Collects the tool-call pieces of one streamed answer.

    Args:
        declared: Names of the tools that the request declared; they decide
            where a name could be read in two ways.
    """

    def __init__(self, declared: Iterable[str] = ()) -> None:
        self._declared = frozenset(declared)
        self._calls: list[_Call] = []
        self._at_index: dict[int, _Call] = {}
        self._by_id: dict[tuple[int | None, str], _Call] = {}
        self._last: _Call | None = None
        self._open_index: int | None = None
        self._open_pieces: list[str] = []
        self._granted = self._room = 0
        self._sink = _Call(None)
        self._chars = 0
        self._odd = 0
        self.overflowed = False
        """Whether more than `MAX_CALLS` calls were begun."""

    @property
    def full(self) -> bool:
        """Whether the argument text has outgrown what is kept of it."""
        return self._chars > MAX_ANSWER_CHARS

    @property
    def started(self) -> bool:
        """Whether any piece of a call has come."""
        return bool(self._calls)

    def add(self, entry: Any) -> None:
        """Take one entry of a delta's `tool_calls`; never raises.

        Args:
            entry: An object with `index`, `id`, `type`, `function` and unknown
                keys, or the JSON text of one. Anything else is counted as
                dropped.
        """
        try:
            # Nearly every entry is one more bare piece for the call that is open.
            function = entry["function"]
            piece = function["arguments"]
            if (
                len(function) == 1
                and len(entry) == 2
                and type(piece) is str
                and 0 < len(piece) <= self._room
                and entry["index"] == self._open_index
            ):
                self._room -= len(piece)
                self._open_pieces.append(piece)
                return
        except (TypeError, LookupError):
            pass  # it is something else
        self._chars += self._granted - self._room
        self._read(entry)
        self._grant()

    def _read(self, entry: object) -> None:
        read = _entry(entry)
        if read is None:
            self._odd += 1
            return
        function = read.get("function")
        function = function if is_object(function) else {}
        name = function.get("name")
        name = name if isinstance(name, str) and _is_name(name, self._declared) else ""
        index = _index(read.get("index"))
        given = _id(read.get("id"))
        call = self._place(index, given, name)
        self._last = call
        if call is self._sink:
            return
        if given is not None and given not in call.ids and len(call.ids) < MAX_IDS:
            call.ids.add(given)
            # The last call that has had it: a repetition comes in pieces, too.
            self._by_id[index, given] = self._by_id[None, given] = call
            if call.id is None:
                call.id = given
        if name:
            call.name = self._merged(call.name, name)
        self._append(call, _piece(function.get("arguments")))
        for key, value in read.items():
            room = key in call.extras or len(call.extras) < MAX_IDS
            if room and key not in _ENTRY_KEYS and value is not None:
                call.extras[key] = value

    def _grant(self) -> None:
        """Say where bare pieces go, and how many characters may come before the next count."""
        call = self._last
        self._granted = 0
        if call is not None and call.solid and self._place(call.index, None, "") is call:
            self._open_index = call.index
            self._open_pieces = call.pieces
            # A piece has a character at least, so this bounds the pieces, too.
            self._granted = min(MAX_ANSWER_CHARS - self._chars, MAX_PIECES - len(call.pieces))
        self._room = self._granted

    def finish(self) -> tuple[list[Raw], list[DroppedCall]]:
        """Return the calls, in the order they are to run, and what was dropped."""
        for call in self._calls:
            self._settle_again(call)
        standing = [call for call in self._calls if call.folded is None]
        named = [call for call in standing if call.name]
        indexes = {call.index for call in named}
        if None not in indexes and len(indexes) == len(named):
            named.sort(key=lambda call: call.index or 0)
        dropped = [
            DroppedCall("nameless", call.id, _text(call)) for call in standing if not call.name
        ]
        dropped += [DroppedCall("not_an_object", None, None)] * min(self._odd, MAX_CALLS)
        if self.overflowed:
            dropped.append(DroppedCall("too_many_calls", None, None))
        return [
            Raw(call.name, call.id, _text(call), call.extras, call.oversized) for call in named
        ], dropped

    def _place(self, index: int | None, given: str | None, name: str) -> _Call:
        call = None
        if given is not None:
            call = self._by_id.get((index, given))
        if call is None:
            call = self._last if index is None else self._at_index.get(index)
        if call is None:
            return self._open(index)
        if not name:
            return call
        if given is not None and call.ids and given not in call.ids:
            return self._open(index)
        if not call.name:
            return call
        if self._complete(call):
            if name == call.name:
                return self._open(index, again_over=call)
            joined = self._begins(call.name + name) and not self._begins(name)
            return call if joined else self._open(index)
        if not call.solid and self._two_tools(call.name, name):
            return self._open(index)
        return call

    def _open(self, index: int | None, again_over: _Call | None = None) -> _Call:
        if len(self._calls) >= MAX_CALLS:
            self.overflowed = True
            return self._sink
        call = _Call(index, again_over=again_over)
        self._calls.append(call)
        if index is not None:
            self._at_index[index] = call
        return call

    def _begins(self, text: str) -> bool:
        return any(name.startswith(text) for name in self._declared)

    def _two_tools(self, name: str, other: str) -> bool:
        return (
            name in self._declared
            and other in self._declared
            and not other.startswith(name)
            and not name.startswith(other)
            and not self._begins(name + other)
        )

    def _merged(self, name: str, piece: str) -> str:
        joined = name + piece
        if len(joined) > MAX_NAME_CHARS:
            return name
        if piece == name:
            doubled = name not in self._declared and self._begins(joined)
            return joined if doubled else name
        whole = piece in self._declared or (self._begins(piece) and not self._begins(joined))
        if whole and name and piece.startswith(name) and joined not in self._declared:
            return piece  # each piece holds the whole name so far
        return joined

    def _append(self, call: _Call, piece: str) -> None:
        if not piece:
            return
        self._chars += len(piece)
        if self._chars > MAX_ANSWER_CHARS:
            call.oversized = True
            return
        if len(call.pieces) >= MAX_PIECES:
            _follow(call)
            call.pieces = ["".join(call.pieces)]
            call.followed = 1
        call.pieces.append(piece)
        if not call.solid and piece.strip(jsontext.WHITESPACE):
            call.solid = True

    def _complete(self, call: _Call) -> bool:
        """Whether the argument text so far is one complete JSON document."""
        if not call.solid:
            return False
        _follow(call)
        if not call.balance.closed:
            return len(call.pieces) < 5 and "".join(call.pieces).strip() == "null"
        if call.document is None:
            call.document = _document("".join(call.pieces)) is not _NO_DOCUMENT
        return call.document

    def _settle_again(self, call: _Call) -> None:
        base = call.again_over
        if base is None:
            return
        while base.folded is not None:
            base = base.folded
        text = _text(call) or ""
        bare = text.strip(jsontext.WHITESPACE)
        if bare:
            held = _document(text)
            base_text = _text(base) or ""
            if held is not _NO_DOCUMENT and jsontext.same(held, _document(base_text)):
                pass
            elif bare[0] not in '{"':
                base.pieces.extend(call.pieces)
            elif base_text.strip(jsontext.WHITESPACE) == "{}":
                base.pieces = call.pieces
            else:
                return
        call.folded = base
        base.oversized = base.oversized or call.oversized
        base.id = base.id or call.id
        base.extras.update(call.extras)


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
        chunks: The `chat.completion.chunk` objects of a streamed answer.
        completion: A complete `chat.completion` object; one of the two is given.
        tools: The `tools` of the request.
        validation: How much is checked (`structural`, `strict`, `off`).
        normalize: Whether loss-free readings of arguments are accepted.
        new_id: Where the id of a call without a usable one comes from.

    Raises:
        TypeError: Neither or both of `chunks` and `completion` are given.
    """
    if (chunks is None) == (completion is None):
        raise TypeError("give either chunks or completion")
    declared = declared_tools(tools)
    if chunks is not None:
        return _from_chunks(chunks, declared, validation, normalize, new_id)
    return _from_completion(completion, declared, validation, normalize, new_id)


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
        read = _entry(entry)
        if len(raws) >= MAX_CALLS:
            dropped.append(DroppedCall("too_many_calls", None, None))
            break
        if read is None:
            dropped.append(DroppedCall("not_an_object", None, None))
            continue
        function = read.get("function")
        function = function if is_object(function) else {}
        name, given = function.get("name"), _id(read.get("id"))
        value = function.get("arguments")
        text = None if value is None else jsontext.mend_surrogates(_piece(value))
        if not isinstance(name, str) or not _is_name(name, names):
            dropped.append(DroppedCall("nameless", given, text))
            continue
        extras = {key: each for key, each in read.items() if key not in _ENTRY_KEYS}
        raws.append(Raw(name, given, text, extras))
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
        return next((each for each in found if _index(each.get("index")) in (locked, None)), None)
    first = next((each for each in found if _index(each.get("index")) in (0, None)), None)
    return first if first is not None else (found[0] if found else None)


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
        if not is_object(chunk):
            continue
        error = error_sentence(chunk)
        if error is not None:
            break
        choice = first_choice(chunk.get("choices"), locked)
        if choice is None:
            continue
        locked = _index(choice.get("index")) if locked is None else locked
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


def _entry(entry: object) -> Mapping[str, Any] | None:
    if isinstance(entry, str):
        try:
            entry = jsontext.loads(entry)
        except JsonTextError:
            return None
    return entry if is_object(entry) else None


def _is_name(name: str, declared: frozenset[str]) -> bool:
    """Whether a name names anything: blanks do not, nor does an undeclared `null`."""
    if len(name) > MAX_NAME_CHARS:
        return False
    return bool(name.strip()) and (name != "null" or name in declared)


def _index(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None


def _id(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= MAX_ID_CHARS else None


def _piece(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else arguments.dumps(value) or "\0"


def _text(call: _Call) -> str | None:
    return arguments.join(call.pieces) if call.pieces else None


_NO_DOCUMENT: Final = object()


def _document(text: str) -> Any:
    """Return the value of a complete text; a string literal counts as what it holds."""
    try:
        value = jsontext.loads(text)
        return jsontext.loads(value) if isinstance(value, str) else value
    except JsonTextError:
        return _NO_DOCUMENT


def _follow(call: _Call) -> None:
    for piece in call.pieces[call.followed :]:
        call.balance.feed(piece)
    call.followed = len(call.pieces)
