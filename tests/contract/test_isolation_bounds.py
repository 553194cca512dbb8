"""What another project holds spends no bound and no time of ours (fault row 22, I5).

Reading ends somewhere: so many runs are named, counted or looked at. Were those of another project
among them, the shape of an answer would tell that they are there, and its time as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from sqlalchemy import select

from flowmark_otel.backend.read import RunFilters, elsewhere, finding
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.summary import search
from flowmark_otel.backend.summary.worker import fold_all
from flowmark_otel.model import SpanEvent
from flowmark_otel.names import ATTEMPT_OBSERVED, OBSERVED_NUMBER, OBSERVED_OUTCOME
from tests.conftest import STORES
from tests.support.history import Ingested, attempt, ingested, operation_of, span

OURS, THEIRS = 1, 2
MOST = 3
"""A bound as the tests set it; they have more runs than this, and we have fewer."""


@pytest.fixture(scope="module", params=STORES)
def both(request: pytest.FixtureRequest, new_store: Callable[[str], str]) -> Iterator[Ingested]:
    """Two runs of ours of one group among twenty of theirs, all summarised."""
    with ingested(new_store(request.param)) as store:
        for number in range(20):
            given = attempt("batch-42", 1, run_id=f"r{number}")
            store.send(span(number + 1, given), project=THEIRS)
            if number in (3, 9):
                store.send(span(number + 1, given), project=OURS)
        fold_all(store.store)
        yield store


def test_runs_of_another_project_are_not_counted(
    both: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 22: whether a group was counted to the end tells nothing of who else names it."""
    monkeypatch.setattr(elsewhere, "MOST_LOOKED_AT", MOST)
    for run in both.reader.runs(OURS).items:
        (group,) = both.reader.attempts(OURS, run.key).items
        assert (group.elsewhere_count, group.elsewhere_at_least) == (1, False)
    theirs = both.reader.runs(THEIRS, None, 1).items[0]
    (group,) = both.reader.attempts(THEIRS, theirs.key).items
    assert (group.elsewhere_count, group.elsewhere_at_least) == (MOST, True)


@pytest.mark.parametrize(
    "filters",
    [
        RunFilters(group_id="batch-42"),
        RunFilters(group_id="batch-42", operation="push-to-crm"),
        RunFilters(q="batch-42"),
        RunFilters(q="crm"),
    ],
    ids=str,
)
def test_runs_of_another_project_are_not_looked_through(
    both: Ingested, monkeypatch: pytest.MonkeyPatch, filters: RunFilters
) -> None:
    """Row 22: a page ends where ours do, and is no shorter for all that others hold."""
    monkeypatch.setattr(finding, "MOST_NAMED", MOST)
    monkeypatch.setattr(finding, "MOST_LOOKED_AT", MOST)
    monkeypatch.setattr(finding, "_ESTIMATE", 1)  # look the words up, whatever the terms are
    page = both.reader.runs(OURS, filters, 2)
    assert [run.run_id for run in page.items] == ["r9", "r3"]
    assert page.next is None
    page = both.reader.runs(THEIRS, filters, 2)
    assert page.next is not None


def test_full_text_is_a_projects_own(both: Ingested) -> None:
    """Row 22: words find the runs of the project that asks, among whatever runs are given."""
    with both.store.engine.connect() as connection:
        runs = schema.runs.c
        held: dict[int, set[int]] = {OURS: set(), THEIRS: set()}
        for run, project_id in connection.execute(select(runs.id, runs.project_id)):
            held[project_id].add(run)
        everything = held[OURS] | held[THEIRS]
        for project_id, own in held.items():
            assert set(search.some(connection, project_id, [["crm"]], 100)) == own
            assert search.among(connection, project_id, [["crm"]], everything) == own
        assert search.some(connection, 3, [["crm"]], 100) == []


def test_no_code_begins_with_another() -> None:
    """Row 22: the words of no project are found behind the code of another."""
    some = (*range(1, 40), *(36**n + d for n in range(1, 13) for d in (-1, 0, 1) if 36**n < 2**63))
    codes = sorted({search.code_of(project_id) for project_id in (*some, 2**63 - 1)})
    assert len(codes) == len({*some, 2**63 - 1})
    assert not [pair for pair in pairwise(codes) if pair[1].startswith(pair[0])]
    assert all(
        code.isascii() and code.isalnum() and code.islower() | code.isdigit() for code in codes
    )


def test_every_occurrence_has_the_project_of_its_run(both: Ingested) -> None:
    """Row 22: whatever came first of an operation, it is looked up where its run is."""
    seen = {OBSERVED_NUMBER: 1, OBSERVED_OUTCOME: "failed"}
    tried = span(40, attempt("batch-1", 1, run_id="late"))
    observed = tried._replace(events=(SpanEvent(ATTEMPT_OBSERVED, 5, seen),))
    for project_id in (OURS, THEIRS):
        both.send(span(41, operation_of("late", operation="load")), project=project_id)
        both.send(observed, project=project_id)
    occurrences, runs = schema.occurrences.c, schema.runs.c
    with both.store.engine.connect() as connection:
        found = connection.execute(
            select(occurrences.project_id, runs.project_id, occurrences.operation).join_from(
                schema.occurrences, schema.runs, occurrences.run == runs.id
            )
        ).all()
    assert {operation for _, _, operation in found} == {"push-to-crm", "load"}
    assert [own for own, project_id, _ in found if own != project_id] == []
