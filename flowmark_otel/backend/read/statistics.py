"""Figures of operation names over many runs (E4; contract, section 5)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlalchemy import Connection

from flowmark_otel.backend.read import cursor, render
from flowmark_otel.backend.read.gathering import Gathered
from flowmark_otel.backend.read.runs import RunRow
from flowmark_otel.backend.summary.rollups import ALL
from flowmark_otel.backend.summary.stored import kept
from flowmark_otel.backend.tries import run_tries
from flowmark_otel.backend.views import OperationRow, Page
from flowmark_otel.fold.rates import Figures, Tally

LATEST: Final = 2**63 - 1


def operation_page(
    connection: Connection,
    project_id: int,
    asked: tuple[int | None, int | None, str | None],
    limit: int,
    after: str | None,
) -> Page[OperationRow]:
    """Operation names by time lost, the most first; ``asked``: since, until and workflow."""
    since, until, workflow = asked
    name = cursor.name_of("operations", asked)
    position = cursor.decode(name, after, (int, str, str))
    begin, end = since or 0, LATEST if until is None else until
    found = Gathered(connection, project_id, begin, end, workflow)
    rows = sorted(
        (
            render.operation_row(*one, tally.figures(), found.not_included)
            for one, tally in found.tallies.items()
            if one != ALL
        ),
        key=_order,
    )
    if position is not None:
        rows = [row for row in rows if _order(row) > position_order(position)]
    last = rows[limit - 1] if len(rows) > limit else None
    return Page(
        tuple(rows[:limit]),
        cursor.encode(name, (last.time_lost_ns, last.workflow, last.operation)) if last else None,
    )


def of_run(connection: Connection, project_id: int, run: RunRow) -> tuple[OperationRow, ...]:
    """The figures of one run, per operation name; folded only where its summary is stale."""
    summary = None if run.stale else kept(connection, [run.id]).get(run.id)
    tallies = (
        run_tries(connection, project_id, [run.id])[run.id].tallies()
        if summary is None
        else summary.tallies
    )
    rows = [render.operation_row(run.workflow, *one) for one in _figures(tallies)]
    return tuple(sorted(rows, key=_order))


def _figures(tallies: dict[str, Tally]) -> Iterator[tuple[str, Figures]]:
    for operation, tally in tallies.items():
        yield operation, tally.figures()


def position_order(position: cursor.Position) -> tuple[int, str, str]:
    """A position of this list as it is ordered."""
    lost, workflow, operation = position
    return -int(lost), str(workflow), str(operation)


def _order(row: OperationRow) -> tuple[int, str, str]:
    return -row.time_lost_ns, row.workflow, row.operation
