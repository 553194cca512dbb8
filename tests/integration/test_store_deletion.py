"""Deleting runs and workflows: tombstones, what remains, and the audit (contract, section 5)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, func, select

from flowmark_otel import names
from flowmark_otel.backend import audit, deletion, removal
from flowmark_otel.backend.deletion import Deleter
from flowmark_otel.backend.holding import Limits
from flowmark_otel.backend.read import NotFound, Reader
from flowmark_otel.backend.removal import Buried, clear
from flowmark_otel.backend.status import states
from flowmark_otel.backend.store import Store, open_store, schema
from flowmark_otel.backend.store.derived import counters
from flowmark_otel.backend.store.reading import snapshot
from flowmark_otel.errors import Unavailable
from flowmark_otel.model import Envelope, Refused, run_key
from tests.support.envelopes import (
    WAIT,
    WORKFLOW,
    completed,
    failed,
    observed,
    put,
    rows,
    run_event,
    started,
)
from tests.support.remains import counted, held, usage

KEY = "keyid"


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An empty store of each kind, with one project."""
    opened = open_store(store_url)
    project = schema.projects.insert().values(id=1, name="default", created_at=0)
    opened.write(lambda connection: connection.execute(project)).result(WAIT)
    yield opened
    opened.close()


def key_of(run: str = "run-1", workflow: str = WORKFLOW, project_id: int = 1) -> str:
    """The opaque key of a run."""
    return run_key(project_id, names.ORIGIN_SERVER, workflow, run).hex()


def story(run: str, first: int = 1) -> list[Envelope]:
    """A run with two attempts, a conflict, an observed try and an end."""
    return [
        started(first, ("g", 1), run=run),
        failed(first, ("g", 1), run=run),
        started(first + 1, ("g", 2), run=run),
        started(first + 2, ("g", 2), run=run),  # a conflict
        observed(first + 1, 1, run=run),
        run_event(names.RUN_COMPLETED, first + 3, run=run),
    ]


def test_a_deleted_run_leaves_a_tombstone_and_nothing_else(store: Store) -> None:
    """D5: events, occurrences, rejections and the run go, and with them what they count."""
    put(store, *story("run-1"))
    assert held(store) == {"runs": 1, "events": 5, "occurrences": 2, "rejections": 1}
    assert usage(store) == (5, 1)
    deleted = Deleter(store).run(1, key_of(), KEY)
    assert deleted[:2] == (1, 5)
    assert held(store) == {}
    assert usage(store) == (0, 0)
    assert rows(store, schema.known_names) == []
    [tombstone] = rows(store, schema.tombstones)
    assert (tombstone["reason"], tombstone["until"], tombstone["run"]) == ("deleted", None, None)
    assert tombstone["key"].hex() == key_of()
    with pytest.raises(NotFound):
        Reader(store).run(1, key_of())


def test_later_evidence_of_a_deleted_run_is_a_duplicate_and_not_kept(store: Store) -> None:
    """A8: known ids, new ids and other payloads alike are acknowledged and change nothing.

    They are counted as expired; what is invalid is told so first (contract, section 4).
    """
    events = story("run-1")
    put(store, *events)
    Deleter(store).run(1, key_of(), KEY)
    bad = Refused(names.INVALID, "bad", "op-x-start")
    verdict = put(store, *events, bad, started(9, ("new", 1)), completed(1, ("g", 7)))
    assert (verdict.stored, verdict.duplicate, verdict.expired) == (0, len(events) + 2, 8)
    assert [each.code for each in verdict.rejections] == [names.INVALID]
    assert put(store, started(10)).expired == 1
    assert held(store) == {"rejections": 1}
    with snapshot(store.engine) as connection:
        counted = connection.execute(
            select(func.sum(counters.c.number)).where(counters.c.reason == names.REASON_EXPIRED)
        ).scalar_one()
    assert counted == 9


def test_a_tombstone_is_of_one_run_of_one_project(store: Store) -> None:
    """I5: the same run id in another project, another workflow or another run is stored."""
    put(store, started(1))
    Deleter(store).run(1, key_of(), KEY)
    assert put(store, started(1), project_id=2).stored == 1
    assert put(store, started(1, workflow="other")).stored == 1
    assert put(store, started(2, run="run-2")).stored == 1


def test_what_is_not_there_or_foreign_cannot_be_deleted(store: Store) -> None:
    """Fault row 22: another project's key reads as unknown, and nothing is audited."""
    put(store, started(1), project_id=2)
    deleter = Deleter(store)
    for key in (key_of(), key_of(project_id=2), "no-key"):
        with pytest.raises(NotFound, match=r"^no run with this key$"):
            deleter.run(1, key, KEY)
    with pytest.raises(NotFound):
        deleter.workflow(1, WORKFLOW, KEY)
    assert rows(store, schema.audit) == []
    assert held(store)["events"] == 1


def test_the_status_of_what_was_deleted_is_unknown(store: Store) -> None:
    """Contract, section 4: an event id says nothing of its run, so after deletion it is unknown."""
    event = started(1)
    put(store, event)
    Deleter(store).run(1, key_of(), KEY)
    [(_, state, digest, code)] = states(store, 1, names.ORIGIN_SERVER, [event.event_id])
    assert (state, digest, code) == (names.STATE_UNKNOWN, None, None)


def test_a_reference_to_a_deleted_run_is_unresolved(store: Store) -> None:
    """A17: a predecessor that was deleted reads as one that was never there."""
    put(store, run_event(names.RUN_FAILED, 1, run="run-0"))
    put(
        store,
        run_event(names.RUN_STARTED, 2, run="run-1", retry_workflow=WORKFLOW, retry_run="run-0"),
    )
    reader = Reader(store)
    before = reader.run(1, key_of("run-1")).retry_of
    assert before is not None
    assert before.resolved
    Deleter(store).run(1, key_of("run-0"), KEY)
    after = reader.run(1, key_of("run-1")).retry_of
    assert after is not None
    assert (after.resolved, after.key) == (False, None)


def test_a_conflict_with_a_deleted_run_stays_with_the_other(store: Store) -> None:
    """Fault row 12: of two runs that met under one event id the one that is left keeps its own."""
    put(store, started(1, ("g", 1)))
    put(store, started(1, ("g", 1), run="run-2"))
    assert rows(store, schema.rejections)[0]["accepted_run"] is not None
    Deleter(store).run(1, key_of("run-1"), KEY)
    [rejection] = rows(store, schema.rejections)
    assert rejection["accepted_run"] is None
    assert Reader(store).run(1, key_of("run-2")).counts.groups == 1


def test_a_workflow_is_deleted_in_bounded_transactions(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 4, deletion: as many runs and rows at a time as asked for, with progress."""
    monkeypatch.setattr(removal, "RUNS", 2)
    for number in range(1, 6):
        put(store, started(number, run=f"run-{number}"))
    put(store, started(6, workflow="other"))
    heard: list[Buried] = []
    deleted = Deleter(store).workflow(1, WORKFLOW, KEY, heard.append)
    assert deleted[:2] == (5, 5)
    assert heard == [Buried(2, 2), Buried(4, 4), Buried(5, 5)]
    assert held(store) == {"runs": 1, "events": 1, "occurrences": 1}
    assert [row["workflow"] for row in rows(store, schema.known_names)] == ["other", "other"]


def test_remains_are_removed_a_few_rows_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 4, deletion: one transaction removes no more rows than it may, and all go in the end.

    The same operation ids in several runs do not make it more.
    """
    for run, first in (("run-1", 1), ("run-2", 11)):
        put(store, *(started(first + n, run=run, operation_id=f"op-{n}") for n in range(9)))
    sizes: list[int] = []

    def few(connection: Connection) -> bool:
        before = sum(counted(connection).values())
        more = clear(connection, 4)
        sizes.append(before - sum(counted(connection).values()))
        return more

    monkeypatch.setattr(deletion, "clear", few)
    Deleter(store).workflow(1, WORKFLOW, KEY)
    assert held(store) == {}
    assert len(sizes) > 36 // 4
    assert max(sizes) <= 4


def test_remains_of_a_deletion_that_was_broken_off_are_removed_later(
    store: Store, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault row 1: a kill between burying and removing leaves nothing that is read or met.

    The id that the remains carry is given to no new run.
    """
    put(store, *story("run-1"))

    def broken(_connection: object) -> bool:
        msg = "the process ended here"
        raise Unavailable(msg)

    monkeypatch.setattr(deletion, "clear", broken)
    with pytest.raises(Unavailable):
        Deleter(store).run(1, key_of(), KEY)
    assert held(store) == {"events": 5, "occurrences": 2, "rejections": 1}
    assert Reader(store).runs(1).items == ()
    put(store, started(20, run="run-9"))
    assert Reader(store).run(1, key_of("run-9")).counts.occurrences == 1
    store.close()
    again = open_store(store_url)
    while again.write(clear).result(WAIT):
        pass
    assert held(again) == {"runs": 1, "events": 1, "occurrences": 1}
    assert Reader(again).run(1, key_of("run-9")).counts.occurrences == 1
    again.close()


def test_who_deleted_what_is_written_down(store: Store) -> None:
    """Issue 4, deletion: the audit has key id, what, when and how much, the latest first."""
    put(store, started(1), started(2))
    put(store, started(3, workflow="other"))
    put(store, started(4, workflow="other", run="run-2"))
    one = Deleter(store).run(1, key_of(), KEY)
    two = Deleter(store).workflow(1, "other", "command:root")
    with snapshot(store.engine) as connection:
        latest, first = audit.entries(connection)
        assert audit.entries(connection, project_id=2) == []
        assert audit.entries(connection, limit=1) == [latest]
    assert (first.id, latest.id) == (one.audit, two.audit)
    assert (first.project, first.actor, first.action) == ("default", KEY, "delete_run")
    assert (first.subject, first.runs, first.events) == (key_of(), 1, 2)
    assert (latest.action, latest.subject) == ("delete_workflow", "other")
    assert (latest.actor, latest.runs, latest.events) == ("command:root", 2, 2)
    assert latest.finished_at is not None
    assert first.at <= latest.at <= latest.finished_at


def test_a_deletion_makes_room_in_a_quota(store_url: str) -> None:
    """Issue 4, quotas: what was deleted is not held, at once and in the same process."""
    limits = Limits(events=1, workflows=1, operations=1, groups=1)
    store = open_store(store_url, limits=limits)
    put(store, started(1, ("g", 1)))
    assert put(store, started(2, ("h", 1), workflow="w2", operation="o2")).stored == 0
    Deleter(store).workflow(1, WORKFLOW, KEY)
    assert put(store, started(2, ("h", 1), workflow="w2", operation="o2")).stored == 1
    store.close()


def test_deletion_and_traffic_go_on_beside_each_other(store: Store) -> None:
    """I1, I2: while runs are deleted, what is sent for others is stored, each event once.

    What was acknowledged for a deleted run is gone with it, or answered as expired.
    """
    for run in range(50):
        put(store, *(started(run * 100 + n, run=f"old-{run}", workflow="old") for n in range(20)))
    stored: list[int] = []

    def send() -> None:
        for number in range(40):
            kept = put(store, started(100_000 + number, run="new", workflow="new"))
            late = put(store, started(200_000 + number, run="old-1", workflow="old"))
            stored.append(kept.stored)
            assert late.stored + late.expired == 1

    sender = threading.Thread(target=send)
    sender.start()
    deleted = Deleter(store).workflow(1, "old", KEY)
    sender.join(WAIT)
    assert deleted.runs == 50
    assert sum(stored) == 40
    assert held(store) == {"runs": 1, "events": 40, "occurrences": 40}
    assert usage(store) == (40, 0)
