# The validator classes of jsonschema are made at run time and have no types.
# pyright: basic
"""JSON Schema validators that fetch nothing and cannot be made to hang.

`jsonschema` does the checking. Its validator classes are extended here so that
each evaluation step spends from a budget, a reference that cannot be resolved
or that loops accepts anything, a pattern is asserted only where its cost is
known to be small (`patterns`), and a subschema cannot switch to an unguarded class.
"""

from __future__ import annotations

import marshal
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jsonschema_specifications
from jsonschema import validators
from jsonschema.exceptions import ValidationError

from ..model import Problem
from .keywords import GUARDED, Effort, OverBudgetError, effort_now
from .problems import missing_required, shown

MAX_STEPS: Final = 2_000
"""Subschema evaluations one check of arguments may take."""

MAX_SCHEMA_STEPS: Final = 40_000
"""Subschema evaluations that judging one schema may take."""

MAX_PROBLEMS: Final = 5
MAX_CHOICES: Final = 20


@dataclass(frozen=True, slots=True)
class Compiled:
    """A schema that has been judged, with its validator.

    Attributes:
        invalid: Whether it is proven not to be valid JSON Schema.
        unchecked: Why it is not checked as a whole; it has no validator then.
    """

    invalid: bool
    unchecked: tuple[str, ...]
    validator: Any = None
    declared: frozenset[str] = frozenset()

    def validate(self, arguments: Mapping[str, Any]) -> tuple[tuple[Problem, ...], tuple[str, ...]]:
        """Check arguments; return the first problems, and what was not checked."""
        if self.validator is None:
            return (), self.unchecked
        effort = Effort(MAX_STEPS)
        errors, cut = _run(effort, self.validator, arguments, MAX_PROBLEMS)
        problems = [each for error in errors for each in _problems(error, self.declared)]
        return tuple(dict.fromkeys(problems)), (*effort.unchecked, *cut)


UNCHECKED: Final = Compiled(False, ("schema_too_large",))
_INVALID: Final = Compiled(True, ("invalid_schema",))


def compile_schema(key: bytes) -> Compiled:
    """Judge a schema by the metaschema of its dialect, without format assertions.

    Args:
        key: The schema in marshal's binary form; decoding it gives a private copy.
    """
    schema = marshal.loads(key)
    stock = _dialect_of(schema)
    judge = _guarded(stock)(schema=stock.META_SCHEMA, registry=jsonschema_specifications.REGISTRY)
    errors, cut = _run(Effort(MAX_SCHEMA_STEPS, trusted=True), judge, schema, 1)
    if errors:
        return _INVALID
    if cut:
        return Compiled(False, cut)
    try:
        validator = _guarded(stock)(schema=schema, registry=jsonschema_specifications.REGISTRY)
    except Exception:
        # An `$id` that is no URI passes the metaschema (formats are not asserted).
        return _INVALID
    return Compiled(False, (), validator, _declared_names(schema))


def _run(
    effort: Effort, validator: Any, instance: object, most: int
) -> tuple[list[ValidationError], tuple[str, ...]]:
    """Return the first errors, and why there may be more that were not looked for."""
    token = effort_now.set(effort)
    errors: list[ValidationError] = []
    try:
        for error in validator.iter_errors(instance):
            errors.append(error)
            if len(errors) >= most:
                break
    except (OverBudgetError, RecursionError):
        return errors, ("schema_too_costly",)
    except Exception:
        # A shape that jsonschema trips over is never a reason to fail a call.
        return errors, ("evaluation_failed",)
    finally:
        effort_now.reset(token)
    return errors, ()


def _dialect_of(schema: object) -> Any:
    newest = validators.Draft202012Validator
    named = schema.get("$schema") if isinstance(schema, dict) else None
    if not isinstance(named, str):
        return newest
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return validators.validator_for({"$schema": named}, default=newest)
        except ValueError:  # it is no URI at all
            return newest


_classes: dict[Any, Any] = {}
_IDS: Final = frozenset({"$id", "id"})


def _guarded(stock: Any) -> Any:
    """Return the guarded counterpart of a validator class of jsonschema."""
    if stock not in _classes:
        overrides = {
            keyword: make(stock.VALIDATORS[keyword])
            for keyword, make in GUARDED.items()
            if keyword in stock.VALIDATORS
        }
        guarded = validators.extend(stock, overrides)
        inherited = [(each.name, each.alias) for each in guarded.__attrs_attrs__ if each.init]

        def evolve(self: Any, **changes: Any) -> Any:
            # The stock method looks `$schema` of the subschema up and would
            # leave the guarded class; it is also where each step passes.
            effort_now.get().spend(1)
            for name, alias in inherited:
                if alias not in changes:
                    changes[alias] = getattr(self, name)
            return guarded(**changes)

        def descend(
            self: Any,
            instance: Any,
            schema: Any,
            path: Any = None,
            schema_path: Any = None,
            resolver: Any = None,
        ) -> Any:
            # The stock method works out a base URI for each subschema; only an id changes it.
            if resolver is None and isinstance(schema, dict) and not _IDS & schema.keys():
                resolver = self._resolver
            return stock_descend(self, instance, schema, path, schema_path, resolver)

        stock_descend = guarded.descend
        guarded.evolve = evolve
        guarded.descend = descend
        _classes[stock] = guarded
    return _classes[stock]


def _declared_names(root: object) -> frozenset[str]:
    """Return every property name the schema declares, at any depth."""
    names: set[str] = set()
    open_: list[object] = [root]
    while open_:
        each = open_.pop()
        if isinstance(each, dict):
            properties = each.get("properties")
            if isinstance(properties, dict):
                names.update(properties)
            required = each.get("required")
            if isinstance(required, list):
                names.update(name for name in required if isinstance(name, str))
            open_.extend(each.values())
        elif isinstance(each, list):
            open_.extend(each)
    return frozenset(names)


_BOUNDS: Final[Mapping[str, str]] = {
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be greater than {}",
    "exclusiveMaximum": "must be less than {}",
    "multipleOf": "must be a multiple of {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} items",
    "maxItems": "must have at most {} items",
    "minProperties": "must have at least {} properties",
    "maxProperties": "must have at most {} properties",
}
_PHRASES: Final[Mapping[str, str]] = {
    "additionalProperties": "has a property that the schema does not declare",
    "unevaluatedProperties": "has a property that the schema does not declare",
    "pattern": "does not have the declared form",
    "uniqueItems": "items must differ",
    "anyOf": "fits none of the declared alternatives",
    "oneOf": "must fit exactly one of the declared alternatives",
    "not": "has a form that the schema excludes",
    "contains": "lacks an item that the schema asks for",
}


def _problems(error: ValidationError, declared: frozenset[str]) -> Iterator[Problem]:
    """Say an error of jsonschema without its message, which quotes the arguments."""
    path = _path(error, declared)
    expected: Any = error.validator_value
    match error.validator:
        case "required" if isinstance(expected, list) and isinstance(error.instance, dict):
            for name in expected:
                if name not in error.instance:
                    yield missing_required(name, path)
        case "type":
            kinds = expected if isinstance(expected, list) else [expected]
            words = [kind if isinstance(kind, str) else "a declared type" for kind in kinds]
            yield Problem("schema", path, f"expected {' or '.join(words)}")
        case "enum" if isinstance(expected, list):
            choices = ", ".join(_choice(each) for each in expected[:MAX_CHOICES])
            more = ", …" if len(expected) > MAX_CHOICES else ""
            yield Problem("schema", path, f"expected one of: {choices}{more}")
        case "const":
            yield Problem("schema", path, f"expected {_choice(expected)}")
        case str(word) if word in _BOUNDS and isinstance(expected, int | float):
            yield Problem("schema", path, _BOUNDS[word].format(expected))
        case str(word) if word in _PHRASES:
            yield Problem("schema", path, _PHRASES[word])
        case word:
            yield Problem("schema", path, f'breaks "{word}"' if word else "is not allowed")


def _choice(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    return shown(value) if isinstance(value, str | int | float) else "a declared value"


def _path(error: ValidationError, declared: frozenset[str]) -> str:
    path = ""
    for step in error.absolute_path:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            name = shown(step) if step in declared else "*"
            path = f"{path}.{name}" if path else name
    return path
