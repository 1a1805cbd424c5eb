"""The declared schema of a tool, and the check of arguments against it.

Schemas come from plugins and from MCP servers nobody vetted. So: a schema that
is not valid JSON Schema never fails a call, nothing is ever fetched, and no
schema can hold the process, since every evaluation spends from a budget and
patterns are asserted only where their cost is known to be small. Whatever was
not checked is said, never passed over in silence.

`jsonschema` is loaded when a schema first has to be judged: for `strict`, or
before a missing required name fails a call.
"""

from __future__ import annotations

import marshal
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from ..model import Problem
from ..plain import is_list, is_object

if TYPE_CHECKING:
    from .dialect import Compiled

MAX_SCHEMA_BYTES: Final = 128 * 1024
"""Size of a schema (in its binary form) beyond which it is not checked."""

SMALL_BYTES: Final = 2 * 1024
"""Size up to which a schema is judged within a few milliseconds."""

MAX_CACHED_SCHEMAS: Final = 256

_COMPOSING: Final = frozenset(
    {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties"}
)
_DRAFTS: Final = tuple(f"http://json-schema.org/draft-0{n}/schema" for n in "34567")


class ToolSchema:
    """One tool's declared `parameters`.

    Args:
        parameters: What the request declared: an object or a boolean. Anything
            else is no schema; do not build one from it.
    """

    __slots__ = ("_compiled", "_key", "_parameters", "required")

    def __init__(self, parameters: Mapping[str, Any] | bool) -> None:
        self._parameters = parameters
        self._key: bytes | None = None
        self._compiled: Compiled | None = None
        self.required = _required_names(parameters)
        """Top-level required names as they stand; they do not count in an `invalid` schema."""

    @property
    def properties(self) -> Mapping[str, Any]:
        """The declared top-level properties, empty where there are none."""
        found = None if isinstance(self._parameters, bool) else self._parameters.get("properties")
        return found if is_object(found) else {}

    @property
    def invalid(self) -> bool:
        """Whether the schema is proven not to be valid JSON Schema, by its metaschema."""
        return self._compile().invalid

    @property
    def unchecked(self) -> tuple[str, ...]:
        """Why the schema as a whole is not checked; empty when it is."""
        return self._compile().unchecked

    @property
    def requires_nothing(self) -> bool:
        """Whether no name is required, since an invalid schema requires none either."""
        return not self.required or self.invalid

    def may_declare(self, name: str) -> bool:
        """Whether a top-level property may be declared, also where that is not seen here."""
        if isinstance(self._parameters, bool) or not is_object(self._parameters.get("properties")):
            return True
        declared = name in self.properties or name in self.required
        return declared or not _COMPOSING.isdisjoint(self._parameters)

    @property
    def costly(self) -> bool:
        """Whether judging this schema first would take more than a moment."""
        key = self._dump()
        return key is not None and SMALL_BYTES < len(key) <= MAX_SCHEMA_BYTES and key not in _cache

    def validate(self, arguments: Mapping[str, Any]) -> tuple[tuple[Problem, ...], tuple[str, ...]]:
        """Check `arguments` against the whole schema.

        Returns:
            The first problems found, and what was not checked.
        """
        return self._compile().validate(arguments)

    def _dump(self) -> bytes | None:
        if self._key is None:
            try:
                self._key = marshal.dumps(cast("Any", self._parameters), 2)
            except ValueError:  # nested too deeply, or holds what JSON cannot
                return None
        return self._key

    def _compile(self) -> Compiled:
        if self._compiled is None:
            from . import dialect

            key = self._dump()
            if key is None or len(key) > MAX_SCHEMA_BYTES:
                self._compiled = dialect.UNCHECKED
            else:
                self._compiled = _cache.get(key) or _remember(key, dialect.compile_schema(key))
        return self._compiled


def declared_tools(tools: object) -> dict[str, ToolSchema]:
    """Read the `tools` of a request.

    Returns:
        Each declared function's name with its schema. One that declares none that
        can be used (`parameters` absent, or neither object nor boolean) accepts any
        object, as the schema `true` does.
    """
    declared: dict[str, ToolSchema] = {}
    if isinstance(tools, tuple):
        tools = list(cast("tuple[object, ...]", tools))
    for tool in tools if is_list(tools) else ():
        function = tool.get("function") if is_object(tool) else None
        if not is_object(function):
            continue
        name = function.get("name")
        if isinstance(name, str) and name:
            parameters = function.get("parameters")
            if isinstance(parameters, bool) or is_object(parameters):
                declared[name] = ToolSchema(parameters)
            else:
                declared[name] = ToolSchema(True)
    return declared


def _required_names(parameters: Mapping[str, Any] | bool) -> tuple[str, ...]:
    if isinstance(parameters, bool):
        return ()
    required = parameters.get("required")
    if not is_list(required) or ("$ref" in parameters and _ignores_siblings(parameters)):
        return ()
    return tuple(dict.fromkeys(name for name in required if isinstance(name, str)))


def _ignores_siblings(parameters: Mapping[str, Any]) -> bool:
    """Whether the dialect ignores what stands beside `$ref`: draft 7 and older."""
    dialect = parameters.get("$schema")
    return isinstance(dialect, str) and dialect.removesuffix("#") in _DRAFTS


_cache: OrderedDict[bytes | None, Compiled] = OrderedDict()


def _remember(key: bytes, compiled: Compiled) -> Compiled:
    # Keyed by content, since AstrBot builds its tool list anew for each request.
    _cache[key] = compiled
    while len(_cache) > MAX_CACHED_SCHEMAS:
        _cache.popitem(last=False)
    return compiled
