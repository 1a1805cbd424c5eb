"""Every response case of the corpus, through the Python API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from astrbot_tool_guard.core.calls.answers import assemble

CORPUS = Path(__file__).parents[2] / "corpus"
CASES = [
    case
    for case in (json.loads(path.read_text("utf-8")) for path in sorted(CORPUS.glob("*.json")))
    if "calls" in case["expect"]
]


@pytest.mark.parametrize("validation", ["structural", "strict"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["slug"])
def test_the_answer_gives_the_calls_of_the_case(case: dict[str, Any], validation: Any) -> None:
    calls = assemble(**case["input"], validation=validation).to_dict()["calls"]
    assert isinstance(calls, list)
    assert len(calls) == len(case["expect"]["calls"])
    for call, expected in zip(calls, case["expect"]["calls"], strict=True):
        for key, value in expected.items():
            if key == "valid":
                assert value[validation] in (None, call["valid"])
            elif key == "id" and value is None:
                assert call["id_generated"]
                assert len(call["id"]) == 9
            else:
                assert call[key] == value


def test_the_corpus_is_whole() -> None:
    assert len(CASES) >= 85


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["slug"])
def test_off_lets_every_call_pass(case: dict[str, Any]) -> None:
    assert all(call.valid for call in assemble(**case["input"], validation="off").calls)
