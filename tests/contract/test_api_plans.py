"""What reading costs: every statement finds its rows by an index of what was asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from sqlalchemy import event, update

from flowmark_otel import names
from flowmark_otel.backend.read import RunFilters
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.summary.worker import fold_all
from flowmark_otel.backend.summary.writing import stale_runs
from flowmark_otel.fold import fold_span
from flowmark_otel.model import Refused, SpanEvent
from tests.support.history import Ingested, attempt, ingested, operation_of, run_of, span

_TABLES = (
    *("events", "occurrences", "runs", "rejections", "other", "higher", "target", "summaries"),
    *("postings", "terms", "rollups", "rollup_values"),
)
_SCAN = re.compile(rf"\bSCAN (?:{'|'.join(_TABLES)})\b")
_WHOLE_PROJECT = re.compile(r"\((?:project_id=\?)(?: AND origin=\?)?\)")

Plans = Callable[[Callable[[], object]], list[str]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ingested]:
    """A run with groups, a gap, a conflict, an observed try and references, among others."""
    with ingested(tmp_path_factory.mktemp("plans") / "store.db") as found:
        observed = SpanEvent(
            names.ATTEMPT_OBSERVED, 5, {names.OBSERVED_NUMBER: 1, names.OBSERVED_OUTCOME: "failed"}
        )
        found.send(
            span(1, attempt("g", 1), failed=True)._replace(events=[observed]),
            span(2, attempt("g", 3)),
            span(3, attempt("g", 3)),
            span(4, operation_of(operation="load")),
            span(5, run_of(retry_of=("crm.sync", "r0"), parent_run__id="r0")),
            span(6, attempt("g", 1, run_id="r0")),
        )
        yield found


@pytest.fixture
def plans(store: Ingested) -> Iterator[Plans]:
    """Runs a read and gives the plan of each statement that it executed."""
    executed: list[tuple[str, Any]] = []

    def note(*given: Any) -> None:
        executed.append((given[2], given[3]))

    def explain(read: Callable[[], object]) -> list[str]:
        executed.clear()
        read()
        with store.store.engine.connect() as connection:
            selects = [one for one in executed if one[0].lstrip().startswith("SELECT")]
            assert selects
            return [
                row[3]
                for statement, parameters in selects
                for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            ]

    event.listen(store.store.engine, "before_cursor_execute", note)
    yield explain
    event.remove(store.store.engine, "before_cursor_execute", note)


@pytest.mark.parametrize("what", ["run", "operations", "attempts", "events"])
def test_a_run_reads_by_its_own_rows(store: Ingested, plans: Plans, what: str) -> None:
    """D5: reading a run depends on the run: nothing walks the store or the project."""
    key = store.reader.runs(1, RunFilters(run_id="r1")).items[0].key
    found = plans(lambda: getattr(store.reader, what)(1, key))
    assert not [line for line in found if _SCAN.search(line) or _WHOLE_PROJECT.search(line)]


def test_a_page_of_runs_walks_the_order_of_arrival_alone(store: Ingested, plans: Plans) -> None:
    """D5: a page of runs is read in its order and stops; nothing else is of the whole project."""
    found = plans(lambda: store.reader.runs(1))
    assert not [line for line in found if _SCAN.search(line)]
    whole = [line for line in found if _WHOLE_PROJECT.search(line)]
    assert whole == ["SEARCH runs USING COVERING INDEX runs_by_arrival (project_id=?)"]
    begun = found.index(whole[0])
    assert "USE TEMP B-TREE FOR ORDER BY" not in found[begun : begun + 2]


@pytest.mark.parametrize(
    "filters",
    [
        RunFilters(trace_id=(1).to_bytes(16, "big")),
        RunFilters(run_id="r1"),
        RunFilters(group_id="g"),
        RunFilters(group_id="g", operation="push-to-crm"),
    ],
)
def test_runs_by_name_are_looked_up(store: Ingested, plans: Plans, filters: RunFilters) -> None:
    """D5: a trace, a run id or a group id leads to its runs by an index, however many there are."""
    found = plans(lambda: store.reader.runs(1, filters))
    assert not [line for line in found if _SCAN.search(line) or _WHOLE_PROJECT.search(line)]


# Beside what a question is about, a list walks the runs that are stale.
_WALKS = re.compile(r"USING (?:COVERING )?INDEX runs_stale ")
_LATEST = re.compile(r"USING (?:COVERING )?INDEX runs_(?:stale|by_arrival) ")
EVERY_FILTER = (
    *(RunFilters(verdict=one) for one in get_args(names.Verdict)),
    *(RunFilters(problem=one) for one in get_args(names.Problem)),
    *(RunFilters(status=one) for one in get_args(names.RunStatus)),
    RunFilters(workflow="crm.sync"),
    RunFilters(operation="load"),
    RunFilters(error_code="x"),
    RunFilters(has_retries=True),
    RunFilters(min_attempts=2),
    RunFilters(min_attempts=100),
    RunFilters(origin="server"),
    RunFilters(q="batch-42 push"),
    RunFilters(q="crm", verdict="first_try", workflow="crm.sync", since=1, until=2**62),
    RunFilters(problem="open", error_code="x", min_attempts=2, has_retries=True),
)


@pytest.mark.parametrize("filters", EVERY_FILTER, ids=str)
@pytest.mark.parametrize("what", ["summarised", "stale"])
def test_filters_find_their_runs_by_an_index(
    store: Ingested, plans: Plans, filters: RunFilters, what: str
) -> None:
    """D5: each filter, alone or with others, is answered from an index of what it asks for."""
    stale = int(what == "stale")
    if not stale:
        fold_all(store.store)
    store.store.write(
        lambda connection: connection.execute(update(schema.runs).values(stale=stale))
    ).result()
    found = plans(lambda: store.reader.runs(1, filters))
    assert not [line for line in found if _SCAN.search(line)]
    # Of a text alone the latest runs are gone through first, so many and no more.
    walks = _LATEST if filters == RunFilters(q=filters.q) else _WALKS
    assert not [line for line in found if _WHOLE_PROJECT.search(line) and not walks.search(line)]


@pytest.mark.parametrize("after", [None, (1, 0, 0)])
def test_stale_runs_are_found_by_their_index(
    store: Ingested, plans: Plans, after: tuple[int, int, int] | None
) -> None:
    """D5: the summariser asks for stale runs all the time; where there is none it reads none."""

    def read() -> None:
        with store.reader._snapshot() as connection:
            connection.execute(stale_runs(after)).all()

    assert all("USING INDEX runs_stale" in line for line in plans(read))


def test_how_far_the_evidence_reaches_is_read_from_the_latest_runs(
    store: Ingested, plans: Plans
) -> None:
    """D5: the footer of every page costs a look at the end of one index."""
    found = plans(lambda: store.reader.latest_arrival(1))
    assert not [line for line in found if _SCAN.search(line) and "latest" not in line]
    whole = [line for line in found if _WHOLE_PROJECT.search(line)]
    assert whole == ["SEARCH runs USING INDEX runs_by_arrival (project_id=?)"]


@pytest.mark.parametrize("what", ["overview", "operation_statistics", "evidence", "ingest"])
def test_figures_read_no_run_that_is_summarised(store: Ingested, plans: Plans, what: str) -> None:
    """D5: figures come from sums; of runs only those that are stale or not known are read."""
    fold_all(store.store)
    found = plans(lambda: getattr(store.reader, what)(1))
    assert not [line for line in found if _SCAN.search(line)]
    walked = [line for line in found if re.search(r"SEARCH runs .*\(project_id=\?", line)]
    # The first, the last and the latest runs are read in their order, as far as they are wanted.
    index = "runs_(?:stale|by_arrival) " if what == "ingest" else "runs_stale "
    assert not [line for line in walked if not re.search(index, line)]


def test_a_long_run_reads_alike_in_a_large_store(tmp_path: Path) -> None:
    """D5: the statements that a page of a run takes do not grow with the run or the store."""
    with ingested(tmp_path / "store.db") as store:
        for begin in range(0, 1000, 250):
            numbers = range(begin + 1, begin + 251)
            events = [e for n in numbers for e in fold_span(span(n, attempt(f"g{n % 100}", n)))]
            assert not [e for e in events if isinstance(e, Refused)]
            store.put(events)
        key = store.only_key()
        counted: list[str] = []
        event.listen(
            store.store.engine,
            "before_cursor_execute",
            lambda *given: counted.append(given[2]),
        )
        page = store.reader.attempts(1, key, 20)
        assert sum(len(group.attempts) for group in page.items) == 200
        assert len(counted) <= 12
