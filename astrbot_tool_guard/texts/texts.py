"""How a text comes about that a user or a model reads.

The rule: what is said stands in `catalogue`; here it is picked by language, and a
name that comes from a model, a tool server or a platform is put through `clean` before it
stands in one. What the model reads is English. Logs are not made here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from ..core.model import Violation
from ..settings.settings import LanguageSetting
from .catalogue import AND_MORE, ANSWERS, BLOCKED, PROBLEMS, RULES, Text

Language = Literal["zh", "en"]


# --- language -----------------------------------------------------------------

_SAMPLE_LIMIT = 2000
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_KANA_OR_HANGUL = re.compile(r"[\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f\u1100-\u11ff\uac00-\ud7af]")


def pick_language(setting: LanguageSetting, *samples: str | None) -> Language:
    """Return the language to answer in.

    Automatic means: the first sample with letters in it decides. Chinese
    characters make it Chinese, unless kana or hangul stand beside them; anything
    else is English, which is also the answer to no sample at all.

    Args:
        setting: The `language` setting.
        samples: Texts of the chat's user, the most telling first.
    """
    if setting != "auto":
        return setting
    for sample in samples:
        text = (sample or "")[:_SAMPLE_LIMIT]
        if _HAN.search(text) and not _KANA_OR_HANGUL.search(text):
            return "zh"
        if any(character.isalpha() for character in text):
            return "en"
    return "en"


# --- foreign words ------------------------------------------------------------

# Full-width twins look alike to a person and are markup to no platform: no
# mention, no HTML, no Markdown, no CQ code ("[CQ:at,qq=all]"), no link.
_DEFUSED = str.maketrans(
    {
        **{character: chr(ord(character) + 0xFEE0) for character in "<>&@[]()*`~#|!\\"},
        "{": "\uff5b",
        "}": "\uff5d",
    }
)
_DEFUSED_FOR_MODEL = {code: twin for code, twin in _DEFUSED.items() if chr(code) in "<>&@`"}
_DROPPED = frozenset({"Cc", "Cf", "Co", "Cs"})


def clean(text: object, limit: int = 64) -> str:
    """Return `text` as one short harmless line.

    Control, bidirectional and other invisible characters are dropped, white
    space becomes single blanks, markup and mentions lose their meaning.

    Args:
        text: A name from outside: of a tool, a property, a session, a plugin.
        limit: Longest result in characters, the closing ellipsis included.
    """
    return _line(text, limit, _DEFUSED)


def _line(text: object, limit: int, defused: Mapping[int, str]) -> str:
    # Bounded before anything else is done to it: a name may be megabytes long.
    raw = str(text)[: limit * 4]
    spaced = "".join(" " if c.isspace() else c for c in raw)
    visible = "".join(c for c in spaced if unicodedata.category(c) not in _DROPPED)
    line = " ".join(visible.translate(defused).replace("://", ":\uff0f\uff0f").split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "\u2026"


def _expected(text: str, limit: int) -> str:
    """Return what a tool expects, as the model has to write it.

    A choice such as `C#` or `a|b` must not change. What a chat that shows tool
    results could take for a tag, a mention, a CQ code or Markdown does.
    """
    for mark, twin in (("[CQ:", "\uff3bCQ:"), ("**", "\uff0a\uff0a"), ("](", "\uff3d(")):
        text = text.replace(mark, twin)
    return _line(text, limit, _DEFUSED_FOR_MODEL)


# --- the block sentence -------------------------------------------------------

COMMAND = "toolguard"


def blocked_sentence(
    language: Language, violations: Sequence[Violation], *, prefix: str = "/"
) -> str:
    """Return the sentence a user reads when a request was stopped.

    Args:
        language: Language of the chat.
        violations: What was found; the first is named, the rest counted.
        prefix: AstrBot's wake prefix in this chat.
    """
    problem = RULES[violations[0].rule][_at(language)]
    if len(violations) > 1:
        problem += AND_MORE[_at(language)].format(count=len(violations) - 1)
    return BLOCKED[_at(language)].format(problem=problem, prefix=prefix, command=COMMAND)


def _at(language: Language) -> int:
    return 0 if language == "zh" else 1


# --- what the model reads -----------------------------------------------------

_NAMED_PROBLEMS = 5


def invalid_arguments_result(tool: str, problems: Iterable[tuple[str, str]]) -> str:
    """Return the error result for a call that was not run.

    It says which declared property is at fault and what is expected, nothing of
    what the model wrote and nothing of the schema's prose.

    Args:
        tool: The tool's name.
        problems: Path of the property (`""` for the arguments as a whole) and
            what is expected there.
    """
    found = tuple(problems)
    lines = [f'error: invalid_arguments: tool "{clean(tool)}" was not run.']
    for path, expected in found[:_NAMED_PROBLEMS]:
        lines.append(f"- {_expected(path, 64) or 'arguments'}: {_expected(expected, 160)}")
    if len(found) > _NAMED_PROBLEMS:
        lines.append(f"- and {len(found) - _NAMED_PROBLEMS} more")
    lines.append("Call the tool again with one complete JSON object of arguments.")
    return "\n".join(lines)


# --- what the commands answer -------------------------------------------------


def say(key: str, language: Language, **values: object) -> str:
    """Return the text `key` with its placeholders filled in.

    Args:
        key: A key of the catalogue.
        language: Language of the chat.
        values: What the placeholders stand for; foreign words are `clean` already.
    """
    return ANSWERS[key][_at(language)].format(**values)


def word(table: Mapping[str, Text], key: str, language: Language) -> str:
    """Return the entry `key` of a table of texts, or the key itself where there is none."""
    text = table.get(key)
    return text[_at(language)] if text else clean(key)


_PROBLEM = re.compile(
    r"(?P<name>\w+)(?: at message (?P<message>\d+)(?:, call \d+)?| (?P<path>\S+))?"
)


def listed(parts: Iterable[str], language: Language) -> str:
    """Return parts of a sentence with the comma of its language between them."""
    return ("，" if language == "zh" else ", ").join(parts)


def problem_text(problem: str, language: Language) -> str:
    """Return one problem of an incident for people.

    Args:
        problem: A name of `catalogue.PROBLEMS` with its place, as in
            `orphan_result at message 3` and `missing_required route.city`; anything
            else is shown as it is.
        language: Language of the chat.
    """
    found = _PROBLEM.fullmatch(problem)
    if not found or found["name"] not in PROBLEMS:
        return clean(problem, 120)
    text = word(PROBLEMS, found["name"], language)
    if found["message"]:
        return say("at_message", language, message=found["message"], text=text)
    return say("at_path", language, path=clean(found["path"]), text=text) if found["path"] else text
