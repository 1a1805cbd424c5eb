"""Hypothesis strategies for data that has nearly the right shape."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

LEAVES: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["", " ", "{", "{}", "\ud800", "null", "[CQ:at,qq=all]", "x" * 200])
)
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)


def odd_json(example: Any) -> st.SearchStrategy[Any]:
    """Return values shaped like `example`, any part of which may be anything or absent."""
    if isinstance(example, dict):
        whole: st.SearchStrategy[Any] = st.fixed_dictionaries(
            {}, optional={key: odd_json(value) for key, value in example.items()}
        )
    elif isinstance(example, list):
        members = [odd_json(value) for value in example] or [ANYTHING]
        whole = st.lists(st.one_of(members), max_size=3)
    else:
        whole = st.just(example)
    # Mostly right: what is wrong everywhere is refused at the door.
    return st.one_of(st.just(example), whole, whole, whole, ANYTHING)
