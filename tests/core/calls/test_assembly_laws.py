"""The laws of assembly, over well-formed answers cut anywhere and over nonsense."""

from __future__ import annotations

import copy
import json
from typing import Any
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

from astrbot_tool_guard.core import jsontext
from astrbot_tool_guard.core.calls import arguments, assembly
from astrbot_tool_guard.core.calls.answers import assemble
from astrbot_tool_guard.core.calls.assembly import CallAssembler
from astrbot_tool_guard.core.calls.entries import MAX_CALLS

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # Surrogates cannot be sent, so no provider sends them.
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=4), JSON, max_size=4)
NAMES = ("get_weather", "get_time", "get", "save_note")
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in NAMES]


@st.composite
def cut(draw: st.DrawFn, text: str) -> list[str]:
    places = draw(st.lists(st.integers(0, len(text)), max_size=6).map(sorted))
    ends = [*places, len(text)]
    return [text[start:end] for start, end in zip([0, *places], ends, strict=True)]


def chunk(entries: list[Any], finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"tool_calls": entries}, "finish_reason": finish}]}


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[tuple[str, str, dict[str, Any]]]]:
    """A legal stream of parallel calls, its pieces interleaved, with what it means."""
    meant: list[tuple[str, str, dict[str, Any]]] = []
    queues: list[list[dict[str, Any]]] = []
    for index in range(draw(st.integers(1, 3))):
        name, value = draw(st.sampled_from(NAMES)), draw(OBJECTS)
        meant.append((f"call_{index}", name, value))
        indent = draw(st.sampled_from([None, 2]))
        text = json.dumps(value, ensure_ascii=draw(st.booleans()), indent=indent)
        first, *rest = draw(cut(text))
        head = {"index": index, "id": f"call_{index}", "type": "function"}
        queues.append([{**head, "function": {"name": name, "arguments": first}}])
        queues[-1] += [{"index": index, "function": {"arguments": piece}} for piece in rest]
    chunks: list[dict[str, Any]] = []
    while any(queues):
        queue = draw(st.sampled_from([queue for queue in queues if queue]))
        chunks.append(chunk([queue.pop(0)]))
    return [*chunks, chunk([], "tool_calls")], meant


@given(streams())
def test_any_way_of_cutting_a_legal_answer_gives_the_same_calls(
    stream: tuple[list[dict[str, Any]], list[tuple[str, str, dict[str, Any]]]],
) -> None:
    chunks, meant = stream
    calls = assemble(chunks=chunks, tools=TOOLS).calls
    assert [(call.id, call.name, call.arguments) for call in calls] == meant
    assert all(call.valid for call in calls)


@given(st.data(), OBJECTS)
def test_no_reading_of_repetition_touches_a_legal_text_cut_off_anywhere(
    data: st.DataObject, value: dict[str, Any]
) -> None:
    text = json.dumps(value, ensure_ascii=False)
    text = text[: data.draw(st.integers(0, len(text)))]
    assert arguments.join(data.draw(cut(text))) == text


@given(JSON, st.data())
def test_every_beginning_of_a_json_text_is_a_prefix(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    assert jsontext.is_prefix(text[: data.draw(st.integers(0, len(text)))])


@given(st.text(alphabet='{}[]":,\\ue0129.-+aEtrfalsn \n', max_size=12))
def test_a_text_that_decodes_is_a_prefix(text: str) -> None:
    try:
        json.loads(text, parse_constant=lambda _: 1 / 0)
    except (ValueError, ZeroDivisionError):
        return
    assert jsontext.is_prefix(text)


@given(st.text(alphabet='{}[]":,1a ', max_size=6), st.text(alphabet='{}[]":,1a ', max_size=6))
def test_nothing_that_is_no_prefix_can_be_completed(text: str, rest: str) -> None:
    if not jsontext.is_prefix(text):
        try:
            json.loads(text + rest)
        except ValueError:
            return
        raise AssertionError(f"{text + rest!r} is JSON")


def test_is_prefix_tells_cut_off_from_broken() -> None:
    for text in (
        "",
        " ",
        "{",
        '{"a',
        '{"a":',
        '{"a": 1.',
        '{"a": -',
        '{"a": tr',
        '{"a": "\\u00',
        "1e",
    ):
        assert jsontext.is_prefix(text), text
    for text in (
        "{{",
        "}",
        '{"a" 1',
        '{"a": 01',
        '{"a": nul1',
        '{"a": "\\x',
        '{"a": "\n',
        "{}x",
        "NaN",
        "{,",
    ):
        assert not jsontext.is_prefix(text), text


ODD = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.just([])
    | st.just({})
)
PIECES = st.sampled_from(
    ["", " ", "{", "}", "{}", '{"a":1}', '"', "null", "[", "x", '"{}"', '{"a":', "1}", "\ud800"]
)
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "index": st.integers(-1, 2) | ODD,
        "id": st.sampled_from(["a", "b", ""]) | ODD,
        "type": ODD,
        "function": st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from([*NAMES, "get_", "null", " "]) | ODD,
                "arguments": PIECES | ODD,
            },
        )
        | ODD,
        "extra_content": ODD,
    },
)
CHOICES = st.fixed_dictionaries(
    {},
    optional={
        "index": st.integers(0, 1) | ODD,
        "delta": st.fixed_dictionaries(
            {},
            optional={
                "content": ODD,
                "tool_calls": st.lists(ENTRIES | ODD, max_size=3) | ENTRIES | ODD,
            },
        )
        | ODD,
        "message": st.fixed_dictionaries(
            {},
            optional={
                "content": ODD,
                "tool_calls": st.lists(ENTRIES | ODD, max_size=3) | ENTRIES | ODD,
            },
        )
        | ODD,
        "finish_reason": st.sampled_from(["stop", "length", "tool_calls"]) | ODD,
    },
)
ANSWERS = st.fixed_dictionaries(
    {},
    optional={
        "choices": st.lists(CHOICES | ODD, max_size=2) | ODD,
        "error": st.none() | ODD,
        "data": ODD,
    },
)
SCHEMAS = st.sampled_from(
    [
        {},
        True,
        False,
        None,
        {"required": ["a"]},
        {"required": "a"},
        {"type": "any", "required": ["a"]},
        {"properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"$ref": "#"},
        {"$schema": 5},
    ]
)
TOOL_LISTS = (
    st.lists(
        st.builds(
            lambda name, schema: {"function": {"name": name, "parameters": schema}},
            st.sampled_from(NAMES),
            SCHEMAS,
        )
        | ODD,
        max_size=3,
    )
    | ODD
)


@given(
    st.lists(ANSWERS | ODD, max_size=8),
    TOOL_LISTS,
    st.sampled_from(["structural", "strict", "off"]),
    st.booleans(),
)
def test_no_answer_however_broken_raises_and_every_call_has_its_own_usable_id(
    answers: list[Any], tools: Any, validation: Any, normalize: bool
) -> None:
    for given_ in (
        {"chunks": answers},
        *({"completion": each} for each in answers if each is not None),
    ):
        options: Any = {**given_, "tools": tools, "validation": validation}
        result = assemble(**options, normalize=normalize)
        ids = [call.id for call in result.calls]
        assert all(ids)
        assert len(set(ids)) == len(ids) <= MAX_CALLS
        assert all(call.name.strip() for call in result.calls)
        json.dumps(result.to_dict())


@given(st.lists(ANSWERS, max_size=6), st.sampled_from(["structural", "strict"]))
def test_what_structural_accepts_is_an_object_with_the_required_names(
    answers: list[Any], validation: Any
) -> None:
    tools = [
        {"function": {"name": name, "parameters": {"type": "object", "required": ["a"]}}}
        for name in NAMES
    ]
    for call in assemble(chunks=answers, tools=tools, validation=validation).calls:
        if call.valid and call.name in NAMES:
            assert isinstance(call.arguments, dict)
            assert "a" in call.arguments


@given(st.lists(ENTRIES | ODD, max_size=12))
def test_what_is_kept_is_bounded_by_what_came(entries: list[Any]) -> None:
    assembler = CallAssembler(NAMES)
    for entry in entries:
        assembler.add(entry)
    raws, dropped = assembler.finish()
    assert len(raws) + len(dropped) <= len(entries)


SOLID = st.sampled_from(["{", "}", '{"a":1}', "", " "])
BARE = st.builds(
    lambda index, piece: {"index": index, "function": {"arguments": piece}},
    st.sampled_from([0, 0, 0, 1, None, False]),
    SOLID,
)
FULL = st.builds(
    lambda bare, call_id, name: {**bare, "id": call_id, "function": {**bare["function"], **name}},
    BARE,
    st.sampled_from(["a", "b", None]),
    st.sampled_from([{}, {"name": "get"}, {"name": "save_note"}]),
)


BRACE = {"index": 0, "function": {"arguments": "}"}}


def full(call_id: str, text: str, **name: str) -> dict[str, Any]:
    return {"index": 0, "id": call_id, "function": {"arguments": text, **name}}


@given(st.lists(BARE | FULL | ENTRIES, max_size=16), st.sampled_from([12, 10**6]))
# A bare piece is for the newer call at its index, also after one for the older call.
@example([full("a", "{", name="get"), full("b", "{", name="get"), full("a", "}"), BRACE], 10**6)
def test_a_bare_piece_is_read_as_one_with_all_its_keys_is(entries: list[Any], limit: int) -> None:
    with (
        mock.patch.object(assembly, "MAX_ANSWER_CHARS", limit),
        mock.patch.object(assembly, "MAX_PIECES", limit // 2),
    ):
        short, long = CallAssembler(NAMES), CallAssembler(NAMES)
        for entry in entries:
            short.add(entry)
            long.add({"type": "function", **entry, "id": entry.get("id")})
        assert short.finish() == long.finish()


NEARLY_BARE_CHUNKS = st.builds(
    lambda entries, choice, rest: (
        {**chunk(entries), **rest} | {"choices": [{**chunk(entries)["choices"][0], **choice}]}
    ),
    st.lists(BARE | FULL, max_size=2) | FULL,
    st.sampled_from(
        [
            *({}, {}, {"index": 1}, {"index": None}, {"index": True}),
            *({"finish_reason": each} for each in ("", "stop", "length")),
        ]
    ),
    st.sampled_from([{}, {}, {}, {"error": None}, {"error": {"code": 5}}, {"usage": {}}]),
)


@given(st.lists(NEARLY_BARE_CHUNKS, max_size=6))
def test_a_chunk_of_pieces_alone_is_read_as_any_other_is(chunks: list[Any]) -> None:
    fuller = copy.deepcopy(chunks)
    for each in fuller:
        each["choices"][0]["delta"]["content"] = None
    assert assemble(chunks=chunks, tools=TOOLS) == assemble(chunks=fuller, tools=TOOLS)
