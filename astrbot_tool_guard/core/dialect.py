# The validator classes of jsonschema are made at run time and have no types.
# pyright: basic
"""JSON Schema validators that fetch nothing and cannot be made to hang.

`jsonschema` does the checking. Its validator classes are extended here so that
each evaluation step spends from a budget, a reference that cannot be resolved
or that loops accepts anything, a pattern is asserted only where it provably
runs in linear time, and a subschema cannot switch to an unguarded class.
"""

from __future__ import annotations

import marshal
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import jsonschema_specifications
from jsonschema import validators
from jsonschema.exceptions import ValidationError
from referencing.exceptions import Unresolvable

from .jsontext import same
from .model import Problem
from .schema import missing_required, shown

MAX_STEPS: Final = 2_000
"""Subschema evaluations one check of arguments may take."""

MAX_SCHEMA_STEPS: Final = 40_000
"""Subschema evaluations that judging one schema may take."""

MAX_PROBLEMS: Final = 5
MAX_CHOICES: Final = 20
MAX_PATTERN: Final = 200
MAX_PATTERN_SUBJECT: Final = 10_000
MAX_CACHED_PATTERNS: Final = 512

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class _OverBudget(BaseException):
    """Thrown through jsonschema, whose own handlers must not see it."""


@dataclass(slots=True)
class _Effort:
    steps: int
    active: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    unchecked: dict[str, None] = field(default_factory=dict[str, None])


_effort: ContextVar[_Effort] = ContextVar("effort")


@dataclass(frozen=True, slots=True)
class Compiled:
    """A schema that has been judged, with its validator.

    Attributes:
        usable: Whether it is valid JSON Schema.
        unchecked: Why it is not checked as a whole.
    """

    usable: bool
    unchecked: tuple[str, ...]
    validator: Any = None
    declared: frozenset[str] = frozenset()

    def validate(self, arguments: Mapping[str, Any]) -> tuple[tuple[Problem, ...], tuple[str, ...]]:
        """Check arguments; return the first problems, and what was not checked."""
        if not self.usable:
            return (), self.unchecked
        effort = _Effort(MAX_STEPS)
        errors = _run(effort, self.validator, arguments, MAX_PROBLEMS)
        if isinstance(errors, str):
            return (), (*effort.unchecked, errors)
        problems = [each for error in errors for each in _problems(error, self.declared)]
        return tuple(dict.fromkeys(problems)), tuple(effort.unchecked)


UNCHECKED: Final = Compiled(False, ("schema_too_large",))


def compile_schema(key: bytes) -> Compiled:
    """Judge a schema by the metaschema of its dialect, without format assertions.

    Args:
        key: The schema in marshal's binary form; decoding it gives a private copy.
    """
    schema = marshal.loads(key)
    stock = _dialect_of(schema)
    judge = _guarded(stock)(schema=stock.META_SCHEMA, registry=jsonschema_specifications.REGISTRY)
    errors = _run(_Effort(MAX_SCHEMA_STEPS), judge, schema, 1)
    if isinstance(errors, str):
        return Compiled(False, (errors,))
    if errors:
        return Compiled(False, ("invalid_schema",))
    try:
        validator = _guarded(stock)(schema=schema, registry=jsonschema_specifications.REGISTRY)
    except Exception:
        # An `$id` that is no URI passes the metaschema (formats are not asserted).
        return Compiled(False, ("invalid_schema",))
    return Compiled(True, (), validator, _declared_names(schema))


def _run(
    effort: _Effort, validator: Any, instance: object, most: int
) -> list[ValidationError] | str:
    """Return the first errors, or why there is no answer."""
    token = _effort.set(effort)
    try:
        return list(islice(validator.iter_errors(instance), most))
    except (_OverBudget, RecursionError):
        return "schema_too_costly"
    except Exception:
        # A shape that jsonschema trips over is never a reason to fail a call.
        return "evaluation_failed"
    finally:
        _effort.reset(token)


def _dialect_of(schema: object) -> Any:
    named = schema.get("$schema") if isinstance(schema, dict) else None
    if not isinstance(named, str):
        return validators.Draft202012Validator
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return validators.validator_for({"$schema": named}, default=validators.Draft202012Validator)


_classes: dict[Any, Any] = {}
_IDS: Final = frozenset({"$id", "id"})


def _guarded(stock: Any) -> Any:
    """Return the guarded counterpart of a validator class of jsonschema."""
    if stock not in _classes:
        ours = {
            "type": _type,
            "enum": _enum,
            "const": _const,
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
            "uniqueItems": _unique_items,
            "unevaluatedProperties": _unevaluated,
            "$ref": _reference,
            "$dynamicRef": _reference,
            "$recursiveRef": _reference,
        }
        overrides = {
            keyword: make(stock.VALIDATORS[keyword])
            for keyword, make in ours.items()
            if keyword in stock.VALIDATORS
        }
        guarded = validators.extend(stock, overrides)
        inherited = [(each.name, each.alias) for each in guarded.__attrs_attrs__ if each.init]

        def evolve(self: Any, **changes: Any) -> Any:
            # The stock method looks `$schema` of the subschema up and would
            # leave the guarded class; it is also where each step passes.
            effort = _effort.get()
            effort.steps -= 1
            if effort.steps < 0:
                raise _OverBudget
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


def _reference(stock: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        effort = _effort.get()
        key = (id(schema), id(instance))
        if key in effort.active:
            effort.unchecked["reference_loop"] = None
            return
        effort.active.add(key)
        try:
            yield from stock(validator, value, instance, schema) or ()
        except Unresolvable:
            effort.unchecked["unresolvable_reference"] = None
        except (AttributeError, TypeError, ValueError):
            # It points at something that is no schema, or is no URI.
            effort.unchecked["unresolvable_reference"] = None
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
        if not any(same(each, instance) for each in value):
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
                _effort.get().unchecked["pattern"] = None
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
                    _effort.get().unchecked["pattern"] = None
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
                _effort.get().unchecked["pattern"] = None
            elif value is False:
                yield ValidationError("")
            else:
                yield from validator.descend(member, value, path=name)

    return check


def _unevaluated(stock: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        # The stock helper searches patterns by itself, at any depth and through
        # references: with patterns anywhere in the schema it is not asserted.
        if _holds(validator, "patternProperties"):
            _effort.get().unchecked["unevaluatedProperties"] = None
        else:
            yield from stock(validator, value, instance, schema) or ()

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


def _holds(validator: Any, keyword: str) -> bool:
    root = validator._resolver.lookup("#").contents
    return keyword in _keys(root)


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


_ESCAPE = r"\\[dDwWsSntrfv^$.*+?()\[\]{}|/\\-]"
_ATOM = rf"(?:\[\^?(?:[^\]\[\\]|{_ESCAPE})+\]|[^\\\[\](){{}}*+?|^$]|{_ESCAPE})"
_FIXED = rf"(?:{_ATOM}(?:\{{[0-9]{{1,3}}\}})?)*"
_LOOP = rf"{_ATOM}(?:[*+?]|\{{[0-9]{{1,3}},[0-9]{{0,3}}\}})"
_QUICK = re.compile(rf"\^?{_FIXED}\$?|\^{_FIXED}{_LOOP}{_FIXED}\$?")
_compiled_patterns: dict[str, re.Pattern[str] | None] = {}


def _search(pattern: object, subject: str) -> bool | None:
    """Search `subject`, or return `None` where that is not provably quick.

    Python's engine backtracks. Asserted is only a pattern without groups and
    alternatives in which every character has a fixed count, or all but one and
    the pattern is anchored at the start: each needs linear time.
    """
    if not isinstance(pattern, str) or len(subject) > MAX_PATTERN_SUBJECT:
        return None
    if pattern not in _compiled_patterns:
        if len(_compiled_patterns) >= MAX_CACHED_PATTERNS:
            _compiled_patterns.clear()
        compiled = None
        if len(pattern) <= MAX_PATTERN and _QUICK.fullmatch(pattern):
            try:
                compiled = re.compile(pattern)
            except (re.error, OverflowError, RecursionError):
                compiled = None
        _compiled_patterns[pattern] = compiled
    engine = _compiled_patterns[pattern]
    return None if engine is None else engine.search(subject) is not None


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
            yield Problem("schema", path, f"breaks `{word}`" if word else "is not allowed")


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
