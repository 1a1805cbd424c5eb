"""The texts that chats show, in Chinese and English side by side: data and nothing else.

Placeholders are `str.format` names. A text that belongs to a closed set of the
package (rules, kinds of incident, actions of a repair) stands in a table by that
set's names, and a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..core.model import Rule


class Text(NamedTuple):
    """One text in both languages."""

    zh: str
    en: str


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

PROBLEMS: Mapping[str, Text] = {
    **RULES,
    # what makes a call invalid, and an answer asked for again
    "truncated": Text("参数被截断", "the arguments were cut off"),
    "invalid_json": Text("参数不是 JSON", "the arguments are not JSON"),
    "not_an_object": Text("参数不是 JSON 对象", "the arguments are no JSON object"),
    "too_large": Text("参数太长", "the arguments are too long"),
    "too_deep": Text("参数嵌套太深", "the arguments are nested too deep"),
    "too_many_calls": Text("工具调用太多", "too many tool calls"),
    "stream_error": Text("回答以错误结束", "the answer ended in an error"),
    "missing_required": Text("缺少必填项", "a required property is missing"),
    "schema": Text("不符合工具的声明", "does not match what the tool declares"),
    "stream_empty_tool_arguments": Text("必填的参数为空", "required arguments were empty"),
    "stream_invalid_tool_call": Text("工具调用无效", "invalid tool calls"),
    "nameless": Text("没有名字", "no name"),
    "id_generated": Text("没有可用的 id", "no usable id"),
    # what a repair does
    "message_dropped": Text("去掉不是消息的内容", "drop what is no message"),
    "tool_calls_removed": Text("去掉无效的 tool_calls", "remove unusable tool_calls"),
    "tool_calls_wrapped": Text("把单个调用放进列表", "put a single call into a list"),
    "call_dropped": Text("去掉不是调用的内容", "drop what is no call"),
    "call_parsed": Text("解析写成文本的调用", "read a call written as text"),
    "call_id_adopted": Text("沿用结果的 id", "give a call its result's id"),
    "call_id_generated": Text("补上调用的 id", "give a call an id"),
    "result_id_set": Text("补上结果的 id", "give a result its call's id"),
    "result_moved": Text("把结果移到调用之后", "move a result to its call"),
    "result_dropped": Text("去掉多余的结果", "drop a surplus result"),
    "result_added": Text("补上“没有结果”的说明", "say that a result is missing"),
    # what pairs and may be refused all the same, and what mends that
    "empty_tool_calls": Text("tool_calls 为空", "empty tool_calls"),
    "missing_name": Text("调用没有名字", "a call without a name"),
    "illegal_name": Text("调用的名字不合规", "a call with an illegal name"),
    "arguments_not_an_object": Text("参数不是 JSON 对象", "arguments that are no JSON object"),
    "overlong_id": Text("id 太长", "an overlong id"),
    "name_replaced": Text("替换名字", "replace a name"),
    "arguments_rewritten": Text("改写参数", "rewrite arguments"),
    "arguments_emptied": Text("清空参数", "empty arguments"),
    "id_shortened": Text("缩短 id", "shorten an id"),
}
"""What the problems of an incident and the changes of a repair begin with."""

OUTCOMES: Mapping[str, Text] = {
    "blocked": Text("没有发送", "not sent"),
    "sent": Text("照常发送", "sent as it was"),
    "repaired": Text("修复后发送", "repaired and sent"),
    "retry_streaming": Text("重新请求了一次", "asked once more"),
    "not_run": Text("没有执行", "not run"),
    "id_generated": Text("补上了 id", "an id was supplied"),
    "dropped": Text("丢弃", "dropped"),
    "unguarded": Text("未经守卫处理，照常进行", "went on unguarded"),
}

BLOCKED = Text(
    "请求没有发给模型：其中的工具调用和结果对不上（{problem}）。"
    "管理员可以发送 {prefix}{command} explain 查看原因，"
    "或发送 {prefix}{command} doctor 检查并修复对话。",
    "Nothing was sent to the model, because the tool calls and results in the request "
    "do not pair ({problem}). An administrator can type {prefix}{command} explain to see why, "
    "or {prefix}{command} doctor to check the conversation and mend it.",
)
AND_MORE = Text("，另有 {count} 处", ", and {count} more")

SUBCOMMANDS: Mapping[str, Text] = {
    "status": Text("状态、接入点和计数", "state, attachment points and counts"),
    "on": Text("在本会话启用", "switch on in this session"),
    "off": Text("在本会话停用", "switch off in this session"),
    "set KEY VALUE": Text("修改本会话的一项设置", "change one setting for this session"),
    "reset": Text("撤销本会话的全部设置", "drop all settings of this session"),
    "sessions": Text("有单独设置的会话", "sessions with settings of their own"),
    "log [n]": Text("本会话最近的问题", "last incidents of this session"),
    "show ID": Text("一个问题的全部内容", "one incident in full"),
    "explain": Text("上次请求为什么被拦截", "why the last request was blocked"),
    "doctor": Text("检查本会话的对话", "check this session's conversation"),
    "doctor all": Text("检查全部对话", "check all conversations"),
    "doctor apply ID": Text("执行检查给出的修复", "carry out what a check proposed"),
    "doctor undo": Text("撤销本会话的上一次修复", "undo the last repair of this session"),
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
    "missing": Text("此版本的 AstrBot 没有这个接入点", "not in this AstrBot"),
    "other_shape": Text("形式不同，未接入", "has another shape, left alone"),
    "taken_off": Text("被别的插件取下", "taken off by another plugin"),
    "left_beneath": Text("旧的一层还在下面", "an older one is still beneath"),
    "stands_aside": Text("由 AstrBot 自己检查，本插件让位", "AstrBot does this itself"),
}

ANSWERS: Mapping[str, Text] = {
    "on_here": Text(
        "工具调用守卫{version}：本会话启用（{why}）", "Tool Call Guard{version}: on here ({why})"
    ),
    "off_here": Text(
        "工具调用守卫{version}：本会话停用（{why}）", "Tool Call Guard{version}: off here ({why})"
    ),
    "mode": Text("{name}：{value}（{why}）", "{name}: {value} ({why})"),
    "attached": Text("已接入：{names}", "Attached: {names}"),
    "covered": Text("{name}：已接入，外层还有 {by}", "{name}: attached, covered by {by}"),
    "detached": Text("{name}：未接入，{problem}", "{name}: not attached, {problem}"),
    "since_start": Text("启动以来：{counts}", "Since start: {counts}"),
    "last_day": Text("最近一天：{counts}", "Last day: {counts}"),
    "nothing": Text("没有", "none"),
    "no_journal": Text(
        "没有运行记录（已关闭或无法写入）。", "There is no journal (off, or not writable)."
    ),
    "switched_on": Text("本会话已启用守卫。", "The guard is now on in this session."),
    "switched_off": Text(
        "本会话已停用守卫。{command} on 可重新启用。",
        "The guard is now off in this session. {command} on switches it on again.",
    ),
    "set": Text("本会话：{name} = {value}", "This session: {name} = {value}"),
    "not_stored": Text(
        "已生效，但没能保存，重启后失效。",
        "In force, but it could not be stored: a restart undoes it.",
    ),
    "reset": Text(
        "本会话的单独设置已撤销，恢复使用提供商和全局设置。",
        "This session follows the provider's and the global settings again.",
    ),
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
    "what_to_do": Text(
        "可以这样处理：\n"
        "{command} doctor 检查并修复当前对话\n"
        "{command} set request_guard repair 今后在本会话自动修复\n"
        "{prefix}new 新建对话\n"
        "如果检查没有发现问题，请求是被别的插件或 custom_extra_body 改坏的。",
        "What helps:\n"
        "{command} doctor checks and mends this conversation\n"
        "{command} set request_guard repair mends requests of this session from now on\n"
        "{prefix}new starts a new conversation\n"
        "If the doctor finds nothing, another plugin or custom_extra_body broke the request.",
    ),
    "unknown": Text("没有子指令 {name}。", "There is no command {name}."),
    "failed": Text("指令执行出错，见日志。", "The command failed; the log says why."),
    "not_running": Text(
        "守卫没有在运行，原因见日志。", "The guard is not running; the log says why."
    ),
    "put_back": Text(
        "{name}：被取下 {count} 次，已重新接入", "{name}: taken off {count} times, put back"
    ),
    "at_message": Text("消息 messages[{message}]：{text}", "messages[{message}]: {text}"),
    "at_path": Text("{path}：{text}", "{path}: {text}"),
    "no_conversation": Text("本会话还没有对话。", "This session has no conversation."),
    "healthy": Text("对话没有问题。", "The conversation is fine."),
    "all_healthy": Text("{count} 个对话都没有问题。", "All {count} conversations are fine."),
    "unreadable": Text("无法读取：{reason}", "Unreadable: {reason}"),
    "repairable": Text("可以修复，问题 {count} 处。", "Repairable; problems: {count}."),
    "would_change": Text("将会：{changes}", "Would do: {changes}"),
    "advisories": Text(
        "能配对但可能被提供商拒绝：{found}", "Pairs, but providers may refuse: {found}"
    ),
    "advisories_too": Text(
        "{command} doctor{scope} --advisories 连这些一起修复。",
        "{command} doctor{scope} --advisories mends these too.",
    ),
    "to_apply": Text(
        "尚未改动。{command} doctor apply {plan} 执行修复。",
        "Nothing was changed. {command} doctor apply {plan} carries it out.",
    ),
    "examined": Text(
        "共 {count} 个对话：正常 {ok}，可修复 {repairable}，无法读取 {unreadable}。",
        "{count} conversations: {ok} fine, {repairable} repairable, {unreadable} unreadable.",
    ),
    "in_session": Text(
        "可修复 {repairable}，无法读取 {unreadable}",
        "{repairable} repairable, {unreadable} unreadable",
    ),
    "finding": Text("{session}：{text}", "{session}: {text}"),
    "applied": Text(
        "已修复 {count} 个对话，问题 {before} → {after}。{command} doctor undo 可撤销。",
        "Conversations repaired: {count}; problems {before} → {after}. "
        "{command} doctor undo puts the last one of this session back.",
    ),
    "none_applied": Text("没有修复任何对话。", "No conversation was repaired."),
    "moved_on": Text(
        "{count} 个对话此后有变化，未作改动。",
        "{count} changed in the meantime and were left alone.",
    ),
    "gone": Text("{count} 个对话已不存在。", "{count} are no longer there."),
    "no_such_plan": Text(
        "没有编号为 {id} 的修复方案，请先运行 {command} doctor。",
        "There is no plan {id}. Type {command} doctor first.",
    ),
    "no_backup": Text(
        "有一个备份无法写入，到此为止；其余对话未作改动。",
        "A backup could not be written, so the repair stopped there; the rest is unchanged.",
    ),
    "undone": Text("已恢复 {count} 个对话。", "Put back {count} conversations."),
    "none_undone": Text("没有恢复任何对话。", "No conversation was put back."),
    "nothing_to_undo": Text("没有可以撤销的修复。", "There is nothing to undo."),
    "doctor_usage": Text(
        "用法：{command} doctor [all|apply ID|undo] [--advisories]",
        "Usage: {command} doctor [all|apply ID|undo] [--advisories]",
    ),
}
