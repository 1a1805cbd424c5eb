"""Arguments in the journal: shapes without content, and redaction."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astrbot_tool_guard.journal.redaction import MAX_DECODED, MAX_REDACTED, MAX_SHAPE, redact, shape


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"city": "Oslo"}', '{"city": string(4)}'),
        ('{"城市": "奥斯陆", "n": 3, "x": 1.5}', '{"城市": string(3), "n": number, "x": number}'),
        ('{"a": null, "b": true}', '{"a": null, "b": boolean}'),
        ('{"to": {"name": "Kari"}}', '{"to": {"name": string(4)}}'),
        ("[]", "[]"),
        ('["a", "b", "c"]', "[3 x string(1)]"),
        ('["a", 1]', "[string(1), number]"),
        ('{"call me at 555-1234": 1}', "{key(19): number}"),
        ('{"city": "Os', "text(12)"),
        ("", "text(0)"),
        ("null", "null"),
        (None, "absent"),
    ],
)
def test_a_shape_has_types_sizes_and_property_names(arguments, expected):
    assert shape(arguments) == expected


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_a_shape_is_bounded_whatever_the_arguments(value):
    assert len(shape(json.dumps(value))) <= MAX_SHAPE
    assert len(redact(json.dumps(value)) or "") <= MAX_REDACTED


@given(st.text(min_size=6, alphabet="QXZ"))
def test_no_string_value_appears_in_a_shape(secret):
    text = shape(json.dumps({"a": secret, "b": [secret, {"c": secret}]}))
    assert secret not in text
    assert secret not in shape('{"a": "' + secret)


@pytest.mark.parametrize(
    "arguments", ["[" * 200_000, '{"a":' * 50_000, '"' + "x" * (MAX_DECODED + 1), "[" * 90_000]
)
def test_hostile_text_is_measured_not_decoded(arguments):
    assert shape(arguments) == f"text({len(arguments)})"
    assert len(redact(arguments) or "") < 300


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"city": "Oslo"}', '{"city": "Oslo"}'),
        ('{"password": "a", "apiKey": ["b"], "密码": 1}',
         '{"password": "***", "apiKey": "***", "密码": "***"}'),
        ('{"deep": [{"auth_token": "x"}]}', '{"deep": [{"auth_token": "***"}]}'),
        ('{"note": "use sk-abcdefghijklmnop now"}', '{"note": "use *** now"}'),
        ('{"header": "Bearer abc.def"}', '{"header": "***"}'),
        ('{"t": "eyJhbGciOi.eyJzdWIi.sig"}', '{"t": "***"}'),
        ('{"h": "0123456789abcdef0123456789abcdef"}', '{"h": "***"}'),
        ('{"city": "Oslo", "password": "hunt', '{"city": "Oslo", "***'),
        ('{"city": "Os', '{"city": "Os'),
        (None, None),
    ],
)  # fmt: skip
def test_what_looks_like_a_secret_is_masked(arguments, expected):
    assert redact(arguments) == expected


def test_long_strings_are_cut_and_their_length_told():
    assert redact(json.dumps({"text": "a b " * 100})) == json.dumps(
        {"text": "a b " * 20 + "…(400)"}, ensure_ascii=False
    )
