"""What an operator writes, and what the guard makes of it."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astrbot_tool_guard.settings.settings import JournalSettings, Modes, Settings
from astrbot_tool_guard.settings.specs import JOURNAL_SPECS, MODE_SPECS

SCHEMA = json.loads((Path(__file__).parents[2] / "_conf_schema.json").read_text("utf-8"))


def panel_defaults(schema: dict[str, dict]) -> dict[str, Any]:
    return {
        key: panel_defaults(item["items"]) if item["type"] == "object" else item["default"]
        for key, item in schema.items()
    }


def test_every_setting_has_a_usable_default():
    assert Settings.parse(None) == (Settings(), ())
    assert Settings().modes == Modes()
    assert Settings().journal == JournalSettings()


def test_the_vocabulary_names_exactly_the_fields():
    assert list(MODE_SPECS) == [field.name for field in fields(Modes)]
    assert list(JOURNAL_SPECS) == [field.name for field in fields(JournalSettings)]


def test_the_panel_and_the_package_have_the_same_defaults():
    defaults = panel_defaults(SCHEMA)
    assert Settings.parse(defaults) == (Settings(), ())
    assert set(defaults["request"]) | set(defaults["response"]) | {"enabled"} == set(MODE_SPECS)
    assert set(defaults["journal"]) == set(JOURNAL_SPECS)
    assert defaults["journal"] == {f.name: f.default for f in fields(JournalSettings)}
    for name, spec in MODE_SPECS.items():
        group = defaults[spec.group] if spec.group else defaults
        assert group[name] == getattr(Modes(), name)


def test_the_panel_offers_exactly_the_accepted_values():
    template = SCHEMA["providers"]["templates"]["provider"]["items"]
    for name, spec in MODE_SPECS.items():
        item = (SCHEMA[spec.group]["items"] if spec.group else SCHEMA)[name]
        if item["type"] == "bool":
            assert spec.accepts == ("true", "false")
        else:
            assert item["options"] == list(spec.accepts)
        assert template[name]["options"] == ["inherit", *spec.accepts]
        assert template[name]["default"] == "inherit"
    assert set(template) == {"provider_id", *MODE_SPECS}


def test_a_provider_entry_fresh_from_the_panel_overrides_nothing():
    entry = panel_defaults(SCHEMA["providers"]["templates"]["provider"]["items"])
    entry |= {"__template_key": "provider", "provider_id": "src/model"}
    settings, warnings = Settings.parse({"providers": [entry]})
    assert warnings == ()
    assert settings.resolve("src/model") == Modes()


@pytest.mark.parametrize(
    "raw",
    [
        {"request_guard": "off", "normalize_arguments": True},
        {"request": {"request_guard": "off"}, "response": {"normalize_arguments": True}},
        {"request_guard": " OFF ", "response": {"normalize_arguments": "true"}},
    ],
    ids=["flat", "grouped", "mixed and as words"],
)
def test_flat_and_grouped_spellings_mean_the_same(raw):
    settings, warnings = Settings.parse(raw)
    assert warnings == ()
    assert settings == Settings(request_guard="off", normalize_arguments=True)


@pytest.mark.parametrize(
    ("raw", "transport"),
    [
        (None, "auto"),
        (True, "stream"),
        (False, "complete"),
        ("null", "auto"),
        ("true", "stream"),
        ("complete", "complete"),
    ],
)
def test_the_transport_also_takes_null_and_switches(raw, transport):
    assert Settings.parse({"stream_transport": raw})[0].stream_transport == transport
    assert Settings(stream_transport=raw).modes.stream_transport == transport


@pytest.mark.parametrize("word", ["false", "off", "no", "0", "关", "False"])
def test_a_switch_written_as_a_word_is_read_as_that_word(word):
    assert Settings.parse({"enabled": word}) == (Settings(enabled=False), ())


@pytest.mark.parametrize(
    ("raw", "warning"),
    [
        (
            {"request_guard": "sk-secret"},
            "request_guard: unusable value (accepted: block, repair, observe, off); "
            "using the default block",
        ),
        (
            {"enabled": "maybe"},
            "enabled: unusable value (accepted: true, false); using the default true",
        ),
        (
            {"journal": {"keep_days": 0}},
            "journal.keep_days: unusable value (accepted: 1-3650); using the default 14",
        ),
        (
            {"journal": {"keep_rows": True}},
            "journal.keep_rows: unusable value (accepted: 100-10000000); using the default 20000",
        ),
        (
            {"language": 7},
            "language: unusable value (accepted: auto, zh, en); using the default auto",
        ),
        ({"request": "sk-secret"}, "request: unusable value (accepted: an object); ignored"),
        ({"request": {"enabled": True}}, "request.enabled: no such setting; ignored"),
        ({"typo": 1}, "typo: no such setting; ignored"),
        ({"providers": 5}, "providers: unusable value (accepted: a list); ignored"),
        (
            {"providers": [{"enabled": "true"}]},
            "providers[0]: no provider_id; the entry is ignored",
        ),
        (
            {"providers": {"p": {"request_guard": 1}}},
            "providers.p.request_guard: unusable value (accepted: block, repair, observe, off); "
            "using no override",
        ),
    ],
)
def test_an_unusable_value_becomes_the_default_and_one_warning_without_the_value(raw, warning):
    settings, warnings = Settings.parse(raw)
    assert warnings == (warning,)
    assert settings.modes == Modes()
    assert settings.journal == JournalSettings()


def test_one_bad_value_leaves_the_others_in_force():
    settings, warnings = Settings.parse(
        {"request": {"request_guard": "nonsense"}, "response": {"retry_invalid_stream": False}}
    )
    assert len(warnings) == 1
    assert settings == Settings(retry_invalid_stream=False)


def test_the_journal_may_be_a_mere_switch():
    settings, warnings = Settings.parse({"journal": False, "keep_days": 3})
    assert warnings == ()
    assert settings.journal == JournalSettings(enabled=False, keep_days=3)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
setting_names = st.sampled_from(
    [*MODE_SPECS, *JOURNAL_SPECS, "request", "response", "journal", "providers", "language"]
)


@given(raw=json_values | st.dictionaries(setting_names | st.text(max_size=5), json_values))
def test_no_configuration_is_fatal(raw):
    settings, warnings = Settings.parse(raw)
    assert isinstance(settings.resolve("p", None), Modes)
    assert all("\n" not in warning for warning in warnings)
    assert Settings.parse(raw) == (settings, warnings)


class TestPrecedence:
    settings = Settings(
        request_guard="observe",
        tool_argument_validation="strict",
        providers={"src/model": {"request_guard": "off", "enabled": "false"}},
    )

    def test_the_global_setting_holds_where_nothing_overrides_it(self):
        modes = self.settings.resolve("other", None)
        assert modes == Modes(request_guard="observe", tool_argument_validation="strict")
        assert self.settings.origin("request_guard", "other", None) == "global"

    def test_a_provider_overrides_the_global_setting(self):
        modes = self.settings.resolve("src/model", None)
        assert (modes.enabled, modes.request_guard) == (False, "off")
        assert modes.tool_argument_validation == "strict"
        assert self.settings.origin("enabled", "src/model", None) == "provider"

    def test_a_session_overrides_the_provider(self):
        modes = self.settings.resolve("src/model", {"enabled": True})
        assert (modes.enabled, modes.request_guard) == (True, "off")
        assert self.settings.origin("enabled", "src/model", {"enabled": True}) == "session"
        assert self.settings.origin("request_guard", "src/model", {"enabled": True}) == "provider"

    def test_nothing_is_rebuilt_where_no_session_overrides(self):
        assert self.settings.resolve("src/model") is self.settings.resolve("src/model", {})
        assert self.settings.resolve("other") is self.settings.modes


def test_settings_cannot_be_changed_afterwards():
    overrides = {"enabled": False}
    settings = Settings(providers={"p": overrides})
    overrides["enabled"] = True
    assert settings.resolve("p").enabled is False
    with pytest.raises(FrozenInstanceError):
        settings.request_guard = "off"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError):
        settings.providers["p"] = {}  # pyright: ignore[reportIndexIssue]


@pytest.mark.parametrize(
    "keywords",
    [
        {"request_guard": "allow"},
        {"enabled": 2},
        {"language": "fr"},
        {"providers": {"p": {"no_such": 1}}},
        {"providers": {"p": {"enabled": "perhaps"}}},
    ],
)
def test_a_plugin_author_is_told_of_a_wrong_value_at_once(keywords):
    with pytest.raises(ValueError, match=r"takes one of|no setting"):
        Settings(**keywords)
