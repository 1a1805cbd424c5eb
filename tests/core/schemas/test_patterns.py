"""Patterns of schemas: searched where the cost is known, and then rightly."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astrbot_tool_guard.core.schemas.patterns import MAX_MOVES, MAX_PATTERN, MAX_SUBJECT, search


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("^(yes|no)$", "no", "nope"),
        (r"^\+?[0-9]+$", "+49", "49a"),
        (r"^([01]\d|2[0-3]):[0-5]\d$", "23:59", "24:00"),
        (r"^(\d{4})-(\d{2})(-(\d{2}))?$", "2026-11-30", "2026-11-3"),
        (r"^[^@ ]+@[^@ ]+$", "a@b.c", "a@b@c"),
        (r"^[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}$", "some.body@mail.example.org", "a@b"),
        (r"^https?://[^\s/]+(/\S*)?$", "https://example.org/a/b?c=d", "ftp://example.org"),
        (r"^([0-9a-f]{8})-([0-9a-f]{4}-){3}[0-9a-f]{12}$",
         "00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-00000000000g"),
        (r"^v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$", "v1.20.3-rc.1", "1.2"),
        ("^(?=.*[0-9])(?=.*[a-z]).{8,20}$", "abcdefg1", "abcdefgh"),
        ("^(?!tmp_)[a-z_]+$", "my_name", "tmp_name"),
        ("cat|dog", "hotdog", "bird"),
        ("^#?([a-f0-9]{6}|[a-f0-9]{3})$", "#a0b1c2", "#a0b1c"),
        ("^[A-Z]{2,3}[0-9]+$", "AB12", "A12"),
        ("", "anything", None),
    ],
)  # fmt: skip
def test_usual_patterns_are_searched(pattern: str, yes: str, no: str | None) -> None:
    assert search(pattern, yes)[0] is True
    assert no is None or search(pattern, no)[0] is False


@pytest.mark.parametrize(
    "pattern",
    [
        "^(b+)*$", "(b*)*c", "^(b|b)*$", "^(b|bb)+$", "^(b?){60}$", "^b*b*b*b*$", "b*b*b*c",
        "^(.*)*$", "(.+)+@", "^(b{1,9}){1,9}$", "^([bc]+d?)*$", "^(?:(?:b|c)+)+$", "(?=(b+)+c)b",
        r"^(b+)\1$", r"\Ab\Z", "(?i:b)", "(?i)^b+B$", "(?>b+)", "b++", r"(?(1)b|c)",
        "^(?:b?){300}c", "^(?:b?){24}c", "^(?:(?:(?:){99}){999}){999}b", "((){1000}){1000}b",
        "^(?=(?:(?:){999}){999})b", "(?P<n>b)", r"\a", "b{,3}",
        f"[{''.join(map(chr, range(200, 265)))}]",
        "(", "[", r"\p{L}", "b" * (MAX_PATTERN + 1),
    ],
)  # fmt: skip
def test_what_may_take_long_or_is_not_ecma_262_is_not_known(pattern: str) -> None:
    assert search(pattern, "b" * 200 + "!") == (None, 0)


def test_the_length_of_the_text_decides() -> None:
    assert search("^b*b*$", "b" * 20)[0] is True
    assert search("^b*b*$", "b" * 2_000)[0] is None
    assert search("b", "a" * (MAX_SUBJECT + 1))[0] is None


@pytest.mark.parametrize(
    ("pattern", "subject"),
    [
        ("^b$", "b\n"),  # Python finds it, ECMA-262 does not
        (r"^\d$", "\u0663"),
        (r"^\w$", "\u00e9"),
        (r"^\S$", "\u3000"),
        (r"^\S+$", "a\x1fb"),
        (r"^\s$", "\ufeff"),
        ("^a.b$", "a\rb"),
        ("^a.b$", "a\u2028b"),
        (r"^.\b$", "\u00e9"),
    ],
)
def test_where_python_and_ecma_262_differ_nothing_is_known(pattern: str, subject: str) -> None:
    assert search(pattern, subject)[0] is None
    assert search(pattern, "b\nb")[0] is not None


def test_rounds_that_a_short_text_cannot_fill_are_counted() -> None:
    assert search("^(?:b?){24}c", "b" * 10) == (None, 0)
    assert search("^(?:b|bb){24}c", "b" * 40)[0] is None
    assert search("^b{24}$", "b" * 10)[0] is False


@pytest.mark.filterwarnings("error")
def test_a_set_in_a_set_is_no_warning() -> None:
    assert search("[[a]", "a")[0] is True


ATOMS = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", r"\d", r"\w", "^", "$", r"\b"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?"])).map(
            lambda part: f"(?:{part[0]}){part[1]}"
        ),
        inner.map(lambda part: f"(?={part})"),
    ),
    max_leaves=6,
)


@given(PATTERNS, st.text("ab1 \n", max_size=8))
def test_what_is_known_is_what_the_engine_finds(pattern: str, subject: str) -> None:
    found, moves = search(pattern, subject)
    assert found in (None, re.search(pattern, subject) is not None)
    assert moves <= 2 * MAX_MOVES
