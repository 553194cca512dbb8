"""Readiness: one answer, found by a real write, said in the log once when it changes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from flowmark_otel.backend.store import Store, open_store, schema
from flowmark_otel.clock import SystemClock
from flowmark_otel.server.readiness import CALM_SECONDS, REMEMBERED_SECONDS, Readiness
from tests.support.envelopes import WAIT, rows


class _Clock(SystemClock):
    """A monotonic clock that a test moves; nothing else moves it."""

    def __init__(self) -> None:
        self.at = 1000.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.at


@pytest.fixture
def clock() -> _Clock:
    """Time as the test says."""
    return _Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "s.db"


@pytest.fixture
def store(path: Path, clock: _Clock) -> Iterator[Store]:
    """An empty store whose writer does not wait long."""
    opened = open_store(f"sqlite:///{path}", clock=clock)
    opened.write(lambda c: c.exec_driver_sql("PRAGMA busy_timeout = 20").close()).result(WAIT)
    yield opened
    opened.close()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The events logged so far."""
    return [record.message for record in caplog.records if record.name.endswith("readiness")]


async def test_asking_writes_and_asks_once_a_second(store: Store, clock: _Clock) -> None:
    """D5: ready means that a write was durable just now; a crowd that asks causes one."""

    def probed() -> list[str]:
        return [str(row["value"]) for row in rows(store, schema.meta) if row["name"] == "probed_at"]

    readiness = Readiness(store)
    assert probed() == []
    assert await asyncio.gather(*(readiness.reason() for _ in range(20))) == [""] * 20
    [first] = probed()
    assert await readiness.reason() == ""
    assert probed() == [first]
    clock.at += REMEMBERED_SECONDS
    assert await readiness.reason() == ""
    assert len(probed()) == 1
    assert probed() != [first]


async def test_what_is_wrong_is_said_once_until_it_is_over(
    path: Path, store: Store, clock: _Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault row 7: a store that flaps writes two lines in ten seconds, not one a request."""
    caplog.set_level("WARNING")
    readiness = Readiness(store)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert await readiness.reason() == "the store cannot be written"
        for _ in range(50):
            readiness.failed("the store cannot write: database is locked")
    clock.at += REMEMBERED_SECONDS
    assert await readiness.reason() == ""
    readiness.failed("again")
    readiness.succeeded()
    assert said(caplog) == ["store_unavailable"]
    clock.at += CALM_SECONDS
    readiness.succeeded()
    readiness.succeeded()
    assert said(caplog) == ["store_unavailable", "store_available"]


async def test_a_failed_request_makes_what_was_found_before_worthless(
    path: Path, store: Store, clock: _Clock
) -> None:
    """D5: after a failure readiness is asked of the store again, however fresh the answer was."""
    readiness = Readiness(store)
    assert await readiness.reason() == ""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert await readiness.reason() == ""
        readiness.failed("the store cannot write: database is locked")
        assert await readiness.reason() == "the store cannot be written"
    assert await readiness.reason() == "the store cannot be written"
    clock.at += REMEMBERED_SECONDS
    assert await readiness.reason() == ""


async def test_whoever_stops_is_not_ready(store: Store) -> None:
    """Fault row 26: a server that drains says so before it closes its doors."""
    readiness = Readiness(store)
    assert await readiness.reason() == ""
    readiness.drain()
    assert await readiness.reason() == "the server is stopping"
