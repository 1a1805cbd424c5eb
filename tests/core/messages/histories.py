"""Message lists for the tests of pairing and repair: healthy, damaged, and absurd."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Message = dict[str, Any]


def user(text: str) -> Message:
    """Return a user message."""
    return {"role": "user", "content": text}


def says(text: str) -> Message:
    """Return an assistant message without calls."""
    return {"role": "assistant", "content": text}


def call(call_id: object, name: str = "get_weather") -> Message:
    """Return one call; `...` as the id leaves the key out."""
    body: Message = {"type": "function", "function": {"name": name, "arguments": "{}"}}
    return body if call_id is ... else {"id": call_id, **body}


def declares(*call_ids: object) -> Message:
    """Return an assistant message with a call for each id."""
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [call(call_id) for call_id in call_ids],
    }


def result(call_id: object, text: str = "12 C") -> Message:
    """Return a tool message; `...` as the id leaves the key out."""
    body: Message = {"role": "tool", "content": text}
    return body if call_id is ... else {**body, "tool_call_id": call_id}


# What a JSON file, or a careless plugin, may put anywhere.
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.sampled_from([1.0, float("nan"), 10**30]),
    st.sampled_from(["", " ", "a", " a ", "b", "1", "7", "tool", "assistant", "call00000"]),
)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["id", "role", "function", "messages"]), inner, max_size=3),
    ),
    max_leaves=5,
)


def _absurd_message() -> st.SearchStrategy[Any]:
    calls = st.one_of(
        anything,
        st.fixed_dictionaries({}, optional={"id": anything, "function": anything}),
        st.just('{"id": "a", "function": {"name": "f", "arguments": "{}"}}'),
    )
    return st.one_of(
        anything,
        st.fixed_dictionaries(
            {},
            optional={
                "role": st.one_of(
                    st.sampled_from(["assistant", "tool", "user", "system"]), anything
                ),
                "content": anything,
                "tool_calls": st.one_of(st.lists(calls, max_size=4), calls),
                "tool_call_id": anything,
            },
        ),
        st.builds(lambda ids: declares(*ids), st.lists(anything, min_size=1, max_size=4)),
        st.builds(result, anything),
    )


absurd_lists = st.lists(_absurd_message(), max_size=10)
"""Lists whose every field may be of any type."""


@st.composite
def healthy_lists(draw: st.DrawFn, *, reuse_ids: bool = True, max_turns: int = 5) -> list[Message]:
    """Draw a paired list: chained and parallel calls, results in any order.

    Every text is unique, so that a test can tell what was lost or moved. With
    `reuse_ids`, later groups may use an id again, as some gateways do.
    """
    count = 0

    def text() -> str:
        nonlocal count
        count += 1
        return f"text {count}"

    messages: list[Message] = []
    if draw(st.booleans()):
        messages.append({"role": "system", "content": text()})
    for turn in range(draw(st.integers(0, max_turns))):
        messages.append(user(text()))
        for step in range(draw(st.integers(0, 2))):
            size = draw(st.integers(1, 3))
            base = "call" if reuse_ids and draw(st.booleans()) else f"call_{turn}_{step}"
            ids = [f"{base}_{position}" for position in range(size)]
            messages.append(declares(*ids))
            messages.extend(result(call_id, text()) for call_id in draw(st.permutations(ids)))
        if draw(st.booleans()):
            messages.append(says(text()))
    return messages


Damage = Callable[[list[Any], st.DataObject], None]


def _at(messages: list[Any], data: st.DataObject) -> int:
    return data.draw(st.integers(0, len(messages) - 1))


def _delete(messages: list[Any], data: st.DataObject) -> None:
    del messages[_at(messages, data)]


def _duplicate(messages: list[Any], data: st.DataObject) -> None:
    twin = copy.deepcopy(messages[_at(messages, data)])
    messages.insert(_at(messages, data), twin)


def _move(messages: list[Any], data: st.DataObject) -> None:
    moved = messages.pop(_at(messages, data))
    messages.insert(data.draw(st.integers(0, len(messages))), moved)


def _interleave(messages: list[Any], data: st.DataObject) -> None:
    messages.insert(_at(messages, data), user(f"interjection {len(messages)}"))


def _blank(messages: list[Any], data: st.DataObject) -> None:
    _spoil_id(messages, data, st.sampled_from(["", None, ...]))


def _rename(messages: list[Any], data: st.DataObject) -> None:
    _spoil_id(messages, data, st.sampled_from([" call_0 ", "7", 7, "call", 1.5, True, ["x"], {}]))


def _spoil_id(messages: list[Any], data: st.DataObject, ids: st.SearchStrategy[Any]) -> None:
    message = messages[_at(messages, data)]
    if not isinstance(message, dict):
        return
    value = data.draw(ids)
    calls = message.get("tool_calls")
    holder, key = message, "tool_call_id"
    if isinstance(calls, list) and calls and isinstance(calls[0], dict):
        holder, key = data.draw(st.sampled_from(calls)), "id"
    elif message.get("role") != "tool":
        return
    if value is ...:
        holder.pop(key, None)
    else:
        holder[key] = value


def _truncate(messages: list[Any], data: st.DataObject) -> None:
    cut = _at(messages, data)
    if data.draw(st.booleans()):
        del messages[:cut]
    else:
        del messages[cut:]


def _misshape(messages: list[Any], data: st.DataObject) -> None:
    at = _at(messages, data)
    message = messages[at]
    if isinstance(message, dict) and message.get("tool_calls"):
        calls = message["tool_calls"]
        if isinstance(calls, list):
            message["tool_calls"] = data.draw(
                st.sampled_from([calls[0], "text", 7, {}, [*calls, None], ["[]", *calls]])
            )
    else:
        messages.insert(at, data.draw(st.sampled_from([None, 7, "text", []])))


DAMAGES: dict[str, Damage] = {
    "delete": _delete,
    "duplicate": _duplicate,
    "move": _move,
    "interleave": _interleave,
    "blank": _blank,
    "rename": _rename,
    "truncate": _truncate,
    "misshape": _misshape,
}


@st.composite
def damaged_lists(
    draw: st.DrawFn, *, kinds: tuple[str, ...] = tuple(DAMAGES), max_damages: int = 4
) -> list[Any]:
    """Draw a healthy list that went through one or several kinds of damage."""
    messages: list[Any] = copy.deepcopy(draw(healthy_lists()))
    data = draw(st.data())
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=max_damages)):
        if messages:
            DAMAGES[kind](messages, data)
    return messages
