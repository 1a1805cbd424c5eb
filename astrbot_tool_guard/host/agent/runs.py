"""Which agent run the code is in, however AstrBot cuts it into tasks.

The rule: a run is known by its runner, and the context variable that names it is
set around *each* step of the runner's generator. Set once, it would be lost after
the first item, since AstrBot may take every item in a task of its own; left set
between the items, it would leak into whoever takes them.
"""

from __future__ import annotations

import secrets
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from ...core.model import ToolCall

_current: ContextVar[Run | None] = ContextVar("astrbot_tool_guard_run", default=None)


MAX_WAITING = 8
"""Answers that wait at a time; in an agent run there is one, and few others beside it."""


class Run:
    """What the guard knows about one agent run; one for each runner.

    Attributes:
        id: What its requests and incidents have in common in the journal.
        awaits_refusal: Whether the runner's provider loop is under way and turns
            back an exception that goes past its fallback.
        refusal: The sentence for the user, once a request of the run was blocked.
        waiting: The checked calls of the answers whose calls were not executed yet.
        turns: How many calls of each tool of the last of them were executed.
        handling: The tool calls it executes now; `None` between two answers.
    """

    def __init__(self, runner: Any) -> None:
        # The runner owns the run, in `_runs`: a strong reference would keep both.
        self._runner = weakref.ref(runner)
        self.id = secrets.token_hex(6)
        self.awaits_refusal = False
        self.refusal: str | None = None
        self.waiting: tuple[tuple[ToolCall, ...], ...] = ()
        self.turns: Counter[str] = Counter()
        self.handling: object | None = None
        self._cut = False

    def answered(self, calls: tuple[ToolCall, ...]) -> None:
        """Note the calls of an answer.

        Not every answer in a run is the run's own: a tool, a hook or a task that one
        of them left behind may ask a model, too. So an answer replaces none, and one
        that comes while calls are executed is not what the run executes next.
        """
        if calls and self.handling is None:
            self.waiting = (*self.waiting, calls)
            if len(self.waiting) > MAX_WAITING:  # the run's own comes first or last
                self.waiting = (self.waiting[0], *self.waiting[2:])
            self.turns.clear()

    def may_ask_again(self, *, cut_by_limit: bool) -> bool:
        """Whether an invalid answer may be asked for again.

        Of answers cut off by the token limit only the first of a run is: with the same
        limit the next is likely to be cut at the same place.
        """
        first, self._cut = not self._cut, self._cut or cut_by_limit
        return first or not cut_by_limit

    def forget_waiting(self) -> None:
        """Let no answer wait any longer: one is executed now, or none of them will be."""
        self.waiting = ()

    @property
    def runner(self) -> Any | None:
        """The `ToolLoopAgentRunner`, while it is there."""
        return self._runner()

    @property
    def event(self) -> Any | None:
        """The message event the run answers, if it answers one."""
        return getattr(self._context, "event", None)

    @property
    def session(self) -> str:
        """`unified_msg_origin`, or `""` where the run has no event."""
        return str(getattr(self.event, "unified_msg_origin", "") or "")

    @property
    def star_context(self) -> Any | None:
        """AstrBot's `Context`, as plugins get it."""
        return getattr(self._context, "context", None)

    @property
    def _context(self) -> Any | None:
        return getattr(getattr(self.runner, "run_context", None), "context", None)


_runs: weakref.WeakKeyDictionary[Any, Run] = weakref.WeakKeyDictionary()


def run_of(runner: Any) -> Run:
    """Return the run of `runner`, the same one for as long as the runner lives."""
    run = _runs.get(runner)
    if run is None:
        run = _runs[runner] = Run(runner)
    return run


def current_run() -> Run | None:
    """Return the run this code is in, or `None` outside of every run."""
    return _current.get()


def current_event() -> Any | None:
    """Return the message event this code works for, if that can be known."""
    run = current_run()
    if run is not None and run.event is not None:
        return run.event
    from astrbot.core.platform import astr_message_event

    # Absent in some supported versions of AstrBot.
    variable = getattr(astr_message_event, "current_message_event", None)
    return variable.get() if variable is not None else None


def current_session() -> str:
    """Return the `unified_msg_origin` this code works for, or `""`."""
    return str(getattr(current_event(), "unified_msg_origin", "") or "")


@contextmanager
def within(run: Run | None) -> Iterator[None]:
    """Make `run` the current one for the duration of a `with` block."""
    token = _current.set(run)
    try:
        yield
    finally:
        # A step that was given up is ended by the garbage collector, in whatever
        # context that works; there the run was never the current one.
        with suppress(ValueError):
            _current.reset(token)
