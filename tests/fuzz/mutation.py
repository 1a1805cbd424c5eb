"""Changing JSON values a little, at random places, as broken software does.

The rule: everything comes from one `random.Random`, so that a seed gives the same
values again, on every machine.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parents[1] / "corpus"
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2.5, 10**9, float("inf"), "", " ", "{", "}", "{}", "null", "x",
    "get_weather", "call_1", "\ud800", "\u202e", "[" * 300, [], [[]], {}, {"a": {}}, [None],
)  # fmt: skip


def seeds(prefixes: Sequence[str]) -> list[Any]:
    """Return the inputs of the corpus cases of these classes, in order."""
    names = sorted(path for prefix in prefixes for path in CORPUS.glob(f"{prefix}*.json"))
    return [json.loads(path.read_text(encoding="utf-8"))["input"] for path in names]


class Mutator:
    """Makes values out of seeds.

    Args:
        found: The seeds; what proves interesting may be added.
        chance: Where everything random comes from.
    """

    def __init__(self, found: list[Any], chance: random.Random) -> None:
        self._pool = found
        self._chance = chance

    def value(self) -> Any:
        """Return the next value."""
        made = copy.deepcopy(self._chance.choice(self._pool))
        for _ in range(self._chance.randint(1, 4)):
            made = self._changed(made)
        return made

    def keep(self, value: Any) -> None:
        """Take a value into the pool."""
        self._pool.append(value)

    def _changed(self, value: Any) -> Any:
        places = [(value, None), *_places(value)]
        holder, key = self._chance.choice(places)
        if key is None:
            return self._other(value) if self._chance.random() < 0.05 else value
        kind = self._chance.randrange(6)
        if kind == 0:
            del holder[key]
        elif kind == 1:
            holder[key] = self._other(holder[key])
        elif kind == 2 and isinstance(holder, list):
            holder.insert(self._chance.randint(0, len(holder)), copy.deepcopy(holder[key]))
        elif kind == 3 and isinstance(holder, list):
            self._chance.shuffle(holder)
        elif kind == 4 and isinstance(holder[key], str):
            holder[key] = self._torn(holder[key])
        else:
            donor, donor_key = self._chance.choice(places)
            part = donor if donor_key is None else donor[donor_key]
            holder[key] = copy.deepcopy(part)
        return value

    def _other(self, value: Any) -> Any:
        return copy.deepcopy(self._chance.choice(ODD))

    def _torn(self, text: str) -> str:
        at = self._chance.randint(0, len(text))
        middle = str(self._chance.choice(ODD))[:8]
        ways = (text[:at], text[at:], text + text, text[:at] + middle + text[at:])
        return self._chance.choice(ways)


def _places(value: Any, depth: int = 0) -> Any:
    """Yield holder and key of every part of a value."""
    if depth > 12:
        return
    items: Any = ()
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        yield value, key
        yield from _places(inner, depth + 1)
