# The validator classes of jsonschema are made at run time and have no types.
# pyright: basic
"""The keywords of JSON Schema, where those of `jsonschema` trust the schema or the time.

Each evaluation spends from a budget. What cannot be evaluated, a reference that
leads nowhere or a pattern that could hang, accepts anything and is noted; and what
is built on such a part (`not`, `oneOf`, `if`, a count) fails nothing that is not
proven to fail without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import Any, Final

from jsonschema.exceptions import ValidationError
from referencing.exceptions import Unresolvable

from ..jsontext import same
from .patterns import search

MOVES_PER_STEP: Final = 500
"""Moves of the pattern engine that take about as long as one evaluation."""
FEW_CHOICES: Final = 16

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class OverBudgetError(BaseException):
    """Thrown through jsonschema, whose own handlers must not see it."""


@dataclass(slots=True)
class Effort:
    """What one evaluation may still cost, and what it could not check.

    Attributes:
        steps: Evaluations that are left.
        trusted: Whether the schema is a metaschema, whose patterns are harmless.
        active: References that are being followed, to see loops.
        unchecked: What was accepted without a check.
        choices: The values of large enumerations, by the list's identity.
    """

    steps: int
    trusted: bool = False
    active: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    unchecked: dict[str, None] = field(default_factory=dict[str, None])
    choices: dict[int, frozenset[Any]] = field(default_factory=dict[int, frozenset[Any]])

    def spend(self, steps: int) -> None:
        """Take from the budget; raises `OverBudgetError` when it is used up."""
        self.steps -= steps
        if self.steps < 0:
            raise OverBudgetError

    def skip(self, what: str) -> None:
        """Note that something was accepted without a check."""
        self.unchecked[what] = None


effort_now: ContextVar[Effort] = ContextVar("effort")


def judge(validator: Any, schema: Any, instance: Any) -> bool | None:
    """Return whether an instance fits a subschema, or `None` where that is not proven."""
    effort = effort_now.get()
    before, effort.unchecked = effort.unchecked, {}
    try:
        failed = next(validator.descend(instance, schema), None) is not None
        unsure = bool(effort.unchecked)
    finally:
        effort.unchecked = before | effort.unchecked
    return False if failed else None if unsure else True


def _reference(stock: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        effort = effort_now.get()
        key = (id(schema), id(instance))
        if key in effort.active:
            effort.skip("reference_loop")
            return
        effort.active.add(key)
        try:
            yield from stock(validator, value, instance, schema) or ()
        except Unresolvable:
            effort.skip("unresolvable_reference")
        except (AttributeError, TypeError, ValueError):
            # It points at something that is no schema, or is no URI.
            effort.skip("unresolvable_reference")
        finally:
            effort.active.discard(key)

    return check


# The stock keywords below quote the whole instance in their message. With large
# arguments and many alternatives that alone would take seconds.


def _type(_stock: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        if isinstance(value, list):
            fits = any(_is_type(validator, instance, kind) for kind in value)
        else:
            fits = _is_type(validator, instance, value)
        if not fits:
            yield ValidationError("")

    return check


def _is_type(validator: Any, instance: Any, kind: Any) -> bool:
    if isinstance(kind, dict):  # draft 3 allows schemas here
        return validator.evolve(schema=kind).is_valid(instance)
    return kind == "any" or validator.is_type(instance, kind)


def _enum(_stock: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        if len(value) <= FEW_CHOICES:
            fits = any(same(each, instance) for each in value)
        else:
            effort = effort_now.get()
            choices = effort.choices.get(id(value))
            if choices is None:
                effort.spend(len(value) // FEW_CHOICES)
                choices = effort.choices[id(value)] = frozenset(map(_canonical, value))
            fits = _canonical(instance) in choices
        if not fits:
            yield ValidationError("")

    return check


def _const(_stock: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        if not same(value, instance):
            yield ValidationError("")

    return check


def _pattern(_stock: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        if isinstance(instance, str):
            found = _search(value, instance)
            if found is None:
                effort_now.get().skip("pattern")
            elif not found:
                yield ValidationError("")

    return check


def _pattern_properties(_stock: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        if not isinstance(instance, dict) or not isinstance(value, dict):
            return
        for pattern, subschema in value.items():
            for name, member in instance.items():
                found = _search(pattern, name)
                if found is None:
                    effort_now.get().skip("pattern")
                elif found:
                    yield from validator.descend(member, subschema, path=name, schema_path=pattern)

    return check


def _additional_properties(stock: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        patterns = schema.get("patternProperties")
        if not patterns:
            yield from stock(validator, value, instance, schema) or ()
            return
        if not isinstance(instance, dict):
            return
        declared = schema.get("properties") or {}
        for name, member in instance.items():
            found = [_search(pattern, name) for pattern in patterns]
            if name in declared or True in found:
                continue
            if None in found:
                effort_now.get().skip("pattern")
            elif value is False:
                yield ValidationError("")
            else:
                yield from validator.descend(member, value, path=name)

    return check


def _unevaluated(stock: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        effort = effort_now.get()
        errors: list[ValidationError] = []
        # The stock helper follows references and searches patterns by itself.
        unsure = "patternProperties" in _keys(validator._resolver.lookup("#").contents)
        if not unsure:
            try:
                errors = list(islice(stock(validator, value, instance, schema) or (), 5))
            except Exception:
                unsure = True
        # What was accepted without a check may have evaluated the member in question.
        if errors and effort.unchecked:
            unsure, errors = True, []
        if unsure:
            effort.skip("unevaluated")
        yield from errors

    return check


def _unique_items(_stock: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        if value is True and isinstance(instance, list):
            seen = {_canonical(item) for item in instance}
            if len(seen) < len(instance):
                yield ValidationError("")

    return check


def _canonical(value: Any) -> Any:
    """Return a hashable that is equal for equal JSON values."""
    if isinstance(value, dict):
        return ("object", frozenset((key, _canonical(each)) for key, each in value.items()))
    if isinstance(value, list):
        return ("array", tuple(map(_canonical, value)))
    return ("boolean", value) if isinstance(value, bool) else value


def _keys(root: object) -> set[str]:
    found: set[str] = set()
    open_: list[object] = [root]
    while open_:
        each = open_.pop()
        if isinstance(each, dict):
            found.update(key for key in each if isinstance(key, str))
            open_.extend(each.values())
        elif isinstance(each, list):
            open_.extend(each)
    return found


def _any_of(_stock: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        if all(judge(validator, each, instance) is False for each in value):
            yield ValidationError("")

    return check


def _one_of(_stock: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        verdicts = [judge(validator, each, instance) for each in value]
        fitting = verdicts.count(True)
        if fitting > 1 or (fitting == 0 and None not in verdicts):
            yield ValidationError("")

    return check


def _not(_stock: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        if judge(validator, value, instance) is True:
            yield ValidationError("")

    return check


def _if(_stock: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        verdict = judge(validator, value, instance)
        branch = "then" if verdict else "else"
        if verdict is not None and branch in schema:
            yield from validator.descend(instance, schema[branch], schema_path=branch)

    return check


def _contains(stock: Any) -> Keyword:
    counts = not stock.__name__.endswith("draft6_draft7")

    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        if not isinstance(instance, list):
            return
        least = schema.get("minContains", 1) if counts else 1
        most = schema.get("maxContains", len(instance)) if counts else len(instance)
        verdicts = [judge(validator, value, each) for each in instance]
        fitting, unsure = verdicts.count(True), verdicts.count(None)
        if fitting + unsure < least or fitting > most:
            yield ValidationError("")

    return check


def _multiple_of(_stock: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        if isinstance(instance, bool) or not isinstance(instance, int | float):
            return
        try:
            # As the texts are written: in binary 19.99 is no multiple of 0.01.
            rest = Decimal(str(instance)) % Decimal(str(value))
        except (ArithmeticError, ValueError):
            effort_now.get().skip("multipleOf")
            return
        if rest:
            yield ValidationError("")

    return check


def _bound(kind: type, too_far: Callable[[int, Any], bool]) -> Callable[[Keyword], Keyword]:
    def make(_stock: Keyword) -> Keyword:
        def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
            if isinstance(instance, kind) and too_far(len(instance), value):  # type: ignore[arg-type]
                yield ValidationError("")

        return check

    return make


def _below(size: int, bound: Any) -> bool:
    return size < bound


def _above(size: int, bound: Any) -> bool:
    return size > bound


def _search(pattern: object, subject: str) -> bool | None:
    """Search `subject`, or return `None` where that is not known."""
    effort = effort_now.get()
    if not isinstance(pattern, str):
        effort.spend(1)
        return None
    found, moves = search(pattern, subject, trusted=effort.trusted)
    effort.spend(1 + moves // MOVES_PER_STEP)
    return found


GUARDED: Final[Mapping[str, Callable[[Any], Keyword]]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "multipleOf": _multiple_of,
    "minLength": _bound(str, _below),
    "maxLength": _bound(str, _above),
    "minItems": _bound(list, _below),
    "maxItems": _bound(list, _above),
    "minProperties": _bound(dict, _below),
    "maxProperties": _bound(dict, _above),
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
    "unevaluatedProperties": _unevaluated,
    "unevaluatedItems": _unevaluated,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
    "contains": _contains,
    "$ref": _reference,
    "$dynamicRef": _reference,
    "$recursiveRef": _reference,
}
"""Makes the guarded keyword from the stock one, for each keyword that needs it."""
