"""What is read of an answer, by whatever protocol it came: the words every reader shares.

A reader takes the events of a stream one by one, as plain JSON data, and says of each
what passes on at once. What it holds are the pieces of calls, and the end of the
answer, since pieces may ride in it or follow it. Complete answers become an `Answer`
at once. Whoever reads `Answer` needs to know no protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ..model import DroppedCall
from ..plain import is_list, is_object
from .entries import Raw

_LIMIT: Final = frozenset(
    {"length", "max_tokens", "model_length", "model_context_window_exceeded", "max_output_tokens"}
)
_CUT_OFF: Final = _LIMIT | {
    "content_filter",
    "malformed_function_call",
    "error",
    "abort",
    "network_error",
    "insufficient_system_resource",
}


def is_limit(finish_reason: str | None) -> bool:
    """Whether a finish reason says that the answer ran into its token limit."""
    return finish_reason is not None and finish_reason.lower() in _LIMIT


def is_cut_off(finish_reason: str | None) -> bool:
    """Whether a finish reason says that the answer ended before its time.

    It is a list of bad words, in any case: an unknown word is a good one.
    """
    word = (finish_reason or "").lower()
    return word in _CUT_OFF or word.startswith("function_call_filter")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it was read, before its calls are checked.

    Attributes:
        raws: Its named calls, in the order they are to run.
        dropped: What could not be a call.
        text: Its text, `None` where none came.
        finish_reason: As the provider sent it, `None` where none came.
        usage: The provider's usage, as plain data.
        error: One sentence where it ended in an error.
        cut_off: Whether it ended before its time.
        overflowed: Whether it began more calls than are kept.
        readings: What was read otherwise than it stands, by the names of `readings`.
    """

    raws: tuple[Raw, ...] = ()
    dropped: tuple[DroppedCall, ...] = ()
    text: str | None = None
    finish_reason: str | None = None
    usage: Any = None
    error: str | None = None
    cut_off: bool = False
    overflowed: bool = False
    readings: frozenset[str] = frozenset()

    @property
    def only_nameless(self) -> bool:
        """Whether it is nothing but calls without a name: AstrBot can tell the model so."""
        nameless = any(each.reason == "nameless" for each in self.dropped)
        return nameless and not self.raws and not (self.text or "").strip()


class AnswerReader(Protocol):
    """Reads one streamed answer.

    Attributes:
        text: The pieces of text that came.
        reasoned: Whether reasoning came.
        finish_reason: As the provider sent it, `None` while it did not.
        usage: The last usage that came, as plain data.
    """

    text: list[str]
    reasoned: bool
    finish_reason: str | None
    usage: Any

    def take(self, event: Any) -> Any:
        """Take the next event, as plain data, and return what of it passes on now.

        Returns:
            The very event, a smaller one, or `None`.
        """
        ...

    def answer(self) -> Answer:
        """Return the answer, once the stream has ended."""
        ...

    def given_back(self) -> Iterator[Any]:
        """Yield what is held, as events in the order they came, without what passed."""
        ...


@dataclass(frozen=True, slots=True)
class Muted:
    """What of a second answer is not passed on at once, since the user saw the first.

    Attributes:
        text: Whether text is held back.
        reasoning: Whether reasoning is.
    """

    text: bool = False
    reasoning: bool = False


NOT_MUTED: Final = Muted()


def error_sentence(answer: Mapping[str, Any]) -> str | None:
    """Return one sentence for an answer that is an error object, else `None`."""
    error = answer.get("error")
    if not error:
        return None
    named: Iterable[object] = ()
    if is_object(error):
        named = (error.get(key) for key in ("code", "type"))
    words = [str(each)[:64] for each in named if isinstance(each, str | int) and each != ""]
    return "the provider sent an error in the answer" + (f" ({', '.join(words)})" if words else "")


def items(value: object) -> list[Any] | tuple[Any, ...]:
    """Return the members of a list; anything else that is there stands for a list of it."""
    if is_list(value):
        return value
    return (value,) if value else ()
