"""A short run of every fuzz target, the same values each time; `make fuzz` goes on."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.mutation import Mutator, seeds
from tests.fuzz.targets import TARGETS

VALUES = {"check": 1_500, "repair": 1_500, "assemble": 600, "stream": 500}


@pytest.mark.parametrize("name", TARGETS)
def test_no_seed_of_the_corpus_breaks_a_law(name: str) -> None:
    target, prefixes = TARGETS[name]
    for value in seeds(prefixes):
        target(value)


@pytest.mark.parametrize("name", TARGETS)
def test_no_value_made_from_the_corpus_breaks_a_law(name: str) -> None:
    target, prefixes = TARGETS[name]
    mutator = Mutator(seeds(prefixes), random.Random(20_260))
    for _ in range(VALUES[name]):
        target(mutator.value())
