"""Ids of tool calls that had none: nine characters `[A-Za-z0-9]`.

Mistral takes exactly this form and every other provider takes it too. An id
derives from the call's ordinal, so that the same input gives the same output.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
LENGTH: Final = 9
PREFIX: Final = "call"


def ordinal_id(ordinal: int, taken: Collection[str], *, step: int = 1) -> str:
    """Return the id of the call with this ordinal, avoiding those that are taken.

    Args:
        ordinal: The call's place among all calls.
        taken: The ids in use.
        step: How far to go on from an id that is taken; the number of all calls
            keeps the ids of two ordinals apart without a note in `taken`.
    """
    space = len(ALPHABET) ** (LENGTH - len(PREFIX))
    number = ordinal
    while (made := PREFIX + _digits(number % space, LENGTH - len(PREFIX))) in taken:
        number += step
    return made


def _digits(number: int, width: int) -> str:
    digits = ""
    for _ in range(width):
        number, digit = divmod(number, len(ALPHABET))
        digits = ALPHABET[digit] + digits
    return digits
