"""What plain JSON data is, said once, with types.

Data from a model or a provider has any shape. These guards narrow it without
trusting it: the members of an object or a list stay of any type.
"""

from __future__ import annotations

from typing import Any, TypeGuard


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether `value` is a JSON object."""
    return isinstance(value, dict)


def as_data(value: object) -> object:
    """Return an SDK's model as the JSON data it stands for, and anything else as it is."""
    dump = getattr(value, "model_dump", None)
    if not callable(dump):
        return value
    try:
        return dump(warnings=False)
    except Exception:  # then it is as unreadable as any other odd value
        return value


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether `value` is a JSON array."""
    return isinstance(value, list)
