"""`python -m astrbot_tool_guard`: its exit codes, its JSON, and what it says when it can't."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from astrbot_tool_guard.__main__ import main
from astrbot_tool_guard.core.messages.matching import NEUTRAL_RESULT
from tests.conftest import cases
from tests.core.messages.histories import declares, result, user

ROOT = Path(__file__).parents[2]

Write = Callable[[object], str]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a value as a JSON file, or bytes as they are, and return its name."""

    def write_file(value: object) -> str:
        path = tmp_path / "input.json"
        path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
        return str(path)

    return write_file


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process and return its exit code, output and complaints."""

    def run_command(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        output, complaints = capsys.readouterr()
        return code, output, complaints

    return run_command


def run_process(
    *arguments: str, stdin: bytes = b"", **env: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "astrbot_tool_guard", *arguments],
        input=stdin,
        capture_output=True,
        cwd=ROOT,
        check=False,
        env={**os.environ, **env},
    )


@pytest.mark.parametrize("case", cases("req-"))
class TestCorpus:
    def test_check_in_process(self, case: dict[str, Any], write: Write, run: Run) -> None:
        code, output, complaints = run("check", write(case["input"]), "--json")

        self.assert_as_expected(case, code, output, complaints)

    def test_check_as_a_process(self, case: dict[str, Any]) -> None:
        done = run_process("check", "-", "--json", stdin=json.dumps(case["input"]).encode())

        self.assert_as_expected(case, done.returncode, done.stdout.decode(), done.stderr.decode())

    def test_repair_mends_what_check_refuses(
        self, case: dict[str, Any], write: Write, run: Run
    ) -> None:
        code, output, _ = run("repair", write(case["input"]), "--json")
        repaired = json.loads(output)

        assert code == 0
        assert repaired["valid"] is True
        assert bool(repaired["changes"]) is not case["expect"]["valid"]
        assert run("check", write(repaired["messages"]))[:2] == (0, "valid\n")

    @staticmethod
    def assert_as_expected(case: dict[str, Any], code: int, output: str, complaints: str) -> None:
        report = json.loads(output)
        keys = ("rule", "message_index", "call_index")

        assert complaints == ""
        assert code == (0 if case["expect"]["valid"] else 1)
        assert report["valid"] is case["expect"]["valid"]
        assert [{key: found[key] for key in keys} for found in report["violations"]] == (
            case["expect"]["violations"]
        )


@pytest.mark.parametrize("case", [*cases("str-"), *cases("rsp-"), *cases("sch-")])
@pytest.mark.parametrize("validation", ["structural", "strict"])
def test_assemble_gives_the_calls_of_the_corpus(
    case: dict[str, Any], validation: str, write: Write, run: Run
) -> None:
    code, output, _ = run("assemble", write(case["input"]), "--json", "--validation", validation)
    calls = json.loads(output)["calls"]
    expected = case["expect"]["calls"]

    def verdict(value: Any) -> Any:
        return value[validation] if isinstance(value, dict) else value

    assert [call["name"] for call in calls] == [call["name"] for call in expected]
    assert [call["arguments"] for call in calls] == [call["arguments"] for call in expected]
    for call, wanted in zip(calls, expected, strict=True):
        # null: either verdict is right, as long as there is one.
        assert verdict(wanted["valid"]) in (call["valid"], None)
    assert code == (0 if all(call["valid"] for call in calls) else 1)


class TestCheck:
    def test_prints_one_line_for_each_violation(self, write: Write, run: Run) -> None:
        broken = [declares("a", ""), user("hi"), result("b")]

        assert run("check", write(broken)) == (
            1,
            "unanswered_call at message 0, call 0: "
            "no tool message answers this call before the next other message\n"
            "missing_call_id at message 0, call 1: the call has no id\n"
            "orphan_result at message 2: no call with this id is open here\n"
            "3 violations\n",
            "",
        )

    def test_json_holds_every_field_of_a_violation(self, write: Write, run: Run) -> None:
        code, output, _ = run("check", write([declares("a")]), "--json")

        assert code == 1
        assert json.loads(output) == {
            "valid": False,
            "violations": [
                {
                    "rule": "unanswered_call",
                    "message_index": 0,
                    "call_index": 0,
                    "tool_call_id": "a",
                    "detail": "no tool message answers this call before the next other message",
                }
            ],
        }

    @pytest.mark.parametrize(
        ("request_body", "code"),
        [
            ([], 0),
            ({"messages": [user("hi")]}, 0),
            ({"messages": [result("a")]}, 1),
            ({"messages": [result("a")], "extra_body": {"messages": [user("hi")]}}, 0),
            ({"messages": [user("hi")], "extra_body": {"messages": None}}, 1),
            ({"messages": [user("hi")], "extra_body": {"messages": "text"}}, 1),
            ({"messages": [user("hi")], "extra_body": None}, 0),
            ({"messages": [user("hi")], "extra_body": {"temperature": 1}}, 0),
            ({"extra_body": {"messages": [user("hi")]}}, 0),
            ({"messages": None}, 1),
        ],
    )
    def test_judges_the_effective_list(
        self, request_body: object, code: int, write: Write, run: Run
    ) -> None:
        assert run("check", write(request_body))[0] == code

    def test_reads_standard_input(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        data = io.BytesIO(json.dumps([declares("a")]).encode())
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(data))

        assert run("check", "-")[0] == 1

    def test_takes_a_byte_order_mark(self, write: Write, run: Run) -> None:
        assert run("check", write(b"\xef\xbb\xbf[]")) == (0, "valid\n", "")

    def test_output_survives_any_console(self, write: Write) -> None:
        messages = [{"role": "user", "content": "\ud800 \U0001f600 天气"}, result("天")]

        done = run_process("repair", write(messages), "--json", PYTHONIOENCODING="ascii")

        assert done.returncode == 0
        assert json.loads(done.stdout)["messages"] == messages[:1]


class TestRepair:
    def test_prints_what_it_did(self, write: Write, run: Run) -> None:
        assert run("repair", write([declares("a"), user("hi"), result("b")])) == (
            0,
            "result_added at message 0: call 0 has no recorded result\n"
            "result_dropped at message 2: no call is left that it answers\n"
            "valid after 2 changes; --json prints the mended list\n",
            "",
        )

    def test_prints_that_there_was_nothing_to_do(self, write: Write, run: Run) -> None:
        assert run("repair", write([user("hi")])) == (0, "valid, nothing to change\n", "")

    def test_json_holds_the_mended_list_and_the_changes(self, write: Write, run: Run) -> None:
        code, output, _ = run("repair", write([declares("a")]), "--json")

        assert code == 0
        assert json.loads(output) == {
            "valid": True,
            "messages": [declares("a"), result("a", NEUTRAL_RESULT)],
            "changes": [
                {
                    "action": "result_added",
                    "message_index": 0,
                    "detail": "call 0 has no recorded result",
                }
            ],
        }

    def test_mends_the_effective_list(self, write: Write, run: Run) -> None:
        body = {"messages": [result("x")], "extra_body": {"messages": [user("hi"), result("a")]}}

        _, output, _ = run("repair", write(body), "--json")

        assert json.loads(output)["messages"] == [user("hi")]

    def test_what_is_no_list_stays_as_it_is(self, write: Write, run: Run) -> None:
        file = write({"messages": "text"})

        code, output, _ = run("repair", file, "--json")

        assert code == 1
        assert json.loads(output) == {"valid": False, "messages": "text", "changes": []}
        assert run("repair", file) == (
            1,
            "cannot be repaired: the messages are a string, not a list\n",
            "",
        )


class TestAssemble:
    TOOLS = (
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "parameters": {"type": "object", "required": ["city"]},
            },
        },
    )

    def answer(self, arguments: str, name: str = "get_weather") -> dict[str, Any]:
        function = {"name": name, "arguments": arguments}
        call = {"id": "call_a1", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choices = [{"index": 0, "finish_reason": "tool_calls", "message": message}]
        return {"completion": {"choices": choices}, "tools": self.TOOLS}

    def test_prints_one_line_for_each_call(self, write: Write, run: Run) -> None:
        assert run("assemble", write(self.answer('{"city": "Oslo"}'))) == (
            0,
            "get_weather: valid\n1 call, finish_reason tool_calls\n",
            "",
        )

    def test_an_invalid_call_is_wrong_data(self, write: Write, run: Run) -> None:
        code, output, _ = run("assemble", write(self.answer("{}")))

        assert code == 1
        assert output.startswith("get_weather: invalid; missing_required: ")

    def test_a_stream_that_ended_in_an_error_is_wrong_data(self, write: Write, run: Run) -> None:
        stream = {"chunks": [{"error": {"message": "overloaded"}}], "tools": []}

        code, output, _ = run("assemble", write(stream), "--json")

        assert code == 1
        assert json.loads(output)["error"]

    @pytest.mark.parametrize(
        ("options", "code"), [([], 1), (["--validation", "off"], 0), (["--normalize"], 1)]
    )
    def test_validation_can_be_switched(
        self, options: list[str], code: int, write: Write, run: Run
    ) -> None:
        assert run("assemble", write(self.answer("{}")), *options)[0] == code

    def test_loss_free_readings_are_accepted_on_request(self, write: Write, run: Run) -> None:
        fenced = write(self.answer('```json\n{"city": "Oslo"}\n```'))

        assert run("assemble", fenced)[0] == 1
        assert run("assemble", fenced, "--normalize")[0] == 0

    def test_names_from_outside_cannot_drive_the_terminal(self, write: Write, run: Run) -> None:
        _, output, _ = run("assemble", write(self.answer("{}", name="\x1b[31m\nred")))

        assert output.splitlines()[0] == "\\x1b[31m\\nred: valid"


UNUSABLE: list[tuple[str, str, object, str]] = [
    ("empty", "check", b"", "not JSON at line 1 column 1"),
    ("not JSON", "check", b"[1,\n oops]", "not JSON at line 2 column 2"),
    ("two documents", "check", b"[] []", "not JSON at line 1 column 4"),
    ("NaN", "check", b"[NaN]", "not JSON: NaN is no JSON value"),
    ("infinity", "repair", b"[-Infinity]", "not JSON: -Infinity is no JSON value"),
    ("beyond a double", "repair", b"[1e999]", "not JSON: a number is out of range"),
    ("Latin-1", "check", b'["\xe9"]', "not UTF-8 text"),
    ("UTF-16", "check", '["hi"]'.encode("utf-16"), "not UTF-8 text"),
    ("too deep", "check", b"[" * 200_000, "nested too deeply"),
    ("a scalar", "check", 7, "expected a list of messages, or an object with messages"),
    ("text", "check", "[]", "expected a list of messages, or an object with messages"),
    ("null", "repair", None, "expected a list of messages, or an object with messages"),
    ("no messages", "check", {}, "expected a list of messages, or an object with messages"),
    (
        "no messages in the extra body either",
        "check",
        {"extra_body": {"temperature": 1}},
        "expected a list of messages, or an object with messages",
    ),
    ("a list", "assemble", [], "expected an object with chunks or completion"),
    ("no answer", "assemble", {"tools": []}, "holds no chunks, no completion"),
    ("null answers", "assemble", {"chunks": None}, "holds no chunks, no completion"),
    (
        "two answers",
        "assemble",
        {"chunks": [], "completion": {}},
        "holds both chunks and completion",
    ),
    ("chunks of another type", "assemble", {"chunks": {}}, "chunks is not a list"),
    ("a completion of another type", "assemble", {"completion": []}, "completion is not an object"),
    ("tools of another type", "assemble", {"chunks": [], "tools": {}}, "tools is not a list"),
]


class TestUnusableInput:
    @pytest.mark.parametrize(
        ("command", "content", "reason"),
        [pytest.param(*rest, id=name) for name, *rest in UNUSABLE],
    )
    @pytest.mark.parametrize("options", [[], ["--json"]])
    def test_is_one_line_on_stderr(
        self,
        command: str,
        content: object,
        reason: str,
        options: list[str],
        write: Write,
        run: Run,
    ) -> None:
        file = write(content)

        assert run(command, file, *options) == (2, "", f"astrbot_tool_guard: {file}: {reason}\n")

    def test_closed_standard_input(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", None)
        code, output, complaint = run("check", "-", "--json")
        assert (code, output) == (2, "")
        assert complaint.count("\n") == 1
        assert "standard input is closed" in complaint

    def test_a_number_python_would_not_read(self, write: Write, run: Run) -> None:
        code, output, complaint = run("check", write(b"[" + b"9" * 5_000 + b"]"))
        assert (code, output) == (2, "")
        assert complaint.count("\n") == 1
        assert "too many digits" in complaint

    def test_a_missing_file(self, run: Run) -> None:
        assert run("check", "no/such\nfile") == (
            2,
            "",
            "astrbot_tool_guard: no/such\\nfile: No such file or directory\n",
        )

    def test_a_directory(self, tmp_path: Path, run: Run) -> None:
        code, output, complaints = run("check", str(tmp_path))

        assert (code, output) == (2, "")
        assert complaints.count("\n") == 1

    def test_a_name_no_file_can_have(self, run: Run) -> None:
        code, _, complaints = run("check", "a\0b")

        assert code == 2
        assert complaints.count("\n") == 1

    @pytest.mark.parametrize(
        "arguments",
        [
            [],
            ["chek", "x"],
            ["check"],
            ["check", "x", "--jsn"],
            ["assemble", "x", "--validation", "no"],
        ],
    )
    def test_a_command_line_that_means_nothing(
        self, arguments: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        output, complaints = capsys.readouterr()

        assert ended.value.code == 2
        assert output == ""
        assert complaints.count("\n") == 1

    def test_help_is_no_complaint(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["--help"])

        assert ended.value.code == 0
        assert "assemble" in capsys.readouterr().out


class TestLightness:
    HEAVY = ("astrbot", "openai", "wrapt", "pydantic", "jsonschema", "sqlite3", "asyncio")

    def loaded_by(self, script: str) -> set[str]:
        """Run `script` in a fresh interpreter and return which heavy modules it loaded."""
        done = subprocess.run(
            [sys.executable, "-c", f"{script}\nimport sys\nprint(*sys.modules)"],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        return set(done.stdout.split()) & {*self.HEAVY, "argparse", "dataclasses"}

    def test_importing_the_package_loads_nothing(self) -> None:
        assert self.loaded_by("import astrbot_tool_guard") == set()

    def test_using_the_pure_names_loads_nothing_heavy(self) -> None:
        script = "from astrbot_tool_guard import find_violations, repair_messages, Repair, Settings"

        assert not self.loaded_by(script) & set(self.HEAVY)

    def test_commands_load_nothing_heavy(self, write: Write) -> None:
        script = f"from astrbot_tool_guard.__main__ import main; main(['repair', {write([])!r}])"

        assert not self.loaded_by(script) & set(self.HEAVY)

    def test_a_reader_that_goes_away_is_no_error(self, write: Write) -> None:
        messages = [user("x" * 1000)] * 1000
        process = subprocess.Popen(
            [sys.executable, "-m", "astrbot_tool_guard", "repair", write(messages), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()

        assert process.stderr.read() == b""
        process.stderr.close()
        process.wait()


class TestPublicNames:
    def test_unknown_names_are_no_attributes(self) -> None:
        import astrbot_tool_guard

        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            _ = astrbot_tool_guard.nothing  # type: ignore[attr-defined]

    def test_every_public_name_is_where_it_is_said_to_be(self) -> None:
        import astrbot_tool_guard

        assert set(astrbot_tool_guard.__all__) <= set(dir(astrbot_tool_guard))
        for name in astrbot_tool_guard.__all__:
            assert getattr(astrbot_tool_guard, name).__name__ == name
