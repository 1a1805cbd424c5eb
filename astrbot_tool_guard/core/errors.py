"""The one error of this package that is the caller's to handle.

It is about *our* side of the protocol: the request we were about to send is
broken. What a provider did wrong is never an exception here but a verdict.
"""

from __future__ import annotations

from collections.abc import Iterable

from .model import Violation


class ToolMessageProtocolError(Exception):
    """The tool calls and tool results of a request do not pair.

    The text names rules and indexes only. It holds no message content and no
    ids, so it can be logged and shown.

    Attributes:
        violations: What was found, in message order; never empty.
    """

    violations: tuple[Violation, ...]

    def __init__(self, violations: Iterable[Violation]) -> None:
        self.violations = tuple(violations)
        super().__init__(summarize(self.violations))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.violations,)


MAX_NAMED = 5
"""How many violations the text of an error names before it only counts."""


def summarize(violations: tuple[Violation, ...]) -> str:
    """Return one line that names the rules and indexes of `violations`."""
    named = "; ".join(violation.where() for violation in violations[:MAX_NAMED])
    rest = len(violations) - MAX_NAMED
    tail = f"; and {rest} more" if rest > 0 else ""
    return f"tool calls and tool results do not pair: {named}{tail}"
