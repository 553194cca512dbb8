"""The reader on a real store: references, filters, paging and the walls between projects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import update

from flowmark_otel import names
from flowmark_otel.backend.read import BadParameter, NotFound, RunFilters, elsewhere
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.summary.worker import fold_all
from flowmark_otel.fold import fold_span
from tests.conftest import STORES
from tests.support.history import (
    SECOND,
    ZERO,
    Ingested,
    attempt,
    ingested,
    operation_of,
    run_of,
    span,
)


@pytest.fixture
def store(store_url: str) -> Iterator[Ingested]:
    """An empty store."""
    with ingested(store_url) as found:
        yield found


def ids(store: Ingested, project: int = 1, **filters: Any) -> list[str]:
    """The run ids that a filter gives, in order."""
    return [run.run_id for run in store.reader.runs(project, RunFilters(**filters)).items]


def test_the_latest_arrival_is_that_of_any_run_and_of_the_project_alone(store: Ingested) -> None:
    """D5: later evidence of an earlier run counts; another project's arrival tells nothing."""
    assert store.reader.latest_arrival(1).received_at is None
    store.send(span(1, run_of("r0")))
    store.send(span(2, run_of("r1")))
    first = store.reader.latest_arrival(1).received_at
    store.send(span(3, run_of("r0")))
    later = store.reader.latest_arrival(1)
    store.send(span(4, run_of("r2")), project=2)
    assert first is not None
    assert later.received_at is not None
    assert first < later.received_at <= later.read_at
    assert store.reader.latest_arrival(1).received_at == later.received_at


# -- references ---------------------------------------------------------------------------------


def test_a_predecessor_that_arrives_later_resolves(store: Ingested) -> None:
    """A17: the reference reads unresolved until the run it names is stored."""
    store.send(span(1, run_of("r1", retry_of=("crm.sync", "r0"))))
    (run,) = store.reader.runs(1).items
    assert run.retry_of is not None
    assert (run.retry_of.resolved, run.retry_of.key) == (False, None)
    store.send(span(2, run_of("r0"), failed=True))
    earlier, run = store.reader.runs(1).items
    assert run.retry_of is not None
    assert (run.retry_of.resolved, run.retry_of.key) == (True, earlier.key)
    assert [other.run_id for other in earlier.retried_by] == ["r1"]
    assert earlier.status == "failed"


def test_a_reference_crosses_workflows(store: Ingested) -> None:
    """A18: predecessor and successor need not be of one workflow."""
    store.send(span(1, run_of("r0", workflow="import")))
    store.send(span(2, run_of("r0", retry_of=("import", "r0"))))
    run = store.reader.runs(1, RunFilters(workflow="crm.sync")).items[0]
    assert run.retry_of is not None
    assert run.retry_of.resolved
    assert run.parents == ()


def test_a_foreign_target_reads_unresolved(store: Ingested) -> None:
    """A17, I5: a run of another project or of another origin resolves nothing and leaks nothing."""
    store.send(span(1, run_of("r0")), project=2)
    store.send(span(2, run_of("r0")), origin="browser")
    store.send(span(3, run_of("r1", retry_of=("crm.sync", "r0"), parent_run__id="r0")))
    (run,) = store.reader.runs(1, RunFilters(origin="server")).items
    assert run.retry_of is not None
    assert (run.retry_of.resolved, run.parents) == (False, ())
    for project, origin in ((2, "server"), (1, "browser")):
        (other,) = store.reader.runs(project, RunFilters(run_id="r0")).items
        assert (other.origin, other.retried_by) == (origin, ())


def test_a_legacy_parent_matches_runs_of_every_workflow(store: Ingested) -> None:
    """A19: an unqualified parent id lists all that it may mean; a retry reference adds nothing."""
    store.send(span(1, run_of("p", workflow="a")), span(2, run_of("p", workflow="b")))
    store.send(span(3, run_of("r1", parent_run__id="p", retry_of=("a", "p"))))
    (run,) = store.reader.runs(1, RunFilters(run_id="r1")).items
    assert [parent.workflow for parent in run.parents] == ["a", "b"]
    assert run.parent_run_id == "p"


def test_a_group_that_occurs_elsewhere(store: Ingested) -> None:
    """A3: other runs of the same group id and operation name are named and counted, never merged.

    Those of another project, of another origin or of another operation are not among them.
    """
    for number in range(elsewhere.MOST_NAMED + 5):
        store.send(span(number + 1, attempt("batch-42", 1, run_id=f"r{number}")))
    store.send(span(100, attempt("batch-42", 1, run_id="r0")), project=2)
    store.send(span(101, attempt("batch-42", 1, run_id="r0")), origin="browser")
    store.send(span(102, attempt("batch-42", 1, run_id="other", operation="pull")))
    key = store.reader.runs(1, RunFilters(run_id="r0", origin="server")).items[0].key
    (group,) = store.reader.attempts(1, key).items
    latest = store.reader.runs(1, RunFilters(operation="push-to-crm", origin="server"))
    assert group.elsewhere == tuple(run.key for run in latest.items)[: elsewhere.MOST_NAMED]
    assert group.elsewhere_count == elsewhere.MOST_NAMED + 4
    assert not group.elsewhere_at_least
    assert len(group.attempts) == 1


def test_counting_elsewhere_ends(store: Ingested, monkeypatch: pytest.MonkeyPatch) -> None:
    """A3: of a group that very many runs name so many are counted, and it says "at least"."""
    monkeypatch.setattr(elsewhere, "MOST_LOOKED_AT", 4)
    tries = [attempt("g", number, run_id=f"r{run}") for run in range(6) for number in (1, 2)]
    store.send(*(span(number, given) for number, given in enumerate(tries, 1)))
    counted = {}
    for run in store.reader.runs(1).items:
        (group,) = store.reader.attempts(1, run.key).items
        counted[run.run_id] = (group.elsewhere_count, group.elsewhere_at_least)
        assert len(group.elsewhere) == 4
    assert set(counted.values()) == {(4, True)}


# -- the walls ----------------------------------------------------------------------------------


def test_one_project_never_reads_another(store: Ingested) -> None:
    """I5: the same ids in two projects are two runs; a foreign key is an unknown one."""
    store.send(span(1, attempt("batch-42", 1)))
    store.send(span(1, attempt("batch-42", 1), failed=True), project=2)
    first, second = store.only_key(1), store.only_key(2)
    assert first != second
    for read in (store.reader.attempts, store.reader.operations, store.reader.events):
        with pytest.raises(NotFound, match="no run with this key"):
            read(1, second)
    (group,) = store.reader.attempts(1, first).items
    assert (group.verdict, group.elsewhere) == ("first_try", ())
    (row,) = store.reader.operation_statistics(2).items
    assert (row.attempts, row.attempt_errors.numerator) == (1, 1)


def test_a_conflict_in_another_project_marks_nothing_here(store: Ingested) -> None:
    """I5: evidence rejected in one project changes no mark of another."""
    store.send(span(1, attempt("batch-42", 1)))
    store.send(span(1, attempt("batch-42", 1)), span(2, attempt("batch-42", 1)), project=2)
    (group,) = store.reader.attempts(1, store.only_key(1)).items
    assert (group.verdict, group.rejected) == ("first_try", ())
    (group,) = store.reader.attempts(2, store.only_key(2)).items
    assert group.verdict == "undetermined"


# -- conflicts ----------------------------------------------------------------------------------


def test_a_second_payload_for_another_run_marks_both(store: Ingested) -> None:
    """A8: one event id with two digests: the accepted place and the one it names elsewhere."""
    store.send(span(1, attempt("batch-42", 1, run_id="r1")))
    store.send(span(1, attempt("batch-42", 1, run_id="r2")))
    verdicts = {}
    for run in store.reader.runs(1).items:
        (group,) = store.reader.attempts(1, run.key).items
        verdicts[run.run_id] = (group.verdict, len(group.attempts))
        assert run.counts.groups == 1
    assert verdicts == {"r1": ("undetermined", 1), "r2": ("undetermined", 0)}
    assert ids(store, problem="conflict") == ["r2", "r1"]
    assert ids(store, verdict="undetermined") == ["r2", "r1"]


def test_groups_known_only_from_rejected_evidence_are_paged_last(store: Ingested) -> None:
    """Contract, section 5: they are listed without attempts, after all the others."""
    same = {names.OPERATION_ID: "op-1"}
    store.send(span(1, {**attempt("a", 1), **same}), span(2, attempt("b", 1)))
    store.send(*(span(number, {**attempt(f"x{number}", 1), **same}) for number in (3, 4, 5)))
    key = store.only_key()
    listed, cursor = [], None
    for _ in range(5):
        page = store.reader.attempts(1, key, 1, cursor)
        listed += [(group.group_id, len(group.attempts)) for group in page.items]
        cursor = page.next
    assert listed == [("a", 1), ("b", 1), ("x3", 0), ("x4", 0), ("x5", 0)]
    assert cursor is None
    assert store.reader.run(1, key).counts.groups == 5


# -- filters ------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["stale", "summarised", "half"])
def state(request: pytest.FixtureRequest) -> str:
    """How many of the runs are summarised: none, all or half of them."""
    return str(request.param)


@pytest.fixture(scope="module", params=STORES)
def filtered(
    request: pytest.FixtureRequest, new_store: Callable[[str], str], state: str
) -> Iterator[Ingested]:
    """One run for each thing that a filter asks for."""
    with ingested(new_store(request.param)) as store:
        store.send(span(1, attempt("g-first", 1, run_id="first")))
        store.send(
            span(2, attempt("g-after", 1, run_id="after", error__code="E1"), failed=True),
            span(3, attempt("g-after", 2, run_id="after")),
        )
        store.send(span(4, attempt("g-failed", 1, run_id="failed"), failed=True))
        store.put(fold_span(span(5, attempt("g-open", 1, run_id="open")))[:1])
        store.send(span(6, attempt("g-gap", 3, run_id="gap")))
        store.send(
            span(7, attempt("g-conflict", 1, run_id="conflict")),
            span(8, attempt("g-conflict", 1, run_id="conflict")),
        )
        store.send(span(9, operation_of("plain", operation="load"), failed=True, trace=9))
        store.send(
            span(10, run_of("own", error__code="E2", retry_of=("x", "y")), failed=True),
            origin="browser",
        )
        store.send(span(11, operation_of("50%_\\", workflow="Odd")))
        if state != "stale":
            fold_all(store.store)
        if state == "half":
            store.store.write(
                lambda connection: connection.execute(
                    update(schema.runs).where(schema.runs.c.id % 2 == 0).values(stale=1)
                )
            ).result()
        yield store


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"verdict": "first_try"}, ["50%_\\", "first"]),
        ({"verdict": "after_retry"}, ["gap", "after"]),
        ({"verdict": "failed"}, ["plain", "failed"]),
        ({"verdict": "open"}, ["open"]),
        ({"verdict": "undetermined"}, ["conflict"]),
        ({"problem": "gap"}, ["gap"]),
        ({"problem": "open"}, ["open"]),
        ({"problem": "conflict"}, ["conflict"]),
        ({"problem": "rejected"}, ["conflict"]),
        ({"problem": "unresolved"}, ["own"]),
        ({"status": "failed"}, ["own"]),
        ({"status": "completed"}, []),
        ({"operation": "load"}, ["plain"]),
        ({"operation": "push-to-crm", "group_id": "g-gap"}, ["gap"]),
        ({"operation": "load", "group_id": "g-gap"}, []),
        ({"group_id": "g-after"}, ["after"]),
        ({"trace_id": (9).to_bytes(16, "big")}, ["plain"]),
        ({"error_code": "E1"}, ["after"]),
        ({"error_code": "E2"}, ["own"]),
        ({"error_code": 'E2","x":"y'}, []),
        ({"has_retries": True}, ["gap", "after"]),
        ({"has_retries": True, "min_attempts": 2}, ["after"]),
        ({"min_attempts": 3}, []),
        ({"has_retries": False, "workflow": "Odd"}, ["50%_\\"]),
        ({"origin": "browser"}, ["own"]),
        ({"run_id": "gap"}, ["gap"]),
        ({"q": "AFT"}, ["after"]),
        ({"q": "odd"}, ["50%_\\"]),
        ({"q": "5"}, ["50%_\\"]),
        ({"q": "0"}, []),
        ({"q": "50% push"}, ["50%_\\"]),
        ({"q": "G-AFTER"}, ["after"]),
        ({"q": "g-aft"}, ["after"]),
        ({"q": "e1 NOT gap"}, []),
        ({"q": "push-to-crm crm.sync after"}, ["after"]),
        ({"q": 'first" OR "gap'}, []),
        ({"q": "body:first"}, []),
        ({"q": "firs*"}, ["first"]),
        ({"q": "' OR 1=1 --"}, []),
        ({"since": 2**63 - 1}, []),
        ({"until": 0}, []),
    ],
)
def test_filters(filtered: Ingested, filters: dict[str, Any], expected: list[str]) -> None:
    """D5: each filter of runs finds what it names and nothing else."""
    assert ids(filtered, **filters) == expected


def test_a_time_range_has_its_end_open(filtered: Ingested) -> None:
    """D5: since is within, until is not, both by this backend's clock."""
    times = [run.first_received_at for run in filtered.reader.runs(1).items]
    found = filtered.reader.runs(1, RunFilters(since=times[3], until=times[1])).items
    assert [run.first_received_at for run in found] == times[2:4]


def test_a_filter_that_few_runs_pass_fills_its_pages(store: Ingested) -> None:
    """D5: runs with conflicts are decided one by one, and a page is full all the same."""
    for number in range(0, 60, 2):
        given = attempt("g", 1, run_id=f"r{number // 2}")
        both = [span(one, given, trace=number + 1) for one in (number + 1, number + 2)]
        store.send(*(both if number % 20 else both[:1]))
    page = store.reader.runs(1, RunFilters(verdict="first_try"), 2)
    rest = store.reader.runs(1, RunFilters(verdict="first_try"), 2, page.next)
    assert [run.run_id for run in (*page.items, *rest.items)] == ["r20", "r10", "r0"]
    assert rest.next is None


# -- paging -------------------------------------------------------------------------------------


def test_pages_join_without_gap_or_repetition(store: Ingested) -> None:
    """D5: whatever the size of a page, all pages together are the list."""
    spans = [span(number, attempt(f"g{number % 4}", number)) for number in range(1, 12)]
    store.send(*spans, span(90, attempt("g1", 1)), span(91, operation_of(operation="load")))
    for number in range(20, 27):
        store.send(span(number, run_of(f"r{number}")))
    key = store.reader.runs(1, RunFilters(run_id="r1")).items[0].key
    reads = (
        lambda limit, cursor: store.reader.runs(1, None, limit, cursor),
        lambda limit, cursor: store.reader.operations(1, key, limit, cursor),
        lambda limit, cursor: store.reader.attempts(1, key, limit, cursor),
        lambda limit, cursor: store.reader.events(1, key, limit, cursor),
        lambda limit, cursor: store.reader.operation_statistics(1, limit, cursor),
    )
    for read in reads:
        whole = read(500, None)
        assert whole.next is None
        assert len(whole.items) > 1
        for limit in (1, 3, len(whole.items)):
            joined: list[Any] = []
            cursor = None
            while True:
                page = read(limit, cursor)
                assert 1 <= len(page.items) <= limit
                joined += page.items
                cursor = page.next
                if cursor is None:
                    break
            assert joined == list(whole.items)


def test_new_runs_do_not_move_a_page(store: Ingested) -> None:
    """D5: a cursor goes on where its page ended, whatever arrived meanwhile."""
    for number in range(4):
        store.send(span(number + 1, run_of(f"r{number}")))
    page = store.reader.runs(1, None, 2)
    store.send(span(9, run_of("late")))
    rest = store.reader.runs(1, None, 2, page.next)
    assert [run.run_id for run in (*page.items, *rest.items)] == ["r3", "r2", "r1", "r0"]


@pytest.mark.parametrize("limit", [0, -1, 501])
def test_a_limit_out_of_range(store: Ingested, limit: int) -> None:
    """D5: a page has 1 to 500 items."""
    with pytest.raises(BadParameter, match="set a number from 1 to 500"):
        store.reader.runs(1, None, limit)


def test_an_answer_is_one_snapshot(store: Ingested) -> None:
    """D5: what one answer reads agrees with itself, though the writer goes on between its reads."""
    store.send(span(1, run_of()), span(2, attempt("g", 1)))
    with store.reader._snapshot() as connection:
        count = "SELECT count(*) FROM events"
        before = connection.exec_driver_sql(count).scalar_one()
        store.send(span(3, attempt("g", 2)))
        assert connection.exec_driver_sql(count).scalar_one() == before
    assert store.reader.run(1, store.only_key()).counts.attempts == 2


# -- odd clocks ---------------------------------------------------------------------------------


def test_clocks_far_off_are_shown_as_sent(store: Ingested) -> None:
    """Fault row 14: times beyond 2^63 are stored and read as sent and never break an answer."""
    far = 2**64 - 1
    store.send(
        span(1, attempt("g", 1), start=far, end=far, failed=True),
        span(2, attempt("g", 2), start=ZERO + SECOND, end=ZERO),
        span(3, run_of(), start=0, end=far),
    )
    key = store.only_key()
    (group,) = store.reader.attempts(1, key).items
    assert group.attempts[0].started_at == group.attempts[0].ended_at == far
    assert group.attempts[1].duration_ns is None
    run = store.reader.run(1, key)
    assert (run.started_at, run.ended_at, run.duration_ns) == (None, far, None)
    (row,) = store.reader.operation_statistics(1).items
    assert row.time_lost_ns == 0
