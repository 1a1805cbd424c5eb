"""Which functions of AstrBot and the SDK are wrapped, and what stands in each wrapper.

The rule: a wrapper is short. It finds out who asks, hands over to the stages in
their order, and calls what it wraps outside of everything that contains our own
faults, so that AstrBot's exceptions stay AstrBot's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, cast

from astrbot import logger

from ..core.errors import ToolMessageProtocolError
from ..core.messages.pairing import effective
from ..journal.eventlog import EventLog
from ..journal.events import EventBus, Observer
from ..settings.sessions import SessionOverrides
from ..settings.settings import Settings
from .agent.execution import ExecutionStage
from .agent.history import HistoryStage
from .agent.refusal import Refusals
from .agent.runs import current_run, current_session
from .attempts import Clock
from .call import Call, Providers, Transport, provider_id_of
from .protocols.chat_completions.sending import DIALECT, send
from .seams.faults import Faults
from .seams.seams import Seams, SeamStatus, Wrapper
from .seams.versions import (
    API_ERROR,
    CREATE,
    FALLBACK,
    HANDLE_TOOLS,
    LLM_RESPONSES,
    QUERY,
    QUERY_STREAM,
    RESET,
    RESPONSES_API_ERROR,
    STEP,
)
from .shared_error import astrbots_own, shared_error
from .stages.reading import AnswerDesk
from .stages.request import RequestStage
from .stages.response import ResponseStage

_installed: Guard | None = None


class Guard:
    """An installed guard; made by `install`.

    Attributes:
        settings: What the operator decided; may be replaced at any time.
        sessions: The per-session overrides, if there are any.
        events: Where everything the guard does is told.
    """

    def __init__(
        self, settings: Settings, sessions: SessionOverrides | None, events: EventBus
    ) -> None:
        self.settings = settings
        self.sessions = sessions
        self.events = events
        self._unlog = events.subscribe(EventLog(logger).observe)
        self._faults = Faults(events)
        self._providers = Providers()
        self._seams = Seams(logger, self._faults.report)
        self._stands_aside = astrbots_own() is not None
        self._request = RequestStage(events, stands_aside=self._stands_aside)
        self._desk = AnswerDesk(events, self._faults, logger, Clock())
        self._response = ResponseStage(self._desk)
        history = HistoryStage(self._request, self._faults, self._call_for)
        execution = ExecutionStage(self._faults)
        refusals = Refusals(
            self._faults, lambda: self.settings.language, self._seams.check, execution.step
        )
        self._wrappers: dict[Any, Wrapper] = {
            CREATE: self._create,
            QUERY: partial(self._payload, "complete"),
            QUERY_STREAM: partial(self._payload, "stream"),
            API_ERROR: _pass_ours_on,
            RESPONSES_API_ERROR: _pass_ours_on,
            LLM_RESPONSES: refusals.answers,
            FALLBACK: refusals.fallback,
            RESET: history.reset,
            STEP: refusals.step,
            HANDLE_TOOLS: execution.tools,
        }

    def attach(self) -> None:
        """Put the wrappers on; what an earlier load left is taken off first.

        Raises:
            SeamError: They cannot be put on at all; nothing was touched.
        """
        self._seams.attach(self._wrappers)
        shared_error()
        attached = sum(status.attached for status in self._seams.status())
        logger.info("Tool Call Guard: on, attached to %d functions of AstrBot", attached)
        if self._stands_aside:
            logger.info("Tool Call Guard: this AstrBot checks requests itself; ours stands aside")

    def uninstall(self) -> None:
        """Take off every wrapper; without effect on a guard that is off already."""
        global _installed
        self._seams.detach()
        self._unlog()
        if _installed is self:
            _installed = None
            logger.info("Tool Call Guard: off")

    def check(self) -> None:
        """Put back what another plugin silently took off; cheap enough for every run."""
        with self._faults.contained("seams"):
            self._seams.check()

    def status(self) -> tuple[SeamStatus, ...]:
        """Return what became of each seam, and of the request stage where it stands aside."""
        self.check()
        seams = self._seams.status()
        if self._stands_aside:
            return (*seams, SeamStatus("request stage", attached=False, problem="stands_aside"))
        return seams

    def subscribe(self, observer: Observer) -> Callable[[], None]:
        """Tell `observer` every event; call what is returned to stop that."""
        return self.events.subscribe(observer)

    def watch(self, providers: Callable[[], Iterable[object]]) -> None:
        """Say where AstrBot's providers are found, for adapters that send by themselves.

        Args:
            providers: Returns the chat providers there are now.
        """
        self._providers.known = providers

    # --- the wrappers ----------------------------------------------------------------

    def _create(
        self, wrapped: Any, completions: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """`AsyncCompletions.create`: the exact request and the exact answer."""
        call: Call | None = None
        with self._faults.contained("request"):
            self._seams.check()
            provider = self._providers.of(getattr(completions, "_client", None))
            if provider is not None:
                streaming = kwargs.get("stream") is True
                call = self._call(provider, kwargs, "stream" if streaming else "complete")
        if call is None or not call.modes.enabled:
            return wrapped(*args, **kwargs)
        return self._send(wrapped, args, kwargs, call)

    async def _send(
        self, wrapped: Any, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call
    ) -> Any:
        request = kwargs
        with self._faults.contained("request stage"):
            request = self._request.settle(DIALECT, kwargs, call)
        return await send(self._response, wrapped, args, request, call)

    def _payload(
        self,
        transport: Transport,
        wrapped: Any,
        provider: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """`_query` and `_query_stream`: the messages before AstrBot's clean-up."""
        with self._faults.contained("payload"):
            self._providers.remember(provider)
            payload = args[0] if args else kwargs.get("payloads")
            if isinstance(payload, dict):
                request = cast("dict[str, Any]", payload)
                self._request.settle_payload(request, self._call(provider, request, transport))
        return wrapped(*args, **kwargs)

    def _call_for(self, provider: Any, model: str, session: str) -> Call:
        return self._call(provider, {"model": model}, "complete", session)

    def _call(
        self,
        provider: Any,
        request: dict[str, Any],
        transport: Transport,
        session: str | None = None,
    ) -> Call:
        session = current_session() if session is None else session
        provider_id = provider_id_of(provider)
        overrides = self.sessions.get(session) if self.sessions is not None and session else None
        timeout = getattr(provider, "timeout", None)
        return Call(
            provider=provider,
            provider_id=provider_id,
            model=str(request.get("model") or ""),
            session=session,
            run=current_run(),
            modes=self.settings.resolve(provider_id, overrides),
            transport=transport,
            tools=effective(request, "tools"),
            answers=effective(request, "n"),
            timeout=float(timeout) if isinstance(timeout, int | float) else None,
        )


def _pass_ours_on(
    wrapped: Any, provider: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`_handle_api_error`: ours is none of the errors it knows by their text.

    AstrBot looks for "429", "context length" and "tool … support" in an error's
    text, and rotates keys, drops history or strips tools when it finds them.
    """
    error = args[0] if args else kwargs.get("e", kwargs.get("error"))
    if isinstance(error, ToolMessageProtocolError):
        raise error
    return wrapped(*args, **kwargs)


def install(
    settings: Settings | None = None,
    *,
    sessions: SessionOverrides | None = None,
    events: EventBus | None = None,
) -> Guard:
    """Put the guard on the AstrBot of this process.

    Calling it again gives the same guard and replaces what is passed. Wrappers
    that an earlier load of this package left behind are taken off first.

    Args:
        settings: What the operator decided; without it the defaults.
        sessions: Per-session overrides.
        events: Where to tell what the guard does.

    Raises:
        SeamError: The guard cannot be put on at all; nothing was touched.
    """
    global _installed
    guard = _installed
    if guard is not None:
        guard.settings = settings or guard.settings
        guard.sessions = sessions or guard.sessions
        return guard
    guard = Guard(settings or Settings(), sessions, events or EventBus(logger))
    try:
        guard.attach()
    except BaseException:
        guard.uninstall()
        raise
    _installed = guard
    return guard
