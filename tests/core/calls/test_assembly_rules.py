"""How the pieces of a stream find their call, one rule a test."""

from __future__ import annotations

from typing import Any

import pytest

from astrbot_tool_guard.core.calls import arguments
from astrbot_tool_guard.core.calls.answers import assemble
from astrbot_tool_guard.core.calls.assembly import (
    MAX_ANSWER_CHARS,
    MAX_IDS,
    MAX_PIECES,
    CallAssembler,
)
from astrbot_tool_guard.core.calls.entries import MAX_CALLS, MAX_NAME_CHARS

NAMES = ("get_weather", "get_time", "get", "get_more", "go", "gogo")
TOOLS = [{"type": "function", "function": {"name": name}} for name in NAMES]


def piece(
    arguments: Any = None, *, name: Any = None, id: Any = None, index: Any = 0, **extras: Any
) -> dict[str, Any]:
    entry: dict[str, Any] = {"function": {"name": name, "arguments": arguments}, **extras}
    if id is not None:
        entry["id"] = id
    if index is not None:
        entry["index"] = index
    return entry


def stream(*entries: Any, finish: str | None = "tool_calls", **options: Any) -> Any:
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [each]}}]} for each in entries]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return assemble(chunks=chunks, tools=options.pop("tools", TOOLS), **options)


def calls(*entries: Any, **options: Any) -> list[tuple[str, Any]]:
    return [(call.name, call.arguments) for call in stream(*entries, **options).calls]


A, B = '{"a": 1}', '{"b": 2}'


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param(
            [piece(A, name="get", id="x"), piece(B, name="get", id="y")],
            [("get", {"a": 1}), ("get", {"b": 2})],
            id="a name with a new id opens a second call at one index",
        ),
        pytest.param(
            [piece('{"a": ', name="get", id="x"), piece("1}", id="y")],
            [("get", {"a": 1})],
            id="a new id without a name opens nothing",
        ),
        pytest.param(
            [piece(A, name="get"), piece(B, name="get_time")],
            [("get", {"a": 1}), ("get_time", {"b": 2})],
            id="another name after complete arguments opens a call",
        ),
        pytest.param(
            [piece(name="get_time"), piece(A, name="go")],
            [("get_time", {}), ("go", {"a": 1})],
            id="two declared tools while the arguments are blank are two calls",
        ),
        pytest.param(
            [piece(name="get"), piece(A, name="get_more")],
            [("get_more", {"a": 1})],
            id="a name that continues the one before is one call",
        ),
        pytest.param(
            [piece('{"a": ', name="get"), piece("1}", name="get")],
            [("get", {"a": 1})],
            id="a repeated name on incomplete arguments continues the call",
        ),
        pytest.param(
            [piece(A, name="get"), piece(A, name="get")],
            [("get", {"a": 1})],
            id="the same name with an equal object is a repetition",
        ),
        pytest.param(
            [piece(A, name="get"), piece(" ", name="get")],
            [("get", {"a": 1})],
            id="the same name with blank arguments is a repetition",
        ),
        pytest.param(
            [piece("{}", name="get"), piece('{"a": ', name="get"), piece("1}", name="get")],
            [("get", {"a": 1})],
            id="an empty placeholder takes the text that follows under its name",
        ),
        pytest.param(
            [piece("{ }", name="get"), piece(A, name="get")],
            [("get", {"a": 1})],
            id="however the placeholder is written",
        ),
        pytest.param(
            [
                piece('{"a": ', name="get", index=0),
                piece(id="x", index=None),
                piece(name="go", id="y", index=0),
                piece("1}", id="x", index=0),
                piece(B, id="y", index=0),
            ],
            [("get", {"a": 1}), ("go", {"b": 2})],
            id="an id belongs to the index of its call",
        ),
        pytest.param(
            [piece(A, name="get"), piece(B, name="get"), piece(B, name="get")],
            [("get", {"a": 1}), ("get", {"b": 2})],
            id="a repetition belongs to the call it repeats",
        ),
        pytest.param(
            [piece(A, name="get"), piece('{"a":', name="get"), piece(" 1}")],
            [("get", {"a": 1})],
            id="a repetition may itself come in pieces",
        ),
        pytest.param(
            [piece(part, name="get", id="x") for part in ('{"a":', " 1}") * 2],
            [("get", {"a": 1})],
            id="also where each piece carries name and id",
        ),
        pytest.param(
            [piece(A, name="get", id="x"), piece(name="go", id="x"), piece(B, id="x")],
            [("get", {"a": 1}), ("go", {"b": 2})],
            id="a piece goes to the last call that has had its id",
        ),
        pytest.param(
            [piece(A, index=None, name="get", id="x"), piece(B, index=None, name="get", id="y")],
            [("get", {"a": 1}), ("get", {"b": 2})],
            id="without an index the id tells calls apart",
        ),
        pytest.param(
            [
                piece('{"a":', index=None, name="get", id="x"),
                piece('{"b":', index=None, name="get", id="y"),
                piece(" 1}", index=None, id="x"),
                piece(" 2}", index=None),
            ],
            # The piece without an id goes to the call touched last, which is x.
            [("get", None), ("get", None)],
            id="without index and id a piece goes to the call touched last",
        ),
        pytest.param(
            [piece(A, name="get", id="x", index=7), piece(B, name="go", id="y", index=10**9)],
            [("get", {"a": 1}), ("go", {"b": 2})],
            id="indexes are keys and may be huge",
        ),
        pytest.param(
            [
                piece(A, name="get", id="x", index=1),
                piece(B, name="go", id="y", index=None),
                piece(A, name="go", id="z", index=0),
            ],
            [("get", {"a": 1}), ("go", {"b": 2}), ("go", {"a": 1})],
            id="the order is that of arrival when a call has no index",
        ),
        pytest.param(
            [piece(name="get_"), piece(A, name="more")],
            [("get_more", {"a": 1})],
            id="a name in pieces is joined",
        ),
        pytest.param(
            [piece(name="get_"), piece(name="get_mo"), piece(A, name="get_more")],
            [("get_more", {"a": 1})],
            id="a cumulative name is not joined",
        ),
        pytest.param(
            [piece(name="go"), piece(A, name="go")],
            [("go", {"a": 1})],
            id="an equal name is a repeat when it is declared",
        ),
        pytest.param(
            [piece("{}", name="get_"), piece(A, name="more")],
            [("get_more", {"a": 1})],
            id="a name that only together begins a declared one continues it",
        ),
        pytest.param(
            [piece(A, name="null"), piece(name="get_time")],
            [("get_time", {"a": 1})],
            id="the name null is nothing",
        ),
        pytest.param([piece(A, name="  ")], [], id="a name of blanks is nameless"),
        pytest.param(
            ['{"index": 0, "id": "x", "function": {"name": "get", "arguments": "{}"}}'],
            [("get", {})],
            id="an entry that is JSON text is read as its object",
        ),
        pytest.param(["{broken", 5, None, ["x"]], [], id="an entry that is no object is dropped"),
    ],
)
def test_place(entries: list[Any], expected: list[tuple[str, Any]]) -> None:
    assert calls(*entries) == expected


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param([A, A, A], {"a": 1}, id="whole and equal"),
        pytest.param(["{}", A], {"a": 1}, id="after an empty placeholder"),
        pytest.param(["{}", A, A], {"a": 1}, id="placeholder, then whole and equal"),
        pytest.param(["{}", "{}", "{}"], {}, id="nothing but placeholders"),
        pytest.param(['{}{"a": ', "1}"], {"a": 1}, id="placeholder inside a piece"),
        pytest.param(['{}{"a": 1}'], {"a": 1}, id="placeholder and object in one piece"),
        pytest.param(["{ }", A], {"a": 1}, id="placeholder with a blank in it"),
        pytest.param(
            ['{"a": "x', " ", "y", '{"a": "x y"}'], {"a": "x y"}, id="a blank piece counts"
        ),
        pytest.param(['{"a": "x', " ", '{"a": "xy"}'], None, id="a blank piece is not passed over"),
        pytest.param([A, '"{\\"a\\": 1}"'], {"a": 1}, id="a literal holds the object"),
        pytest.param(['"{\\"a\\": 1.0}"', A], {"a": 1}, id="the object itself is taken"),
        pytest.param(['{"a', '{"a": 1', A], {"a": 1}, id="each piece holds all before it"),
        pytest.param(['{"a', '": 1}', A], {"a": 1}, id="the last piece holds all before it"),
        pytest.param([A + " ", A], {"a": 1}, id="white space at the end of a piece"),
        pytest.param([A, B], None, id="two different objects"),
        pytest.param(['{"a": 1}{"a":', " 1}"], None, id="equal, but not at a piece's end"),
        pytest.param([A, "x"], None, id="trailing text"),
        pytest.param(['{"a":', '{"a": 1}'], None, id="looks like a nested object that was cut off"),
        pytest.param(['{"a": true}', '{"a": 1}'], None, id="true is not 1"),
    ],
)
def test_reading_of_pieces(pieces: list[str], expected: Any) -> None:
    first, *rest = pieces
    entries = [piece(first, name="get", id="x"), *(piece(each) for each in rest)]
    assert calls(*entries) == [("get", expected)]


@pytest.mark.parametrize("finish", [None, "length", "content_filter"])
@pytest.mark.parametrize(
    ("arguments", "valid"),
    [("", False), (None, False), (" \n", False), ("null", True), ("{}", True), ('{"a"', False)],
)
def test_blank_counts_as_empty_only_in_an_answer_that_was_not_cut_off(
    finish: str | None, arguments: str | None, valid: bool
) -> None:
    entry = piece(arguments, name="get_time", id="x")
    assert [call.valid for call in stream(entry, finish=finish).calls] == [valid]
    if arguments != '{"a"':
        assert calls(entry, finish="stop") == [("get_time", {})]


def test_unknown_keys_travel_with_the_call_and_null_never_replaces() -> None:
    answer = stream(
        piece(A, name="get", id="x", extra_content={"sig": "one"}, tag=1),
        piece(extra_content=None, tag=None),
        piece(extra_content={"sig": "two"}),
    )
    assert answer.calls[0].extras == {"extra_content": {"sig": "two"}, "tag": 1}
    assert answer.to_dict()["calls"][0]["extra_content"] == {"sig": "two"}


def test_models_of_the_sdk_are_read_as_the_data_they_stand_for() -> None:
    from openai.types.chat import ChatCompletion, ChatCompletionChunk

    delta = {"tool_calls": [piece(A, name="get", id="x", extra_content={"sig": "one"})]}
    choice = {"index": 0, "delta": delta, "finish_reason": "tool_calls"}
    common = {"id": "c", "created": 0, "model": "m"}
    streamed = {**common, "object": "chat.completion.chunk", "choices": [choice]}
    chunk = ChatCompletionChunk.model_validate(streamed)
    assert assemble(chunks=[chunk]) == assemble(chunks=[streamed])
    message = {"role": "assistant", "content": None, **delta}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls", "logprobs": None}
    message["tool_calls"] = [
        {"id": "x", "type": "function", "function": {"name": "get", "arguments": A}}
    ]
    complete = {**common, "object": "chat.completion", "choices": [choice]}
    whole = ChatCompletion.model_validate(complete)
    assert assemble(completion=whole) == assemble(completion=complete)
    assert [call.name for call in assemble(completion=whole).calls] == ["get"]


class Unreadable:
    """A model that cannot be written down."""

    def model_dump(self, **_: Any) -> Any:
        """Fail."""
        raise ValueError("no")


def test_a_model_that_cannot_be_dumped_is_an_odd_chunk() -> None:
    assert assemble(chunks=[Unreadable()]) == assemble(chunks=[5])


TWICE = [
    pytest.param(['{"a":', "1}", '{"a":1}'], id="pieces and the whole again"),
    pytest.param(["{}", '{"a":1}'], id="a placeholder first"),
    pytest.param(["{", '{"a"', '{"a":1}'], id="each piece with all before it"),
    pytest.param(["{", '{"a":1}'], id="a brace and the whole"),
    pytest.param([{"a": 1}, {"a": 1}], id="objects"),
]


@pytest.mark.parametrize("pieces", TWICE)
@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("get_time", "{}", [("get", {"a": 1}), ("get_time", {})]),
        ("get", '{"a":2}', [("get", {"a": 1}), ("get", {"a": 2})]),
        ("get", '{"a":1}', [("get", {"a": 1})]),
    ],
)
def test_a_call_that_is_whole_by_repetition_is_whole_when_the_next_begins(
    pieces: list[Any], name: str, text: str, wanted: list[Any]
) -> None:
    first, *more = pieces
    tools = [{"function": {"name": each, "parameters": {}}} for each in ("get", "get_time")]
    chunks = [piece(first, name="get"), *map(piece, more), piece(text, name=name)]
    found = assemble(
        chunks=[
            {"choices": [{"delta": {"tool_calls": [each]}}]} for each in chunks
        ] + [{"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}],
        tools=tools,
    )  # fmt: skip
    assert [(call.name, call.arguments) for call in found.calls] == wanted


def test_a_name_on_every_piece_of_a_broken_stream_is_looked_at_within_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("astrbot_tool_guard.core.calls.assembly.MAX_LOOKED", 10_000)
    looked = 0
    join = arguments.join

    def counted(pieces: list[str]) -> str:
        nonlocal looked
        looked += sum(map(len, pieces))
        return join(pieces)

    monkeypatch.setattr("astrbot_tool_guard.core.calls.assembly.arguments.join", counted)
    stream(*(piece("{", name="get") for _ in range(3_000)))
    assert looked < 10_000 + 2 * 3_000


def test_arguments_that_cannot_be_used_are_whole_all_the_same() -> None:
    answer = stream(piece('{"a":1e999}', name="get"), piece("{}", name="now"))
    assert [(call.name, call.valid) for call in answer.calls] == [("get", False), ("now", True)]


def test_the_digits_of_an_index_are_an_index() -> None:
    answer = stream(
        piece('{"a":', name="get", id="x", index="0"),
        piece("{", name="now", id="y", index="1"),
        piece("1}", index="0"),
        piece("}", index="1"),
    )
    assert [call.arguments for call in answer.calls] == [{"a": 1}, {}]


def test_unknown_keys_inside_of_function_travel_there() -> None:
    def entry(**inside: Any) -> dict[str, Any]:
        return {"index": 0, "id": "x", "function": inside}

    answer = stream(
        entry(name="get", arguments=A, sig="one", function="left out"),
        entry(arguments="", sig=None, more={"a": 1}),
        entry(sig="two"),
        *(entry(**{f"key{number}": number}) for number in range(MAX_IDS * 2)),
    )
    inside = answer.calls[0].extras["function"]
    assert (inside["sig"], inside["more"]) == ("two", {"a": 1})
    assert "function" not in inside
    assert len(inside) == MAX_IDS
    message = {"tool_calls": [entry(name="get", arguments=A, sig="one")]}
    whole = assemble(completion={"choices": [{"message": message}]})
    assert whole.calls[0].extras == {"function": {"sig": "one"}}


def test_unknown_keys_never_replace_those_of_the_contract() -> None:
    call = stream(piece(A, name="get", id="x", valid=False, problems="x")).to_dict()["calls"][0]
    assert (call["valid"], call["problems"]) == (True, [])


def test_a_second_call_with_the_same_id_gets_a_new_one() -> None:
    first, second = stream(
        piece(A, name="get", id="x", index=0), piece(B, name="get", id="x", index=1)
    ).calls
    assert (first.id, first.id_generated) == ("x", False)
    assert second.id != "x"
    assert second.id_generated


def test_an_id_that_comes_from_us_avoids_those_of_the_answer() -> None:
    taken = stream(piece(A, name="get")).calls[0].id
    answer = stream(piece(A, name="get"), piece(B, name="go", id=taken, index=1))
    assert len({call.id for call in answer.calls}) == 2


@pytest.mark.parametrize("odd", ["", None, 7, ["x"], {"x": 1}, True])
def test_an_id_that_is_no_text_counts_as_absent(odd: Any) -> None:
    assert stream(piece(A, name="get", id=odd)).calls[0].id_generated


def test_only_the_first_choice_is_assembled() -> None:
    def choice(index: int, name: str) -> dict[str, Any]:
        return {"index": index, "delta": {"tool_calls": [piece(A, name=name, id=name)]}}

    chunks = [
        {"choices": [choice(1, "go"), choice(0, "get")]},
        {"choices": [choice(1, "gogo")]},
        {"choices": [{"index": 1, "delta": {}, "finish_reason": "length"}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ]
    answer = assemble(chunks=chunks)
    assert [call.name for call in answer.calls] == ["get"]
    assert answer.finish_reason == "tool_calls"


def test_a_later_choice_that_comes_first_is_not_the_first() -> None:
    def choice(index: int, name: str, text: str) -> dict[str, Any]:
        delta = {"content": text, "tool_calls": [piece(A, name=name, id=name)]}
        return {"choices": [{"index": index, "delta": delta, "finish_reason": "stop"}]}

    answer = assemble(
        chunks=[choice(1, "go", "no"), choice(0, "get", "yes"), choice(1, "go", "no")]
    )
    assert [call.name for call in answer.calls] == ["get"]
    assert answer.content == "yes"


@pytest.mark.parametrize("odd", ["\ud800", "a\udc00b"])
def test_an_id_or_name_that_cannot_be_sent_is_none(odd: str) -> None:
    assert stream(piece(A, name="get", id=odd)).calls[0].id_generated
    assert stream(piece(A, name=odd, id="x")).calls == ()


def test_an_error_object_ends_the_stream_and_no_call_of_it_is_usable() -> None:
    answer = assemble(
        chunks=[
            {"choices": [{"delta": {"tool_calls": [piece(A, name="get", id="x")]}}]},
            {"error": {"message": "secret words", "code": "overloaded"}},
            {"choices": [{"delta": {"content": "later"}, "finish_reason": "stop"}]},
        ]
    )
    assert answer.error
    assert "overloaded" in answer.error
    assert "secret" not in answer.error
    assert not answer.ok
    assert answer.content is None
    assert [call.problems[0].kind for call in answer.calls] == ["stream_error"]


def test_a_falsy_error_is_no_error() -> None:
    assert assemble(chunks=[{"error": None, "choices": []}]).error is None


def test_a_completion_without_choices_is_read_from_its_data() -> None:
    message = {"content": "hi", "tool_calls": [piece(A, name="get", id="x")]}
    data = {"choices": [{"message": message, "finish_reason": "tool_calls"}]}
    answer = assemble(completion={"choices": None, "data": data})
    assert (answer.content, answer.calls[0].arguments) == ("hi", {"a": 1})


def test_repeats_are_recognised_in_streams_only() -> None:
    message = {"tool_calls": [piece(A + A, name="get", id="x")]}
    answer = assemble(completion={"choices": [{"message": message}]})
    assert answer.calls[0].arguments is None


def test_a_surrogate_pair_cut_apart_between_pieces_is_whole_again() -> None:
    assert calls(piece('{"a": "\ud83d', name="get", id="x"), piece('\ude00"}')) == [
        ("get", {"a": "😀"})
    ]


def test_more_calls_than_the_limit_are_refused_as_a_whole() -> None:
    answer = stream(*(piece("{}", name="get", id=str(n), index=n) for n in range(MAX_CALLS + 5)))
    assert len(answer.calls) == MAX_CALLS
    assert {call.problems[0].kind for call in answer.calls} == {"too_many_calls"}
    assert "too_many_calls" in [each.reason for each in answer.dropped]


def test_a_cumulative_stream_is_as_long_as_its_last_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"city": "Oslo"}'
    monkeypatch.setattr("astrbot_tool_guard.core.calls.arguments.MAX_ARGUMENT_CHARS", len(text) + 4)
    pieces = [text[:end] for end in (1, 5, 9, 13, len(text))]
    (call,) = stream(piece(pieces[0], name="get", id="x"), *map(piece, pieces[1:])).calls
    assert call.arguments == {"city": "Oslo"}
    (call,) = stream(piece(text * 2, name="get", id="x"), piece(text), piece(text)).calls
    assert [problem.kind for problem in call.problems] == ["too_large"]


def test_a_cumulative_stream_may_be_longer_than_what_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = '{"note": "' + "x" * 200 + '"}'
    monkeypatch.setattr("astrbot_tool_guard.core.calls.assembly.MAX_ANSWER_CHARS", 4 * len(text))
    pieces = [text[:end] for end in range(1, len(text) + 1)]
    (call,) = stream(piece(pieces[0], name="get", id="x"), *map(piece, pieces[1:])).calls
    assert call.arguments == {"note": "x" * 200}


def test_a_call_that_outgrew_the_limit_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("astrbot_tool_guard.core.calls.assembly.MAX_ANSWER_CHARS", 100)
    looked = 0

    def counted(pieces: list[str]) -> bool:
        nonlocal looked
        looked += 1
        return False

    monkeypatch.setattr("astrbot_tool_guard.core.calls.assembly.arguments.is_cumulative", counted)
    first = (piece('{"a": "', name="get", id="x"), *[piece("x" * 60)] * 50)
    second = (piece("{}", name="get", id="y", index=1), piece("", index=0), *[piece("x")] * 50)
    answer = stream(*first, *second)
    assert answer.calls[0].problems[0].kind == "too_large"
    assert len(answer.calls[0].raw_arguments or "") <= 100
    assert looked <= 2


def test_argument_text_beyond_the_limit_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("astrbot_tool_guard.core.calls.assembly.MAX_ANSWER_CHARS", 10)
    answer = stream(piece('{"a": "', name="get", id="x"), piece("x" * 100), piece('"}'))
    assert answer.calls[0].problems[0].kind == "too_large"
    assert len(answer.calls[0].raw_arguments or "") <= 10


def test_many_pieces_of_one_call_are_joined_without_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("astrbot_tool_guard.core.calls.assembly.MAX_PIECES", 4)
    text = '{"a": "0123456789"}'
    assert calls(*(piece(char, name="get", id="x") for char in text)) == [
        ("get", {"a": "0123456789"})
    ]


def test_one_of_chunks_and_completion_is_needed() -> None:
    with pytest.raises(TypeError):
        assemble()
    with pytest.raises(TypeError):
        assemble(chunks=[], completion={})


# --- bounds: nothing that comes without end is kept without end ----------------------------


def test_a_million_pieces_are_one_text_in_a_bounded_number_of_parts() -> None:
    assembler = CallAssembler(["get_time"])
    head = {"index": 0, "id": "x", "function": {"name": "get_time", "arguments": '{"n": "'}}
    piece = {"index": 0, "function": {"arguments": "1"}}
    assembler.add(head)
    for _ in range(1_000_000):
        assembler.add(piece)
    assert all(len(call.pieces) <= MAX_PIECES for call in assembler._calls)
    assembler.add({"index": 0, "function": {"arguments": '"}'}})
    (raw,), _ = assembler.finish()
    assert raw.text == '{"n": "' + "1" * 1_000_000 + '"}'


def test_text_beyond_the_limit_is_not_kept() -> None:
    assembler = CallAssembler()
    text = "x" * (1024 * 1024)
    for n in range(100):
        assembler.add(
            {"index": n % 3, "id": str(n % 3), "function": {"name": "f", "arguments": text}}
        )
    kept = sum(len(piece) for call in assembler._calls for piece in call.pieces)
    assert kept <= MAX_ANSWER_CHARS
    assert assembler.full
    raws, _ = assembler.finish()
    assert all(raw.oversized for raw in raws)


def test_ids_names_and_unknown_keys_without_end_are_kept_to_an_end() -> None:
    assembler = CallAssembler()
    assembler.add({"index": 0, "id": "first", "function": {"name": "f"}})
    for n in range(10_000):
        assembler.add({"index": 0, "id": f"id {n}", f"key {n}": n})
        assembler.add({"index": 0, "function": {"name": f"name {n}"}})
    (call,) = assembler._calls
    assert len(call.ids) == len(call.extras) == MAX_IDS
    assert len(assembler._by_id) <= 2 * MAX_IDS
    assert len(call.name) <= MAX_NAME_CHARS
    (raw,), _ = assembler.finish()
    assert raw.id == "first"


def test_an_id_or_a_name_of_megabytes_is_none() -> None:
    assembler = CallAssembler()
    long = "x" * 10_000_000
    assembler.add({"index": 0, "id": long, "function": {"name": "f", "arguments": "{}"}})
    assembler.add({"index": 1, "id": "x", "function": {"name": long, "arguments": "{}"}})
    (raw,), (dropped,) = assembler.finish()
    assert (raw.name, raw.id) == ("f", None)
    assert (dropped.reason, dropped.id) == ("nameless", "x")
