"""The way of a blocked request through AstrBot's agent loop, to one clear sentence.

The rule: a request that was stopped here is no failure of a provider. No other
provider is asked, nothing is retried, and the user reads what is wrong instead of
an exception's name, unless the persona has an error text of its own.

Between the provider and the loop's end, AstrBot catches every `Exception` and goes
on to the next provider. Ours goes past that as a `BaseException` that exists only
there: it is let loose only where somebody waits to turn it back. What another
plugin made of a generator, and is none any more, is handed on as it is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from ...core.errors import ToolMessageProtocolError
from ...settings.settings import LanguageSetting
from ...texts.texts import blocked_sentence, pick_language
from ..console import wake_prefix
from ..seams.faults import Faults
from ..seams.relay import relay
from .runs import Run, current_run, run_of


class PastFallback(BaseException):
    """Carries our exception past `except Exception`; never leaves the agent loop."""

    def __init__(self, error: ToolMessageProtocolError) -> None:
        super().__init__(str(error))
        self.error = error


class Refusals:
    """The wrappers around the agent loop.

    Args:
        faults: Where our own faults end.
        language: Returns the `language` setting.
        started: Called at each step of a run, for what is checked once in a while.
        inside: Makes the context in which a runner works at a step of its run.
    """

    def __init__(
        self,
        faults: Faults,
        language: Callable[[], LanguageSetting],
        started: Callable[[], None],
        inside: Callable[[Any, Run], AbstractContextManager[None]],
    ) -> None:
        self._faults = faults
        self._language = language
        self._started = started
        self._inside = inside

    def step(self, wrapped: Any, runner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`ToolLoopAgentRunner.step`: names the run, and words the refusal."""
        stream = wrapped(*args, **kwargs)
        with self._faults.contained("agent step"):
            self._started()
            if isinstance(stream, AsyncGenerator):
                run = run_of(runner)
                run.forget_waiting()  # what an earlier step left was never executed
                return relay(
                    stream,
                    partial(self._inside, runner, run),
                    self._faults.teller("agent step"),
                    item=partial(self._step_item, run),
                    failed=partial(self._step_failed, run, nested=current_run() is not None),
                )
        return stream

    def answers(
        self, wrapped: Any, runner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """`_iter_llm_responses`: lets our exception past the fallback."""
        stream = wrapped(*args, **kwargs)
        with self._faults.contained("model answers"):
            if isinstance(stream, AsyncGenerator):
                told = self._faults.teller("model answers")
                return relay(stream, nullcontext, told, failed=partial(_let_past, run_of(runner)))
        return stream

    def fallback(
        self, wrapped: Any, runner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """`_iter_llm_responses_with_fallback`: ends the loop with a refusal."""
        stream = wrapped(*args, **kwargs)
        with self._faults.contained("provider fallback"):
            if isinstance(stream, AsyncGenerator):
                run = run_of(runner)
                told = self._faults.teller("provider fallback")
                around = partial(_awaiting, run)
                return relay(stream, around, told, failed=partial(self._refused, run))
        return stream

    def _step_item(self, run: Run, item: Any) -> Any:
        if run.refusal is not None and getattr(item, "type", None) == "err":
            with self._faults.contained("block sentence"):
                _show_alone(item, run.refusal)
        return item

    def _step_failed(self, run: Run, error: BaseException, *, nested: bool) -> Any:
        if isinstance(error, PastFallback):
            raise error.error from None
        if isinstance(error, ToolMessageProtocolError) and not nested:
            # A request beside the provider loop was blocked (`skills_like` asks a
            # second time). AstrBot shows the event's error text for any exception.
            with self._faults.contained("block sentence"):
                _give_error_text(run, self._sentence(run, error))
        raise error

    def _refused(self, run: Run, error: BaseException) -> Any:
        if not isinstance(error, PastFallback):
            raise error
        with self._faults.contained("block sentence"):
            from astrbot.core.provider.entities import LLMResponse

            run.refusal = self._sentence(run, error.error)
            return LLMResponse(role="err", completion_text=run.refusal)
        raise error.error from None

    def _sentence(self, run: Run, error: ToolMessageProtocolError) -> str:
        sample = str(getattr(run.event, "message_str", "") or "")
        language = pick_language(self._language(), sample)
        return blocked_sentence(language, error.violations, prefix=_wake_prefix(run))


@contextmanager
def _awaiting(run: Run) -> Iterator[None]:
    """Say that a `PastFallback` of this run is waited for."""
    before, run.awaits_refusal = run.awaits_refusal, True
    try:
        yield
    finally:
        run.awaits_refusal = before


def _let_past(run: Run, error: BaseException) -> Any:
    if isinstance(error, ToolMessageProtocolError) and run.awaits_refusal:
        raise PastFallback(error) from None
    raise error


def _show_alone(item: Any, sentence: str) -> None:
    """Take AstrBot's "LLM error" from before the sentence; another text is a persona's."""
    from astrbot.core.message.message_event_result import MessageChain

    if item.data["chain"].get_plain_text().endswith(sentence):
        item.data["chain"] = MessageChain().message(sentence)


def _give_error_text(run: Run, sentence: str) -> None:
    from astrbot.core.persona_error_reply import (
        extract_persona_custom_error_message_from_event,
        set_persona_custom_error_message_on_event,
    )

    if extract_persona_custom_error_message_from_event(run.event) is None:
        set_persona_custom_error_message_on_event(run.event, sentence)


def _wake_prefix(run: Run) -> str:
    """Return what a command begins with in this chat."""
    return wake_prefix(run.star_context, run.session) if run.star_context is not None else "/"
