"""Who asks a command, and where: what an answer depends on besides the question."""

from __future__ import annotations

from dataclasses import dataclass

from ..texts.texts import COMMAND, Language


@dataclass(frozen=True, slots=True)
class Chat:
    """The chat a command came from.

    Attributes:
        session: `unified_msg_origin`.
        language: Language of the chat.
        provider: Id of the provider in use here; `""` where there is none.
        prefix: AstrBot's wake prefix in this chat.
        name: What the command group is called here.
    """

    session: str
    language: Language
    provider: str = ""
    prefix: str = "/"
    name: str = COMMAND

    @property
    def command(self) -> str:
        """What an administrator types to begin a command."""
        return f"{self.prefix}{self.name}"
