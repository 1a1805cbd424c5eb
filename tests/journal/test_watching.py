"""The counts in memory and the lines in AstrBot's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import get_args

import pytest

from astrbot_tool_guard.journal import counts as tally
from astrbot_tool_guard.journal import eventlog
from astrbot_tool_guard.journal.counts import Counts
from astrbot_tool_guard.journal.eventlog import LINES_PER_WINDOW, WINDOW_SECONDS, EventLog
from astrbot_tool_guard.journal.events import IncidentKind

from .events import attempt, incident


class TestTally:
    def test_it_counts_attempts_by_outcome_and_incidents_by_kind(self):
        counted = Counts()
        for event in (attempt(), attempt(outcome="blocked"), attempt(), incident()):
            counted.observe(event)
        assert counted.counts() == {
            "requests": 3,
            "accepted": 2,
            "blocked": 1,
            "request_blocked": 1,
        }

    def test_it_remembers_the_last_block_of_each_session(self):
        counted = Counts()
        counted.observe(incident(at=1.0))
        counted.observe(incident(at=2.0))
        counted.observe(incident(at=3.0, kind="request_repaired"))
        counted.observe(incident(at=4.0, session="other"))
        assert counted.last_blocked("qq:FriendMessage:1") == incident(at=2.0)
        assert counted.last_blocked("nobody") is None

    def test_it_forgets_the_sessions_that_were_blocked_longest_ago(self, monkeypatch):
        monkeypatch.setattr(tally, "MAX_SESSIONS", 2)
        counted = Counts()
        for session in ("a", "b", "a", "c"):
            counted.observe(incident(session=session))
        assert counted.last_blocked("b") is None
        assert counted.last_blocked("a")
        assert counted.last_blocked("c")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture, clock: Clock) -> Iterator[EventLog]:
    caplog.set_level(logging.INFO, "test-events")
    # What an earlier test left behind may log at any time.
    with caplog.filtering(logging.Filter("test-events")):
        yield EventLog(logging.getLogger("test-events"), clock=clock)


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        ("request_blocked", "WARNING"),
        ("request_observed", "WARNING"),
        ("request_repaired", "INFO"),
        ("response_retried", "INFO"),
        ("response_degraded", "WARNING"),
        ("calls_dropped", "WARNING"),
        ("ids_repaired", "INFO"),
        ("guard_fault", "ERROR"),
    ],
)
def test_each_kind_is_one_line_of_its_level(log, caplog, kind, level):
    log.observe(incident(kind=kind))
    (record,) = caplog.records
    assert record.levelname == level
    assert "\n" not in record.getMessage()


def test_every_kind_has_a_line():
    assert set(eventlog._LINES) == set(get_args(IncidentKind))


def test_a_line_names_session_provider_tools_and_problems_and_nothing_else(log, caplog):
    log.observe(incident(tools=("get\nweather",), arguments=('{"note": "private"}',)))
    assert caplog.messages == [
        "Tool Call Guard: blocked a request; session qq:FriendMessage:1; provider src/model; "
        "tools get weather; orphan_result at message 3"
    ]


def test_many_problems_are_counted(log, caplog):
    log.observe(incident(problems=("x",) * 50))
    assert "x, x, x, x, x and 45 more" in caplog.text


def test_a_plain_attempt_is_no_line_at_the_usual_level(log, caplog):
    log.observe(attempt())
    assert caplog.messages == []
    caplog.set_level(logging.DEBUG, "test-events")
    log.observe(attempt(outcome="failed", reason="x"))
    assert "attempt 1 of qq:FriendMessage:1 to src/model (stream): failed, x" in caplog.text


def test_a_flood_is_cut_and_the_next_window_tells_how_much(log, caplog, clock):
    for _ in range(LINES_PER_WINDOW + 40):
        log.observe(incident())
    assert len(caplog.messages) == LINES_PER_WINDOW
    clock.now = WINDOW_SECONDS
    log.observe(incident())
    assert len(caplog.messages) == LINES_PER_WINDOW + 1
    assert caplog.messages[-1].endswith("40 such lines were left out before")
    log.observe(incident())
    assert "left out" not in caplog.messages[-1]


def test_another_session_and_another_kind_have_their_own_share(log, caplog):
    for _ in range(100):
        log.observe(incident())
    log.observe(incident(session="other"))
    log.observe(incident(kind="response_degraded"))
    assert len(caplog.messages) == LINES_PER_WINDOW + 2


def test_a_thousand_sessions_leave_bounded_state(log, monkeypatch):
    monkeypatch.setattr(eventlog, "MAX_SOURCES", 10)
    for number in range(1000):
        log.observe(incident(session=str(number)))
    assert len(log._rates) == 10
