"""Retention: what expires, what stays, and who does it (contract, section 5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from flowmark_otel import names
from flowmark_otel.backend import removal, retention
from flowmark_otel.backend.read import Reader
from flowmark_otel.backend.removal import Buried
from flowmark_otel.backend.retention import Retention, Sweeper
from flowmark_otel.backend.store import Store, open_store, schema
from flowmark_otel.model import Refused, Sender
from flowmark_otel.testing import FakeClock
from tests.support import envelopes
from tests.support.envelopes import WAIT, WORKFLOW, completed, put, rows, run_event, started
from tests.support.remains import held, usage

DAY = 86_400
RETAIN = 90 * DAY


@pytest.fixture
def clock() -> FakeClock:
    """The clock that the store and its retention go by."""
    return FakeClock()


@pytest.fixture
def store(store_url: str, clock: FakeClock) -> Iterator[Store]:
    """An empty store of each kind, with one project."""
    opened = open_store(store_url, clock=clock)
    project = schema.projects.insert().values(id=1, name="default", created_at=0)
    opened.write(lambda connection: connection.execute(project)).result(WAIT)
    yield opened
    opened.close()


def test_a_run_expires_as_a_whole_by_its_latest_arrival(store: Store, clock: FakeClock) -> None:
    """Contract, section 5: `--retain` goes by the latest arrival, not by when a run began.

    What arrived long ago for a run that something arrived for since stays with it.
    """
    put(store, started(1, ("g", 1), run="old"), started(2, ("g", 1), run="old"))
    put(store, started(3, run="living"))
    clock.advance(60 * DAY)
    put(store, completed(3, run="living"))
    kept = Retention(store, RETAIN)
    clock.advance(30 * DAY)
    assert kept.round() == Buried(0, 0)
    clock.advance(1)
    assert kept.round() == Buried(1, 1)
    assert held(store) == {"runs": 1, "events": 2, "occurrences": 1}
    assert [run.run_id for run in Reader(store).runs(1).items] == ["living"]
    assert usage(store) == (2, 0)


def test_an_expired_run_leaves_a_tombstone_for_as_long_again(
    store: Store, clock: FakeClock
) -> None:
    """A8, contract, section 5: late events are duplicates, counted expired; then they are new."""
    put(store, started(1, run="old"))
    clock.advance(RETAIN + 1)
    kept = Retention(store, RETAIN)
    kept.round()
    clock.advance(RETAIN - 1)
    kept.round()
    verdict = put(store, started(1, run="old"), completed(1, run="old"))
    assert (verdict.duplicate, verdict.expired) == (2, 2)
    clock.advance(1)
    kept.round()
    assert rows(store, schema.tombstones) == []
    assert put(store, started(1, run="old")).stored == 1


def test_without_retention_nothing_expires(store: Store, clock: FakeClock) -> None:
    """Contract, section 7: without `--retain` runs are kept for ever."""
    put(store, started(1))
    clock.advance(10_000 * DAY)
    assert Retention(store, None).round() == Buried(0, 0)
    assert held(store)["runs"] == 1


def test_what_arrives_during_a_round_saves_its_run(store: Store, clock: FakeClock) -> None:
    """Contract, section 5: between looking and burying a run may be sent for, and then it stays."""
    put(store, started(1, run="old"))
    clock.advance(RETAIN + 1)
    kept = Retention(store, RETAIN)
    looked = kept._old_runs

    def late(*given: object) -> object:
        found = looked(*given)  # type: ignore[arg-type]
        put(store, completed(1, run="old"))
        return found

    kept._old_runs = late  # type: ignore[assignment, method-assign]
    assert kept.round() == Buried(0, 0)
    assert held(store)["events"] == 2


def test_old_rejections_of_no_run_go_too(store: Store, clock: FakeClock) -> None:
    """Contract, section 5: what was refused and belongs to no run is kept no longer than a run.

    A rejection that a living run has stays with it.
    """
    put(store, Refused(names.INVALID, "bad", "op-x-start"), Refused(names.INVALID, "bad"))
    put(store, started(1, ("g", 1), run="living"), started(2, ("g", 1), run="living"))
    clock.advance(RETAIN + 1)
    put(store, completed(1, ("g", 1), run="living"))
    put(store, Refused(names.INVALID, "new", "op-y-start"))
    Retention(store, RETAIN).round()
    found = [(row["code"], row["event_id"][:4]) for row in rows(store, schema.rejections)]
    assert found == [(names.CONFLICT, "op-0"), (names.INVALID, "op-y")]


def test_senders_that_nothing_refers_to_go_too(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 4, long life: instances come and go; those of nothing that is kept are forgotten.

    A sender whose old events are kept with a living run stays, and so does one that goes on
    sending, though its id was remembered all the while.
    """

    def from_instance(name: str) -> None:
        monkeypatch.setattr(envelopes, "SENDER", Sender("ua/1", "crm", None, name))

    from_instance("gone")
    put(store, started(1, run="old"))
    from_instance("of-living")
    put(store, started(2, run="living"))
    from_instance("busy")
    put(store, started(3, run="first"))
    for day in range(100):
        clock.advance(DAY)
        put(store, started(100 + day, run=f"day-{day}"))
    from_instance("other")
    put(store, completed(2, run="living"))
    Retention(store, RETAIN).round()
    found = [row["service_instance_id"] for row in rows(store, schema.senders)]
    assert found == ["of-living", "busy", "other"]
    from_instance("gone")
    put(store, started(900, run="again"))
    [event] = [row for row in rows(store, schema.events) if row["span_id"][-2:] == b"\x03\x84"]
    names_of = {row["id"]: row["service_instance_id"] for row in rows(store, schema.senders)}
    assert names_of[event["sender"]] == "gone"


def test_names_that_are_used_no_more_make_room(store: Store, clock: FakeClock) -> None:
    """Issue 4, quotas: a name that was not seen for the time of retention counts no more."""
    put(store, started(1, operation="once", run="living"))
    put(store, started(2, operation="always", run="living"))
    for _ in range(100):
        clock.advance(DAY)
        put(store, started(1000 + clock.now_ns() // 10**9 % 10**6, operation="always", run="r"))
    put(store, completed(1, operation="once", run="living"))
    Retention(store, RETAIN).round()
    found = [row["operation"] for row in rows(store, schema.known_names)]
    assert found == ["", "always", "once"]
    clock.advance(RETAIN + 2 * DAY)
    put(store, started(5, operation="always", run="living"))
    Retention(store, RETAIN).round()
    assert [row["operation"] for row in rows(store, schema.known_names)] == ["", "always"]


def test_one_process_at_a_time(store: Store, clock: FakeClock, store_url: str) -> None:
    """Issue 4, long life: of several processes on one store one sweeps; its lease passes on.

    A process that was killed holds it no longer than two minutes, by a clock that was wrong too.
    """
    first = Retention(store, RETAIN)
    other_store = open_store(store_url, clock=clock)
    other = Retention(other_store, RETAIN)
    put(store, started(1, run="old"))
    first.round()
    clock.advance(RETAIN + 1)
    assert first.round() == Buried(1, 1)
    put(store, started(2, run="older"))
    clock.advance(RETAIN + 1)
    first.round()
    put(store, started(3, run="oldest"))
    clock.advance(RETAIN + 1)
    first._step(lambda _connection: None)
    assert other.round() == Buried(0, 0)
    clock.advance(121)
    assert other.round() == Buried(1, 1)
    assert first.round() == Buried(0, 0)
    other.release()
    assert first._step(lambda _connection: True)
    clock.set_wall(clock.now_ns() - RETAIN * 10**9)
    assert other._step(lambda _connection: True)
    other_store.close()


def test_a_round_leaves_the_writer_to_others_between_steps(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 4, long life: ingest waits for one small step at most, and a round can be stopped.

    What a round left undone the next one does.
    """
    monkeypatch.setattr(removal, "RUNS", 1)
    for number in range(4):
        put(store, started(number, run=f"run-{number}"))
    clock.advance(RETAIN + 1)
    stored: list[int] = []

    def pause() -> bool:
        number = 100 + len(stored)
        stored.append(put(store, started(number, run="new")).stored)
        return len(stored) < 4

    part = Retention(store, RETAIN, pause).round()
    assert 0 < part.runs < 4
    assert stored == [1] * 4
    rest = Retention(store, RETAIN)
    clock.advance(121)
    assert part.runs + rest.round().runs == 4
    assert held(store) == {"runs": 1, "events": 4, "occurrences": 4}


def test_deleted_space_is_used_again(tmp_path: Path, clock: FakeClock) -> None:
    """Issue 4, long life: the file of SQLite keeps its size, and as much again fits into it."""
    store = open_store(f"sqlite:///{tmp_path}/store.db", clock=clock)
    project = schema.projects.insert().values(id=1, name="default", created_at=0)
    store.write(lambda connection: connection.execute(project)).result(WAIT)

    def fill(day: int) -> None:
        for run in range(20):
            events = [
                started(day * 100_000 + run * 1000 + n, (f"g{n}", 1), run=f"{day}-{run}")
                for n in range(100)
            ]
            put(store, *events)

    def pages() -> int:
        with store.engine.connect() as connection:
            return int(connection.exec_driver_sql("PRAGMA page_count").scalar_one())

    fill(1)
    full = pages()
    for day in range(2, 5):
        clock.advance(RETAIN + 1)
        Retention(store, RETAIN).round()
        assert "events" not in held(store)
        fill(day)
    assert pages() < full * 1.15
    store.close()


def test_the_sweeper_outlives_a_round_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault row 7: what cannot be done now is logged, and done by the next round."""
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    seen: list[int] = []
    rounds = Retention.round

    def failing(self: Retention) -> Buried:
        seen.append(1)
        if len(seen) == 1:
            raise RuntimeError
        found = rounds(self)
        sweeper._stopping.set()
        return found

    monkeypatch.setattr(Retention, "round", failing)
    sweeper = Sweeper(store, 1)
    sweeper._thread.join(WAIT)
    assert len(seen) == 2
    assert "a round of retention failed: RuntimeError" in caplog.text
    sweeper.close()
    with store.engine.connect() as connection:
        lease = select(schema.meta.c.value).where(schema.meta.c.name == retention.LEASE)
        assert connection.execute(lease).scalar_one() == retention.FREE
    store.close()


def test_a_reference_to_an_expired_run_is_unresolved(store: Store, clock: FakeClock) -> None:
    """A17: a predecessor that expired reads as one that was never there."""
    put(store, run_event(names.RUN_FAILED, 1, run="run-0"))
    clock.advance(RETAIN)
    retry = run_event(names.RUN_STARTED, 2, run="run-1", retry_workflow=WORKFLOW, retry_run="run-0")
    put(store, retry)
    clock.advance(1)
    Retention(store, RETAIN).round()
    [run] = Reader(store).runs(1).items
    assert run.retry_of is not None
    assert not run.retry_of.resolved
