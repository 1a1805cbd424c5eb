"""What a newcomer types: the demo keeps its promises, and the playground can be used."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from demo.report import columns, render
from demo.scene import (
    Played,
    Scenario,
    Seen,
    broken_promises,
    lines,
    nothing_sent,
    same_as_alone,
)
from tools.package import build

ROOT = Path(__file__).resolve().parents[2]

REFUSED = Seen(("main, key 1", "backup"), 2, (), "Error code: 400")
BLOCKED = Seen((), 0, (), "Nothing was sent; type /toolguard explain.")
ANSWERED = Seen(("main, key 1",), 0, ("get_time()",), "It is noon.")


async def unplayed(bot: object, session: str, streaming: bool) -> Seen:
    raise AssertionError("only the promise is tested")


def broken(promise: Any, alone: Seen, complete: Seen, streaming: Seen) -> list[str]:
    scenario = Scenario("title", unplayed, promise)
    guarded: Played = {"complete": complete, "streaming": streaming}
    return broken_promises(scenario, {"complete": alone, "streaming": alone}, guarded)


def test_a_block_that_is_kept_both_ways_breaks_no_promise() -> None:
    assert broken(nothing_sent("/toolguard"), REFUSED, BLOCKED, BLOCKED) == []


def test_a_request_that_was_sent_breaks_the_promise_of_a_block() -> None:
    (what,) = broken(nothing_sent("/toolguard"), REFUSED, BLOCKED, REFUSED)
    assert what.startswith("streaming: sent 2")


def test_a_user_who_is_not_told_breaks_the_promise_of_a_block() -> None:
    silent = replace(BLOCKED, user="")
    assert len(broken(nothing_sent("/toolguard"), REFUSED, silent, silent)) == 2


def test_a_change_of_what_was_right_breaks_a_promise() -> None:
    other_key = replace(ANSWERED, asked=("main, key 2",))
    assert broken(same_as_alone, ANSWERED, other_key, ANSWERED) == []
    assert len(broken(same_as_alone, ANSWERED, replace(ANSWERED, tools=()), ANSWERED)) == 1


def test_a_cell_tells_both_ways_only_where_they_differ() -> None:
    same: Played = {"complete": ANSWERED, "streaming": ANSWERED}
    assert lines(same)[0] == "sent: 1 request (main, key 1)"
    other: Played = {"complete": ANSWERED, "streaming": BLOCKED}
    assert lines(other)[0] == "complete sent: 1 request (main, key 1)"
    assert "streaming sent: nothing" in lines(other)


@pytest.mark.parametrize("width", [72, 110, 160])
def test_no_line_of_a_table_is_wider_than_the_terminal(width: int) -> None:
    facts = ["user: 请求没有发给模型：其中的工具调用和结果对不上" * 3, "sent: " + "x" * 300]
    table = render("Title", [("A title of several words", facts, facts)], width)
    assert max(columns(line) for line in table.splitlines()) <= width


def test_the_demo_keeps_its_promises() -> None:
    build()
    done = subprocess.run(
        [sys.executable, "-m", "demo"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every guarded row is as promised" in done.stdout
    assert "NOT AS PROMISED" not in done.stdout


class Chat:
    """A chat over the WebUI's HTTP interface."""

    def __init__(self, printed: str) -> None:
        told = {
            name: re.search(rf"{name}\s+(\S+)", printed) for name in ("WebUI", "user", "password")
        }
        url, user, password = (found[1] for found in told.values() if found)
        self.http = httpx.Client(base_url=url, timeout=60)
        login = self.http.post(
            "/api/v1/auth/login", json={"username": user, "password": password}
        ).json()
        self.http.headers["Authorization"] = f"Bearer {login['data']['token']}"
        self.session = self.http.get("/api/v1/chat/sessions/new").json()["data"]["session_id"]

    def say(self, text: str) -> str:
        message = [{"type": "plain", "text": text}]
        body = {"session_id": self.session, "message": message, "enable_streaming": True}
        events = self.http.post("/api/v1/chat", json=body).text
        parsed = [json.loads(line[5:]) for line in events.splitlines() if line.startswith("data:")]
        plain = [event["data"] for event in parsed if event.get("type") == "plain"]
        return "".join(plain)


def test_a_person_chats_breaks_the_history_reads_the_block_and_ends_it() -> None:
    build()
    command = [sys.executable, "-m", "demo.playground"]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE) as process:
        try:
            printed = read_until(process, "Ctrl-C")
            chat = Chat(printed)
            assert chat.say("hello") == "You said: hello"
            assert "Oslo: 12" in chat.say("weather in Oslo")
            assert "without a result" in chat.say("break")
            assert "Nothing was sent to the model" in chat.say("are you there?")
            assert "没有发给模型" in chat.say("你还在吗？")
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait() == 0
    with pytest.raises(httpx.ConnectError):
        chat.http.get("/")


def read_until(process: subprocess.Popen[str], mark: str) -> str:
    """Return what `process` printed up to the line that holds `mark`."""
    assert process.stdout
    printed = ""
    for line in process.stdout:
        printed += line
        if mark in line:
            return printed
    raise AssertionError(f"it ended early: {printed}")
