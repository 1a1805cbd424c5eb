"""What the commands need of AstrBot: who asks, and that every command is answered.

The rule: AstrBot's command group answers a subcommand it knows. What is left,
the bare group and a subcommand that is none, is caught here before it reaches the
model; for neither has AstrBot an answer in the chat's language.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

from astrbot.api.event.filter import CustomFilter
from astrbot.core.star.star_handler import star_handlers_registry

from ..settings.settings import LanguageSetting
from ..texts.texts import Language, pick_language
from .call import provider_id_of

MAX_SAMPLES = 5
"""User messages, newest first, that are looked at for the chat's language."""


class WithSubcommand(CustomFilter):
    """On a command group: lets it see only messages with a word after its name.

    Bare, the group would raise its tree into the chat, in Chinese, for everybody.
    """

    def filter(self, event: Any, cfg: Any) -> bool:
        """Tell whether the group may see the message."""
        return len(event.get_message_str().split()) > 1


class Unanswered(CustomFilter):
    """Passes messages to a command group that none of its subcommands takes.

    It asks the group's own filters for the names, since an administrator may
    rename commands in the WebUI.

    Args:
        group: The `CommandGroupFilter`.
        raise_error: As in every filter of AstrBot.
    """

    def __init__(self, group: Any, raise_error: bool = True) -> None:
        super().__init__(raise_error)
        self._group = group

    def filter(self, event: Any, cfg: Any) -> bool:
        """Tell whether nobody else answers the message."""
        if not event.is_at_or_wake_command or not rest_of(self._group, event):
            return False
        message = " ".join(event.get_message_str().split())
        return not any(
            _begins(message, name)
            for command in self._group.sub_command_filters
            for name in command.get_complete_command_names()
        )


def rest_of(group: Any, event: Any) -> tuple[str, str] | None:
    """Split a message to a command group.

    Args:
        group: The `CommandGroupFilter`.
        event: The message event.

    Returns:
        The name that was used, and what stands after it; `None` if the message
        is not to this group.
    """
    message = " ".join(event.get_message_str().split())
    for name in group.get_complete_command_names():
        if _begins(message, name):
            return name, message[len(name) :].strip()
    return None


def _begins(message: str, name: str) -> bool:
    return message == name or message.startswith(f"{name} ")


def bind_once(star: Any) -> None:
    """Give each handler of a plugin its instance once.

    AstrBot 4.26 binds the handlers of a plugin that was switched off and on again a
    second time, and every command of it fails from then on.

    Args:
        star: The plugin's instance.
    """
    for handler in star_handlers_registry.get_handlers_by_module_name(type(star).__module__):
        bound = handler.handler
        if isinstance(bound, partial) and len(bound.args) > 1:
            handler.handler = partial(bound.func, star)


async def chat_language(context: Any, event: Any, setting: LanguageSetting) -> Language:
    """Return the language to answer a command in.

    A command says little about its writer's language: Chinese characters in it
    decide, else what the user wrote in the conversation before.

    Args:
        context: AstrBot's `Context`.
        event: The command's event.
        setting: The `language` setting.
    """
    if pick_language(setting, event.get_message_str()) == "zh" or setting != "auto":
        return pick_language(setting, event.get_message_str())
    try:
        samples = await _user_texts(context, event.unified_msg_origin)
    except Exception:
        samples = ()  # An unreadable history is the doctor's business, not this one's.
    return pick_language(setting, *samples)


async def _user_texts(context: Any, session: str) -> tuple[str, ...]:
    manager = context.conversation_manager
    conversation_id = await manager.get_curr_conversation_id(session)
    if not conversation_id:
        return ()
    conversation = await manager.get_conversation(session, conversation_id)
    messages = json.loads(conversation.history)
    texts = (text for message in reversed(messages) for text in _typed(message))
    return tuple(text for text, _ in zip(texts, range(MAX_SAMPLES), strict=False))


def _typed(message: object) -> Iterator[str]:
    """Yield what the user typed in a stored message, without AstrBot's reminders."""
    if not isinstance(message, dict):
        return
    fields = cast("dict[str, Any]", message)
    if fields.get("role") != "user":
        return
    content = fields.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    for part in cast("list[Any]", parts):
        text = part.get("text") if isinstance(part, dict) else None
        if isinstance(text, str) and not text.startswith("<"):
            yield text


async def provider_in_use(context: Any, session: str) -> str:
    """Return the id of the provider that answers in a session, or `""`."""
    # Where there is an asynchronous form, the other one reads the database at once.
    ask = getattr(context, "get_using_provider_async", None)
    try:
        provider = await ask(umo=session) if ask else context.get_using_provider(umo=session)
    except Exception:
        return ""  # AstrBot raises where the session's choice is no chat model.
    return provider_id_of(provider)


def wake_prefix(context: Any, session: str) -> str:
    """Return what a command begins with in a session."""
    prefixes = context.get_config(umo=session).get("wake_prefix")
    return str(prefixes[0]) if prefixes else "/"


def versions(context: Any, plugin: str) -> dict[str, str]:
    """Return the versions that matter; `""` is this plugin's own."""
    import openai
    from astrbot.core.config.default import VERSION

    star = context.get_registered_star(plugin)
    return {
        "": str(getattr(star, "version", "") or ""),
        "AstrBot": VERSION,
        "openai": openai.__version__,
    }
