"""What an operator decided, parsed once into one frozen object.

The rule: nothing else reads raw configuration. A value that cannot be used
becomes the default and one warning that names its key and what is accepted,
never the value itself, which may be a secret typed into the wrong field.

Which settings there are, and what each one takes, stands in `specs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Literal, cast

from .specs import JOURNAL_SPECS, LANGUAGE_SPEC, MODE_SPECS, Spec

RequestGuard = Literal["block", "repair", "observe", "off"]
ArgumentValidation = Literal["structural", "strict", "off"]
StreamTransport = Literal["auto", "stream", "complete"]
LanguageSetting = Literal["auto", "zh", "en"]
Origin = Literal["session", "provider", "global"]

INHERIT = "inherit"
"""What the panel stores in a provider override that overrides nothing."""


@dataclass(frozen=True, slots=True)
class Modes:
    """What is in force for one request.

    Attributes:
        enabled: Whether the guard does anything at all.
        request_guard: What happens to a request that does not pair.
        tool_argument_validation: How far the arguments of a call are checked.
        retry_invalid_stream: Whether an invalid streamed answer is asked for
            once more.
        stream_transport: `auto` keeps AstrBot's choice; `stream` and `complete`
            ask the provider that way whatever the caller wants.
        normalize_arguments: Whether loss-free readings of malformed arguments
            are accepted.
    """

    enabled: bool = True
    request_guard: RequestGuard = "block"
    tool_argument_validation: ArgumentValidation = "structural"
    retry_invalid_stream: bool = True
    stream_transport: StreamTransport = "auto"
    normalize_arguments: bool = False


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """What the journal keeps.

    Attributes:
        enabled: Whether anything is written at all.
        keep_days: Age in days after which an entry is deleted.
        keep_rows: Entries kept per table, the newest ones.
        capture_arguments: Whether redacted arguments are stored beside their
            shape.
    """

    enabled: bool = True
    keep_days: int = 14
    keep_rows: int = 20_000
    capture_arguments: bool = False


def _no_providers() -> Mapping[str, Mapping[str, object]]:
    return {}


@dataclass(frozen=True, slots=True)
class Settings(Modes):
    """Everything an operator decided: the global modes and what surrounds them.

    `Settings()` is usable as it is, and so is `Settings(request_guard="off")`.
    Every value is checked; what is configured by people goes through `parse`,
    which warns where this constructor raises.

    Attributes:
        language: Language of what users see; `auto` follows the chat.
        journal: What the journal keeps.
        providers: Overrides of the modes by provider id.

    Raises:
        ValueError: A value is none of those its setting takes.
    """

    language: LanguageSetting = "auto"
    journal: JournalSettings = JournalSettings()
    providers: Mapping[str, Mapping[str, object]] = field(default_factory=_no_providers)
    modes: Modes = field(init=False, repr=False, compare=False)
    _by_provider: Mapping[str, Modes] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values = {name: _checked(spec, getattr(self, name)) for name, spec in MODE_SPECS.items()}
        modes = _modes(Modes(), values)
        providers = {
            provider: MappingProxyType(_checked_overrides(provider, overrides))
            for provider, overrides in self.providers.items()
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "language", _checked(LANGUAGE_SPEC, self.language))
        object.__setattr__(self, "providers", MappingProxyType(providers))
        object.__setattr__(self, "modes", modes)
        object.__setattr__(
            self,
            "_by_provider",
            {provider: _modes(modes, overrides) for provider, overrides in providers.items()},
        )

    @classmethod
    def parse(cls, raw: Mapping[str, object] | None) -> tuple[Settings, tuple[str, ...]]:
        """Read a configuration written by people.

        Two spellings are read, alone or mixed: the panel's, where a setting
        stands in its group (`{"request": {"request_guard": "off"}}`) and the
        provider overrides are a list of entries with a `provider_id`; and the
        flat one, where it stands at the top (`{"request_guard": "off"}`) and
        `providers` maps an id to its overrides. `journal` may be a mere switch.

        Args:
            raw: The configuration; `None` is an empty one.

        Returns:
            The settings, and one warning per value that could not be used.
        """
        reader = _Reader()
        settings = reader.settings(raw)
        return settings, tuple(reader.warnings)

    def resolve(self, provider: str, overrides: Mapping[str, object] | None = None) -> Modes:
        """Return the modes for one request: session over provider over global.

        Args:
            provider: AstrBot's provider id.
            overrides: The session's overrides, as `SessionOverrides.get` has
                them, or `None`.
        """
        modes = self._by_provider.get(provider, self.modes)
        return _modes(modes, overrides) if overrides else modes

    def origin(self, name: str, provider: str, overrides: Mapping[str, object] | None) -> Origin:
        """Return which level decides the setting `name` for one request."""
        if overrides and name in overrides:
            return "session"
        return "provider" if name in self.providers.get(provider, {}) else "global"


def _modes(base: Modes, overrides: Mapping[str, object]) -> Modes:
    # The values went through their Spec; a type checker cannot follow that.
    return replace(base, **cast("dict[str, Any]", dict(overrides)))


def _accepts(spec: Spec) -> str:
    return ", ".join(spec.accepts)


def _checked(spec: Spec, value: object) -> object:
    try:
        return spec.read(value)
    except ValueError:
        raise ValueError(f"{spec.name} takes one of: {_accepts(spec)}") from None


def _checked_overrides(provider: str, overrides: Mapping[str, object]) -> dict[str, object]:
    unknown = [name for name in overrides if name not in MODE_SPECS]
    if unknown:
        raise ValueError(f"provider {provider!r}: no setting {unknown[0]!r}")
    return {name: _checked(MODE_SPECS[name], value) for name, value in overrides.items()}


_GROUPS = frozenset({"request", "response"})
_JOURNAL_FLAT = frozenset(JOURNAL_SPECS) - {"enabled"}
_TEMPLATE_KEYS = frozenset({"__template_key", "template", "provider_id"})


class _Reader:
    """Reads one configuration and collects what it could not use."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def settings(self, raw: object) -> Settings:
        top = self._mapping("configuration", raw)
        flat: dict[str, object] = {}
        for key, value in top.items():
            if key not in _GROUPS:
                flat[key] = value
        # The panel writes groups: where both spellings are there, the group wins.
        for group in sorted(_GROUPS & top.keys()):
            for key, value in self._mapping(group, top[group]).items():
                spec = MODE_SPECS.get(key)
                if spec is None or spec.group != group:
                    self._unknown(f"{group}.{key}")
                else:
                    flat[key] = value
        modes: dict[str, object] = {}
        for name, spec in MODE_SPECS.items():
            self._take(modes, spec, flat, name)
        journal = self._journal(flat)
        providers = self._providers(flat.get("providers"))
        rest: dict[str, object] = {}
        self._take(rest, LANGUAGE_SPEC, flat, "language")
        known = {*MODE_SPECS, *_JOURNAL_FLAT, "language", "journal", "providers"}
        for key in sorted(map(str, flat.keys() - known)):
            self._unknown(key)
        checked = cast("dict[str, Any]", modes | rest)
        return Settings(**checked, journal=journal, providers=providers)

    def _journal(self, flat: Mapping[str, object]) -> JournalSettings:
        given = flat.get("journal")
        # "journal": false is the natural flat spelling of its own switch.
        is_switch = given is not None and not isinstance(given, Mapping)
        group = {"enabled": given} if is_switch else self._mapping("journal", given)
        merged = {key: flat[key] for key in _JOURNAL_FLAT & flat.keys()} | dict(group)
        values: dict[str, object] = {}
        for name, spec in JOURNAL_SPECS.items():
            self._take(values, spec, merged, "journal" if is_switch else f"journal.{name}")
        for key in sorted(map(str, merged.keys() - JOURNAL_SPECS.keys())):
            self._unknown(f"journal.{key}")
        return JournalSettings(**cast("dict[str, Any]", values))

    def _providers(self, raw: object) -> dict[str, dict[str, object]]:
        found: dict[str, dict[str, object]] = {}
        for at, provider, entry in self._provider_entries(raw):
            if provider in found:
                self.warnings.append(f"{at}: this provider is already listed; this entry is used")
            overrides: dict[str, object] = {}
            for key, value in entry.items():
                if key in _TEMPLATE_KEYS or value is None or value in (INHERIT, ""):
                    continue
                spec = MODE_SPECS.get(key)
                if spec is None:
                    self._unknown(f"{at}.{key}")
                    continue
                self._take(overrides, spec, entry, f"{at}.{key}", "no override")
            found[provider] = overrides
        return found

    def _provider_entries(self, raw: object) -> list[tuple[str, str, Mapping[str, object]]]:
        if isinstance(raw, Mapping):
            by_id = cast("Mapping[object, object]", raw)
            return [
                (
                    f"providers.{_name(key)}",
                    str(key),
                    self._mapping(f"providers.{_name(key)}", value),
                )
                for key, value in by_id.items()
            ]
        if not isinstance(raw, list | tuple):
            if raw is not None:
                self.warnings.append("providers: unusable value (accepted: a list); ignored")
            return []
        entries: list[tuple[str, str, Mapping[str, object]]] = []
        for index, item in enumerate(cast("list[object]", raw)):
            at = f"providers[{index}]"
            entry = self._mapping(at, item)
            provider = entry.get("provider_id")
            if isinstance(provider, str) and provider.strip():
                entries.append((at, provider.strip(), entry))
            elif entry:
                self.warnings.append(f"{at}: no provider_id; the entry is ignored")
        return entries

    def _take(
        self,
        into: dict[str, object],
        spec: Spec,
        values: Mapping[str, object],
        label: str,
        instead: str | None = None,
    ) -> None:
        if spec.name not in values:
            return
        try:
            into[spec.name] = spec.read(values[spec.name])
        except ValueError:
            fallback = instead or f"the default {_default_of(spec)}"
            self.warnings.append(
                f"{label}: unusable value (accepted: {_accepts(spec)}); using {fallback}"
            )

    def _mapping(self, label: str, value: object) -> Mapping[str, object]:
        if value is None:
            return {}
        if isinstance(value, Mapping):
            return cast("Mapping[str, object]", value)
        self.warnings.append(f"{label}: unusable value (accepted: an object); ignored")
        return {}

    def _unknown(self, key: str) -> None:
        self.warnings.append(f"{_name(key)}: no such setting; ignored")


def _name(key: object) -> str:
    return "".join(c for c in str(key) if c.isprintable())[:60]


_DEFAULTS: Mapping[str, object] = {
    **{f".{item.name}": item.default for item in fields(Modes)},
    **{f"journal.{item.name}": item.default for item in fields(JournalSettings)},
    ".language": "auto",
}


def _default_of(spec: Spec) -> str:
    prefix = "journal." if spec.group == "journal" else "."
    value = _DEFAULTS[prefix + spec.name]
    return str(value).lower() if isinstance(value, bool) else str(value)
