"""What the store remembers of runs (contract, section 5): status, start fields, references."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest

from flowmark_otel import names
from flowmark_otel.backend.store import Store, open_store, schema
from flowmark_otel.model import Envelope, run_key
from tests.support.envelopes import NOW, RUN, WORKFLOW, put, rows, run_event, started

START, COMPLETED, FAILED = names.RUN_STARTED, names.RUN_COMPLETED, names.RUN_FAILED


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An empty store of each kind."""
    opened = open_store(store_url)
    yield opened
    opened.close()


def only_run(store: Store) -> dict[str, Any]:
    """The one run of the store."""
    [found] = rows(store, schema.runs)
    return found


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([started(1, ("g", 1))], "unknown"),
        ([run_event(START, 1)], "open"),
        ([run_event(COMPLETED, 1)], "completed"),
        ([run_event(FAILED, 1)], "failed"),
        ([run_event(START, 1), run_event(FAILED, 1)], "failed"),
        ([run_event(FAILED, 1), run_event(START, 1)], "failed"),
    ],
)
def test_a_run_reads_as_its_own_events_say(
    store: Store, events: list[Envelope], status: str
) -> None:
    """A10, A11: open without an end, unknown without any event of its own, in any order."""
    for event in events:
        assert put(store, event).stored == 1
    assert only_run(store)["status"] == status


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_latest_end_by_sent_time_is_the_runs(store: Store, order: tuple[int, ...]) -> None:
    """A14, A15: a further end is kept; sent time orders them, ties by event id, greater wins."""
    ends = [
        run_event(FAILED, 3, at=NOW),
        run_event(FAILED, 1, at=2**63 + 5),
        run_event(COMPLETED, 2, at=2**63 + 5),
    ]
    for index in order:
        assert put(store, ends[index]).stored == 1
    found = only_run(store)
    assert found["status"] == names.STATUS_COMPLETED
    [end] = (each for each in rows(store, schema.events) if each["id"] == found["end_event"])
    assert (end["span_id"], end["event"]) == (ends[2].span_id, COMPLETED)


def test_the_first_accepted_start_keeps_its_fields(store: Store) -> None:
    """A14: a continuation keeps the metadata of the first accepted start, reference included."""
    first = run_event(START, 1, retry_workflow="w", retry_run="r", correlation="c")
    put(store, first)
    put(store, run_event(START, 2, retry_workflow="w", retry_run="other", parent="p"))
    put(store, run_event(COMPLETED, 2, retry_workflow="w", retry_run="other", parent="p"))
    found = only_run(store)
    assert (found["retry_of_workflow"], found["retry_of_run_id"]) == ("w", "r")
    assert (found["parent_run_id"], found["correlation_id"]) == (None, "c")
    assert found["retry_of_key"] == run_key(1, "server", "w", "r")
    assert found["fields_from"] == found["start_event"] == rows(store, schema.events)[0]["id"]


@pytest.mark.parametrize("together", [True, False])
def test_a_start_replaces_the_fields_of_an_end(store: Store, *, together: bool) -> None:
    """A14, A10: while there is no start the first accepted end's fields are the run's."""
    ends = [run_event(COMPLETED, 1, parent="p1"), run_event(COMPLETED, 2, parent="p2")]
    start = run_event(START, 3, correlation="c")
    if not together:
        put(store, *ends)
        assert only_run(store)["parent_run_id"] == "p1"
        put(store, start)
    else:
        put(store, *ends, start)
    found = only_run(store)
    assert (found["parent_run_id"], found["correlation_id"]) == (None, "c")
    assert found["fields_from"] == found["start_event"]


def test_a_retry_never_touches_its_target(store: Store) -> None:
    """A12, A15: a run that names a predecessor is another run; the failed one stays failed."""
    put(store, run_event(START, 1), run_event(FAILED, 1))
    put(
        store,
        run_event(START, 2, run="run-2", retry_workflow=WORKFLOW, retry_run=RUN),
        run_event(COMPLETED, 2, run="run-2", retry_workflow=WORKFLOW, retry_run=RUN),
    )
    first, second = rows(store, schema.runs)
    assert (first["status"], second["status"]) == ("failed", "completed")
    assert second["retry_of_key"] == first["key"]


def test_a_rejected_event_changes_no_run(store: Store) -> None:
    """A6: of a conflict nothing but its evidence is kept."""
    put(store, run_event(START, 1, correlation="c"))
    before = only_run(store)
    assert put(store, run_event(START, 1, correlation="d")).rejections
    assert only_run(store) == before
