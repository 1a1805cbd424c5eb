"""The seam engine: what is ours comes off exactly, whoever else wraps, in whatever order."""

from __future__ import annotations

import functools
import logging
import sys
import types
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import wrapt

from astrbot_tool_guard.host.seams import seams as engine
from astrbot_tool_guard.host.seams.seams import Seam, SeamError, Seams, SeamStatus

LOGGER = logging.getLogger("seams under test")


@pytest.fixture(autouse=True)
def only_our_lines(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What an earlier test left behind may log at any time."""
    with caplog.filtering(logging.Filter(LOGGER.name)):
        yield


HOST = "host_of_the_seam_tests"


class Host:
    """A class as AstrBot's, made anew for each test."""

    async def ask(self, question: str) -> str:
        """A coroutine function."""
        return f"answer to {question}"

    async def items(self) -> AsyncIterator[int]:
        """An async generator function."""
        yield 1

    def plain(self, *, messages: object, model: object) -> str:
        """A plain function."""
        return "plain"


@pytest.fixture
def host() -> Iterator[type[Any]]:
    """A fresh host class in a module of its own, and an empty registry."""
    functions = {name: value for name, value in vars(Host).items() if not name.startswith("__")}
    fresh = type("Host", (), functions)
    module = types.ModuleType(HOST)
    module.Host = fresh  # type: ignore[attr-defined]
    sys.modules[HOST] = module
    registry = sys.modules.pop(engine.REGISTRY, None)
    yield fresh
    del sys.modules[HOST]
    sys.modules.pop(engine.REGISTRY, None)
    if registry is not None:
        sys.modules[engine.REGISTRY] = registry


ASK = Seam("ask", HOST, "Host.ask", "coroutine", ("question",))
ITEMS = Seam("items", HOST, "Host.items", "async_generator")
PLAIN = Seam("plain", HOST, "Host.plain", "function", ("messages", "model"))


class Counter:
    """A wrapper that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        """Count, and go on."""
        self.calls += 1
        return wrapped(*args, **kwargs)


def attached(*wanted: Seam) -> tuple[Seams, Counter]:
    """Attach one counter to the seams."""
    counter, ours = Counter(), Seams(LOGGER)
    ours.attach(dict.fromkeys(wanted or (ASK,), counter))
    return ours, counter


async def test_a_wrapper_is_called_and_comes_off_without_a_trace(host: type[Any]) -> None:
    before = dict(vars(host))
    ours, counter = attached(ASK, ITEMS, PLAIN)
    assert await host().ask("why") == "answer to why"
    assert [item async for item in host().items()] == [1]
    assert host().plain(messages=[], model="m") == "plain"
    assert counter.calls == 3
    ours.detach()
    assert all(vars(host)[name] is before[name] for name in before)
    assert host.ask is before["ask"]
    assert ours.status() == ()


def test_attaching_twice_leaves_one_wrapper(host: type[Any]) -> None:
    before = vars(host)["ask"]
    ours, counter = attached()
    ours.attach({ASK: counter})
    assert vars(host)["ask"].__wrapped__ is before
    ours.detach()
    assert vars(host)["ask"] is before


def test_detaching_twice_is_no_harm(host: type[Any]) -> None:
    before = vars(host)["ask"]
    ours, _ = attached()
    ours.detach()
    ours.detach()
    assert vars(host)["ask"] is before


async def test_what_another_load_left_is_taken_off_first(host: type[Any]) -> None:
    before = vars(host)["ask"]
    _, crashed = attached()  # and never detached
    ours, counter = attached()
    await host().ask("why")
    assert (crashed.calls, counter.calls) == (0, 1)
    assert vars(host)["ask"].__wrapped__ is before
    ours.detach()
    assert vars(host)["ask"] is before


async def test_a_purged_copy_of_the_engine_finds_the_leftovers(host: type[Any]) -> None:
    import importlib.util

    before = vars(host)["ask"]
    _, crashed = attached()
    spec = importlib.util.find_spec(engine.__name__)
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    sys.modules["a_later_load"] = copy  # where dataclasses look for it
    try:
        spec.loader.exec_module(copy)
        later = copy.Seams(LOGGER)
        later.attach({ASK: Counter()})
        assert vars(host)["ask"].__wrapped__ is before
        await host().ask("why")
        assert crashed.calls == 0
        later.detach()
    finally:
        del sys.modules["a_later_load"]
    assert vars(host)["ask"] is before


async def test_an_earlier_load_does_not_fight_a_later_one(host: type[Any]) -> None:
    earlier, _ = attached()
    _, counter = attached()
    earlier.check()
    assert [status.attached for status in earlier.status()] == [False]
    await host().ask("why")
    assert counter.calls == 1
    assert vars(host)["ask"].__wrapped__ is vars(Host)["ask"]


MISSHAPEN: dict[str, tuple[Seam, str]] = {
    "no module": (Seam("x", "no_such_module", "Host.ask", "coroutine"), "missing"),
    "no class": (Seam("x", HOST, "Guest.ask", "coroutine"), "missing"),
    "no function": (Seam("x", HOST, "Host.gone", "coroutine"), "missing"),
    "a coroutine for a generator": (Seam("x", HOST, "Host.ask", "async_generator"), "other_shape"),
    "a generator for a coroutine": (Seam("x", HOST, "Host.items", "coroutine"), "other_shape"),
    "no such parameter": (Seam("x", HOST, "Host.ask", "coroutine", ("query",)), "other_shape"),
    "no function at all": (Seam("x", HOST, "Host.value", "coroutine"), "other_shape"),
}


@pytest.mark.parametrize("what", MISSHAPEN)
async def test_another_shape_is_told_by_name_and_left_alone(
    host: type[Any], caplog: pytest.LogCaptureFixture, what: str
) -> None:
    host.value = 3
    before = dict(vars(host))
    seam, problem = MISSHAPEN[what]
    ours, counter = attached(seam, PLAIN)
    assert SeamStatus("x", attached=False, problem=problem) in ours.status()  # type: ignore[arg-type]
    assert ["x" in record.getMessage() for record in caplog.records] == [True]
    host().plain(messages=[], model="m")
    assert counter.calls == 1
    ours.detach()
    assert all(vars(host)[name] is before[name] for name in before)


def test_an_optional_seam_may_be_missing_silently(
    host: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    ours, _ = attached(Seam("x", HOST, "Host.gone", "coroutine", optional=True))
    assert ours.status() == ()
    assert caplog.records == []


def test_an_inherited_function_is_not_wrapped_in_the_subclass(host: type[Any]) -> None:
    sys.modules[HOST].Sub = type("Sub", (host,), {})  # type: ignore[attr-defined]
    ours, _ = attached(ASK, Seam("sub", HOST, "Sub.ask", "coroutine"))
    assert [status.problem for status in ours.status()] == [None, "missing"]
    ours.detach()


def test_an_old_wrapt_is_refused_before_anything_is_touched(
    host: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = vars(host)["ask"]
    monkeypatch.setattr(wrapt, "__version_info__", ("1", "17", "3"))
    monkeypatch.setattr(wrapt, "__version__", "1.17.3")
    with pytest.raises(SeamError, match=r"wrapt 1\.17\.3 .* Restart AstrBot"):
        Seams(LOGGER).attach({ASK: Counter()})
    assert vars(host)["ask"] is before


# --- others on the same seam -------------------------------------------------------


def closure(host: type[Any], saved: Any = None, *, named: bool = False) -> Any:
    """Wrap as most plugins do: save what is there, and put a function in its place."""
    original = saved or host.ask

    async def theirs(self: Any, question: str) -> str:
        return await original(self, question) + ", they say"

    if named:
        theirs = functools.wraps(original)(theirs)
    host.ask = theirs
    return original


def wrapped(host: type[Any]) -> Any:
    """Wrap as a plugin with wrapt does."""

    async def theirs(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> str:
        return await wrapped(*args, **kwargs) + ", they say"

    return wrapt.wrap_function_wrapper(host, "ask", theirs)


SAID = "answer to why, they say"


async def test_we_come_off_from_under_a_wrapt_wrapper(host: type[Any]) -> None:
    ours, counter = attached()
    handle = wrapped(host)
    assert [status.covered_by for status in ours.status()] == [__name__]
    assert await host().ask("why") == SAID
    ours.detach()
    assert await host().ask("why") == SAID
    assert counter.calls == 1
    wrapt.unwrap_object(host, "ask", handle)
    assert vars(host)["ask"] is vars(Host)["ask"]


async def test_a_wrapt_wrapper_comes_off_from_under_ours(host: type[Any]) -> None:
    handle = wrapped(host)
    ours, counter = attached()
    wrapt.unwrap_object(host, "ask", handle)
    assert await host().ask("why") == "answer to why"
    assert counter.calls == 1
    ours.detach()
    assert vars(host)["ask"] is vars(Host)["ask"]


@pytest.mark.parametrize("named", [False, True])
async def test_under_a_plain_closure_a_wrapper_that_does_nothing_stays_and_is_told(
    host: type[Any], caplog: pytest.LogCaptureFixture, named: bool
) -> None:
    ours, counter = attached()
    original = closure(host, named=named)
    assert [(s.attached, s.covered_by) for s in ours.status()] == [(True, __name__)]
    ours.check()
    assert await host().ask("why") == SAID
    assert counter.calls == 1
    ours.detach()
    assert [(s.attached, s.problem) for s in ours.status()] == [(False, "left_beneath")]
    assert __name__ in caplog.records[-1].getMessage()
    assert await host().ask("why") == SAID
    assert counter.calls == 1

    # They put back what they saved: our dead wrapper, which the next load takes off.
    host.ask = original
    assert await host().ask("why") == "answer to why"
    again, _ = attached()
    assert vars(host)["ask"].__wrapped__ is vars(Host)["ask"]
    again.detach()
    assert vars(host)["ask"] is vars(Host)["ask"]


async def test_a_closure_that_puts_back_what_it_saved_leaves_us_in_force(host: type[Any]) -> None:
    ours, counter = attached()
    host.ask = closure(host)
    ours.check()
    assert await host().ask("why") == "answer to why"
    assert counter.calls == 1
    assert ours.status()[0].attached
    ours.detach()
    assert vars(host)["ask"] is vars(Host)["ask"]


async def test_a_closure_below_us_that_puts_back_what_it_saved_takes_us_off_until_the_check(
    host: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    original = closure(host)
    ours, counter = attached()
    host.ask = original
    assert not ours.status()[0].attached
    ours.check()
    assert ours.status()[0] == SeamStatus("ask", attached=True, put_back=1)
    assert "put back" in caplog.records[-1].getMessage()
    assert await host().ask("why") == "answer to why"
    assert counter.calls == 1
    ours.detach()
    assert vars(host)["ask"] is vars(Host)["ask"]


async def test_a_saved_original_that_cannot_be_seen_never_runs_us_twice(host: type[Any]) -> None:
    ours, counter = attached()
    plugin = types.SimpleNamespace(saved=host.ask)

    async def theirs(self: Any, question: str) -> str:
        return await plugin.saved(self, question) + ", they say"

    host.ask = theirs
    ours.check()
    assert await host().ask("why") == SAID
    assert counter.calls == 1
    host.ask = plugin.saved
    ours.check()
    assert await host().ask("why") == "answer to why"
    assert counter.calls == 2
    ours.detach()
    assert await host().ask("why") == "answer to why"
    assert counter.calls == 2


async def test_whoever_takes_us_off_again_and_again_wins_and_is_told(
    host: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    ours, counter = attached()
    for _ in range(engine.MAX_PUT_BACK + 2):
        host.ask = vars(Host)["ask"]
        ours.check()
    assert ours.status()[0] == SeamStatus(
        "ask", attached=False, problem="taken_off", put_back=engine.MAX_PUT_BACK
    )
    assert [record.levelname for record in caplog.records].count("ERROR") == 1
    await host().ask("why")
    assert counter.calls == 0
    ours.detach()
    assert vars(host)["ask"] is vars(Host)["ask"]


async def test_a_subclass_that_calls_up_reaches_us_once(host: type[Any]) -> None:
    class Sub(host):
        async def ask(self, question: str) -> str:
            return await super().ask(question) + ", they say"

    ours, counter = attached()
    assert await Sub().ask("why") == SAID
    assert counter.calls == 1
    ours.detach()
