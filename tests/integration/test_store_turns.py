"""Several writers on one SQLite file: each gets its turn (fault row 7)."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from flowmark_otel.backend.store import open_store
from flowmark_otel.backend.store.sqlite.turn import turn
from flowmark_otel.errors import Unavailable
from tests.support.envelopes import WAIT, put, started
from tests.support.fleet import until


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


GREEDY = """
import sqlite3, sys
from pathlib import Path
from flowmark_otel.backend.store.sqlite.turn import turn

path = Path(sys.argv[1])
connection = sqlite3.connect(path, isolation_level=None)
while True:
    with turn(path, 30):
        connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO written VALUES ('greedy')")
    connection.execute("COMMIT")
"""


def test_whoever_waits_is_next(tmp_path: Path) -> None:
    """Fault row 7: beside processes that write without a pause, one has only to wait its turn.

    Once it has the waiting place at most the transaction in hand comes before its own.
    """
    path = tmp_path / "s.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE written (who)")

        def count() -> int:
            [found] = connection.execute("SELECT count(*) FROM written").fetchone()
            return int(found)

        greedy = [subprocess.Popen([sys.executable, "-c", GREEDY, path]) for _ in range(2)]
        try:
            until(count)
            came_before = []
            for _ in range(50):
                with turn(path, WAIT):
                    before = count()
                    connection.execute("BEGIN IMMEDIATE")
                came_before.append(count() - before)
                connection.execute("INSERT INTO written VALUES ('modest')")
                connection.execute("COMMIT")
        finally:
            for process in greedy:
                process.kill()
                process.wait()
    assert max(came_before) <= 1
    assert sum(came_before) > 0  # they were at it
