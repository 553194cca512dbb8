"""Figures of operation names over many runs (E4; contract, section 5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sqlalchemy import Connection, select, tuple_

from flowmark_otel.backend.read import cursor, render
from flowmark_otel.backend.read.evidence import DbRow
from flowmark_otel.backend.read.filters import RunFilters, conditions
from flowmark_otel.backend.read.tries import run_tries
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.views import OperationRow, Page
from flowmark_otel.fold.rates import Tally

_AT_ONCE: Final = 500  # runs; memory goes by these, not by the store
_LIST: Final = "operations"


def operation_page(
    connection: Connection,
    project_id: int,
    wanted: RunFilters,
    limit: int,
    after: str | None,
) -> Page[OperationRow]:
    """Operation names by time lost, the most first; over the runs that ``wanted`` names."""
    position = cursor.decode(_LIST, after, (int, str, str))
    rows = sorted(
        (
            render.operation_row(workflow, operation, tally.figures())
            for (workflow, operation), tally in _tallies(connection, project_id, wanted).items()
        ),
        key=_order,
    )
    if position is not None:
        rows = [row for row in rows if _order(row) > position_order(position)]
    last = rows[limit - 1] if len(rows) > limit else None
    return Page(
        tuple(rows[:limit]),
        cursor.encode(_LIST, (last.time_lost_ns, last.workflow, last.operation)) if last else None,
    )


def position_order(position: cursor.Position) -> tuple[int, str, str]:
    """A position of this list as it is ordered."""
    lost, workflow, operation = position
    return -int(lost), str(workflow), str(operation)


def _order(row: OperationRow) -> tuple[int, str, str]:
    return -row.time_lost_ns, row.workflow, row.operation


def _tallies(
    connection: Connection, project_id: int, wanted: RunFilters
) -> dict[tuple[str, str], Tally]:
    tallies: dict[tuple[str, str], Tally] = {}
    for some in _runs(connection, project_id, wanted):
        workflows = {row.id: row.workflow for row in some}
        for run, tries in run_tries(connection, project_id, list(workflows)).items():
            for (operation, _), group in tries.groups.items():
                tallies.setdefault((workflows[run], operation), Tally()).add_group(group)
            for operation, status in tries.ordinary:
                tallies.setdefault((workflows[run], operation), Tally()).add_ordinary(status)
    return tallies


def _runs(connection: Connection, project_id: int, wanted: RunFilters) -> Iterator[Sequence[DbRow]]:
    columns = schema.runs.c
    position: tuple[int, int] | None = None
    while True:
        statement = (
            select(columns.id, columns.workflow, columns.first_received_at)
            .where(*conditions(project_id, wanted))
            .order_by(columns.first_received_at, columns.id)
            .limit(_AT_ONCE)
        )
        if position is not None:
            statement = statement.where(
                tuple_(columns.first_received_at, columns.id) > tuple_(*position)
            )
        some = connection.execute(statement).all()
        if some:
            yield some
            position = (some[-1].first_received_at, some[-1].id)
        if len(some) < _AT_ONCE:
            return
