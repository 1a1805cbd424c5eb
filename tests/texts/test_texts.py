"""What users and models read: clear, bounded, and harmless."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astrbot_tool_guard.core.model import Violation
from astrbot_tool_guard.texts.catalogue import RULES
from astrbot_tool_guard.texts.texts import (
    blocked_sentence,
    clean,
    invalid_arguments_result,
    pick_language,
)


@pytest.mark.parametrize(
    ("samples", "language"),
    [
        (("帮我查一下天气",), "zh"),
        (("用 Python 写 hello world",), "zh"),
        (("what does 你好 mean?",), "zh"),
        (("What is the weather?",), "en"),
        (("Wie ist das Wetter?",), "en"),
        (("天気を教えてください",), "en"),
        (("날씨 어때 今日",), "en"),
        (("👍 123", "你好"), "zh"),
        (("hello", "你好"), "en"),
        ((None, "", "好"), "zh"),
        (("...",), "en"),
        ((), "en"),
    ],
)
def test_the_chats_own_text_picks_the_language(samples, language):
    assert pick_language("auto", *samples) == language


def test_the_setting_wins_over_the_chat():
    assert pick_language("en", "你好") == "en"
    assert pick_language("zh", "hello") == "zh"


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("language", ["zh", "en"])
def test_the_block_sentence_says_what_is_wrong_that_nothing_was_sent_and_what_helps(rule, language):
    violation = Violation(rule, 3, None, "call_secret", "detail")
    sentence = blocked_sentence(language, [violation])
    assert RULES[rule][0 if language == "zh" else 1] in sentence
    assert ("没有发给模型" if language == "zh" else "Nothing was sent") in sentence
    assert "/toolguard explain" in sentence
    assert "/toolguard doctor" in sentence
    assert "call_secret" not in sentence
    assert len(sentence) < 320
    assert "\n" not in sentence


def test_further_violations_are_counted_not_listed():
    violations = [Violation("orphan_result", at, None, None, "") for at in range(300)]
    assert "and 299 more" in blocked_sentence("en", violations)
    assert "另有 299 处" in blocked_sentence("zh", violations)


def test_the_commands_carry_the_chats_own_wake_prefix():
    violation = Violation("orphan_result", 0, None, None, "")
    assert "!toolguard explain" in blocked_sentence("en", [violation], prefix="!")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("get_weather", "get_weather"),
        ("查询天气", "查询天气"),
        ("a\x00b\x1bc", "abc"),
        ("safe\u202egnp.exe\u202c", "safegnp.exe"),
        ("two\nlines\tof", "two lines of"),
        ("<b>x</b>", "＜b＞x＜/b＞"),
        ("@everyone", "＠everyone"),
        ("[CQ:at,qq=all]", "［CQ:at,qq=all］"),
        ("**`x`**", "＊＊｀x｀＊＊"),
        ("https://evil.example", "https:／／evil.example"),
        ("\ud800x", "x"),
        (None, "None"),
    ],
)
def test_a_foreign_name_is_shown_as_one_harmless_line(name, shown):
    assert clean(name) == shown


@given(st.text(st.characters(), max_size=300), st.integers(min_value=1, max_value=80))
def test_a_cleaned_text_is_bounded_visible_and_stays_as_it_is(text, limit):
    shown = clean(text, limit)
    assert len(shown) <= limit
    assert not {unicodedata.category(c) for c in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert not set(shown) & set("<>&@[]()`*~#|\\{}")
    assert clean(shown, limit) == shown


def test_the_models_error_result_names_the_tool_the_property_and_what_is_expected():
    text = invalid_arguments_result("get_weather", [("city", "required, a string")])
    assert 'tool "get_weather" was not run' in text
    assert "- city: required, a string" in text


def test_the_models_error_result_is_bounded():
    text = invalid_arguments_result(
        "x" * 10_000, [(f"{'p' * 500}{at}", "e" * 10_000) for at in range(10_000)]
    )
    assert len(text) < 2000
    assert "and 9995 more" in text


def test_arguments_that_are_wrong_as_a_whole_are_called_so():
    assert "- arguments: not JSON" in invalid_arguments_result("t", [("", "not JSON")])


def test_what_a_tool_expects_reaches_the_model_as_it_must_be_written() -> None:
    problems = [("stops[0].language", "expected one of: C#, C++, a|b, [x], *")]
    assert "- stops[0].language: expected one of: C#, C++, a|b, [x], *" in (
        invalid_arguments_result("choose", problems)
    )
