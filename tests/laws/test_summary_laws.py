"""Contract, section 5, on both stores: what is derived answers as the evidence itself does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, pairwise
from typing import Any, NamedTuple, get_args

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from sqlalchemy import func, select

from flowmark_otel import names
from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.read import Reader, RunFilters, render
from flowmark_otel.backend.store import Arrival, Batch, Store, derived, open_store, schema
from flowmark_otel.backend.summary.spans import DAY, HOUR, MINUTE, SECOND
from flowmark_otel.backend.summary.worker import fold_all
from flowmark_otel.backend.summary.writing import forget
from flowmark_otel.backend.tries import run_tries
from flowmark_otel.backend.views import Overview
from flowmark_otel.fold.rates import Tally
from flowmark_otel.model import Envelope
from flowmark_otel.testing import FakeClock
from tests.conftest import STORES
from tests.laws.test_history_laws import SENDER, consistent, wild

STEPS = (0, 1, SECOND, MINUTE - 1, MINUTE, 17 * MINUTE, HOUR, 5 * HOUR, DAY, 3 * DAY)
LATEST = 2**62


class Told(NamedTuple):
    """One store for all examples, each in a project of its own, and its clock."""

    store: Store
    reader: Reader
    keys: Keys
    clock: FakeClock
    serial: Iterator[int]


@pytest.fixture(scope="module", params=STORES)
def told(request: pytest.FixtureRequest, new_store: Callable[[str], str]) -> Iterator[Told]:
    """The store, closed after the module."""
    clock = FakeClock()
    store = open_store(new_store(request.param), clock=clock)
    try:
        yield Told(store, Reader(store, clock), Keys(store), clock, count())
    finally:
        store.close()


HISTORIES = st.one_of(wild(), consistent())
DELIVERIES = st.lists(
    st.tuples(st.integers(0, 50), st.sampled_from(STEPS), st.booleans()), max_size=5
)
ON_A_STORE = settings(
    max_examples=10,  # each asks some sixty questions of a real store
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def deliver(
    told: Told, history: Sequence[Envelope], deliveries: Sequence[tuple[int, int, bool]]
) -> int:
    """Deliver a history to a new project piece by piece, some time apart; some pieces summarised.

    The project.
    """
    project = told.keys.ensure_project(f"p{next(told.serial)}")
    cuts = sorted((cut % (len(history) + 1), step, folds) for cut, step, folds in deliveries)
    begin = 0
    for end, step, folds in [*cuts, (len(history), 0, False)]:
        arrivals = [Arrival(item, SENDER, event) for item, event in enumerate(history[begin:end])]
        told.store.submit(Batch(project, names.ORIGIN_SERVER, arrivals)).result(20)
        told.clock.advance(step / SECOND)
        if folds:
            fold_all(told.store)
        begin = end
    return project


def folded(told: Told, project: int, since: int, until: int) -> dict[tuple[str, str], Tally]:
    """The figures of a time by folding each run, by workflow and operation name."""
    found: dict[tuple[str, str], Tally] = {}
    runs = schema.runs.c
    with told.store.engine.connect() as connection:
        rows = connection.execute(
            select(runs.id, runs.workflow).where(
                runs.project_id == project,
                runs.first_received_at >= since,
                runs.first_received_at < until,
            )
        ).all()
        tries = run_tries(connection, project, [row.id for row in rows])
    for row in rows:
        for operation, tally in tries[row.id].tallies().items():
            found.setdefault((row.workflow, operation), Tally()).add(tally)
    return found


def check(told: Told, project: int, since: int, until: int, buckets: int) -> Overview:
    """An overview, after comparing all its figures with those of folding."""
    overview = told.reader.overview(project, since, until, buckets)
    expected = folded(told, project, since, until)
    total = Tally()
    for tally in expected.values():
        total.add(tally)
    assert overview.figures == render.figures(total.figures())
    assert len(overview.buckets) <= buckets
    for bucket in overview.buckets:
        part = Tally()
        for tally in folded(told, project, bucket.since, bucket.until).values():
            part.add(tally)
        assert bucket.figures == render.figures(part.figures())
    assert {(one.workflow, one.operation) for one in overview.operations} == set(expected)
    for one in overview.operations:
        figures = expected[one.workflow, one.operation].figures()
        assert one.figures == render.figures(figures)
        spread = (one.attempts_p50, one.attempts_p95, one.attempts_max)
        assert spread == (figures.attempts_p50, figures.attempts_p95, figures.attempts_max)
        top = None if one.top_error is None else (one.top_error.code, one.top_error.count)
        assert top == figures.top_error
    listed = told.reader.operation_statistics(project, 500, since=since, until=until).items
    assert {(row.workflow, row.operation) for row in listed} == set(expected)
    for row in listed:
        figures = expected[row.workflow, row.operation].figures()
        assert row == render.operation_row(row.workflow, row.operation, figures)
    return overview


@given(HISTORIES, DELIVERIES, st.tuples(st.sampled_from(STEPS), st.sampled_from(STEPS)))
@ON_A_STORE
def test_figures_are_those_of_folding_every_run(
    told: Told,
    history: list[Envelope],
    deliveries: list[tuple[int, int, bool]],
    edges: tuple[int, int],
) -> None:
    """E4: whatever is summarised, stale or between: sums, edges and stale runs add up exactly."""
    begin = told.clock.now_ns()
    project = deliver(told, history, deliveries)
    since, until = begin - edges[0], told.clock.now_ns() + 1 - edges[1]
    windows = [(begin, told.clock.now_ns() + 1, 7)]
    if since < until:
        windows.append((since, until, 3))
    before = [check(told, project, *window) for window in windows]
    fold_all(told.store)
    assert [check(told, project, *window) for window in windows] == before


FILTERS: tuple[Mapping[str, Any], ...] = (
    *({"verdict": one} for one in get_args(names.Verdict)),
    *({"problem": one} for one in get_args(names.Problem)),
    *({"status": one} for one in get_args(names.RunStatus)),
    {"has_retries": True},
    {"has_retries": False},
    *({"min_attempts": number} for number in (1, 2, 3)),
    {"operation": "push"},
    {"operation": "pull", "verdict": "first_try"},
    {"q": "run-a"},
    {"q": "g pul"},
    {"q": "h", "problem": "open"},
)


@given(HISTORIES, DELIVERIES)
@ON_A_STORE
def test_lists_are_those_of_the_evidence(
    told: Told, history: list[Envelope], deliveries: list[tuple[int, int, bool]]
) -> None:
    """Contract, section 5: each filter names the same runs, whether they are summarised or not."""
    project = deliver(told, history, deliveries)

    def listed() -> list[list[str]]:
        return [
            [run.run_id for run in told.reader.runs(project, RunFilters(**given_)).items]
            for given_ in FILTERS
        ]

    before = listed()
    evidence = told.reader.evidence(project).items
    fold_all(told.store)
    assert listed() == before
    assert told.reader.evidence(project).items == evidence


@given(HISTORIES, DELIVERIES)
@ON_A_STORE
def test_what_is_forgotten_leaves_nothing(
    told: Told, history: list[Envelope], deliveries: list[tuple[int, int, bool]]
) -> None:
    """Retention and deletion: what a run added is taken away again, to the last row."""
    project = deliver(told, history, deliveries)
    fold_all(told.store)
    runs = schema.runs.c
    with told.store.engine.connect() as connection:
        ids = connection.execute(select(runs.id).where(runs.project_id == project)).scalars().all()
    for some in (ids[:1], ids[1:]):
        told.store.write(partial(forget, runs=some)).result(20)
        kept = set(ids) - set(some)
        with told.store.engine.connect() as connection:
            left = select(derived.summaries.c.run).where(derived.summaries.c.run.in_(ids))
            assert set(connection.execute(left).scalars()) <= kept
    with told.store.engine.connect() as connection:
        terms = select(derived.terms.c.id).where(derived.terms.c.project_id == project)
        series = select(derived.series.c.id).where(derived.series.c.project_id == project)
        for table, column, of in (
            (derived.postings, derived.postings.c.term, terms),
            (derived.rollups, derived.rollups.c.series, series),
            (derived.rollup_values, derived.rollup_values.c.series, series),
        ):
            rows = select(func.count()).select_from(table).where(column.in_(of))
            assert connection.execute(rows).scalar_one() == 0
        named = derived.terms.c.kind.in_(("workflow", "operation", "error_code"))
        for names_ in (terms.where(named), series):
            assert connection.execute(names_).all() == []


def test_the_parts_of_a_time_are_whole() -> None:
    """Contract, section 5: buckets follow each other and end with the time asked for."""
    from flowmark_otel.backend.summary import spans  # noqa: PLC0415

    for since, until in ((0, 1), (5, DAY), (HOUR, 30 * DAY), (17, 400 * DAY + 3), (0, LATEST)):
        found = spans.pieces(since, until)
        assert [found[0].since, found[-1].until] == [since, until]
        assert all(one.until == other.since for one, other in pairwise(found))
        for buckets in (1, 2, 30, 200):
            edges = spans.edges_of(since, until, spans.step_of(since, until, buckets))
            assert len(edges) - 1 <= buckets or until == LATEST
            assert all(one < other for one, other in pairwise(edges))
