"""Where a group occurs in other runs as well: named and counted, never merged (A3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Subquery,
    and_,
    case,
    exists,
    func,
    or_,
    select,
    tuple_,
)

from flowmark_otel.backend.evidence import DbRow, belongs, chunks
from flowmark_otel.backend.read.render import Elsewhere
from flowmark_otel.backend.read.runs import RunRow
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.tries import GroupKey

MOST_NAMED: Final = 20
"""So many runs are named, the latest of them."""

MOST_LOOKED_AT: Final = 10_000
"""Of one group so many runs are looked at: an id that every run uses must not make a page slow."""

_columns = schema.occurrences.c
_runs = schema.runs.c


def elsewhere(
    connection: Connection, project_id: int, run: RunRow, keys: Sequence[GroupKey]
) -> dict[GroupKey, Elsewhere]:
    """The other runs of the run's project and origin that name the same group, by group."""
    found = dict.fromkeys(keys, Elsewhere())
    for operation, group_id in _repeated(connection, project_id, run, keys):
        found[operation, group_id] = _others(connection, project_id, run, operation, group_id)
    return found


def _repeated(
    connection: Connection, project_id: int, run: RunRow, keys: Sequence[GroupKey]
) -> list[DbRow]:
    """The groups that any other run of the project names; few do, and only those are counted."""
    repeated: list[DbRow] = []
    for some in chunks(keys):
        # Each group once: its attempts, of which there may be thousands, all name the same.
        named = (
            select(_columns.operation, _columns.group_id)
            .where(
                _columns.run == run.id,
                tuple_(_columns.operation, _columns.group_id).in_(some),
                _columns.group_id.is_not(None),
            )
            .distinct()
            .subquery("named")
        )
        repeated += connection.execute(select(named).where(_elsewhere(project_id, named, run)))
    return repeated


def _elsewhere(project_id: int, named: Subquery, run: RunRow) -> ColumnElement[bool]:
    """Whether another run names the group: one stored before, or one stored after.

    A seek in the index each; all of the run's own rows may lie between them.
    """
    other = schema.occurrences.alias("other").c
    same = (
        other.project_id == project_id,
        other.group_id == named.c.group_id,
        other.operation == named.c.operation,
        other.group_id.is_not(None),
    )
    return or_(exists().where(*same, other.run < run.id), exists().where(*same, other.run > run.id))


def _others(
    connection: Connection, project_id: int, run: RunRow, operation: str, group_id: str
) -> Elsewhere:
    same = and_(
        _columns.project_id == project_id,
        _columns.group_id == group_id,
        _columns.group_id.is_not(None),
        _columns.operation == operation,
        _columns.run != run.id,
    )
    ours = and_(belongs(_runs.project_id, project_id), _runs.origin == run.origin)
    latest = (
        select(_columns.run)
        .where(same)
        .distinct()
        .order_by(_columns.run.desc())
        .limit(MOST_LOOKED_AT)
        .subquery("latest")
    )
    looked_at, count = connection.execute(
        select(func.count(), func.count(case((ours, 1)))).select_from(
            latest.join(schema.runs, _runs.id == latest.c.run)
        )
    ).one()
    if not count:
        return Elsewhere()
    # Not among ``latest``, so that it ends with the last one wanted; all of these are in there.
    named = (
        select(_runs.key, _columns.run)
        .join_from(schema.occurrences, schema.runs, _runs.id == _columns.run)
        .where(same, ours)
        .distinct()
        .order_by(_columns.run.desc())
        .limit(min(count, MOST_NAMED))
    )
    found = connection.execute(named).scalars().all()
    return Elsewhere(found, count, looked_at == MOST_LOOKED_AT)
