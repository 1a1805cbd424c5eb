"""Wrapping other people's functions, and taking exactly that off again.

The rule: nothing is wrapped whose shape we do not know, and nothing stays behind
that is ours. A wrapper is found by identity wherever it sits, also under another
plugin's, and what it leaves is the very object that was there before.

Wrappers sit on AstrBot's classes and outlive the module that made them, since
AstrBot's reload throws our modules away and a crash skips `terminate`. So each one
is also written down in a module of its own in `sys.modules`, outside the prefix
that AstrBot purges, in plain values that any later version of this file can read.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import wrapt

from .net import guarded

Shape = Literal["function", "coroutine", "async_generator"]
Problem = Literal["missing", "other_shape", "taken_off", "left_beneath", "stands_aside"]
Wrapper = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]
"""Called as `wrapper(wrapped, instance, args, kwargs)`, as wrapt has it."""

REGISTRY = "_astrbot_tool_guard_wrappers"
OLDEST_WRAPT = (2, 4)
MAX_PUT_BACK = 3
"""How often a seam that somebody took off is put back before we only say so."""
MAX_DEPTH = 32


class SeamError(Exception):
    """The seams cannot be worked on at all; the text says what to do about it."""


@dataclass(frozen=True, slots=True)
class Seam:
    """One function of the host that is wrapped.

    Attributes:
        name: How reports name it.
        module: The module to import.
        path: `Class.function`; the class must define the function itself.
        shape: What a call of it returns.
        parameters: Names it must accept.
        optional: Whether some supported hosts do not have it; then its absence
            is nothing to report.
    """

    name: str
    module: str
    path: str
    shape: Shape
    parameters: tuple[str, ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True)
class SeamStatus:
    """What became of a seam.

    Attributes:
        name: The seam's name.
        attached: Whether our wrapper is in force.
        covered_by: The module whose wrapper lies on top of ours.
        problem: `missing` or `other_shape`: left alone. `taken_off`: somebody
            removed our wrapper too often. `left_beneath`: after `detach`, a
            wrapper that does nothing any more is still held by `covered_by`.
            `stands_aside`: no seam, but a stage that AstrBot has itself.
        put_back: How often somebody removed our wrapper and it was put back.
    """

    name: str
    attached: bool
    covered_by: str | None = None
    problem: Problem | None = None
    put_back: int = 0


@dataclass(slots=True)
class _Attachment:
    seam: Seam
    owner: type
    attribute: str
    wrapper: Wrapper
    record: dict[str, Any]
    put_back: int = 0
    problem: Problem | None = None

    @property
    def alive(self) -> bool:
        """Whether it is still ours to care for: a later load switches it off."""
        return self.record["switch"]["on"]


def _ignore(_name: str, _error: Exception) -> None:
    """Tell nobody."""


@dataclass(slots=True)
class Seams:
    """The wrappers of one load of the guard.

    Attributes:
        logger: Where problems are told, one line each.
        fault: Told, with the seam's name, what goes wrong in a wrapper.
    """

    logger: logging.Logger
    fault: Callable[[str, Exception], object] = _ignore
    _attached: dict[str, _Attachment] = field(default_factory=dict[str, _Attachment])
    _refused: dict[str, SeamStatus] = field(default_factory=dict[str, SeamStatus])

    def attach(self, wrappers: Mapping[Seam, Wrapper]) -> None:
        """Put every wrapper on its seam, after taking off what earlier loads left.

        A seam that is missing or has another shape is left alone and told.

        Raises:
            SeamError: wrapt is too old; nothing was touched.
        """
        require_wrapt()
        sweep()
        self._attached.clear()
        self._refused.clear()
        for seam, wrapper in wrappers.items():
            found = _find(seam)
            if isinstance(found, str):
                if not (seam.optional and found == "missing"):
                    self._refused[seam.name] = SeamStatus(seam.name, False, problem=found)
                    self.logger.warning(
                        "Tool Call Guard: %s (%s) is %s in this AstrBot; left alone",
                        seam.name,
                        seam.path,
                        "missing" if found == "missing" else "of another shape",
                    )
                continue
            owner, attribute = found
            wrapper = guarded(wrapper, partial(self.fault, seam.name))
            record = _wrap(owner, attribute, wrapper)
            self._attached[seam.name] = _Attachment(seam, owner, attribute, wrapper, record)

    def detach(self) -> None:
        """Take off every wrapper of ours; what cannot be taken off does nothing."""
        for attachment in self._attached.values():
            attachment.record["switch"]["on"] = False
        left = sweep()
        for name, attachment in list(self._attached.items()):
            if (holder := left.get(id(attachment.record))) is None:
                del self._attached[name]
            else:
                attachment.problem = "left_beneath"
                self.logger.warning(
                    "Tool Call Guard: %s is held by %s; a wrapper that does nothing stays there",
                    name,
                    holder,
                )

    def check(self) -> None:
        """Put back what somebody silently took off; cheap enough for every request."""
        for attachment in self._attached.values():
            handle = attachment.record["handle"]
            current = vars(attachment.owner).get(attachment.attribute)
            if current is handle or not attachment.alive or attachment.problem is not None:
                continue
            if _path_to(current, handle) is None:
                self._restore(attachment)

    def status(self) -> tuple[SeamStatus, ...]:
        """Return what became of each seam, in the order they were attached."""
        return (*map(_status, self._attached.values()), *self._refused.values())

    def _restore(self, attachment: _Attachment) -> None:
        # The old wrapper may be called still, from a place that cannot be seen (a
        # plugin that keeps the original in an attribute of its own): switched off,
        # it can never do a second time what the new one does.
        attachment.record["switch"]["on"] = False
        found = _find(attachment.seam)
        if attachment.put_back >= MAX_PUT_BACK or isinstance(found, str):
            attachment.problem = "taken_off"
            self.logger.error(
                "Tool Call Guard: %s was taken off by another plugin and is off now; "
                "reload this plugin to put it back",
                attachment.seam.name,
            )
            return
        attachment.record = _wrap(attachment.owner, attachment.attribute, attachment.wrapper)
        attachment.put_back += 1
        self.logger.warning(
            "Tool Call Guard: %s had been taken off by another plugin; put back",
            attachment.seam.name,
        )


def require_wrapt() -> None:
    """Check that wrapt is new enough.

    Raises:
        SeamError: An older one is imported in this process.
    """
    loaded: Any = wrapt
    version = tuple(int(part) for part in loaded.__version_info__[:2])
    if version < OLDEST_WRAPT:
        needed = ".".join(map(str, OLDEST_WRAPT))
        raise SeamError(
            f"wrapt {loaded.__version__} was imported before this plugin, which needs {needed} "
            "or newer; nothing was installed. Restart AstrBot so that the newer one is used."
        )


def sweep() -> dict[int, str]:
    """Switch off and take off every wrapper on record, whichever load made it.

    Returns:
        For each record that could not be taken off, by the record's `id`, the
        module that holds it.
    """
    records = _registry()
    left: dict[int, str] = {}
    for record in tuple(records):
        record["switch"]["on"] = False
        holder = _take_off(record)
        if holder is None:
            records.remove(record)
        else:
            left[id(record)] = holder
    return left


# --- one wrapper -------------------------------------------------------------------


def _find(seam: Seam) -> tuple[type, str] | Problem:
    try:
        module = importlib.import_module(seam.module)
    except ImportError:
        return "missing"
    class_name, _, attribute = seam.path.partition(".")
    owner = getattr(module, class_name, None)
    if not isinstance(owner, type) or attribute not in vars(owner):
        return "missing"
    return (owner, attribute) if _fits(vars(owner)[attribute], seam) else "other_shape"


def _fits(function: object, seam: Seam) -> bool:
    if not isinstance(function, types.FunctionType):  # true of a wrapt wrapper of one, too
        return False
    is_generator = inspect.isasyncgenfunction(function)
    if is_generator != (seam.shape == "async_generator"):
        return False
    if seam.shape == "coroutine" and not inspect.iscoroutinefunction(function):
        return False
    parameters = inspect.signature(function).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return takes_all or all(name in parameters for name in seam.parameters)


def _wrap(owner: type, attribute: str, wrapper: Wrapper) -> dict[str, Any]:
    switch = {"on": True}

    def switched(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not switch["on"]:
            return wrapped(*args, **kwargs)
        return wrapper(wrapped, instance, args, kwargs)

    handle = wrapt.wrap_function_wrapper(owner, attribute, switched)
    record = {"owner": owner, "attribute": attribute, "handle": handle, "switch": switch}
    _registry().append(record)
    return record


def _take_off(record: Mapping[str, Any]) -> str | None:
    """Take one wrapper off; return the module that is in the way, if one is."""
    owner, attribute, handle = record["owner"], record["attribute"], record["handle"]
    path = _path_to(vars(owner).get(attribute), handle)
    if path is None:
        return None
    *above, _ = path
    if not above:
        setattr(owner, attribute, handle.__wrapped__)
    elif isinstance(above[-1], wrapt.BaseObjectProxy):
        above[-1].__wrapped__ = handle.__wrapped__
    else:
        return _origin(above[-1])
    return None


def _path_to(top: object, handle: object) -> list[Any] | None:
    """Return the wrappers from `top` down to `handle`, or `None` if it is not there."""
    paths: list[list[Any]] = [[top]]
    seen: set[int] = set()
    while paths:
        path = paths.pop()
        entry = path[-1]
        if id(entry) in seen or len(path) > MAX_DEPTH:
            continue
        seen.add(id(entry))
        if entry is handle or _is_bound_form(entry, handle):
            return path
        paths.extend([*path, below] for below in _below(entry))
    return None


def _is_bound_form(entry: object, handle: object) -> bool:
    # `saved = Class.method` gives a bound form of our wrapper and not the wrapper;
    # a plugin that puts back what it saved leaves that in the class.
    return (
        isinstance(entry, wrapt.BoundFunctionWrapper)
        and getattr(entry, "_self_parent", None) is handle
    )


def _below(entry: Any) -> Iterator[object]:
    below = getattr(entry, "__wrapped__", None)
    if below is not None:
        yield below
    if type(entry) is not types.FunctionType:
        return
    # A plain closure shows what it calls in its cells and defaults, if anywhere.
    for cell in entry.__closure__ or ():
        try:
            content = cell.cell_contents
        except ValueError:  # an empty cell
            continue
        if isinstance(content, types.FunctionType):
            yield content
    for default in (*(entry.__defaults__ or ()), *(entry.__kwdefaults__ or {}).values()):
        if isinstance(default, types.FunctionType):
            yield default


def _origin(wrapper: Any) -> str:
    function = getattr(wrapper, "_self_wrapper", wrapper)
    # Not `__module__`: functools.wraps copies that from what it wraps.
    names = getattr(function, "__globals__", None)
    return names["__name__"] if names else type(function).__module__


def _status(attachment: _Attachment) -> SeamStatus:
    path = _path_to(vars(attachment.owner).get(attachment.attribute), attachment.record["handle"])
    return SeamStatus(
        attachment.seam.name,
        attached=path is not None and attachment.alive,
        covered_by=_origin(path[0]) if path is not None and len(path) > 1 else None,
        problem=attachment.problem,
        put_back=attachment.put_back,
    )


def _registry() -> list[dict[str, Any]]:
    module = sys.modules.get(REGISTRY)
    if module is None:
        module = types.ModuleType(REGISTRY, "Wrappers that astrbot_tool_guard put on AstrBot.")
        module.records = []  # type: ignore[attr-defined]
        sys.modules[REGISTRY] = module
    return module.records  # type: ignore[attr-defined]
