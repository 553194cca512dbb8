"""Several writers on one SQLite file: each gets its turn (fault row 7)."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from flowmark_otel.backend.store import open_store
from flowmark_otel.backend.store.sqlite.turn import turn
from flowmark_otel.errors import Unavailable
from tests.support.envelopes import WAIT, put, started


@contextmanager
def waiting_place(store: Path) -> Iterator[None]:
    """Somebody else waits for the store's lock and never gets it."""
    file = os.open(f"{store}-turn", os.O_RDWR)
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(file)


def test_the_wait_for_a_turn_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault row 7: a process that stopped in the queue is 503 for the others, and no more."""
    monkeypatch.setattr("flowmark_otel.backend.store.sqlite.database._BUSY_SECONDS", 0.02)
    path = tmp_path / "s.db"
    store = open_store(f"sqlite:///{path}")
    with waiting_place(path), pytest.raises(Unavailable, match="locked"):
        put(store, started(1))
    assert put(store, started(1)).stored == 1
    store.close()


def test_a_busy_writer_leaves_the_others_their_turn(tmp_path: Path) -> None:
    """Fault row 7: beside one that writes without a pause another gets in again and again."""
    path = tmp_path / "s.db"
    enough = threading.Event()
    greedy, modest = 0, 0

    def transaction(connection: sqlite3.Connection) -> None:
        with turn(path, WAIT):
            connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO written VALUES (1)")
        connection.execute("COMMIT")

    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE written (value)")

    def hurry() -> None:
        nonlocal greedy
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            while not enough.is_set():
                transaction(connection)
                greedy += 1

    thread = threading.Thread(target=hurry)
    thread.start()
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            while modest < 50:
                transaction(connection)
                modest += 1
    finally:
        enough.set()
        thread.join(WAIT)
    with closing(sqlite3.connect(path)) as connection:
        [found] = connection.execute("SELECT count(*) FROM written").fetchone()
    assert found == greedy + modest
    assert greedy < 100 * modest
