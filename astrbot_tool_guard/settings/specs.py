"""Which settings there are, where the panel keeps each, and what it takes.

The rule: this is the whole vocabulary. The panel's schema, the session commands
and the provider overrides are tested against it, so a setting is added here first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

_TRUE = frozenset({"true", "on", "yes", "1", "开", "是"})
_FALSE = frozenset({"false", "off", "no", "0", "关", "否"})
_TRANSPORT_NAMES: Mapping[str, str] = {
    "null": "auto",
    "true": "stream",
    "false": "complete",
}


@dataclass(frozen=True, slots=True)
class Spec:
    """One setting: where the panel keeps it, and which values it takes.

    Attributes:
        name: The key.
        group: The panel's group it stands in; `""` at the top.
        accepts: The accepted values as a person types them.
        read: Returns the usable value, or raises `ValueError`.
    """

    name: str
    group: str
    accepts: tuple[str, ...]
    read: Callable[[object], object]


def _boolean(value: object) -> bool:
    # bool("false") is True: a switch typed in a chat is read as a word.
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError("not a switch")


def _one_of(choices: tuple[str, ...]) -> Callable[[object], object]:
    def read(value: object) -> str:
        word = value.strip().lower() if isinstance(value, str) else None
        if word in choices:
            return word
        raise ValueError("not one of the choices")

    return read


def _transport(value: object) -> object:
    """Read a transport; `null`, `true` and `false` are the design's older names."""
    if value is None or isinstance(value, bool):
        value = "null" if value is None else str(value)
    word = value.strip().lower() if isinstance(value, str) else ""
    return _one_of(_TRANSPORTS)(_TRANSPORT_NAMES.get(word, word))


def _whole_number(low: int, high: int) -> Callable[[object], object]:
    def read(value: object) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int | str) and not isinstance(value, bool):
            number = int(value)
            if low <= number <= high:
                return number
        raise ValueError("not a whole number within the limits")

    return read


_SWITCH = ("true", "false")
_TRANSPORTS = ("auto", "stream", "complete")


def _spec_choice(name: str, group: str, *choices: str) -> Spec:
    return Spec(name, group, choices, _one_of(choices))


def _spec_switch(name: str, group: str) -> Spec:
    return Spec(name, group, _SWITCH, _boolean)


def _spec_number(name: str, group: str, low: int, high: int) -> Spec:
    return Spec(name, group, (f"{low}-{high}",), _whole_number(low, high))


MODE_SPECS: Mapping[str, Spec] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            _spec_switch("enabled", ""),
            _spec_choice("request_guard", "request", "block", "repair", "observe", "off"),
            _spec_choice("tool_argument_validation", "response", "structural", "strict", "off"),
            _spec_switch("retry_invalid_stream", "response"),
            Spec("stream_transport", "response", _TRANSPORTS, _transport),
            _spec_switch("normalize_arguments", "response"),
        )
    }
)
"""The settings that a provider and a session may override."""

JOURNAL_SPECS: Mapping[str, Spec] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            _spec_switch("enabled", "journal"),
            _spec_number("keep_days", "journal", 1, 3650),
            _spec_number("keep_rows", "journal", 100, 10_000_000),
            _spec_switch("capture_arguments", "journal"),
        )
    }
)

LANGUAGE_SPEC = _spec_choice("language", "", "auto", "zh", "en")


def read_mode(name: str, value: object) -> object:
    """Return the usable value of one overridable setting.

    Args:
        name: A key of `MODE_SPECS`.
        value: The value as configured, or as typed in a chat.

    Raises:
        KeyError: There is no such setting.
        ValueError: The setting does not take this value.
    """
    return MODE_SPECS[name].read(value)
