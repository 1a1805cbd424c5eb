"""The rows about the core, beside the libraries that do such work.

Runs in `.bench`: `python -m benchmarks.core_rows FILE`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from astrbot_tool_guard.core.calls.arguments import Checked, check
from astrbot_tool_guard.core.calls.assembly import CallAssembler
from astrbot_tool_guard.core.messages.pairing import find_violations
from astrbot_tool_guard.core.schemas.schema import declared_tools

from . import assemblers, damage, repairers, workloads
from .measure import Times, side_by_side
from .rows import Row
from .workloads import Message

ROUNDS = 25


def main(file: Path) -> None:
    """Measure, and write what came of it to `file`."""
    rows = [
        *pairing_rows(),
        *repair_rows("five open calls", workloads.five_open_calls(200)),
        *repair_rows("five kinds of fault", workloads.five_kinds_of_fault(200), goals=False),
        *assembly_rows(),
        *strict_rows(),
    ]
    found = {"rows": [row.to_dict() for row in rows], "quality": quality()}
    file.write_text(json.dumps(found), encoding="utf-8")


def pairing_rows() -> list[Row]:
    """Measure the finder on healthy lists."""
    small, medium, large = (workloads.healthy(count) for count in (20, 200, 20_000))
    times = side_by_side(
        {
            "ours": lambda: find_violations(medium),
            "bare": lambda: bare_walk(medium),
            "small": lambda: find_violations(small),
            "large": lambda: find_violations(large),
            "bare large": lambda: bare_walk(large),
        },
        ROUNDS,
    )
    per_message = _scaled(times, "large", "ours", len(medium) / len(large))
    bare = _scaled(times, "bare large", "bare", len(medium) / len(large))
    growth = _scaled(times, "large", "small", len(small) / len(large))
    linear = "find_violations, time per message at 20,000"
    return [
        Row.of(
            "find_violations, 200 healthy messages",
            "a bare walk",
            times.ratio("ours", "bare"),
            goal=2.0,
        ),
        Row.of(linear, "itself at 200", per_message, goal=1.2),
        Row.of(linear, "itself at 20", growth, goal=1.2),
        Row.of("a bare walk, time per message at 20,000", "itself at 200", bare),
    ]


def bare_walk(messages: list[Message]) -> tuple[set[str], set[str]]:
    """Collect the ids of a list in one pass, and look at nothing."""
    declared: set[str] = set()
    answered: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            answered.add(message["tool_call_id"])
        elif message.get("tool_calls"):
            for call in message["tool_calls"]:
                declared.add(call["id"])
    return declared, answered


def repair_rows(name: str, messages: list[Message], *, goals: bool = True) -> list[Row]:
    """Measure every repair on one list, each on its own messages.

    Args:
        name: What is wrong with the list.
        messages: The list.
        goals: Whether ours has to be faster, as where all of them do the same work.
    """
    ours = repairers.guard()
    rivals: dict[str, Callable[[], object]] = {}
    for each in (ours, *repairers.contenders()):
        loaded = each.load(messages)
        rivals[each.name] = lambda each=each, loaded=loaded: each.repair(loaded)
    times = side_by_side(rivals, ROUNDS)
    what = f"repair_messages, 200 messages, {name}"
    return [
        Row.of(what, rival, times.ratio(ours.name, rival), goal=1.0 if goals else None)
        for rival in rivals
        if rival != ours.name
    ]


def assembly_rows() -> list[Row]:
    """Measure the assembly of one long call."""
    chunks = workloads.call_chunks()
    entries = assemblers.entries(chunks)
    contenders = assemblers.contenders(chunks)
    wanted = json.loads("".join(workloads.fragments()))

    def walked() -> object:
        assembler = CallAssembler(["save_note"])
        for chunk in chunks:
            for entry in chunk["choices"][0]["delta"].get("tool_calls", ()):
                assembler.add(entry)
        return assembler.finish()

    def bare() -> str:
        pieces: list[str] = []
        for chunk in chunks:
            for entry in chunk["choices"][0]["delta"].get("tool_calls", ()):
                pieces.append(entry["function"]["arguments"])
        return "".join(pieces)

    def added() -> object:
        assembler = CallAssembler(["save_note"])
        for entry in entries:
            assembler.add(entry)
        return assembler.finish()

    def bare_entries() -> str:
        pieces: list[str] = []
        for entry in entries:
            pieces.append(entry["function"]["arguments"])
        return "".join(pieces)

    guard = assemblers.guard(chunks)
    for name, assembler in {"guard": guard, **contenders}.items():
        call_id, tool, arguments = assembler()
        if (call_id, tool, json.loads(arguments)) != ("call_000001", "save_note", wanted):
            raise AssertionError(f"{name} came to another call")
    times = side_by_side(
        {
            "guard": guard,
            **contenders,
            "walked": walked,
            "bare": bare,
            "added": added,
            "bare entries": bare_entries,
        },
        ROUNDS,
    )
    what = "assemble, 1,000 fragments, decoded and checked"
    return [
        *(Row.of(what, each, times.ratio("guard", each), goal=1.0) for each in contenders),
        Row.of(
            "CallAssembler in a walk over the chunks",
            "append and join in the same walk",
            times.ratio("walked", "bare"),
            goal=3.0,
        ),
        Row.of(what, "append and join", times.ratio("guard", "bare")),
        Row.of(
            "CallAssembler, entry by entry",
            "append and join in a loop",
            times.ratio("added", "bare entries"),
        ),
    ]


def strict_rows() -> list[Row]:
    """Measure the check of one call against a schema of six properties."""
    import jsonschema

    tools = [workloads.tool("plan_trip", workloads.TRIP_SCHEMA)]
    text = json.dumps(workloads.TRIP)
    validator = jsonschema.Draft202012Validator(workloads.TRIP_SCHEMA)

    def ours() -> Checked:
        # With the tools read anew, as for each request.
        schema = declared_tools(tools)["plan_trip"]
        return check(text, cut_off=False, schema=schema, validation="strict", normalize=False)

    if ours().problems or ours().unchecked:
        raise AssertionError("the call is valid")
    times = side_by_side(
        {
            "ours": ours,
            "validate": lambda: jsonschema.validate(workloads.TRIP, workloads.TRIP_SCHEMA),
            "cached": lambda: validator.validate(workloads.TRIP),
        },
        ROUNDS,
    )
    what = "one call under `strict`, decoded, 6 properties"
    return [
        Row.of(what, "jsonschema.validate", times.ratio("ours", "validate"), goal=0.05),
        Row.of(what, "its cached validator alone", times.ratio("ours", "cached"), goal=1.3),
    ]


def quality() -> dict[str, dict[str, int]]:
    """Let every repair mend the damaged histories."""
    histories = damage.damaged_histories()
    return {
        each.name: damage.judge(each, histories).to_dict()
        for each in (repairers.guard(), *repairers.contenders())
    }


def _scaled(times: Times, ours: str, theirs: str, factor: float) -> tuple[float, float, float]:
    low, middle, high = times.ratio(ours, theirs)
    return low * factor, middle * factor, high * factor


if __name__ == "__main__":
    arguments: list[Any] = sys.argv
    main(Path(arguments[1]))
