"""Every text a user or a model sees, and how foreign words get into one.

The rule: texts are data, in Chinese and English side by side, and a name that
comes from a model, a tool server or a platform is put through `clean` before it
stands in one. What the model reads is English. Logs are not made here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from .core.model import Rule, Violation
from .settings import LanguageSetting

Language = Literal["zh", "en"]


class Text(NamedTuple):
    """One text in both languages; placeholders are `str.format` names."""

    zh: str
    en: str


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
_DROPPED = frozenset({"Cc", "Cf", "Co", "Cs"})


def clean(text: object, limit: int = 64) -> str:
    """Return `text` as one short harmless line.

    Control, bidirectional and other invisible characters are dropped, white
    space becomes single blanks, markup and mentions lose their meaning.

    Args:
        text: A name from outside: of a tool, a property, a session, a plugin.
        limit: Longest result in characters, the closing ellipsis included.
    """
    # Bounded before anything else is done to it: a name may be megabytes long.
    raw = str(text)[: limit * 4]
    spaced = "".join(" " if c.isspace() else c for c in raw)
    visible = "".join(c for c in spaced if unicodedata.category(c) not in _DROPPED)
    line = " ".join(visible.translate(_DEFUSED).replace("://", ":\uff0f\uff0f").split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "\u2026"


# --- the block sentence -------------------------------------------------------

RULES: Mapping[Rule, Text] = {
    "messages_not_a_list": Text("消息不是列表", "the messages are not a list"),
    "message_not_an_object": Text("有一条消息不是对象", "a message is not an object"),
    "tool_calls_not_a_list": Text("tool_calls 不是列表", "tool_calls is not a list"),
    "tool_call_not_an_object": Text("有一个工具调用不是对象", "a tool call is not an object"),
    "missing_call_id": Text("有一个工具调用没有 id", "a tool call has no id"),
    "invalid_call_id": Text("有一个工具调用的 id 不是文本", "the id of a tool call is not text"),
    "duplicate_call_id": Text("有两个工具调用的 id 相同", "two tool calls have the same id"),
    "unanswered_call": Text("有一个工具调用没有结果", "a tool call has no result"),
    "missing_result_id": Text(
        "有一个工具结果没有写明属于哪个调用", "a tool result does not say which call it answers"
    ),
    "invalid_result_id": Text(
        "有一个工具结果的 tool_call_id 不是文本", "the tool_call_id of a result is not text"
    ),
    "duplicate_result": Text("有一个工具调用有两个结果", "a tool call has two results"),
    "orphan_result": Text("有一个工具结果没有对应的调用", "a tool result belongs to no call"),
}
assert set(RULES) == set(get_args(Rule))

COMMAND = "toolguard"

_BLOCKED = Text(
    "请求没有发给模型：其中的工具调用和结果对不上（{problem}）。"
    "管理员可以发送 {prefix}{command} explain 查看原因，"
    "或发送 {prefix}{command} doctor 检查并修复会话。",
    "Nothing was sent to the model, because the tool calls and results in the request "
    "do not pair ({problem}). An administrator can type {prefix}{command} explain to see why, "
    "or {prefix}{command} doctor to check the conversation and mend it.",
)
_AND_MORE = Text("，另有 {count} 处", ", and {count} more")


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
        problem += _AND_MORE[_at(language)].format(count=len(violations) - 1)
    return _BLOCKED[_at(language)].format(problem=problem, prefix=prefix, command=COMMAND)


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
        lines.append(f"- {clean(path) or 'arguments'}: {clean(expected, 160)}")
    if len(found) > _NAMED_PROBLEMS:
        lines.append(f"- and {len(found) - _NAMED_PROBLEMS} more")
    lines.append("Call the tool again with one complete JSON object of arguments.")
    return "\n".join(lines)
