"""Every text a user or a model sees, and how foreign words get into one.

The rule: texts are data, in Chinese and English side by side, and a name that
comes from a model, a tool server or a platform is put through `clean` before it
stands in one. What the model reads is English. Logs are not made here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, cast, get_args

from .core.model import Rule, Violation
from .events import IncidentKind
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


# --- what the commands answer -------------------------------------------------

SUBCOMMANDS: Mapping[str, Text] = {
    "status": Text("状态、接入点和计数", "state, seams and counts"),
    "on": Text("在本会话启用", "switch on in this session"),
    "off": Text("在本会话停用", "switch off in this session"),
    "set KEY VALUE": Text("修改本会话的一项设置", "change one setting for this session"),
    "reset": Text("撤销本会话的全部设置", "drop all settings of this session"),
    "sessions": Text("有单独设置的会话", "sessions with settings of their own"),
    "log [n]": Text("本会话最近的问题", "last incidents of this session"),
    "show ID": Text("一个问题的全部内容", "one incident in full"),
    "explain": Text("上次请求为什么被拦截", "why the last request was blocked"),
}

KINDS: Mapping[str, Text] = {
    "request_blocked": Text("请求被拦截", "request blocked"),
    "request_observed": Text("放行了对不上的请求", "unpaired request let pass"),
    "request_repaired": Text("请求被修复", "request repaired"),
    "response_retried": Text("回答无效，已重新请求", "invalid answer, asked again"),
    "response_degraded": Text("无效的工具调用没有执行", "invalid tool call not run"),
    "calls_dropped": Text("丢弃了没有名字的工具调用", "nameless tool calls dropped"),
    "ids_repaired": Text("补上了工具调用的 id", "tool call ids supplied"),
    "guard_fault": Text("守卫自身出错，已放行", "fault of the guard itself, let pass"),
}
assert set(KINDS) == set(get_args(IncidentKind))

COUNTERS: Mapping[str, Text] = {
    "requests": Text("请求", "requests"),
    "failed": Text("失败", "failed"),
    "request_blocked": Text("拦截", "blocked"),
    "request_repaired": Text("修复", "repaired"),
    "request_observed": Text("放行", "observed"),
    "response_retried": Text("重新请求", "retried"),
    "response_degraded": Text("未执行", "not run"),
    "calls_dropped": Text("丢弃", "dropped"),
    "guard_fault": Text("守卫出错", "guard faults"),
}

ORIGINS: Mapping[str, Text] = {
    "session": Text("本会话", "this session"),
    "provider": Text("提供商", "provider"),
    "global": Text("全局", "global"),
}

SEAM_PROBLEMS: Mapping[str, Text] = {
    "missing": Text("此版本的 AstrBot 没有", "not in this AstrBot"),
    "other_shape": Text("形式不同，未接入", "has another shape, left alone"),
    "taken_off": Text("被别的插件取下", "taken off by another plugin"),
    "left_beneath": Text("旧的一层还在下面", "an older one is still beneath"),
}

_ANSWERS: Mapping[str, Text] = {
    "on_here": Text(
        "工具调用守卫{version}：本会话启用（{why}）", "Tool Call Guard{version}: on here ({why})"
    ),
    "off_here": Text(
        "工具调用守卫{version}：本会话停用（{why}）", "Tool Call Guard{version}: off here ({why})"
    ),
    "mode": Text("{name}：{value}（{why}）", "{name}: {value} ({why})"),
    "attached": Text("已接入：{names}", "Attached: {names}"),
    "covered": Text("{name}：已接入，被 {by} 覆盖", "{name}: attached, covered by {by}"),
    "detached": Text("{name}：未接入，{problem}", "{name}: not attached, {problem}"),
    "since_start": Text("启动以来：{counts}", "Since start: {counts}"),
    "last_day": Text("最近一天：{counts}", "Last day: {counts}"),
    "nothing": Text("没有", "none"),
    "no_journal": Text(
        "没有运行记录（已关闭或无法写入）。", "There is no journal (off, or not writable)."
    ),
    "switched_on": Text("本会话已启用守卫。", "The guard is now on in this session."),
    "switched_off": Text(
        "本会话已停用守卫。{command} reset 可撤销。",
        "The guard is now off in this session. {command} reset undoes it.",
    ),
    "set": Text("本会话：{name} = {value}", "This session: {name} = {value}"),
    "not_stored": Text(
        "已生效，但没能保存，重启后失效。",
        "In force, but it could not be stored: a restart undoes it.",
    ),
    "reset": Text("本会话恢复使用全局设置。", "This session follows the global settings again."),
    "nothing_to_reset": Text("本会话没有单独的设置。", "This session has no settings of its own."),
    "set_usage": Text("用法：{command} set KEY VALUE", "Usage: {command} set KEY VALUE"),
    "no_such_key": Text("没有设置项 {name}。可用：", "There is no setting {name}. There are:"),
    "bad_value": Text("{name} 可取：{values}", "{name} takes: {values}"),
    "choices": Text("{name}：{values}", "{name}: {values}"),
    "no_sessions": Text("没有会话有单独的设置。", "No session has settings of its own."),
    "more": Text("……另有 {count} 个", "... and {count} more"),
    "no_incidents": Text("本会话没有记录到问题。", "No incidents of this session are on record."),
    "log_usage": Text("用法：{command} log [1-{most}]", "Usage: {command} log [1-{most}]"),
    "show_usage": Text(
        "用法：{command} show ID，编号见 {command} log。",
        "Usage: {command} show ID, with a number from {command} log.",
    ),
    "no_such_incident": Text("没有编号为 {id} 的记录。", "There is no incident {id}."),
    "field_session": Text("会话：{value}", "Session: {value}"),
    "field_provider": Text("模型：{provider} · {model}", "Model: {provider} · {model}"),
    "field_problem": Text("问题：{value}", "Problem: {value}"),
    "field_tool": Text("工具 {name}：{shape}", "Tool {name}: {shape}"),
    "field_outcome": Text("处理：{value}", "Outcome: {value}"),
    "not_blocked": Text("本会话没有请求被拦截。", "No request of this session was blocked."),
    "explained": Text(
        "{at} 有一个请求没有发给模型：", "At {at} a request was not sent to the model:"
    ),
    "problem_at": Text("第 {message} 条消息：{rule}", "message {message}: {rule}"),
    "what_to_do": Text(
        "可以这样处理：\n"
        "{command} doctor 检查并修复这个会话\n"
        "{command} set request_guard repair 今后自动修复\n"
        "{prefix}new 开始新的会话\n"
        "如果检查没有发现问题，请求是被别的插件或 custom_extra_body 改坏的。",
        "What helps:\n"
        "{command} doctor checks and mends this conversation\n"
        "{command} set request_guard repair mends requests from now on\n"
        "{prefix}new starts a new conversation\n"
        "If the doctor finds nothing, another plugin or custom_extra_body broke the request.",
    ),
    "unknown": Text("没有子命令 {name}。", "There is no command {name}."),
    "not_running": Text(
        "守卫没有在运行，原因见日志。", "The guard is not running; the log says why."
    ),
}


def say(key: str, language: Language, **values: object) -> str:
    """Return the text `key` with its placeholders filled in.

    Args:
        key: A key of the catalogue.
        language: Language of the chat.
        values: What the placeholders stand for; foreign words are `clean` already.
    """
    return _ANSWERS[key][_at(language)].format(**values)


def word(table: Mapping[str, Text], key: str, language: Language) -> str:
    """Return the entry `key` of a table of texts, or the key itself where there is none."""
    text = table.get(key)
    return text[_at(language)] if text else clean(key)


_VIOLATION = re.compile(r"(?P<rule>\w+)(?: at message (?P<message>\d+))?(?:, call \d+)?")


def problem_text(problem: str, language: Language) -> str:
    """Return one problem of an incident for people.

    Args:
        problem: A rule with its indexes as `Violation.where` writes it, or any
            other problem, which is shown as it is.
        language: Language of the chat.
    """
    found = _VIOLATION.fullmatch(problem)
    rule = RULES.get(cast("Rule", found["rule"])) if found else None
    if not found or rule is None:
        return clean(problem, 120)
    text = rule[_at(language)]
    message = found["message"]
    return text if message is None else say("problem_at", language, message=message, rule=text)
