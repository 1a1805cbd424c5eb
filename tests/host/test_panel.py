"""The panel, as AstrBot itself loads, checks and translates it."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from astrbot_tool_guard.settings.settings import Settings

ROOT = Path(__file__).parents[2]
LOCALES = ["zh-CN", "en-US"]


@pytest.fixture
def schema() -> dict[str, Any]:
    return json.loads((ROOT / "_conf_schema.json").read_text("utf-8"))


@pytest.fixture
def translations() -> dict[str, Any]:
    from astrbot.core.star.star_manager import PluginManager

    return PluginManager._load_plugin_i18n(str(ROOT))


def load(path: Path, schema: dict[str, Any]) -> dict[str, Any]:
    from astrbot.core.config.astrbot_config import AstrBotConfig

    return AstrBotConfig(config_path=str(path), schema=schema)


def translatable(items: dict[str, Any], at: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Return every text of a schema by the path that AstrBot's WebUI looks it up under."""
    found: dict[tuple[str, ...], Any] = {}
    for key, item in items.items():
        here = (*at, key)
        found |= {(*here, name): item[name] for name in ("description", "hint")}
        if "labels" in item:
            found[*here, "labels"] = item["labels"]
        found |= translatable(item.get("items", {}), here)
        for name, template in item.get("templates", {}).items():
            there = (*here, "templates", name)
            found |= {(*there, field): template[field] for field in ("name", "hint")}
            found |= translatable(template["items"], there)
    return found


def leaves(tree: Any, at: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if not isinstance(tree, dict):
        return {at: tree}
    return {path: leaf for key in tree for path, leaf in leaves(tree[key], (*at, key)).items()}


def test_a_fresh_installation_has_the_defaults_of_the_package(tmp_path, schema):
    assert Settings.parse(load(tmp_path / "config.json", schema)) == (Settings(), ())


def test_what_an_older_configuration_lacks_is_filled_in_and_what_is_unknown_removed(
    tmp_path, schema
):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"request": {"request_guard": "off"}, "long_gone": 1}))
    settings, warnings = Settings.parse(load(path, schema))
    assert warnings == ()
    assert settings == Settings(request_guard="off")


def test_what_the_webui_sends_passes_its_own_check_and_ours(tmp_path, schema):
    from astrbot.dashboard.services.config_service import validate_config

    config = deepcopy(dict(load(tmp_path / "config.json", schema)))
    template = schema["providers"]["templates"]["provider"]["items"]
    entry = {key: item["default"] for key, item in template.items()}
    entry |= {"__template_key": "provider", "provider_id": "src/model", "enabled": "false"}
    config["providers"] = [entry]
    config["response"]["stream_transport"] = "stream"
    errors, checked = validate_config(config, schema, is_core=False)
    assert errors == []
    settings, warnings = Settings.parse(checked)
    assert warnings == ()
    assert settings.stream_transport == "stream"
    assert settings.resolve("src/model").enabled is False
    assert settings.resolve("other").enabled is True


def test_each_choice_has_a_label(schema):
    choices = [
        item
        for items in (
            schema,
            *(item["items"] for item in schema.values() if "items" in item),
            schema["providers"]["templates"]["provider"]["items"],
        )
        for item in items.values()
        if "options" in item
    ]
    assert len(choices) == 10
    for item in choices:
        assert len(item["labels"]) == len(item["options"])
        assert item["default"] in item["options"]


@pytest.mark.parametrize("locale", LOCALES)
def test_every_text_is_translated_and_no_translation_is_left_over(schema, translations, locale):
    texts = translatable(schema)
    translated = leaves(translations[locale]["config"])
    assert set(translated) == set(texts)
    for path, text in texts.items():
        assert translated[path], path
        if isinstance(text, list):
            assert len(translated[path]) == len(text), path
    assert set(translations[locale]["metadata"]) == {"display_name", "short_desc", "desc"}


def test_the_languages_are_what_they_say(translations):
    for path, text in leaves(translations["zh-CN"]["config"]).items():
        assert any("\u4e00" <= c <= "\u9fff" for c in str(text)), path
    for path, text in leaves(translations["en-US"]["config"]).items():
        if path[0] != "language":  # the languages bear their own names
            assert not any("\u4e00" <= c <= "\u9fff" for c in str(text)), path


def test_other_languages_read_the_english_texts(schema, translations):
    """AstrBot falls back to the schema's own texts; those are the English ones."""
    assert translatable(schema) == leaves(translations["en-US"]["config"])
