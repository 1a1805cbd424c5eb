"""The execution stage: a call that stayed invalid gets an error result instead of a run.

The rule: AstrBot's own loop does everything, so that hooks, history and the chat's
tool display go on as for any result; only in place of the run stands the error.
Each call of a guarded answer gets exactly one result. Calls that did not come from
one are not touched.

Which answer is executed is known by the ids, names and arguments of its calls, since
other answers may have come in between. A call is known by its id, which the loop tells
before each execution, and by its turn among the calls of its tool: so an invalid call
does not run either when the guard is switched off in between.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import wrapt
from mcp.types import CallToolResult, TextContent

from ...core.messages.matching import NEUTRAL_RESULT
from ...core.model import ToolCall
from ...texts.texts import invalid_arguments_result
from ..seams.faults import Faults
from ..seams.net import guarded
from ..seams.relay import relay
from .runs import Run, run_of, within

ERROR_KIND = "invalid_arguments"

_UNWORDED = f"error: {ERROR_KIND}: the tool was not run."
"""The result of a call that will not run, should its own fail to be worded."""


class ExecutionStage:
    """The wrappers around the execution of tool calls.

    Args:
        faults: Where our own faults end.
    """

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    @contextmanager
    def step(self, runner: Any, run: Run) -> Iterator[None]:
        """Put our executor in the place of the runner's, while the runner works."""
        ours: GuardedExecutor | None = None
        with self._faults.contained("executor"):
            executor = runner.tool_executor
            if not _at_work(executor, run):  # a run inside itself has one already
                runner.tool_executor = ours = GuardedExecutor(executor, run, self._faults)
        try:
            with within(run):
                yield
        finally:
            if ours is not None:
                if runner.tool_executor is ours:
                    runner.tool_executor = ours.__wrapped__
                else:  # under another plugin's, which stays: the next one lies above that
                    ours.retire()

    def tools(
        self, wrapped: Any, runner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """`_handle_function_tools`: knows which call is executed, and counts the results."""
        stream = wrapped(*args, **kwargs)
        with self._faults.contained("tool calls"):
            run = run_of(runner)
            response = args[1] if len(args) > 1 else kwargs["llm_response"]
            if isinstance(stream, AsyncGenerator):
                handling = Handling(run.waiting, response)
                run.forget_waiting()
                return relay(
                    stream,
                    partial(_handling, run, handling),
                    self._faults.teller("tool results"),
                    item=handling.see,
                    ended=handling.left_over,
                )
        return stream


class Handling:
    """The execution of the calls of one answer.

    Args:
        answers: The checked calls of the answers that may be the one, oldest first.
        response: The `LLMResponse` whose calls AstrBot executes.
    """

    def __init__(self, answers: Iterable[Iterable[ToolCall]], response: Any) -> None:
        self._names: dict[str, str] = {}
        self._calls: dict[str, ToolCall] = {}
        given = zip(
            response.tools_call_ids,
            response.tools_call_name,
            response.tools_call_args,
            strict=False,
        )
        checked = [call for answer in answers for call in answer]
        for call_id, name, arguments in given:
            if isinstance(call_id, str):
                self._names[call_id] = name
                same_id = [call for call in checked if call.id == call_id]
                if same_id:
                    self._calls[call_id] = _meant(same_id, name, arguments)
        self._announced: list[str] = []
        self._started: dict[str, str] = {}
        self._reported = False

    def call_of(self, tool: str) -> ToolCall | None:
        """Return the call of `tool` that is executed now, if it is one of ours.

        Of several that were announced the first goes first; one that is executed
        again is the one that was.
        """
        for call_id in self._announced:
            if self._names.get(call_id) == tool:
                self._announced.remove(call_id)
                self._started[tool] = call_id
                break
        return self._calls.get(self._started.get(tool, ""))

    def see(self, item: Any) -> Any:
        """Follow what the loop yields, and make its results one for each call."""
        if item.kind == "message_chain":
            chain = item.message_chain
            if chain is not None and chain.type in ("tool_call", "tool_call_result"):
                self._follow(chain.type, chain.chain[0].data)
        elif item.kind == "tool_call_result_blocks" and item.tool_call_result_blocks is not None:
            self._reported = True
            item.tool_call_result_blocks[:] = self._one_each(item.tool_call_result_blocks)
        return item

    def _follow(self, event: str, data: Mapping[str, Any]) -> None:
        call_id = data.get("id")
        if event == "tool_call":
            if call_id in self._names:
                self._announced.append(call_id)
            else:  # another plugin's: it is not the one of this tool that was before it
                self._started.pop(data.get("name", ""), None)
        elif call_id in self._announced:
            self._announced.remove(call_id)

    def left_over(self) -> Iterable[Any]:
        """Return the results of calls that AstrBot ended without any."""
        if self._reported or not self._calls:
            return ()
        from astrbot.core.agent.runners.tool_loop_agent_runner import _HandleFunctionToolsResult

        return (_HandleFunctionToolsResult.from_tool_call_result_blocks(self._one_each([])),)

    def _one_each(self, blocks: list[Any]) -> list[Any]:
        found: dict[str, list[Any]] = {call_id: [] for call_id in self._calls}
        foreign: list[Any] = []
        for block in blocks:
            found.get(block.tool_call_id, foreign).append(block)
        if all(len(own) == 1 for own in found.values()):
            return blocks
        return [*(_joined(call_id, own) for call_id, own in found.items()), *foreign]


class GuardedExecutor(wrapt.ObjectProxy):
    """Stands in the place of a runner's tool executor, and looks like it.

    Another plugin may ask whether its own executor is in place already, by its class
    or by what it wrote on it, and must not put it on a second time because of ours.

    Args:
        inner: The runner's own.
        run: The run it belongs to.
        faults: Where our own faults end.
    """

    def __init__(self, inner: Any, run: Run, faults: Faults) -> None:
        super().__init__(inner)
        self._self_run = run
        self._self_faults = faults
        self._self_guarded = guarded(self._execute, faults.teller("tool call"))
        self._self_retired = False

    def works_for(self, run: Run) -> bool:
        """Whether it guards the calls of `run`."""
        return self._self_run is run and not self._self_retired

    def retire(self) -> None:
        """Only pass on from now on: another plugin may keep it."""
        self._self_retired = True

    def execute(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the tool, or answer for it where its call is invalid."""
        if self._self_retired:
            return self.__wrapped__.execute(*args, **kwargs)
        return self._self_guarded(self.__wrapped__.execute, self.__wrapped__, args, kwargs)

    def _execute(
        self, execute: Any, _inner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        call: ToolCall | None = None
        refused = False
        with self._self_faults.contained("tool call"):
            tool = kwargs.get("tool", args[0] if args else None)
            call = self._call(str(getattr(tool, "name", "")))
            if call is not None and not call.valid:
                given = {k: v for k, v in kwargs.items() if k not in ("tool", "run_context")}
                refused = not _rewritten(call, tool, given)
        if refused and call is not None:
            text = _UNWORDED
            with self._self_faults.contained("tool call"):
                problems = [(problem.path, problem.detail) for problem in call.problems]
                text = invalid_arguments_result(call.name, problems)
            return _refusal(text)
        results = execute(*args, **kwargs)
        # An executor of another plugin need not be a generator.
        if call is None or not isinstance(results, AsyncGenerator):
            return results
        count = _Count()
        told = self._self_faults.teller("tool call")
        return relay(results, nullcontext, told, item=count.see, ended=count.if_none)

    def _call(self, tool: str) -> ToolCall | None:
        run = self._self_run
        turn = run.turns[tool]
        run.turns[tool] += 1
        if isinstance(run.handling, Handling):
            return run.handling.call_of(tool)
        # The wrapper that knows the id is gone: the calls of a tool are run in order.
        last = run.waiting[-1] if run.waiting else ()
        named = [call for call in last if call.name == tool]
        return named[turn] if turn < len(named) else None


def _meant(calls: list[ToolCall], name: str, arguments: object) -> ToolCall:
    """Return which of the calls with one id AstrBot executes.

    Another plugin may have mended the name or the arguments since. Of several that
    are alike, one that is proven to be invalid counts.
    """
    calls = [call for call in calls if call.name == name] or calls
    calls = [call for call in calls if (call.arguments or {}) == arguments] or calls
    return next((call for call in reversed(calls) if not call.valid), calls[-1])


def _at_work(executor: Any, run: Run) -> bool:
    return type(executor) is GuardedExecutor and executor.works_for(run)


@contextmanager
def _handling(run: Run, handling: Handling) -> Iterator[None]:
    before, run.handling = run.handling, handling
    try:
        yield
    finally:
        run.handling = before


def _rewritten(call: ToolCall, tool: Any, given: Mapping[str, Any]) -> bool:
    """Whether a hook of another plugin changed the arguments since they were checked.

    AstrBot passes those that the tool's schema declares, or all of them to a tool
    without a handler.
    """
    came = call.arguments or {}
    parameters = getattr(tool, "parameters", None)
    declared = parameters.get("properties") if isinstance(parameters, dict) else None
    passed = {name: value for name, value in came.items() if name in (declared or {})}
    return given not in (came, passed)


async def _refusal(text: str) -> AsyncGenerator[CallToolResult, None]:
    yield CallToolResult(
        content=[TextContent(type="text", text=text)],
        structuredContent={"error_kind": ERROR_KIND},
        isError=True,
    )


class _Count:
    """Sees what an executor yields, and makes a result where it yields nothing."""

    def __init__(self) -> None:
        self._nothing = True

    def see(self, result: Any) -> Any:
        self._nothing = False
        return result

    def if_none(self) -> Iterable[CallToolResult]:
        if self._nothing:
            yield CallToolResult(content=[TextContent(type="text", text=NEUTRAL_RESULT)])


def _joined(call_id: str, blocks: list[Any]) -> Any:
    """Return one result for a call that has several, or none."""
    if not blocks:
        from astrbot.core.agent.message import ToolCallMessageSegment

        return ToolCallMessageSegment(role="tool", tool_call_id=call_id, content=NEUTRAL_RESULT)
    first, *more = blocks
    if not more:
        return first
    joined = copy.copy(first)
    contents = [block.content for block in blocks]
    if all(isinstance(content, str) for content in contents):
        joined.content = "\n\n".join(contents)
    else:
        joined.content = [part for content in contents for part in _parts(content)]
    return joined


def _parts(content: Any) -> list[Any]:
    from astrbot.core.agent.message import TextPart

    if isinstance(content, str):
        return [TextPart(text=content)]
    return list(content or ())
