"""Other plugins on the same seams, above and below, removed in any order.

The stand-ins wrap as public plugins do: a closure that puts back what it saved, a
wrapt wrapper, a subclass. Whatever the order: what they do happens once, our guard
still works, and when everybody has gone nothing is left of us.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import wrapt

from astrbot_tool_guard.core.errors import ToolMessageProtocolError
from astrbot_tool_guard.host.guard import Guard, install
from astrbot_tool_guard.host.seams import seams
from astrbot_tool_guard.host.seams.seams import Seam
from astrbot_tool_guard.journal.events import AttemptRecord, Event
from tests.host.seams.wrapping import SEAMS, on_seams, owner_of, wrappers_on
from tests.host.stages.lists import HALF_ANSWERED
from tests.host.stages.test_request_turns import is_blocked
from tests.host.stages.test_response_turns import BROKEN
from tests.support.answers import Gate, Held, call, calls, say
from tests.support.bot import Bot

BARE = on_seams()


@dataclass(slots=True)
class Theirs:
    """Another plugin's wrapper on one seam.

    Attributes:
        calls: How often it was called.
        remove: Takes it off, the way its plugin does.
    """

    seam: Seam
    calls: int = 0
    remove: Callable[[], None] = field(default=lambda: None)

    def count(self) -> None:
        """Note a call."""
        self.calls += 1


def closure_style(theirs: Theirs, *, named: bool = False) -> None:
    """Save what is there, put a function in its place, and put back what was saved."""
    owner, attribute = owner_of(theirs.seam)
    saved = getattr(owner, attribute)

    if theirs.seam.shape == "async_generator":

        async def replacement(self: Any, *args: Any, **kwargs: Any) -> Any:
            theirs.count()
            async for item in saved(self, *args, **kwargs):
                yield item

    else:

        async def replacement(self: Any, *args: Any, **kwargs: Any) -> Any:
            theirs.count()
            return await saved(self, *args, **kwargs)

    setattr(owner, attribute, functools.wraps(saved)(replacement) if named else replacement)
    theirs.remove = lambda: setattr(owner, attribute, saved)


def named_closure_style(theirs: Theirs) -> None:
    """As `closure_style`, with `functools.wraps`."""
    closure_style(theirs, named=True)


def wrapt_style(theirs: Theirs) -> None:
    """Wrap with wrapt, and take that off again."""
    owner, attribute = owner_of(theirs.seam)

    def wrapper(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        theirs.count()
        return wrapped(*args, **kwargs)

    handle = wrapt.wrap_function_wrapper(owner, attribute, wrapper)
    theirs.remove = lambda: wrapt.unwrap_object(owner, attribute, handle) and None


STYLES = {
    "closure": closure_style,
    "named closure": named_closure_style,
    "wrapt": wrapt_style,
}
ORDERS = {
    "below, gone first": ("theirs", "ours", "-theirs", "-ours"),
    "below, gone last": ("theirs", "ours", "-ours", "-theirs"),
    "above, gone first": ("ours", "theirs", "-theirs", "-ours"),
    "above, gone last": ("ours", "theirs", "-ours", "-theirs"),
}
# Not called in a turn that goes well, or not at all with this provider.
QUIET = ("provider errors", "responses errors", "provider stream")


@pytest.fixture(autouse=True)
def clean_seams() -> Iterator[None]:
    """Whatever a test does, the next one finds AstrBot bare."""
    yield
    install().uninstall()
    for seam in SEAMS:
        owner, attribute = owner_of(seam)
        setattr(owner, attribute, BARE[seam.name])


async def a_good_turn(bot: Bot, session: str) -> int:
    """Let the bot run a tool and answer; return how many requests that took."""
    bot.server.script(calls(call("get_time")), say("Noon."))
    turn = await bot.say("The time?", session=session)
    assert turn.texts[-1:] == ["Noon."]
    assert len(turn.invocations) == 1
    return len(turn.requests)


async def blocks(bot: Bot, session: str) -> bool:
    """Tell whether a broken conversation ends with the block sentence."""
    await bot.set_history(session, HALF_ANSWERED)
    turn = await bot.say("Hello?", session=session)
    return turn.requests == [] and is_blocked(turn)


# Every seam in every order, and every style in every order: the styles take turns.
SCENES = [
    (seam, tuple(STYLES)[(number + turn) % len(STYLES)], order)
    for number, seam in enumerate(SEAMS)
    for turn, order in enumerate(ORDERS)
]


@pytest.mark.parametrize(("seam", "style", "order"), SCENES)
async def test_in_any_order_both_work_once_and_nothing_stays(
    bot: Bot, seam: Seam, style: str, order: str
) -> None:
    session = f"{seam.name}-{style}-{order}"
    theirs = Theirs(seam)
    guard: Guard | None = None
    expected: int | None = None
    for move in ORDERS[order]:
        match move:
            case "theirs":
                STYLES[style](theirs)
                if guard is None:  # how often it is called in a turn without us
                    await a_good_turn(bot, session)
                    expected = theirs.calls
            case "ours":
                guard = install()
            case "-theirs":
                theirs.remove()
            case _:
                assert guard is not None
                guard.uninstall()
                guard = None
        before = theirs.calls
        assert await a_good_turn(bot, session) == 2
        if "theirs" in move and not move.startswith("-"):
            expected = theirs.calls - before
            assert (expected > 0) != (seam.name in QUIET)
        elif move == "-theirs":
            assert theirs.calls == before
        else:
            assert theirs.calls - before in (0, expected)
        if guard is not None:
            assert await blocks(bot, f"{session}-broken")
    now = on_seams()
    if now[seam.name] is not BARE[seam.name]:
        # Only what they saved of us is left, and it does nothing; the next load takes it off.
        assert order == "above, gone last"
        assert style != "wrapt"
        assert wrappers_on(seam) == 1
        install().uninstall()
        now = on_seams()
    assert all(now[name] is BARE[name] for name in BARE)


def test_who_lies_on_top_is_told() -> None:
    guard = install()
    for style in STYLES.values():
        theirs = Theirs(SEAMS[0])
        style(theirs)
        covers = {status.name: status.covered_by for status in guard.status()}
        assert covers[SEAMS[0].name] == __name__
        theirs.remove()
    assert all(status.attached for status in guard.status())


async def test_a_plugin_that_takes_everything_off_is_noticed_and_survived(bot: Bot) -> None:
    guard = install()
    for seam in SEAMS:
        owner, attribute = owner_of(seam)
        setattr(owner, attribute, BARE[seam.name])
    assert await a_good_turn(bot, "robbed") == 2  # nothing of ours is called any more
    guard.status()  # an administrator looks, or anything of ours is still called
    assert await blocks(bot, "robbed-broken")
    assert {status.put_back for status in guard.status()} == {1}
    assert {wrappers_on(seam) for seam in SEAMS} == {1}


@pytest.mark.parametrize("seam", SEAMS, ids=lambda seam: seam.name.replace(" ", "-"))
async def test_one_seam_that_was_taken_off_is_put_back_in_the_next_turn(
    bot: Bot, seam: Seam
) -> None:
    guard = install()
    owner, attribute = owner_of(seam)
    setattr(owner, attribute, BARE[seam.name])
    await a_good_turn(bot, f"one-{seam.name}")
    assert wrappers_on(seam) == 1
    assert await blocks(bot, f"one-{seam.name}-broken")
    status = {status.name: status for status in guard.status()}[seam.name]
    assert (status.attached, status.put_back) == (True, 1)


async def test_an_adapter_that_overrides_and_calls_up_is_guarded(bot: Bot) -> None:
    from astrbot.core.provider.sources.openai_source import ProviderOpenAIOfficial

    class Own(ProviderOpenAIOfficial):
        async def _query(self, payloads: Any, tools: Any, **kwargs: Any) -> Any:
            return await super()._query(payloads, tools, **kwargs)

        async def _handle_api_error(self, e: Any, *args: Any, **kwargs: Any) -> Any:
            return await super()._handle_api_error(e, *args, **kwargs)

    install()
    provider = Own(dict(bot.provider().provider_config), {})
    try:
        assert (await provider.text_chat(prompt="Hello?")).completion_text == "OK."
        with pytest.raises(ToolMessageProtocolError):
            await provider.text_chat(contexts=HALF_ANSWERED)
        assert bot.server.count == 1
    finally:
        await provider.terminate()


@pytest.mark.parametrize("puts_back", [True, False])
async def test_a_provider_loop_of_another_plugins_own_sends_nothing_either(
    bot: Bot, monkeypatch: pytest.MonkeyPatch, puts_back: bool
) -> None:
    from astrbot.core.agent.runners.tool_loop_agent_runner import ToolLoopAgentRunner
    from astrbot.core.provider.entities import LLMResponse

    async def own_loop(self: Any) -> Any:
        for provider in [self.provider, *self.fallback_providers]:
            self.provider = provider
            try:
                async for response in self._iter_llm_responses():
                    yield response
                return
            except Exception:
                continue
        yield LLMResponse(role="err", completion_text="Nobody answers.")

    install()
    monkeypatch.setattr(ToolLoopAgentRunner, "_iter_llm_responses_with_fallback", own_loop)
    if not puts_back:
        monkeypatch.setattr(seams, "MAX_PUT_BACK", 0)
    await bot.set_history("own-loop", HALF_ANSWERED)
    async with bot.changed(fallbacks=["backup/model"]):
        turn = await bot.say("Hello?", session="own-loop")
    assert turn.requests == []
    assert is_blocked(turn) if puts_back else "Nobody answers." in turn.text


RELOADS = {
    "ours": ("-ours", "ours"),
    "theirs": ("-theirs", "theirs"),
    "one in the other": ("-ours", "-theirs", "theirs", "ours"),
    "crosswise": ("-theirs", "-ours", "theirs", "ours"),
}


@pytest.mark.parametrize("streaming", [False, True], ids=["complete", "stream"])
@pytest.mark.parametrize("first", ["ours", "theirs"])
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("reload", RELOADS)
async def test_reloads_while_a_turn_runs_leave_one_guard(
    bot: Bot, reload: str, style: str, first: str, streaming: bool
) -> None:
    session = f"mid-{reload}-{style}-{first}-{streaming}"
    theirs = [Theirs(seam) for seam in SEAMS]
    guard: Guard | None = None
    attempts: list[AttemptRecord] = []

    def note(event: Event) -> None:
        if isinstance(event, AttemptRecord):
            attempts.append(event)

    def move(what: str) -> None:
        nonlocal guard
        match what:
            case "ours":
                guard = install()
                guard.subscribe(note)
            case "theirs":
                for each in theirs:
                    STYLES[style](each)
            case "-theirs":
                for each in reversed(theirs):
                    each.remove()
            case _:
                assert guard is not None
                guard.uninstall()

    for what in ("ours", "theirs") if first == "ours" else ("theirs", "ours"):
        move(what)
    gate = Gate()
    bot.server.script(Held(calls(call("get_time", {}, id="a")), gate, 1), say("Noon."))
    turn = asyncio.create_task(bot.say("The time?", session=session, streaming=streaming))
    await gate.reached.wait()
    for what in RELOADS[reload]:
        move(what)
    gate.release.set()
    done = await turn
    assert done.texts[-1:] == ["Noon."]
    assert len(done.requests) == 2
    assert len(done.invocations) == 1

    # The next turn is guarded once, whoever lies where now; what is off says so.
    assert guard is not None
    guard.check()
    attempts.clear()
    bot.server.script(
        calls(call("get_weather", BROKEN, id="b"), call("get_time", {}, id="c")), say("Done.")
    )
    done = await bot.say("Weather?", session=session)
    assert [run.tool for run in done.invocations] == ["get_time"]
    assert [attempt.outcome for attempt in attempts] == ["accepted_degraded", "accepted"]
    assert await blocks(bot, f"{session}-broken")
    assert all(status.attached for status in guard.status())


class OneByOne:
    """Not a generator: it can be iterated, and nothing else."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __aiter__(self) -> OneByOne:
        """Return itself."""
        return self

    async def __anext__(self) -> Any:
        """Return the next item."""
        return await anext(self._stream)


@pytest.mark.parametrize(
    "name", ["step", "_iter_llm_responses", "_iter_llm_responses_with_fallback"]
)
async def test_a_generator_that_another_plugin_made_something_else_of_is_handed_on(
    bot: Bot, name: str
) -> None:
    from astrbot.core.agent.runners.tool_loop_agent_runner import ToolLoopAgentRunner

    def wrapper(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        return OneByOne(wrapped(*args, **kwargs))

    wrapt.wrap_function_wrapper(ToolLoopAgentRunner, name, wrapper)
    install()
    assert await a_good_turn(bot, f"one-by-one-{name}") == 2
    await bot.set_history(f"one-by-one-{name}-broken", HALF_ANSWERED)
    assert (await bot.say("Hello?", session=f"one-by-one-{name}-broken")).requests == []
