"""Fragments of streamed tool calls -> whole calls.

The rule of the module: a piece goes to the call that is open at its place, and
only a name opens a second call at one place. Ids and names are adopted once and
never joined to themselves. What a call's pieces stand for is decided in
`arguments.join` when the stream has ended, never while it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .. import jsontext
from ..jsontext import Balance, JsonTextError
from ..model import DroppedCall
from ..plain import is_object
from . import arguments
from .entries import (
    MAX_CALLS,
    MAX_NAME_CHARS,
    Raw,
    argument_piece,
    is_name,
    read_entry,
    read_id,
    read_index,
    unknown_keys,
)

MAX_ANSWER_CHARS: Final = 8 * 1024 * 1024
"""Characters of argument text of one answer; beyond it nothing more is kept."""

MAX_PIECES: Final = 65_536
"""Pieces of one call that are kept apart; more are joined."""

MAX_LOOKED: Final = 1024 * 1024
"""Characters of one call that are looked through for a repetition while it is streamed."""

MAX_IDS: Final = 64
"""Ids that one call is known by, and unknown keys that travel with it."""


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
    chars: int = 0
    """Characters of those pieces."""
    looked: int = 0
    """Characters that were looked through for a repetition."""
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
        read = read_entry(entry)
        if read is None:
            self._odd += 1
            return
        function = read.get("function")
        function = function if is_object(function) else {}
        name = function.get("name")
        name = name if isinstance(name, str) and is_name(name, self._declared) else ""
        index = read_index(read.get("index"))
        given = read_id(read.get("id"))
        call = self._place(index, given, name)
        self._last = call
        if call is self._sink:
            return
        if given is not None and given not in call.ids and len(call.ids) < MAX_IDS:
            call.ids.add(given)
            # The last call that has had it: a repetition comes in pieces, too.
            self._by_id[call.index, given] = self._by_id[None, given] = call
            if call.id is None:
                call.id = given
        if name:
            call.name = self._merged(call.name, name)
        self._append(call, argument_piece(function.get("arguments")))
        _adopt(call.extras, unknown_keys(read))

    def _grant(self) -> None:
        """Say where bare pieces go, and how many characters may come before the next count."""
        call = self._last
        self._granted = 0
        kept = call is not None and call.solid and not call.oversized
        if call is not None and kept and self._place(call.index, None, "") is call:
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
        if not piece or call.oversized:
            return
        self._chars += len(piece)
        if self._chars > MAX_ANSWER_CHARS and arguments.is_cumulative([*call.pieces, piece]):
            self._forget_earlier(call)
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

    def _forget_earlier(self, call: _Call) -> None:
        """Keep of pieces that each begin with the one before what shows just that."""
        self._chars -= sum(map(len, call.pieces[1:-1]))
        call.pieces = [call.pieces[0], call.pieces[-1]]
        call.balance, call.followed, call.chars, call.document = Balance(), 0, 0, None

    def _complete(self, call: _Call) -> bool:
        """Whether the argument text so far is one complete JSON document."""
        if not call.solid:
            return False
        _follow(call)
        if call.balance.closed:
            if call.document is None:
                # Closed and by the grammar: whether it can be used is not asked here.
                call.document = jsontext.is_prefix("".join(call.pieces))
            return call.document
        if len(call.pieces) < 5 and "".join(call.pieces).strip() == "null":
            return True
        return self._complete_again(call)

    def _complete_again(self, call: _Call) -> bool:
        """Whether it is complete by a reading of repetition, as `arguments.join` reads it."""
        pieces = call.pieces
        repeats = len(pieces) > 1 and (call.balance.overrun or pieces[-1].startswith(pieces[0]))
        # A name on every piece must not make this quadratic.
        if not repeats or call.looked + call.chars > MAX_LOOKED:
            return False
        call.looked += call.chars
        return _document(arguments.join(pieces)) is not _NO_DOCUMENT

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
            elif _document(base_text) == {}:
                base.pieces = call.pieces
            else:
                return
        call.folded = base
        base.oversized = base.oversized or call.oversized
        base.id = base.id or call.id
        _adopt(base.extras, call.extras)


def _adopt(extras: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Take over unknown keys; a repeated one replaces, and null never does."""
    for key, value in more.items():
        if value is None or (key not in extras and len(extras) >= MAX_IDS):
            continue
        if key == "function":
            _adopt(extras.setdefault(key, {}), value)
        else:
            extras[key] = value


def _text(call: _Call) -> str | None:
    return arguments.join(call.pieces) if call.pieces else None


_NO_DOCUMENT: Final = object()


def _document(text: str) -> Any:
    """Return the value of a complete text; a string literal counts as the object it holds."""
    try:
        value = jsontext.loads(text)
    except JsonTextError:
        return _NO_DOCUMENT
    return arguments.held(value)


def _follow(call: _Call) -> None:
    for piece in call.pieces[call.followed :]:
        call.balance.feed(piece)
        call.chars += len(piece)
    call.followed = len(call.pieces)
