"""The spool under the client's delivery, against the real backend (E1, A22; I1, I4)."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from flowmark_otel import names
from flowmark_otel.deliver.spool import codec
from tests.support.delivering import Under, attempts, delivering, ids
from tests.support.server import Running, options, running
from tests.support.spooling import killed_after, segments

WAITS = 1500
WAIT_S = 0.02


def reach(delivery: Under, settled: int) -> None:
    """Wait until so many events are in the counts: those of dead processes enter as they go."""
    for _ in range(WAITS):
        if sum(delivery.counts().values()) >= settled:
            return
        threading.Event().wait(WAIT_S)
    msg = f"not {settled} settled: {delivery.counts()}"
    raise AssertionError(msg)


def spooled(backend: Running, path: Path) -> AbstractContextManager[Under]:
    """A delivery with a spool."""
    return delivering(f"http://{backend.http}", api_key=backend.ingest_key, spool_dir=path)


def stored(path: Path) -> int:
    """How many events the store holds."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        return int(connection.execute("select count(*) from events").fetchone()[0])


@pytest.mark.timeout(120)
def test_a_killed_process_is_delivered_by_the_next(tmp_path: Path) -> None:
    """E1: what a process had recorded when it was killed is stored by the next one, once.

    The counts of that one add up to its own events and those it delivered for others (I4).
    """
    path = tmp_path / "spool"
    recorded = killed_after(path, "record_attempts", 1, 300)
    recorded += killed_after(path, "record_attempts", 1_000_000, 200)
    with running(options(tmp_path / "s.db")) as backend, spooled(backend, path) as next_:
        next_.record(*attempts(5_000_000, 5_000_009))
        next_.flush(30)
        reach(next_, len(recorded) + 20)
        counts = next_.counts()
        assert set(counts) == {(names.STORED, "")}
        # A put that was under way at each kill may be on disk without having been said.
        found = sum(counts.values())
        assert len(recorded) + 20 <= found <= len(recorded) + 20 + 2
        assert next_.recorded() == found
        next_.shutdown(10)
    assert stored(tmp_path / "s.db") == found
    assert segments(path) == []


def test_what_others_left_makes_no_shutdown_raise(tmp_path: Path) -> None:
    """E1: inherited events that are not acknowledged are counted, and are no failure of ours."""
    path = tmp_path / "spool"
    recorded = killed_after(path, "record_attempts", 1, 40)
    served = options(tmp_path / "s.db", without=(names.CAPABILITY,))
    with running(served) as backend, spooled(backend, path) as next_:
        next_.shutdown(30)
        [(state, reason)] = next_.counts()
        assert (state, reason) == (names.UNACKNOWLEDGED, names.REASON_UNACKNOWLEDGED)
        assert next_.recorded() >= len(recorded)
    assert segments(path) == []


def test_what_a_server_does_not_acknowledge_waits_for_an_operator(tmp_path: Path) -> None:
    """A22: without a receipt attempts are unacknowledged, kept aside, and not sent again."""
    path = tmp_path / "spool"
    made = attempts(1, 3)
    served = options(tmp_path / "s.db", without=(names.CAPABILITY,))
    with running(served) as backend:
        with spooled(backend, path) as delivery:
            delivery.record(*made)
            error = delivery.lost()
            assert {state for state, _ in error.counts} == {names.UNACKNOWLEDGED}
            assert sum(error.counts.values()) == len(made)
        with spooled(backend, path) as after:
            after.record(*attempts(10, 10))
            after.lost()
            assert sum(after.counts().values()) == 2
    assert segments(path) == []
    kept = b"".join(each.read_bytes() for each in path.glob("quarantine/*.unacknowledged"))
    assert all(codec.encode_envelope(each) in kept for each in made)
    assert kept.count(b'"flowmark.operation.') >= len(ids(made))
