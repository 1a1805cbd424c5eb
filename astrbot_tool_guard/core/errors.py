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
        # Not `super()`: beside a host's own type (`be_also`) that is the host's.
        Exception.__init__(self, summarize(self.violations))

    def __str__(self) -> str:
        return summarize(self.violations)

    def __reduce__(self) -> tuple[object, ...]:
        return protocol_error, (self.violations,)


_raised: type[ToolMessageProtocolError] = ToolMessageProtocolError


def protocol_error(violations: Iterable[Violation]) -> ToolMessageProtocolError:
    """Return the error to raise: ours, and the host's as well where it has one."""
    return _raised(violations)


def be_also(host_type: type[Exception] | None) -> None:
    """Make what is raised from now on an instance of a host's own error type, too.

    Args:
        host_type: The host's type, or `None` for ours alone.
    """
    global _raised
    if host_type is None:
        _raised = ToolMessageProtocolError
    elif not issubclass(_raised, host_type):
        bases = (ToolMessageProtocolError, host_type)
        _raised = type(ToolMessageProtocolError.__name__, bases, {"__module__": __name__})


MAX_NAMED = 5
"""How many violations the text of an error names before it only counts."""


def summarize(violations: tuple[Violation, ...]) -> str:
    """Return one line that names the rules and indexes of `violations`."""
    named = "; ".join(violation.where() for violation in violations[:MAX_NAMED])
    rest = len(violations) - MAX_NAMED
    tail = f"; and {rest} more" if rest > 0 else ""
    return f"tool calls and tool results do not pair: {named}{tail}"
