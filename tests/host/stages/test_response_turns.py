"""Damaged answers in a turn of the bot: what runs, what the user reads, what is stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from astrbot_tool_guard.core.messages.pairing import find_violations
from astrbot_tool_guard.host.guard import Guard
from astrbot_tool_guard.settings.settings import Settings
from tests.host.conftest import Told
from tests.support.answers import Answer, Chunks, Completion, Cut, Failure, call, calls, chunk, say
from tests.support.bot import Bot, Turn
from tests.support.versions import requests_until_it_fails

streaming = pytest.mark.parametrize("streaming", [False, True], ids=["complete", "stream"])

BROKEN = '{"city": "Os'


def tool_results(turn: Turn) -> dict[str, str]:
    """Return the tool results of the turn's last request by their call id."""
    messages = turn.requests[-1].messages
    last_user = max(i for i, m in enumerate(messages) if m["role"] == "user")
    results = [m for m in messages[last_user:] if m["role"] == "tool"]
    assert len({m["tool_call_id"] for m in results}) == len(results)
    return {m["tool_call_id"]: m["content"] for m in results}


async def accepted_again(bot: Bot, session: str) -> Turn:
    """Send one more message: the strict server takes what is stored."""
    assert find_violations(await bot.history(session)) == ()
    turn = await bot.say("And now?", session=session)
    assert turn.requests
    assert turn.refused == []
    return turn


def pieces(*deltas: dict[str, Any], finish: str | None = "tool_calls") -> Chunks:
    """Return a stream of raw deltas, with a finish chunk unless `finish` is `None`."""
    ending = [] if finish is None else [chunk({}, finish_reason=finish)]
    return Chunks([chunk({"role": "assistant", "content": ""}), *map(chunk, deltas), *ending])


def entry(arguments: Any, *, name: str = "get_weather", **more: Any) -> dict[str, Any]:
    """Return a delta with one tool-call piece."""
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"type": "function", "function": function, **more}]}


# --- still invalid: not run, one error result, the turn goes on --------------------------

INVALID = {
    "malformed JSON": calls(call("get_weather", "{'city': 'Oslo'}", id="x")),
    "cut by length": calls(call("get_weather", BROKEN, id="x"), finish_reason="length"),
    "missing required": calls(call("get_weather", {"days": 2}, id="x")),
    "empty where required": calls(call("get_weather", "", id="x")),
    "not an object": calls(call("get_weather", "[1]", id="x")),
}


@streaming
@pytest.mark.parametrize("name", INVALID)
async def test_an_invalid_call_gets_one_error_result_and_is_not_run(
    bot: Bot, guard: Guard, told: Told, name: str, streaming: bool
) -> None:
    answer = INVALID[name]
    bot.server.script(*[answer] * (2 if streaming else 1), say("Sorry."))
    turn = await bot.say("Weather?", session=f"{name}-{streaming}", streaming=streaming)
    assert turn.invocations == []
    assert turn.refused == []
    (result,) = tool_results(turn).values()
    assert result.startswith("error: invalid_arguments")
    assert "get_weather" in result
    assert "Oslo" not in result
    assert "Os" not in result.replace("JSON", "")
    assert "Sorry." in turn.text
    assert [each.outcome for each in told.attempts][-2:] == ["accepted_degraded", "accepted"]
    await accepted_again(bot, f"{name}-{streaming}")


@streaming
async def test_valid_siblings_run_and_each_result_has_the_id_of_its_call(
    bot: Bot, guard: Guard, streaming: bool
) -> None:
    answer = calls(
        call("get_weather", BROKEN, id="bad"),
        call("get_time", {}, id="good"),
        call("get_weather", {"city": "Lima"}, id="fine"),
    )
    bot.server.script(answer, *([answer] if streaming else []), say("Done."))
    turn = await bot.say("Both?", session=f"siblings-{streaming}", streaming=streaming)
    assert [(run.tool, run.arguments) for run in turn.invocations] == [
        ("get_time", {}),
        ("get_weather", {"city": "Lima"}),
    ]
    results = tool_results(turn)
    assert list(results) == ["bad", "good", "fine"]
    assert results["bad"].startswith("error: invalid_arguments")
    assert results["good"] == "get_time done"
    await accepted_again(bot, f"siblings-{streaming}")


async def test_two_calls_of_one_tool_are_told_apart(bot: Bot, guard: Guard) -> None:
    bot.server.script(
        calls(
            call("get_weather", {"city": "Lima"}, id="one"),
            call("get_weather", BROKEN, id="two"),
            call("get_weather", {"city": "Oslo"}, id="three"),
        ),
        say("Done."),
    )
    turn = await bot.say("Three?", session="three")
    assert [run.arguments for run in turn.invocations] == [{"city": "Lima"}, {"city": "Oslo"}]


@streaming
async def test_off_leaves_everything_to_astrbot_but_the_ids(
    bot: Bot, guard: Guard, streaming: bool
) -> None:
    guard.settings = Settings(tool_argument_validation="off")
    bot.server.script(calls(call("get_weather", BROKEN, id="")), say("Done."))
    turn = await bot.say("Weather?", session=f"off-{streaming}", streaming=streaming)
    assert [run.arguments for run in turn.invocations] == [{}]
    assert len(turn.requests) == 2
    await accepted_again(bot, f"off-{streaming}")


async def test_strict_checks_types_and_structural_leaves_them_to_the_tool(
    bot: Bot, guard: Guard
) -> None:
    answer = calls(call("get_weather", {"city": 600519}, id="x"))
    bot.server.script(answer, say("Done."))
    turn = await bot.say("Weather?", session="types")
    assert [run.arguments for run in turn.invocations] == [{"city": 600519}]
    guard.settings = Settings(tool_argument_validation="strict")
    bot.server.script(answer, say("Done."))
    turn = await bot.say("Weather?", session="types-strict")
    assert turn.invocations == []
    assert "city: expected string" in tool_results(turn)["x"]


async def test_normalizing_is_off_until_it_is_switched_on(bot: Bot, guard: Guard) -> None:
    answer = calls(call("get_weather", json.dumps('{"city": "Oslo"}'), id="x"))
    bot.server.script(answer, say("Done."))
    assert (await bot.say("Weather?", session="plain")).invocations == []
    guard.settings = Settings(normalize_arguments=True)
    bot.server.script(answer, say("Done."))
    turn = await bot.say("Weather?", session="normalized")
    assert [run.arguments for run in turn.invocations] == [{"city": "Oslo"}]
    await accepted_again(bot, "normalized")


@streaming
async def test_a_tool_that_was_not_declared_is_astrbots_to_answer(
    bot: Bot, guard: Guard, streaming: bool
) -> None:
    bot.server.script(calls(call("launch_rocket", {"when": "now"}, id="x")), say("No."))
    turn = await bot.say("Launch", session=f"rocket-{streaming}", streaming=streaming)
    assert "not found" in tool_results(turn)["x"]
    assert "get_weather" in tool_results(turn)["x"]


# --- assembly and ids -------------------------------------------------------------------

ASSEMBLED: dict[str, tuple[Chunks, list[dict[str, Any]]]] = {
    "two calls without index": (
        pieces(entry('{"city": "Oslo"}', id="a"), entry('{"city": "Lima"}', id="b")),
        [{"city": "Oslo"}, {"city": "Lima"}],
    ),
    "all on index 0": (
        pieces(
            entry('{"city": "Oslo"}', id="a", index=0), entry('{"city": "Lima"}', id="b", index=0)
        ),
        [{"city": "Oslo"}, {"city": "Lima"}],
    ),
    "repeated names and ids": (
        pieces(
            entry("", id="a", index=0),
            entry('{"city": ', id="a", index=0),
            entry('"Oslo"}', id="a", index=0),
        ),
        [{"city": "Oslo"}],
    ),
    "no id": (pieces(entry('{"city": "Oslo"}', index=0)), [{"city": "Oslo"}]),
    "duplicate ids": (
        pieces(
            entry('{"city": "Oslo"}', id="a", index=0), entry('{"city": "Lima"}', id="a", index=1)
        ),
        [{"city": "Oslo"}, {"city": "Lima"}],
    ),
    "no finish reason": (
        pieces(entry('{"city": "Oslo"}', id="a", index=0), finish=None),
        [{"city": "Oslo"}],
    ),
    "empty type": (
        pieces(
            entry('{"city": ', id="a", index=0, type=""),
            entry('"Oslo"}', index=0, type="", name=""),
        ),
        [{"city": "Oslo"}],
    ),
    "length, but complete": (
        pieces(entry('{"city": "Oslo"}', id="a", index=0), finish="length"),
        [{"city": "Oslo"}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ASSEMBLED)
async def test_streamed_calls_run_once_each_with_what_was_meant(
    bot: Bot, guard: Guard, name: str
) -> None:
    answer, meant = ASSEMBLED[name]
    bot.server.script(answer, say("Done."))
    turn = await bot.say("Weather?", session=name, streaming=True)
    assert [run.arguments for run in turn.invocations] == meant
    assert len(turn.requests) == 2
    assert len(tool_results(turn)) == len(meant)
    await accepted_again(bot, name)


@streaming
@pytest.mark.parametrize("call_id", [None, "", 7, ["x"]])
async def test_a_call_without_a_usable_id_gets_one_before_history(
    bot: Bot, guard: Guard, call_id: Any, streaming: bool
) -> None:
    wrong = {**call("get_weather", {"city": "Oslo"}), "id": call_id}
    session = f"id-{call_id}-{streaming}"
    bot.server.script(calls(wrong), say("Done."))
    turn = await bot.say("Weather?", session=session, streaming=streaming)
    assert [run.arguments for run in turn.invocations] == [{"city": "Oslo"}]
    (made,) = tool_results(turn)
    assert len(made) == 9
    assert made.isalnum()
    await accepted_again(bot, session)


async def test_generated_ids_do_not_repeat_from_turn_to_turn(bot: Bot, guard: Guard) -> None:
    made: set[str] = set()
    for _ in range(3):
        bot.server.script(calls(call("get_time", {}, id="")), say("Done."))
        made.update(tool_results(await bot.say("Time?", session="turns")))
    assert len(made) == 3


@streaming
async def test_a_thought_signature_is_stored_with_the_call_that_got_an_id(
    bot: Bot, guard: Guard, streaming: bool
) -> None:
    signed = call("get_time", {}, id="", extra_content={"google": {"thought_signature": "c2ln"}})
    bot.server.script(calls(signed), say("Done."))
    turn = await bot.say("Time?", session=f"signed-{streaming}", streaming=streaming)
    (declared,) = [m for m in turn.requests[-1].messages if m.get("tool_calls")]
    assert declared["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "c2ln"}}


@streaming
async def test_a_nameless_call_beside_a_good_one_is_dropped_and_told(
    bot: Bot, guard: Guard, told: Told, streaming: bool
) -> None:
    bot.server.script(calls(call("", {"x": 1}, id="a"), call("get_time", {}, id="b")), say("Done."))
    turn = await bot.say("Time?", session=f"nameless-{streaming}", streaming=streaming)
    assert [run.tool for run in turn.invocations] == ["get_time"]
    assert list(tool_results(turn)) == ["b"]
    assert "calls_dropped" in [incident.kind for incident in told.incidents]


# --- the end of a stream ----------------------------------------------------------------


@pytest.mark.parametrize("finish", ["length", "content_filter", None, ""])
async def test_text_that_was_cut_off_is_not_requested_again(
    bot: Bot, guard: Guard, finish: str | None
) -> None:
    bot.server.script(
        Chunks([chunk({"content": "Once upon "}), chunk({"content": "a time"}),
                *([] if finish is None else [chunk({}, finish_reason=finish)])])
    )  # fmt: skip
    turn = await bot.say("Tell", session=f"cut-{finish}", streaming=True)
    assert len(turn.requests) == 1
    assert turn.text == "Once upon a time"
    await accepted_again(bot, f"cut-{finish}")


async def test_text_and_reasoning_pass_at_once_and_unchanged(bot: Bot, guard: Guard) -> None:
    from tests.support.answers import Gate, Held

    gate = Gate()
    answer = calls(call("get_time", {}, id="x"), content="Let me look.", reasoning="think", piece=4)
    bot.server.script(Held(answer, gate, after=7), say("Noon."))
    seen: list[str] = []
    async for response in bot.provider().text_chat_stream(prompt="hi"):
        if response.is_chunk:
            seen.append(response.reasoning_content or response.completion_text)
        if "".join(seen).endswith("look."):
            gate.release.set()  # the calls come only now: the text did not wait for them
    assert "".join(seen) == "thinkLet me look."


async def test_a_stream_that_is_closed_unread_has_its_attempt(
    bot: Bot, guard: Guard, told: Told
) -> None:
    await bot.provider().text_chat(prompt="So that the guard knows the client.")
    told.events.clear()
    stream = await bot.provider().client.chat.completions.create(
        model="model", messages=[{"role": "user", "content": "Hello?"}], stream=True
    )
    await stream.close()
    await stream.close()
    assert [(each.outcome, each.error) for each in told.attempts] == [("failed", "GeneratorExit")]


async def test_usage_reaches_the_final_answer(bot: Bot, guard: Guard) -> None:
    for answer in (say("Hi"), calls(call("get_time", {}))):
        bot.server.script(answer)
        tools = bot.context.get_llm_tool_manager().get_full_tool_set()
        *_, final = [
            each async for each in bot.provider().text_chat_stream(prompt="hi", func_tool=tools)
        ]
        assert (final.usage.input, final.usage.output) == (11, 7)


# --- retry ------------------------------------------------------------------------------


async def test_an_invalid_stream_is_asked_for_once_more_and_the_retry_runs(
    bot: Bot, guard: Guard, told: Told
) -> None:
    bot.server.script(
        calls(call("get_weather", "", id="x"), content="Let me check."),
        calls(call("get_weather", {"city": "Oslo"}, id="y"), content="Let me check."),
        say("12 C"),
    )
    turn = await bot.say("Weather?", session="retry", streaming=True)
    assert [run.arguments for run in turn.invocations] == [{"city": "Oslo"}]
    assert len(turn.requests) == 3
    assert turn.requests[0].body == turn.requests[1].body
    assert turn.text.count("Let me check.") == 1
    stored = await bot.history("retry")
    assert [m["role"] for m in stored if m["role"] != "_checkpoint"] == [
        "user", "assistant", "tool", "assistant",
    ]  # fmt: skip
    first, second, _ = told.attempts
    assert (first.attempt, first.outcome, first.reason, first.recovery_action) == (
        1, "discarded", "stream_empty_tool_arguments", "retry_streaming",
    )  # fmt: skip
    assert first.metadata["stream_empty_args_fallback"] is True
    assert first.metadata["stream_empty_args_tools"] == ["get_weather"]
    assert (second.attempt, second.outcome, second.reason) == (2, "accepted", None)
    assert first.usage == second.usage
    assert first.usage is not None
    assert first.usage["total_tokens"] == 18
    await accepted_again(bot, "retry")


@pytest.mark.parametrize(
    "failure",
    [Failure(500, "boom"), Cut(say("Hello"), after=60), Failure(400, "no tool support")],
    ids=["500", "connection", "400"],
)
async def test_a_retry_that_fails_leaves_the_first_answer_standing(
    bot: Bot, guard: Guard, told: Told, failure: Answer
) -> None:
    asked = requests_until_it_fails(bot, failure)
    bot.server.script(calls(call("get_weather", "", id="x")), *[failure] * asked, say("Sorry."))
    turn = await bot.say("Weather?", session=f"failing-{failure!r:.9}", streaming=True)
    assert turn.invocations == []
    assert list(tool_results(turn)) == ["x"]
    assert "Sorry." in turn.text
    first, second, _ = told.attempts
    assert (first.outcome, first.recovery_action) == ("accepted_degraded", "retry_streaming")
    assert first.metadata["stream_empty_args_recovery_error"] == second.error
    assert (second.outcome, second.reason) == ("failed", "stream_empty_args_replay")
    assert first.metadata["invalid_tool_calls"][0]["id"] == "x"  # type: ignore[index]


@pytest.mark.parametrize(
    "second",
    [Chunks([]), Chunks([chunk({"content": " \n"}), chunk({}, finish_reason="stop")])],
    ids=["nothing", "blanks"],
)
async def test_an_empty_retry_leaves_the_first_answer_standing(
    bot: Bot, guard: Guard, told: Told, second: Answer
) -> None:
    first = calls(call("get_weather", BROKEN, id="a"), call("get_time", {}, id="b"), content="Hm.")
    bot.server.script(first, second, say("Done."))
    turn = await bot.say("Weather?", session="empty-retry", streaming=True)
    assert turn.text == "Hm.Done."
    assert [run.tool for run in turn.invocations] == ["get_time"]
    outcomes = [attempt.outcome for attempt in told.attempts]
    assert sorted(outcomes) == ["accepted", "accepted_degraded", "failed"]
    assert [each for each in told.incidents if each.kind == "guard_fault"] == []


async def test_what_a_retry_said_before_it_died_is_not_shown(bot: Bot, guard: Guard) -> None:
    half = Cut(say("Half of a sentence that nobody ends", piece=5), after=900)
    bot.server.script(calls(call("get_weather", BROKEN, id="a")), half, say("Done."))
    turn = await bot.say("Weather?", session="half-retry", streaming=True)
    assert len(turn.requests) == 3
    assert turn.text == "Done."
    assert "Half" not in str(await bot.history("half-retry"))


async def test_a_retry_that_answers_in_text_is_shown(bot: Bot, guard: Guard) -> None:
    bot.server.script(
        calls(call("get_weather", BROKEN, id="x"), content="Let me check."),
        say("I cannot do that."),
    )
    turn = await bot.say("Weather?", session="text-retry", streaming=True)
    assert turn.text == "Let me check.\nI cannot do that."
    assert len(turn.requests) == 2


async def test_what_continues_the_shown_text_is_shown_once(bot: Bot, guard: Guard) -> None:
    bot.server.script(
        calls(call("get_weather", BROKEN, id="x"), content="Let me"), say("Let me think: no.")
    )
    turn = await bot.say("Weather?", session="continued", streaming=True)
    assert turn.text == "Let me think: no."


@pytest.mark.parametrize(
    ("elapsed", "requests"), [(0.0, 3), (9.0, 3), (11.0, 2), (25.0, 2)]
)  # of a timeout of 20 seconds
async def test_a_retry_lives_in_the_time_that_is_left(
    bot: Bot, guard: Guard, elapsed: float, requests: int
) -> None:
    now = iter([0.0, *[elapsed] * 99])
    with steady(guard, now):
        bot.server.script(*[calls(call("get_weather", BROKEN, id="x"))] * (requests - 1), say("No"))
        turn = await bot.say("Weather?", session=f"time-{elapsed}", streaming=True)
    assert len(turn.requests) == requests


async def test_no_retry_where_it_is_switched_off(bot: Bot, guard: Guard) -> None:
    guard.settings = Settings(retry_invalid_stream=False)
    bot.server.script(calls(call("get_weather", BROKEN, id="x")), say("No"))
    assert len((await bot.say("Weather?", session="no-retry", streaming=True)).requests) == 2


async def test_off_still_asks_again_for_empty_arguments(bot: Bot, guard: Guard) -> None:
    guard.settings = Settings(tool_argument_validation="off")
    bot.server.script(
        calls(call("get_weather", "", id="x")),
        calls(call("get_weather", {"city": "Oslo"}, id="y")),
        say("Done."),
    )
    turn = await bot.say("Weather?", session="off-retry", streaming=True)
    assert [run.arguments for run in turn.invocations] == [{"city": "Oslo"}]


@contextmanager
def steady(guard: Guard, times: Iterator[float]) -> Iterator[None]:
    """Let the guard's steady clock say these times."""
    from astrbot_tool_guard.host.attempts import Clock

    reports = guard._desk.reports
    before, reports.clock = reports.clock, Clock(steady=lambda: next(times))
    try:
        yield
    finally:
        reports.clock = before


# --- other plugins, and results -----------------------------------------------------------


async def test_a_hook_that_rewrote_the_arguments_wins(bot: Bot, guard: Guard) -> None:
    def fill(_event: Any, _tool: Any, arguments: dict[str, Any]) -> None:
        arguments["city"] = "Oslo"

    bot.neighbour.on_tool = fill
    bot.server.script(calls(call("get_weather", BROKEN, id="x")), say("Done."))
    turn = await bot.say("Weather?", session="rewritten")
    assert [run.arguments for run in turn.invocations] == [{"city": "Oslo"}]
    assert tool_results(turn) == {"x": "get_weather done"}


async def test_hooks_see_the_call_and_its_error_result(bot: Bot, guard: Guard) -> None:
    seen: list[Any] = []
    bot.neighbour.on_tool = lambda _e, tool, arguments: seen.append((tool.name, dict(arguments)))
    bot.neighbour.on_tool_done = lambda _e, tool, _a, result: seen.append((tool.name, result))
    bot.server.script(calls(call("get_weather", BROKEN, id="x")), say("Done."))
    await bot.say("Weather?", session="hooks")
    (before, after) = seen
    assert before == ("get_weather", {})
    assert after[1].isError
    assert after[1].structuredContent == {"error_kind": "invalid_arguments"}


@contextmanager
def executor(results: list[Any]) -> Iterator[None]:
    """Let AstrBot's executor yield these results for every tool."""
    from astrbot.core.astr_agent_tool_exec import FunctionToolExecutor

    async def execute(cls: Any, tool: Any, run_context: Any, **_: Any) -> Any:
        for result in results:
            yield result

    before = vars(FunctionToolExecutor)["execute"]
    FunctionToolExecutor.execute = classmethod(execute)  # type: ignore[assignment]
    try:
        yield
    finally:
        FunctionToolExecutor.execute = before


async def test_an_executor_that_yields_nothing_ends_as_one_result(bot: Bot, guard: Guard) -> None:
    with executor([]):
        bot.server.script(calls(call("get_time", {}, id="x")), say("Done."))
        turn = await bot.say("Time?", session="nothing")
    assert list(tool_results(turn)) == ["x"]
    await accepted_again(bot, "nothing")


async def test_an_executor_that_yields_twice_ends_as_one_result(bot: Bot, guard: Guard) -> None:
    from mcp.types import CallToolResult, TextContent

    twice = [CallToolResult(content=[TextContent(type="text", text=t)]) for t in ("one", "two")]
    with executor(twice):
        bot.server.script(calls(call("get_time", {}, id="x")), say("Done."))
        turn = await bot.say("Time?", session="twice")
    (content,) = tool_results(turn).values()
    assert content == "one\n\ntwo"
    await accepted_again(bot, "twice")


async def test_a_tool_that_asks_a_model_itself_does_not_confuse_the_calls(
    bot: Bot, guard: Guard
) -> None:
    async def ask_a_model(**_: Any) -> str:
        response = await bot.provider().text_chat(prompt="inner")
        return response.completion_text

    bot.neighbour.results["get_time"] = ask_a_model
    bot.server.script(
        calls(call("get_time", {}, id="a"), call("get_weather", BROKEN, id="b")),
        calls(call("get_weather", {"city": "x"}, id="b"), content="inner words"),
        say("Done."),
    )
    turn = await bot.say("Time?", session="inner")
    assert [run.tool for run in turn.invocations] == ["get_time"]
    assert tool_results(turn)["b"].startswith("error: invalid_arguments")
    assert tool_results(turn)["a"] == "inner words"


async def test_an_invalid_call_does_not_run_when_the_guard_is_taken_off_in_between(
    bot: Bot, guard: Guard
) -> None:
    def take_off(*_: Any) -> None:
        guard.uninstall()

    bot.neighbour.on_tool = take_off
    bot.server.script(
        calls(call("get_time", {}, id="a"), call("get_weather", BROKEN, id="b")), say("Done.")
    )
    turn = await bot.say("Time?", session="taken-off")
    assert [run.tool for run in turn.invocations] == ["get_time"]
    assert tool_results(turn)["b"].startswith("error: invalid_arguments")


async def test_it_does_not_run_either_when_that_happens_before_the_first_execution(
    bot: Bot, guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    from astrbot_tool_guard.journal.events import AttemptRecord

    def take_off(event: Any) -> None:
        if isinstance(event, AttemptRecord) and event.outcome == "accepted_degraded":
            guard.uninstall()

    guard.subscribe(take_off)
    bot.server.script(
        calls(call("get_weather", {"city": "Lima"}, id="a"), call("get_weather", BROKEN, id="b")),
        say("Done."),
    )
    turn = await bot.say("Weather?", session="off-before")
    assert [run.arguments for run in turn.invocations] == [{"city": "Lima"}]


async def test_calls_that_another_plugin_made_of_text_are_not_touched(
    bot: Bot, guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    from astrbot.core.provider.sources.openai_source import ProviderOpenAIOfficial

    parse = ProviderOpenAIOfficial._parse_openai_completion

    async def from_text(self: Any, completion: Any, tools: Any) -> Any:
        response = await parse(self, completion, tools)
        if response.completion_text == "CALL get_weather":
            response.role = "tool"
            response.tools_call_name = ["get_weather"]
            response.tools_call_args = [{}]
            response.tools_call_ids = ["text-1"]
        return response

    monkeypatch.setattr(ProviderOpenAIOfficial, "_parse_openai_completion", from_text)
    bot.server.script(say("CALL get_weather"), say("Done."))
    turn = await bot.say("Weather?", session="text-mode")
    # Required or not: these are not the guard's to judge.
    assert [run.arguments for run in turn.invocations] == [{}]


# --- skills_like, sub-agents -----------------------------------------------------------------


@streaming
async def test_skills_like_asks_twice_and_the_second_answer_counts(
    bot: Bot, guard: Guard, streaming: bool
) -> None:
    bot.server.script(
        calls(call("get_weather", {}, id="light")),
        calls(call("get_weather", BROKEN, id="x"), call("get_weather", {"city": "Oslo"}, id="y")),
        say("Done."),
    )
    async with bot.changed(misc={"tool_schema_mode": "skills_like"}):
        turn = await bot.say("Weather?", session=f"skills-{streaming}", streaming=streaming)
    assert [run.arguments for run in turn.invocations] == [{"city": "Oslo"}]
    assert tool_results(turn)["x"].startswith("error: invalid_arguments")
    await accepted_again(bot, f"skills-{streaming}")


@streaming
async def test_a_nested_run_keeps_its_calls_apart_from_those_of_the_outer_one(
    bot: Bot, guard: Guard, streaming: bool
) -> None:
    session = f"nested-{streaming}"
    event: list[Any] = []
    bot.neighbour.on_tool = lambda each, *_: event.append(each)

    async def nested(**_: Any) -> str:
        response = await bot.context.tool_loop_agent(
            event=event[0],
            chat_provider_id="main/model",
            prompt="inner",
            tools=bot.context.get_llm_tool_manager().get_full_tool_set(),
            stream=streaming,
        )
        return response.completion_text

    bot.neighbour.results["get_time"] = nested
    inner = calls(call("get_weather", BROKEN, id="b"), call("save_note", {"text": "x"}, id="a"))
    bot.server.script(
        calls(call("get_time", {}, id="a"), call("get_weather", {"city": "Oslo"}, id="b")),
        *[inner] * (2 if streaming else 1),
        say("inner words"),
        say("Done."),
    )
    turn = await bot.say("Nested?", session=session, streaming=streaming)
    assert [(run.tool, run.arguments) for run in turn.invocations] == [
        ("get_time", {}),
        ("save_note", {"text": "x"}),
        ("get_weather", {"city": "Oslo"}),
    ]
    assert tool_results(turn) == {"a": "inner words", "b": "get_weather done"}
    await accepted_again(bot, session)


async def test_sessions_side_by_side_keep_their_calls_apart(bot: Bot, guard: Guard) -> None:
    import asyncio

    def answer(request: Any) -> Answer:
        asked = request.messages[-1]
        if asked["role"] == "tool":
            return say("Done.")
        bad = json.dumps(asked["content"]).count("odd")
        return calls(call("get_weather", BROKEN if bad else {"city": "Oslo"}, id="same"))

    bot.server.fallback = answer
    turns = await asyncio.gather(
        *(
            bot.say("odd" if n % 2 else "even", session=f"side-{n}", streaming=n % 4 < 2)
            for n in range(12)
        )
    )
    ran = [run.session for run in bot.neighbour.invocations]
    assert sorted(ran) == sorted(bot.umo(f"side-{n}") for n in range(0, 12, 2))
    assert all("Done." in turn.text for turn in turns)


# --- transport ------------------------------------------------------------------------------

SAME: dict[str, Answer] = {
    "text": say("Hello there, friend."),
    "reasoning": say("Hello.", reasoning="I think, therefore"),
    "calls": calls(call("get_weather", {"city": "Oslo"}, id="x"), call("get_time", {}, id="y")),
    "text and calls": calls(call("get_time", {}, id="y"), content="Let me look."),
    "cut by length": say("Once upon", finish_reason="length"),
}


def fields(response: Any) -> dict[str, Any]:
    completion = response.raw_completion
    return {
        "text": response.completion_text,
        "chain": response.result_chain and response.result_chain.get_plain_text(),
        "reasoning": response.reasoning_content,
        "names": response.tools_call_name,
        "arguments": response.tools_call_args,
        "ids": response.tools_call_ids,
        "extra": response.tools_call_extra_content,
        "usage": response.usage,
        "role": response.role,
        "id": response.id,
        "completion": completion.model_dump(exclude_unset=True, exclude_none=True),
    }


@pytest.mark.parametrize("name", SAME)
async def test_a_complete_answer_over_a_stream_is_the_same_field_by_field(
    bot: Bot, guard: Guard, told: Told, name: str
) -> None:
    from astrbot_tool_guard import call_llm

    tools = bot.context.get_llm_tool_manager().get_full_tool_set()
    bot.server.script(SAME[name], SAME[name])
    complete = await bot.provider().text_chat(prompt="hi", func_tool=tools)
    streamed = await call_llm(bot.provider(), stream=True, prompt="hi", func_tool=tools)
    assert fields(streamed) == fields(complete)
    assert [request.stream for request in bot.server.requests] == [False, True]
    assert [attempt.transport for attempt in told.attempts] == ["complete", "stream"]


async def test_a_refusal_over_a_stream_is_the_same(bot: Bot, guard: Guard) -> None:
    from astrbot_tool_guard import call_llm

    message = {"role": "assistant", "content": None, "refusal": "I must not."}
    body = {"id": "chatcmpl-local", "object": "chat.completion", "created": 1, "model": "model",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}  # fmt: skip
    bot.server.script(
        Completion(body),
        Chunks([chunk({"role": "assistant", "refusal": "I must "}), chunk({"refusal": "not."}),
                chunk({}, finish_reason="stop")]),
    )  # fmt: skip
    complete = await bot.provider().text_chat(prompt="hi")
    streamed = await call_llm(bot.provider(), stream=True, prompt="hi")
    assert streamed.completion_text == complete.completion_text == "I must not."


async def test_a_stream_over_a_complete_answer_ends_like_a_stream(bot: Bot, guard: Guard) -> None:
    guard.settings = Settings(stream_transport="complete")
    bot.server.script(
        calls(call("get_weather", {"city": "Oslo"}, id="x"), content="Let me look.",
              reasoning="hm"),
        say("12 C", finish_reason="length"),
    )  # fmt: skip
    turn = await bot.say("Weather?", session="reverse", streaming=True)
    assert [request.stream for request in turn.requests] == [False, False]
    assert [run.arguments for run in turn.invocations] == [{"city": "Oslo"}]
    assert "Let me look." in turn.text
    assert turn.text.endswith("12 C")
    await accepted_again(bot, "reverse")


async def test_a_complete_answer_over_a_stream_is_retried_too(bot: Bot, guard: Guard) -> None:
    guard.settings = Settings(stream_transport="stream")
    bot.server.script(
        calls(call("get_weather", "", id="x"), content="Let me look."),
        calls(call("get_weather", {"city": "Oslo"}, id="y"), content="Let me look."),
        say("12 C"),
    )
    turn = await bot.say("Weather?", session="retried-complete")
    assert [request.stream for request in turn.requests] == [True, True, True]
    assert [run.arguments for run in turn.invocations] == [{"city": "Oslo"}]
    (stored,) = [m for m in turn.requests[-1].messages if m.get("tool_calls")]
    assert "Let me look." in json.dumps(stored)


async def test_a_provider_that_dies_under_another_transport_fails_as_it_does_under_its_own(
    bot: Bot, guard: Guard, told: Told
) -> None:
    guard.settings = Settings(stream_transport="stream")
    bot.server.script(Cut(say("Some words that are sent in pieces."), after=300))
    with pytest.raises(Exception, match="Connection error"):
        await bot.provider().text_chat(prompt="hi", request_max_retries=1)
    assert len(bot.server.requests) == 1
    assert [each.outcome for each in told.attempts] == ["failed"]
    assert told.incidents == []


async def test_no_call_of_an_answer_with_an_error_in_it_runs(bot: Bot, guard: Guard) -> None:
    body = calls(call("get_time", {}, id="x")).completion("model")
    bot.server.script(Completion({**body, "error": {"code": "overloaded"}}), say("Done."))
    turn = await bot.say("Time?", session="error-inside")
    assert turn.invocations == []
    assert tool_results(turn)["x"].startswith("error: invalid_arguments")


# --- observers --------------------------------------------------------------------------------


async def test_a_failing_observer_is_told_once_and_breaks_nothing(bot: Bot, guard: Guard) -> None:
    def failing(_event: Any) -> None:
        raise RuntimeError("secret")

    guard.subscribe(failing)
    bot.server.script(calls(call("get_weather", BROKEN, id="x")), say("Done."))
    turn = await bot.say("Weather?", session="watched")
    assert "Done." in turn.text
    told = [line for line in turn.log if "observer" in line]
    assert len(told) == 1
    assert "secret" not in told[0]


@streaming
async def test_raw_arguments_are_for_observers_and_not_for_log_or_chat(
    bot: Bot, guard: Guard, told: Told, streaming: bool
) -> None:
    secret = '{"city": "SECRET-WORDS'
    answer = calls(call("get_weather", secret, id="x"))
    bot.server.script(answer, *([answer] if streaming else []), say("Done."))
    turn = await bot.say("Weather?", session=f"secret-{streaming}", streaming=streaming)
    record = next(each for each in told.attempts if each.outcome == "accepted_degraded")
    assert record.metadata["invalid_tool_calls"][0]["raw_arguments"] == secret  # type: ignore[index]
    # At debug AstrBot itself logs the whole completion.
    ours = [line for line in turn.log if "Tool Call Guard" in line]
    assert ours
    assert not any("SECRET" in line for line in ours)
    assert not any("SECRET" in line for line in turn.log if not line.startswith("DEBUG"))
    assert "SECRET" not in turn.text
    assert "SECRET" not in json.dumps(turn.requests[-1].messages)
