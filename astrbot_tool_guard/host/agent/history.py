"""The history a run starts from, mended in `repair` mode before AstrBot builds on it.

The rule: AstrBot saves the messages a run worked with, so what is mended here is
what it stores after the turn, and the next turn has nothing to mend. It is done
when the run really starts: other plugins' hooks may still change the history after
AstrBot has made the coroutine that starts it.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import getattr_static
from typing import Any

from ...core.messages.history import mend_history
from ..call import Call
from ..seams.faults import Faults
from ..stages.request import RequestStage

CallFor = Callable[[Any, str, str], Call]
"""Makes the call of a provider, a model and a session."""


class HistoryStage:
    """Mends what a run starts from.

    Args:
        request: Tells what was mended.
        faults: Where our own faults end.
        call_for: Says what is in force.
    """

    def __init__(self, request: RequestStage, faults: Faults, call_for: CallFor) -> None:
        self._request = request
        self._faults = faults
        self._call_for = call_for

    async def reset(
        self, wrapped: Any, runner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """`ToolLoopAgentRunner.reset`: gives a runner its provider, request and context."""
        with self._faults.contained("stored history"):
            given = dict(zip(("provider", "request", "run_context"), args, strict=False)) | kwargs
            self._mend(given["provider"], given["request"], given["run_context"])
        return await wrapped(*args, **kwargs)

    def _mend(self, provider: Any, request: Any, run_context: Any) -> None:
        history = request.contexts
        if not isinstance(history, list) or not _sends_chat_completions(provider):
            return
        event = getattr(run_context.context, "event", None)
        session = str(getattr(event, "unified_msg_origin", "") or "")
        call = self._call_for(provider, str(request.model or provider.get_model() or ""), session)
        if not call.checks_requests or call.modes.request_guard != "repair":
            return
        mended = mend_history(history)
        if mended.changes:
            request.contexts = mended.history
            self._request.tell_repaired(mended.changes, call)


def _sends_chat_completions(provider: Any) -> bool:
    """Tell whether a provider's requests are ours to look at.

    A history that another adapter writes and reads, Gemini's with ids equal to
    names for one, is right for that adapter.
    """
    from astrbot.core.provider.sources.openai_source import ProviderOpenAIOfficial

    # The Responses adapter inherits everything but the request itself.
    return isinstance(provider, ProviderOpenAIOfficial) and (
        getattr_static(type(provider), "_query") is getattr_static(ProviderOpenAIOfficial, "_query")
    )
