"""The store when it cannot write (fault rows 4, 5, 7, 25 and 26)."""

from __future__ import annotations

import resource
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection

from flowmark_otel.backend.store import Store, database_of, open_store, schema
from flowmark_otel.clock import SystemClock
from flowmark_otel.errors import Unavailable
from flowmark_otel.model import Envelope
from tests.support.envelopes import WAIT, batch, put, rows, started


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """An empty store."""
    opened = open_store(f"sqlite:///{path}")
    yield opened
    opened.close()


def many(first: int, count: int = 2000) -> list[Envelope]:
    """Events that need some space."""
    return [started(first + number, (f"g{number}", 1)) for number in range(count)]


def pragma(store: Store, setting: str) -> None:
    """Change a setting of the connection that writes."""
    store.write(lambda c: c.exec_driver_sql(f"PRAGMA {setting}").close()).result(WAIT)


@contextmanager
def held(store: Store) -> Iterator[None]:
    """The writer busy with a job until the block ends."""
    entered, leave = threading.Event(), threading.Event()

    def job(_: Connection) -> None:
        entered.set()
        assert leave.wait(WAIT)

    done = store.write(job)
    assert entered.wait(WAIT)
    try:
        yield
    finally:
        leave.set()
        done.result(WAIT)


def test_a_full_disk_is_unavailable_and_recovers(store: Store) -> None:
    """Fault row 4: no space is 503, nothing of it is stored, reading goes on, space heals it."""
    put(store, started(1, ("g", 1)))

    def limit(pages: int) -> None:
        pragma(store, f"max_page_count = {pages}")

    limit(1)  # no more than there are
    with pytest.raises(Unavailable, match="full") as raised:
        put(store, *many(1000))
    assert raised.value.retry_after == 1
    assert isinstance(raised.value.__cause__, sqlite3.OperationalError)
    assert len(rows(store, schema.events)) == 1
    limit(1_000_000)
    assert put(store, *many(1000)).stored == 2000


def test_an_io_error_is_never_acknowledged(store: Store, path: Path) -> None:
    """Fault row 5: a failed write is 503; the file is opened anew and the store goes on."""
    put(store, started(1, ("g", 1)))
    log = path.with_name(path.name + "-wal")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 8192, hard))
    try:
        for _ in range(2):
            with pytest.raises(Unavailable, match="cannot write"):
                put(store, *many(1000))
        assert len(rows(store, schema.events)) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert put(store, *many(1000)).stored == 2000
    assert len(rows(store, schema.events)) == 2001


def test_a_locked_store_is_unavailable_after_a_bounded_wait(store: Store, path: Path) -> None:
    """Fault row 7: a writer that finds the file locked waits a while, then says so."""
    pragma(store, "busy_timeout = 20")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked"):
        put(store, started(1))
    other.execute("ROLLBACK")
    other.close()
    assert put(store, started(1)).stored == 1


def test_too_much_waiting_is_turned_away(path: Path) -> None:
    """Fault row 25: the queue is bounded; over it a request is 503 at once, the others go on."""
    open_store(f"sqlite:///{path}").close()
    store = Store(database_of(f"sqlite:///{path}"), SystemClock(), max_waiting=4096)
    with held(store):
        waiting = [store.submit(batch([started(number)])) for number in range(1, 5)]
        with pytest.raises(Unavailable, match="wait"):
            store.submit(batch(many(1000, 20)))
    assert [each.result(WAIT).stored for each in waiting] == [1, 1, 1, 1]
    assert put(store, *many(1000, 20)).stored == 20
    store.close()


def test_what_nobody_waits_for_is_not_written(store: Store) -> None:
    """Fault row 10: a request given up before its turn leaves nothing behind."""
    with held(store):
        given_up, kept = (store.submit(batch([started(number)])) for number in (1, 2))
        assert given_up.cancel()
    assert kept.result(WAIT).stored == 1
    assert [each["span_id"][-1] for each in rows(store, schema.events)] == [2]


def test_a_request_that_cannot_be_written_harms_no_other(store: Store) -> None:
    """Section 4: neighbours in one transaction do not share the fate of a poisoned request."""
    poison = started(2)._replace(dropped_attributes_count=2**70)
    with held(store):
        futures = [store.submit(batch([each])) for each in (started(1), poison, started(3))]
    assert futures[0].result(WAIT).stored == 1
    with pytest.raises(OverflowError):
        futures[1].result(WAIT)
    assert futures[2].result(WAIT).stored == 1


def test_closing_writes_what_waits(path: Path) -> None:
    """Fault row 26: close drains, then refuses; what was acknowledged is there afterwards."""
    store = open_store(f"sqlite:///{path}")
    closing = threading.Thread(target=store.close)
    with held(store):
        waiting = [store.submit(batch([started(number)])) for number in range(1, 5)]
        closing.start()
        while not store._writer._closing:
            closing.join(0.001)
    closing.join(WAIT)
    assert [each.result(0).stored for each in waiting] == [1, 1, 1, 1]
    with pytest.raises(Unavailable, match="closed"):
        put(store, started(9))
    store.close()
    again = open_store(f"sqlite:///{path}")
    assert len(rows(again, schema.events)) == 4
    again.close()
