"""One request on its way to the SDK, as every stage of the guard sees it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..settings.settings import Modes
from .agent.runs import Run

Transport = Literal["stream", "complete"]


@dataclass(frozen=True, slots=True)
class Call:
    """Who asks what of whom, and under which rules.

    Attributes:
        provider: AstrBot's provider instance.
        provider_id: Its id in AstrBot's configuration.
        model: The requested model.
        session: `unified_msg_origin`, or `""` where the request has no session.
        run: The agent run it belongs to; `None` for a request outside of one.
        modes: What is in force for it.
        transport: How the caller wants the answer.
        tools: The tools it declares to the model, in the shape of Chat Completions.
        answers: How many answers it asks for (`n`), where it says so.
        protocol: Which protocol it goes by; as in `AttemptRecord.protocol`.
        timeout: Seconds the provider has for the answer, where it says so.
    """

    provider: Any
    provider_id: str
    model: str
    session: str
    run: Run | None
    modes: Modes
    transport: Transport
    tools: Any = None
    answers: Any = None
    protocol: str = "chat_completions"
    timeout: float | None = None

    @property
    def turn(self) -> str:
        """The id of its agent run, `""` outside of every run."""
        return self.run.id if self.run is not None else ""

    @property
    def checks_requests(self) -> bool:
        """Whether the request stage does anything for it."""
        return self.modes.enabled and self.modes.request_guard != "off"


class Providers:
    """Which SDK client belongs to which of AstrBot's providers.

    Neither is kept alive. A client nobody has shown us is looked for among
    `known`, since an adapter may send without AstrBot's own request functions.
    """

    def __init__(self) -> None:
        self._by_client: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = (
            weakref.WeakKeyDictionary()
        )
        self.known: Callable[[], Iterable[Any]] = tuple

    def remember(self, provider: Any) -> None:
        """Note the client that `provider` sends with now."""
        client = getattr(provider, "client", None)
        if client is None:
            return
        reference = self._by_client.get(client)
        if reference is None or reference() is not provider:
            self._by_client[client] = weakref.ref(provider)

    def of(self, client: Any) -> Any | None:
        """Return the provider that `client` belongs to, or `None`: then it is not AstrBot's."""
        reference = self._by_client.get(client)
        provider = reference() if reference is not None else None
        if provider is not None:
            return provider
        for candidate in self.known():
            if getattr(candidate, "client", None) is client:
                self.remember(candidate)
                return candidate
        return None


def provider_id_of(provider: Any) -> str:
    """Return a provider's id in AstrBot's configuration."""
    config = getattr(provider, "provider_config", None)
    return str(config.get("id") or "") if isinstance(config, Mapping) else ""
