"""Damaged histories, and what a repair made of them.

The rule: a history is judged by the model server's own strict reading and not by the
guard's finder, and it holds only what every contender's message types can express.
Each text and each call is the only one of its kind, so that what was lost can be told.
"""

from __future__ import annotations

import copy
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from random import Random

from tests.support.strictness import refusal

from .workloads import Message, call, result

SEED = 20_251_130
HISTORIES = 5_000

Repairer = Callable[[list[Message]], list[Message]]


@dataclass(slots=True)
class Quality:
    """What a repair made of many damaged histories.

    Attributes:
        histories: How many there were.
        valid: How many a strict provider takes afterwards.
        results_lost: Results whose id one call declares, and no other result has,
            and which are gone.
        texts_lost: User, system and assistant texts that are gone.
        calls_lost: Calls that are gone.
        raised: How many made it raise.
    """

    histories: int = 0
    valid: int = 0
    results_lost: int = 0
    texts_lost: int = 0
    calls_lost: int = 0
    raised: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


def judge(repair: Repairer, histories: list[list[Message]]) -> Quality:
    """Let `repair` mend every history and count what came of it."""
    quality = Quality(len(histories))
    for history in histories:
        try:
            mended = repair(copy.deepcopy(history))
        except Exception:
            quality.raised += 1
            mended = history
        quality.valid += refusal({"messages": mended}) is None
        quality.results_lost += len(_findable_results(history) - _result_texts(mended))
        quality.texts_lost += (_texts(history) - _texts(mended)).total()
        quality.calls_lost += (_calls(history) - _calls(mended)).total()
    return quality


def damaged_histories(count: int = HISTORIES) -> list[list[Message]]:
    """Return histories that a strict provider refuses, the same in every run.

    Each ends with the message that is to be answered, as what a host sends does.
    """
    random = Random(SEED)
    found: list[list[Message]] = []
    while len(found) < count:
        history = _healthy(random)
        for _ in range(random.randint(1, 3)):
            if history:
                random.choice(_DAMAGES)(history, random)
        history.append({"role": "user", "content": "What now?"})
        if refusal({"messages": history}):
            found.append(history)
    return found


def _healthy(random: Random) -> list[Message]:
    messages: list[Message] = [{"role": "system", "content": "system"}]
    reused = random.random() < 0.2  # some gateways number calls anew in each answer
    number = 0
    for turn in range(random.randint(1, 6)):
        messages.append({"role": "user", "content": f"question {turn}"})
        for step in range(random.randint(0, 2)):
            ids: list[str] = []
            calls: list[Message] = []
            for place in range(random.randint(1, 3)):
                number += 1
                ids.append(f"call_{place}" if reused else f"call_{number}")
                calls.append(call(ids[-1], number))
            text = f"thought {turn} {step}" if random.random() < 0.3 else None
            messages.append({"role": "assistant", "content": text, "tool_calls": calls})
            random.shuffle(ids)
            messages += [result(each, f"result {turn} {step} {each}") for each in ids]
        if random.random() < 0.7:
            messages.append({"role": "assistant", "content": f"answer {turn}"})
    return messages


def _delete(messages: list[Message], random: Random) -> None:
    del messages[random.randrange(len(messages))]


def _duplicate(messages: list[Message], random: Random) -> None:
    twin = copy.deepcopy(random.choice(messages))
    messages.insert(random.randrange(len(messages) + 1), twin)


def _move(messages: list[Message], random: Random) -> None:
    moved = messages.pop(random.randrange(len(messages)))
    messages.insert(random.randrange(len(messages) + 1), moved)


def _interleave(messages: list[Message], random: Random) -> None:
    words: Message = {"role": "user", "content": f"interjection {random.random()}"}
    messages.insert(random.randrange(len(messages)), words)


def _truncate(messages: list[Message], random: Random) -> None:
    cut = random.randrange(len(messages))
    if random.random() < 0.5:
        del messages[1 : max(cut, 1)]  # the system message stays, as every host keeps it
    else:
        del messages[cut:]


def _blank_id(messages: list[Message], random: Random) -> None:
    _set_id(messages, random, lambda _: "")


def _pad_id(messages: list[Message], random: Random) -> None:
    _set_id(messages, random, lambda old: f" {old} ")


def _rename_id(messages: list[Message], random: Random) -> None:
    _set_id(messages, random, lambda old: f"{old}_{random.randrange(100)}")


def _set_id(messages: list[Message], random: Random, change: Callable[[str], str]) -> None:
    message = random.choice(messages)
    if message["role"] == "tool":
        message["tool_call_id"] = change(message["tool_call_id"])
    elif calls := message.get("tool_calls"):
        chosen = random.choice(calls)
        chosen["id"] = change(chosen["id"])


_DAMAGES = (
    _delete, _delete, _duplicate, _move, _move, _interleave, _truncate, _blank_id, _pad_id,
    _rename_id,
)  # fmt: skip


def _findable_results(messages: list[Message]) -> set[str]:
    declared = Counter(each["id"] for message in messages for each in _tool_calls(message))
    by_id: dict[str, set[str]] = defaultdict(set)
    for message in messages:
        if message["role"] == "tool":
            by_id[message["tool_call_id"]].add(message["content"])
    return {
        text
        for call_id, texts in by_id.items()
        if call_id and declared[call_id] == len(texts) == 1
        for text in texts
    }


def _result_texts(messages: list[Message]) -> set[object]:
    return {each.get("content") for each in messages if each["role"] == "tool"}


def _texts(messages: list[Message]) -> Counter[object]:
    spoken = (each.get("content") for each in messages if each["role"] != "tool")
    return Counter(text for text in spoken if text)


def _calls(messages: list[Message]) -> Counter[str]:
    return Counter(
        json.dumps(json.loads(each["function"]["arguments"]))
        for message in messages
        for each in _tool_calls(message)
    )


def _tool_calls(message: Message) -> Iterator[Message]:
    yield from message.get("tool_calls") or ()
