"""The command line: look at message lists, answers and databases without AstrBot.

`python -m astrbot_tool_guard COMMAND` exits with 0 when the data is fine, with 1
when something is wrong with it, and with 2 when there was nothing to judge; then
one line on stderr says why. No network, and only what a command needs is loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO

from .texts.lines import count, shown

FINE: Final = 0
WRONG: Final = 1
UNUSABLE: Final = 2

PROGRAM: Final = "astrbot_tool_guard"


class UnusableInputError(Exception):
    """There is nothing to judge; the text says why, in one line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The command line without the program's name; `None` takes it
            from the process.

    Returns:
        The exit code: 0 fine, 1 something is wrong with the data, 2 unusable input.

    Raises:
        SystemExit: The command line itself cannot be understood (2), or asks
            for help (0).
    """
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except UnusableInputError as error:
        _complain(str(error))
    except RecursionError:
        _complain("the input is nested too deeply")
    return UNUSABLE


# Commands


def _check(options: argparse.Namespace) -> int:
    from .core.messages.pairing import find_violations

    violations = find_violations(_messages(options.file))
    if options.json:
        _print_json({"valid": not violations, "violations": [v.to_dict() for v in violations]})
    else:
        for violation in violations:
            print(f"{violation.where()}: {violation.detail}")
        print(count(len(violations), "violation") if violations else "valid")
    return WRONG if violations else FINE


def _repair(options: argparse.Namespace) -> int:
    from .core.messages.pairing import find_violations
    from .core.messages.repair import repair_messages

    repair = repair_messages(_messages(options.file))
    left = find_violations(repair.messages)
    if options.json:
        _print_json(
            {
                "valid": not left,
                "messages": repair.messages,
                "changes": [change.to_dict() for change in repair.changes],
            }
        )
    else:
        for change in repair.changes:
            at = "" if change.message_index is None else f" at message {change.message_index}"
            print(f"{change.action}{at}: {change.detail}")
        if left:
            print(f"cannot be repaired: {left[0].detail}")
        elif repair.changes:
            changes = count(len(repair.changes), "change")
            print(f"valid after {changes}; --json prints the mended list")
        else:
            print("valid, nothing to change")
    return WRONG if left else FINE


def _assemble(options: argparse.Namespace) -> int:
    from .core.calls.answers import assemble

    document = _read_json(options.file)
    if not isinstance(document, dict):
        raise UnusableInputError(
            f"{_name(options.file)}: expected an object with chunks or completion"
        )
    source = _source(options.file, document)
    tools = document.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise UnusableInputError(f"{_name(options.file)}: tools is not a list")
    assembled = assemble(
        **source, tools=tools, validation=options.validation, normalize=options.normalize
    )
    answer = assembled.to_dict()
    if options.json:
        _print_json(answer)
    else:
        _print_answer(answer)
    return FINE if assembled.ok else WRONG


def _doctor(options: argparse.Namespace) -> int:
    from .cli.doctor import run_doctor
    from .doctor.database import DatabaseError

    try:
        is_fine = run_doctor(
            Path(options.database),
            session=options.session,
            advisories=options.advisories,
            apply=options.apply is not None,
            plan=options.apply or None,
            as_json=options.json,
        )
    except DatabaseError as error:
        raise UnusableInputError(str(error)) from None
    return FINE if is_fine else WRONG


def _source(file: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stream or the completion of an `assemble` input."""
    sources = ("chunks", "completion")
    given = {key: document[key] for key in sources if document.get(key) is not None}
    if len(given) != 1:
        reason = "holds both chunks and completion" if given else "holds no chunks, no completion"
        raise UnusableInputError(f"{_name(file)}: {reason}")
    for key, kind, kind_name in (("chunks", list, "a list"), ("completion", dict, "an object")):
        if key in given and not isinstance(given[key], kind):
            raise UnusableInputError(f"{_name(file)}: {key} is not {kind_name}")
    return given


def _print_answer(answer: Mapping[str, Any]) -> None:
    for call in answer["calls"]:
        problems = [f"{problem['kind']}: {problem['detail']}" for problem in call["problems"]]
        verdict = "valid" if call["valid"] else "invalid"
        print(shown("; ".join([f"{call['name']}: {verdict}", *problems])))
    if answer["dropped"]:
        print(f"{count(len(answer['dropped']), 'call')} dropped")
    if answer["error"]:
        print(shown(f"error: {answer['error']}"))
    print(shown(f"{count(len(answer['calls']), 'call')}, finish_reason {answer['finish_reason']}"))


# Input and output


def _messages(file: str) -> object:
    """Return the effective messages of an input of `check` or `repair`."""
    from .core.messages.pairing import effective_messages

    document = _read_json(file)
    if isinstance(document, list):
        return document
    extra_body = document.get("extra_body") if isinstance(document, dict) else None
    if isinstance(document, dict) and (
        "messages" in document or (isinstance(extra_body, dict) and "messages" in extra_body)
    ):
        return effective_messages(document)
    raise UnusableInputError(
        f"{_name(file)}: expected a list of messages, or an object with messages"
    )


def _read_json(file: str) -> Any:
    """Read a whole file, `-` for standard input, as strict JSON."""
    try:
        if file == "-":
            stdin: TextIO | None = sys.stdin  # none where it was closed
            if stdin is None:
                raise UnusableInputError("standard input is closed")
            data = stdin.buffer.read()
        else:
            with open(file, "rb") as stream:
                data = stream.read()
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnusableInputError(f"{_name(file)}: not UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UnusableInputError(f"{_name(file)}: {reason}") from None
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite, parse_int=_int)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno} column {error.colno}"
        raise UnusableInputError(f"{_name(file)}: not JSON at {at}") from None
    except RecursionError:
        raise UnusableInputError(f"{_name(file)}: nested too deeply") from None
    except ValueError as error:
        raise UnusableInputError(f"{_name(file)}: not JSON: {error}") from None


def _int(literal: str) -> int:
    try:
        return int(literal)
    except ValueError:  # Python's own limit of digits, and its own words for that
        raise ValueError("a number has too many digits") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON value")


def _finite(literal: str) -> float:
    value = float(literal)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is out of range")
    return value


def _name(file: str) -> str:
    return "standard input" if file == "-" else shown(file)


def _print_json(value: object) -> None:
    # ASCII only: the output survives any console encoding, and lone surrogates too.
    print(json.dumps(value))


def _complain(reason: str) -> None:
    print(f"{PROGRAM}: {reason}", file=sys.stderr)


# The command line


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say in one line what is wrong with the command line."""
        self.exit(UNUSABLE, f"{self.prog}: {' '.join(message.split())} (--help shows how)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=PROGRAM, description="Check, repair and assemble tool calls.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Any, summary: str, file_help: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=summary, description=summary)
        added.set_defaults(run=run)
        added.add_argument("file", metavar="FILE", help=file_help)
        added.add_argument("--json", action="store_true", help="print one JSON object")
        return added

    lists = "JSON: a list of messages, or an object with messages and extra_body; - reads stdin"
    command("check", _check, "Find tool calls and tool results that do not pair.", lists)
    command("repair", _repair, "Pair tool calls and tool results without losing a word.", lists)
    assembling = command(
        "assemble",
        _assemble,
        "Put the tool calls of an answer together and check them.",
        "JSON: an object with chunks or completion, and tools; - reads stdin",
    )
    assembling.add_argument(
        "--validation",
        choices=("structural", "strict", "off"),
        default="structural",
        help="how far arguments are checked (default: %(default)s)",
    )
    assembling.add_argument(
        "--normalize", action="store_true", help="accept loss-free readings of malformed arguments"
    )
    doctor = commands.add_parser(
        "doctor",
        help="Find and mend broken conversations in the database of a stopped AstrBot.",
        description="Find broken conversations in the database of a stopped AstrBot. Nothing is "
        "changed without --apply, which writes a backup next to the database first.",
    )
    doctor.set_defaults(run=_doctor)
    doctor.add_argument("database", metavar="DB", help="AstrBot's data/data_v4.db")
    doctor.add_argument("--session", metavar="S", help="only this unified_msg_origin")
    doctor.add_argument(
        "--apply",
        nargs="?",
        const="",
        metavar="PLAN",
        help="mend what is broken; with the id of a plan, only if it still is what would be done",
    )
    doctor.add_argument(
        "--advisories",
        action="store_true",
        help="also mend what pairs but may be refused, such as malformed arguments",
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _run() -> int:
    """Run as a process, and end quietly when the reader of the output goes away."""
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison] -- closed by the shell
        print("astrbot_tool_guard: standard output is closed", file=sys.stderr)
        return UNUSABLE
    with suppress(AttributeError):
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return WRONG
    except OSError as error:
        # Standard output itself: what is wrong with a file is told where it is read.
        print(f"astrbot_tool_guard: cannot write: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return UNUSABLE
    except KeyboardInterrupt:
        return 130
    return code


if __name__ == "__main__":
    sys.exit(_run())
