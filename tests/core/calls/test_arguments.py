"""Decoding and checking one call's arguments."""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

import pytest

from astrbot_tool_guard.core.calls.answers import assemble
from astrbot_tool_guard.core.calls.verdict import judge, retry_budget
from astrbot_tool_guard.core.model import ToolCall

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}


def call(arguments: Any, parameters: Any = None, **options: Any) -> ToolCall:
    entry = {"id": "x", "function": {"name": "probe", "arguments": arguments}}
    choice = {"message": {"tool_calls": [entry]}, "finish_reason": options.pop("finish", "stop")}
    tools = [{"type": "function", "function": {"name": "probe", "parameters": parameters}}]
    return assemble(completion={"choices": [choice]}, tools=tools, **options).calls[0]


def kinds(arguments: Any, parameters: Any = None, **options: Any) -> list[str]:
    return [problem.kind for problem in call(arguments, parameters, **options).problems]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"city": "Oslo', "truncated"),
        ("{'city': 'Oslo'}", "invalid_json"),
        ('{"city": NaN}', "invalid_json"),
        ('{"city": 1e999}', "invalid_json"),
        ('{"city": %s}' % ("9" * 400), "invalid_json"),
        ('{"city": "\\ud800"}', "invalid_json"),
        ('{"\ud800": 1}', "invalid_json"),
        ('\ufeff{"city": 1}', "invalid_json"),
        ("[1]", "not_an_object"),
        ('"x"', "not_an_object"),
        ("5", "not_an_object"),
        ("[" * 200 + "]" * 200, "too_deep"),
        ("[" * 100_000, "too_deep"),
        ('{"city": ' + "[" * 100_000 + "]" * 100_000 + "}", "too_deep"),
    ],
)
def test_what_is_no_usable_object_is_invalid_for_any_tool(text: str, kind: str) -> None:
    for parameters in (WEATHER, None, {"type": "any"}):
        found = call(text, parameters)
        assert [problem.kind for problem in found.problems] == [kind]
        assert found.arguments is None
    assert "Oslo" not in str(found.problems)


def test_without_checks_what_was_cut_off_is_not_taken_for_empty() -> None:
    chunks = [
        {"choices": [{"delta": {"tool_calls": [{"function": {"name": "f", "arguments": ""}}]}}]},
        {"choices": [{"delta": {}, "finish_reason": "length"}]},
    ]
    (found,) = assemble(chunks=chunks, validation="off").calls
    assert found.valid
    assert found.arguments is None


def test_text_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("astrbot_tool_guard.core.calls.arguments.MAX_ARGUMENT_CHARS", 8)
    assert kinds('{"city": "Oslo"}') == ["too_large"]


@pytest.mark.parametrize("arguments", [{"city": "Oslo"}, '{"city": "Oslo"}', ' {"city":"Oslo"}\n'])
def test_an_object_is_its_json_text(arguments: Any) -> None:
    assert call(arguments, WEATHER).arguments == {"city": "Oslo"}


@pytest.mark.parametrize(
    ("raw", "parameters", "expected"),
    [
        ('"{\\"city\\": \\"Oslo\\"}"', WEATHER, {"city": "Oslo"}),
        ('```json\n{"city": "Oslo"}\n```', WEATHER, {"city": "Oslo"}),
        ('```{"city": "Oslo"}```', WEATHER, {"city": "Oslo"}),
        ('{"city": "Os\nlo"}', WEATHER, {"city": "Os\nlo"}),
        ("[]", {"type": "object"}, {}),
        ('""', {"type": "object"}, {}),
        ('{"arguments": {"city": "Oslo"}}', WEATHER, {"city": "Oslo"}),
        ('"{\\"arguments\\": {\\"city\\": \\"Oslo\\"}}"', WEATHER, {"city": "Oslo"}),
        ('{"arguments": {}}', {"type": "object", "properties": {}}, {}),
        ("```\nnull\n```", WEATHER, {}),
        ('"null"', {}, {}),
        # Not loss-free, or not ours to read:
        ('{"arguments": {}}', {"type": "object"}, {"arguments": {}}),
        ("[]", WEATHER, None),
        ("[]", None, {}),
        ("[]", {"type": "any", "required": ["a"]}, {}),
        ("[1]", {"type": "object"}, None),
        ("{'city': 'Oslo'}", WEATHER, None),
        ('{"city": "Oslo"} as asked', WEATHER, None),
        ('```json\n{"city": "Oslo"}\n``` done', WEATHER, None),
        ('{"city": "Os', WEATHER, None),
        (
            '{"arguments": {"a": 1}}',
            {"properties": {"arguments": {}}},
            {"arguments": {"a": 1}},
        ),
        ('{"arguments": {"a": 1}, "b": 2}', WEATHER, {"arguments": {"a": 1}, "b": 2}),
        ('{"city": "```x```"}', WEATHER, {"city": "```x```"}),
        ('{"arguments": {"a": 1}}', {"required": ["arguments"]}, {"arguments": {"a": 1}}),
        (
            '{"arguments": {"a": 1}}',
            {"properties": {"b": {}}, "allOf": [{}]},
            {"arguments": {"a": 1}},
        ),
        ('{"arguments": {"a": 1}}', None, {"arguments": {"a": 1}}),
    ],
)
def test_normalizing_accepts_only_loss_free_readings(
    raw: str, parameters: Any, expected: Any
) -> None:
    assert call(raw, parameters, normalize=True).arguments == expected


def test_nothing_is_read_into_a_tool_that_was_not_declared() -> None:
    entry = {"id": "x", "function": {"name": "other", "arguments": "[]"}}
    answer = {"choices": [{"message": {"tool_calls": [entry]}}]}
    assert assemble(completion=answer, tools=[], normalize=True).calls[0].arguments is None


def test_nothing_is_normalized_unless_asked_for() -> None:
    assert kinds('"{\\"city\\": \\"Oslo\\"}"', WEATHER) == ["not_an_object"]


@pytest.mark.parametrize(
    ("parameters", "arguments", "path", "expected"),
    [
        ({"properties": {"a": {"type": "integer"}}}, {"a": "SECRET"}, "a", "expected integer"),
        ({"properties": {"a": {"enum": ["x", 1, None]}}}, {"a": "SECRET"}, "a", "x, 1, null"),
        ({"properties": {"a": {"const": True}}}, {"a": 1}, "a", "expected true"),
        (
            {"properties": {"a": {"items": {"required": ["b"]}}}},
            {"a": [{}]},
            "a[0].b",
            '"b" is required',
        ),
        ({"additionalProperties": {"type": "string"}}, {"SECRET": 1}, "*", "expected string"),
        ({"additionalProperties": False}, {"SECRET": 1}, "", "does not declare"),
        ({"properties": {"a": {"minimum": 3}}}, {"a": 1}, "a", "at least 3"),
        ({"properties": {"a": {"pattern": "^[a-z]{3}$"}}}, {"a": "SECRET"}, "a", "declared form"),
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": [1, 1.0]}, "a", "differ"),
        ({"propertyNames": {"maxLength": 2}}, {"SECRET": 1}, "", "at most 2"),
    ],
)
def test_a_problem_names_the_declared_property_and_the_expectation_but_no_argument(
    parameters: Any, arguments: Any, path: str, expected: str
) -> None:
    found = call(json.dumps(arguments), parameters, validation="strict").problems
    assert [problem.path for problem in found] == [path]
    assert expected in found[0].detail
    assert "SECRET" not in str(found)
    assert kinds(json.dumps(arguments), parameters) == []


def test_schema_prose_does_not_reach_a_problem() -> None:
    schema = {"description": "PROSE", "title": "PROSE", "type": "array", "default": "PROSE"}
    assert "PROSE" not in str(call("{}", {"properties": {"a": schema}, "required": ["a"]}))


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "any", "required": ["a"]},
        {"properties": [], "required": ["a"]},
        {"required": ["a", None]},
        {"required": ["a", "a"]},
        {"required": ["a"], "$schema": "http://json-schema.org/draft-03/schema#"},
        {"required": ["a"], "pattern": 5},
    ],
)
@pytest.mark.parametrize("validation", ["structural", "strict"])
def test_a_schema_that_is_not_valid_is_skipped_as_a_whole(parameters: Any, validation: Any) -> None:
    found = call("{}", parameters, validation=validation)
    assert found.valid
    assert found.unchecked == ("invalid_schema",)


@pytest.mark.parametrize("parameters", [None, [], "x", 5, 1.5])
def test_parameters_that_are_neither_object_nor_boolean_are_no_schema(parameters: Any) -> None:
    assert call('{"a": 1}', parameters, validation="strict").valid


def test_a_boolean_schema_counts() -> None:
    assert kinds("{}", True, validation="strict") == []
    assert kinds("{}", False, validation="strict") == ["schema"]
    assert kinds("{}", False) == []


@pytest.mark.parametrize("dialect", [5, None, "", "x", "http://127.0.0.1:9/none", ["x"]])
def test_a_dialect_that_is_unknown_means_2020_12(dialect: Any) -> None:
    schema = {"$schema": dialect, "dependentRequired": {"a": ["b"]}}
    if dialect == 5 or dialect is None or isinstance(dialect, list):
        assert call('{"a": 1}', schema, validation="strict").unchecked == ("invalid_schema",)
    else:
        assert kinds('{"a": 1}', schema, validation="strict") == ["schema"]


def test_the_dialect_decides_whether_siblings_of_a_reference_count() -> None:
    schema: dict[str, Any] = {"$ref": "#/$defs/o", "required": ["a"], "$defs": {"o": {}}}
    assert kinds("{}", schema) == ["missing_required"]
    schema["$schema"] = "http://json-schema.org/draft-07/schema#"
    assert kinds("{}", schema) == []
    assert kinds("{}", schema, validation="strict") == []


@pytest.mark.parametrize(
    "reference",
    ["#/$defs/none", "#anchor", "file:///etc/hostname", "http://[::", "x", "#/properties/v/$ref"],
)
def test_a_reference_that_cannot_be_resolved_accepts_anything_while_the_rest_applies(
    reference: str,
) -> None:
    schema = {"properties": {"v": {"$ref": reference}, "w": {"type": "string"}}, "required": ["x"]}
    found = call('{"v": 1, "w": 1}', schema, validation="strict")
    assert {problem.path for problem in found.problems} == {"w", "x"}
    assert "unresolvable_reference" in found.unchecked


def test_a_reference_that_loops_accepts_anything_while_the_rest_applies() -> None:
    schema = {
        "properties": {"v": {"$ref": "#/$defs/a"}, "w": {"type": "string"}},
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
    }
    found = call('{"v": 1, "w": 1}', schema, validation="strict")
    assert [problem.path for problem in found.problems] == ["w"]
    assert "reference_loop" in found.unchecked


def test_a_recursive_schema_is_checked_to_the_bottom() -> None:
    schema = {
        "$defs": {"n": {"properties": {"next": {"$ref": "#/$defs/n"}, "v": {"type": "string"}}}},
        "$ref": "#/$defs/n",
    }
    found = call('{"next": {"next": {"v": 1}}}', schema, validation="strict")
    assert [problem.path for problem in found.problems] == ["next.next.v"]
    assert found.unchecked == ()


@pytest.mark.parametrize(
    ("dialect", "name", "definitions"),
    [
        ("https://json-schema.org/draft/2020-12/schema", "$id", "$defs"),
        ("http://json-schema.org/draft-04/schema#", "id", "definitions"),
    ],
)
def test_a_reference_starts_from_the_nearest_id(dialect: str, name: str, definitions: str) -> None:
    inner = {
        name: "https://example.org/inner.json",
        definitions: {"n": {"type": "integer"}},
        "properties": {"b": {"$ref": f"#/{definitions}/n"}},
    }
    schema = {"$schema": dialect, "properties": {"a": inner}}
    found = call('{"a": {"b": "x"}}', schema, validation="strict")
    assert [problem.path for problem in found.problems] == ["a.b"]
    assert found.unchecked == ()


def test_no_reference_is_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        for schema in (
            {"properties": {"a": {"$ref": url}}},
            {"$schema": url, "properties": {"a": {"$dynamicRef": url}}},
            {"$id": url, "properties": {"a": {"$ref": "other.json"}}},
            {"properties": {"a": {"$schema": url, "$ref": url}}},
        ):
            assert call('{"a": 1}', schema, validation="strict").valid
        with pytest.raises(BlockingIOError):
            server.accept()


CATASTROPHE = "^(b+)*$"
NEAR_MISS = "b" * 60 + "!"


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"pattern": CATASTROPHE}}},
        {"properties": {"a": {"pattern": "^b*b*b*b*b*b*$"}}},
        {"properties": {"a": {"pattern": "^" + "b?" * 20 + "$"}}},
        {"properties": {"a": {"$schema": "http://json-schema.org/draft-07/schema#",
                              "pattern": CATASTROPHE}}},
        {"propertyNames": {"pattern": CATASTROPHE}},
        {"patternProperties": {CATASTROPHE: False}, "additionalProperties": False},
        {"patternProperties": {CATASTROPHE: True}, "unevaluatedProperties": False},
        {"allOf": [{"patternProperties": {CATASTROPHE: True}}], "unevaluatedProperties": False},
    ],
)  # fmt: skip
def test_a_pattern_that_could_hang_is_not_asserted(schema: Any) -> None:
    arguments = {"a": NEAR_MISS} if "properties" in schema else {NEAR_MISS: 1}
    found = call(json.dumps(arguments), schema, validation="strict")
    assert found.valid
    assert found.unchecked


@pytest.mark.parametrize("pattern", ["(", "\\p{L}", "[", "(?<n>x)", "*"])
def test_a_pattern_that_cannot_be_compiled_counts_as_absent(pattern: str) -> None:
    schema = {"properties": {"a": {"pattern": pattern}}}
    assert call('{"a": "x"}', schema, validation="strict").valid


def test_property_patterns_that_run_quickly_are_asserted() -> None:
    schema = {
        "patternProperties": {"^x-[a-z]+$": {"type": "string"}},
        "additionalProperties": False,
    }
    assert kinds('{"x-a": "1"}', schema, validation="strict") == []
    assert kinds('{"x-a": 1}', schema, validation="strict") == ["schema"]
    assert kinds('{"y": 1}', schema, validation="strict") == ["schema"]


def bomb() -> dict[str, Any]:
    definitions: dict[str, Any] = {
        f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)
    }
    return {"$defs": {**definitions, "a40": {}}, "properties": {"v": {"$ref": "#/$defs/a0"}}}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (bomb(), "schema_too_costly"),
        (nested(10_000), "schema_too_large"),
        (nested(200), "schema_too_costly"),
        ({"properties": {f"p{n}": {"description": "x" * 100} for n in range(10_000)}},
         "schema_too_large"),
        ({"allOf": [{}] * 30_000}, "schema_too_costly"),
    ],
    ids=["reference bomb", "10,000 deep", "200 deep", "1 MB", "30,000 subschemas"],
)  # fmt: skip
def test_a_schema_that_costs_too_much_is_not_checked_and_that_is_said(
    schema: Any, why: str
) -> None:
    found = call('{"v": 1}', schema, validation="strict")
    assert found.valid
    assert why in found.unchecked


# --- what cannot be checked fails nothing that is built on it ---------------------------

UNSURE = {"pattern": "^(today)\\1$"}


@pytest.mark.parametrize(
    "schema",
    [
        {"oneOf": [{"pattern": "^(a|b)$"}, UNSURE]},
        {"not": UNSURE},
        {"if": UNSURE, "then": False, "else": False},
        {"anyOf": [{"type": "integer"}, UNSURE]},
        {"not": {"$ref": "#/$defs/none"}},
        {"oneOf": [{"type": "string"}, {"$ref": "#/$defs/none"}]},
        {"not": {"not": UNSURE}},
    ],
)
def test_an_unsure_part_fails_nothing(schema: Any) -> None:
    found = call('{"a": "today"}', {"properties": {"a": schema}}, validation="strict")
    assert found.valid
    assert found.unchecked


@pytest.mark.parametrize(
    ("schema", "value", "valid"),
    [
        ({"oneOf": [{"type": "string"}, {"maxLength": 9}]}, "x", False),
        ({"oneOf": [{"type": "string"}, UNSURE, {"maxLength": 9}]}, "x", False),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "x", True),
        ({"not": {"type": "string"}}, "x", False),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, False),
        ({"if": {"type": "string"}, "then": {"minLength": 2}}, "x", False),
        ({"if": {"type": "string"}, "else": {"minimum": 2}}, 1, False),
        ({"contains": {"type": "string"}}, [1], False),
        ({"contains": {"type": "string"}, "maxContains": 1}, ["a", "b"], False),
        ({"contains": UNSURE, "maxContains": 1}, ["a", "b"], True),
        ({"contains": {"type": "string"}, "minContains": 0}, [], True),
        ({"multipleOf": 0.01}, 19.99, True),
        ({"multipleOf": 0.1}, 0.25, False),
        ({"multipleOf": 2}, 3, False),
        ({"minItems": 2}, [1], False),
        ({"maxProperties": 0}, {"x": 1}, False),
        ({"enum": list(range(100))}, 99, True),
        ({"enum": list(range(100))}, True, False),
        ({"enum": [*range(100), {"x": [1]}]}, {"x": [1.0]}, True),
    ],
)
def test_what_can_be_checked_is(schema: Any, value: Any, valid: bool) -> None:
    arguments = json.dumps({"a": value})
    found = call(arguments, {"properties": {"a": schema}}, validation="strict")
    assert found.valid is valid


def test_an_error_that_was_found_counts_whatever_the_rest_costs() -> None:
    items = {"items": {"properties": {n: {"type": "integer"} for n in "xyz"}}}
    value = [{"x": "bad", "y": 1, "z": 1}, *[{"x": 1, "y": 1, "z": 1}] * 3_000]
    found = call(json.dumps({"a": value}), {"properties": {"a": items}}, validation="strict")
    assert [problem.path for problem in found.problems] == ["a[0].x"]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"enum": list(range(20_000))}}, [19_999] * 1_900),
        ({"patternProperties": {f"^z{n}$": {} for n in range(600)}, "additionalProperties": {}},
         {f"k{n}": 1 for n in range(1_200)}),
    ],
)  # fmt: skip
def test_choices_and_patterns_cost_steps(
    schema: Any, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from astrbot_tool_guard.core.schemas import keywords

    searched = 0
    search = keywords.search

    def counted(*args: Any, **more: Any) -> Any:
        nonlocal searched
        searched += 1
        return search(*args, **more)

    monkeypatch.setattr(keywords, "search", counted)
    found = call(json.dumps({"a": value}), {"properties": {"a": schema}}, validation="strict")
    assert found.valid
    assert searched <= 2_000


def test_one_bad_reference_leaves_the_rest_in_force() -> None:
    for reference in ("#/nope", "#"):
        schema = {
            "properties": {"a": {"type": "integer"}},
            "allOf": [{"$ref": reference}],
            "unevaluatedProperties": False,
        }
        assert kinds('{"a": "x"}', schema, validation="strict") == ["schema"]


@pytest.mark.parametrize("dialect", ["http://[bad", "://", "\x00"])
def test_a_dialect_that_is_no_uri_is_no_exception(dialect: str) -> None:
    assert not call("{}", {"$schema": dialect, "required": ["a"]}).valid


def test_the_metaschemas_own_patterns_count() -> None:
    assert call("{}", {"$id": "#x", "required": ["d"]}).unchecked == ("invalid_schema",)


def test_required_counts_in_a_schema_that_is_too_large_to_be_checked() -> None:
    found = call("{}", {"description": "x" * 140_000, "required": ["q"]})
    assert [problem.path for problem in found.problems] == ["q"]
    assert found.unchecked == ("schema_too_large",)


def test_a_validation_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="structural"):
        call("{}", validation="strct")


def test_structural_needs_no_schema_library() -> None:
    code = (
        "import sys; from astrbot_tool_guard.core.calls import answers, arguments, verdict\n"
        "tools=[{'function': {'name': 'p', 'parameters': {'required': ['a']}}}]\n"
        "entry={'id': 'x', 'function': {'name': 'p', 'arguments': '{\"a\": 1}'}}\n"
        "answer={'choices': [{'message': {'tool_calls': [entry]}}]}\n"
        "assert answers.assemble(completion=answer, tools=tools).ok\n"
        "heavy = {'jsonschema', 'referencing', 'astrbot', 'openai', 'wrapt'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    import subprocess

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def checked(arguments: Any, parameters: Any, **options: Any) -> tuple[ToolCall, ...]:
    return (call(arguments, parameters, **options),)


@pytest.mark.parametrize(
    ("calls", "may_retry", "action", "reason"),
    [
        (checked('{"city": "x"}', WEATHER), True, "accept", None),
        (checked("", WEATHER), True, "retry", "stream_empty_tool_arguments"),
        (checked("", WEATHER), False, "degrade", "stream_empty_tool_arguments"),
        (checked("{}", WEATHER), True, "retry", "stream_invalid_tool_call"),
        (checked("{", WEATHER), False, "degrade", "stream_invalid_tool_call"),
        (checked("", WEATHER) + checked("{", WEATHER), True, "retry", "stream_invalid_tool_call"),
        (checked("", WEATHER, finish="length"), True, "retry", "stream_empty_tool_arguments"),
        (checked("", WEATHER, validation="off"), True, "retry", "stream_empty_tool_arguments"),
        (checked("", WEATHER, validation="off"), False, "accept", None),
        (checked("{", WEATHER, validation="off"), True, "accept", None),
        ((), True, "accept", None),
    ],
)
def test_verdict(
    calls: tuple[ToolCall, ...], may_retry: bool, action: str, reason: str | None
) -> None:
    verdict = judge(calls, may_retry=may_retry)
    assert (verdict.action, verdict.reason) == (action, reason)


@pytest.mark.parametrize(
    ("budget", "elapsed", "left"),
    [
        (120.0, 0.0, 120.0),
        (120.0, 109.0, 11.0),  # little of the budget, but time enough
        (120.0, 111.0, None),  # neither
        (8.0, 3.0, 5.0),  # little time, but most of the budget
        (8.0, 5.0, None),
        (20.0, 10.0, 10.0),
        (20.0, 20.0, None),
        (20.0, 25.0, None),
    ],
)
def test_a_retry_is_skipped_when_little_time_and_little_of_the_budget_is_left(
    budget: float, elapsed: float, left: float | None
) -> None:
    assert retry_budget(budget, elapsed) == left
