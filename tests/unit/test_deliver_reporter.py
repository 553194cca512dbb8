"""Diagnostics: each to the callback, causes once to the log, and nobody is harmed by either."""

from __future__ import annotations

import logging

import pytest

from flowmark_otel import names
from flowmark_otel.deliver.reporter import QUIET_SECONDS, Reporter
from flowmark_otel.model import Diagnostic


class Stopped:
    """A clock that others move."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now_ns(self) -> int:
        """Epoch nanoseconds."""
        return int(self.seconds * 1e9)

    def monotonic(self) -> float:
        """Seconds."""
        return self.seconds


def test_a_condition_is_reported_once_an_epoch(caplog: pytest.LogCaptureFixture) -> None:
    """A22: what is the matter is said once until it is over, and then again."""
    caplog.set_level(logging.INFO, "flowmark_otel")
    seen: list[Diagnostic] = []
    reporter = Reporter(Stopped(), seen.append)
    for _ in range(2):
        for number in range(5):
            reporter.condition(names.REASON_UNACKNOWLEDGED, f"no receipt, {number}")
        reporter.over(names.REASON_TIMEOUT, names.REASON_UNACKNOWLEDGED)
        reporter.drain()
    assert [each.code for each in seen] == ["unacknowledged", "resumed"] * 2
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"] * 2
    assert reporter.counts() == {"unacknowledged": 2, "resumed": 2}


def test_events_reach_the_callback_and_their_cause_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A22: each event that is refused is called back; the log has one line a cause and minute."""
    clock = Stopped()
    seen: list[Diagnostic] = []
    reporter = Reporter(clock, seen.append)
    for number in range(3):
        reporter.post(Diagnostic(names.CONFLICT, "differs\nand so on", f"op-{number}"))
    reporter.drain()
    clock.seconds += QUIET_SECONDS
    reporter.post(Diagnostic(names.CONFLICT, "differs", "op-9"))
    reporter.drain()
    assert [each.event_id for each in seen] == ["op-0", "op-1", "op-2", "op-9"]
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["conflict: differs?and so on (op-0)", "conflict: differs (op-9)"]
    first = caplog.records[0].__dict__
    assert first["flowmark_diagnostic_code"] == "conflict"
    assert first["flowmark_event_id"] == "op-0"


def test_a_callback_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """A22: an exception in the application's callback is caught, counted and logged once."""
    seen = []

    def callback(diagnostic: Diagnostic) -> None:
        seen.append(diagnostic)
        msg = "not mine"
        raise ValueError(msg)

    reporter = Reporter(Stopped(), callback)
    for number in range(3):
        reporter.post(Diagnostic(names.CONFLICT, "differs", f"op-{number}"))
    reporter.drain()
    assert len(seen) == 3
    assert reporter.counts()[names.DIAGNOSTIC_CALLBACK_FAILED] == 3
    assert sum(record.exc_info is not None for record in caplog.records) == 1


def test_more_than_can_wait_is_counted() -> None:
    """A22: diagnostics that nobody takes up fill no memory."""
    seen: list[Diagnostic] = []
    reporter = Reporter(Stopped(), seen.append)
    for _ in range(1500):
        reporter.post(Diagnostic(names.CONFLICT, "differs"))
    reporter.drain()
    assert len(seen) == 1000
    assert reporter.counts()[names.CONFLICT] == 1500
