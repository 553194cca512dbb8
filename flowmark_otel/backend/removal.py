"""Taking runs away: at once for whoever reads and sends, row by row for the disk (section 5).

A run is *buried* in one transaction: its row goes, a tombstone takes its place, and what it held is
no longer counted. What else there is of it, its *remains*, is removed afterwards in transactions of
a bounded number of rows; the tombstone names the id that they carry until none is left, so that
any process can go on where another ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    delete,
    exists,
    func,
    insert,
    literal,
    select,
    tuple_,
    update,
)

from flowmark_otel.backend.store import schema
from flowmark_otel.backend.summary.writing import forget, lock_folding

EXPIRED: Final = "expired"
DELETED: Final = "deleted"
"""Why a run has a tombstone."""

RUNS: Final = 200
"""Runs that one transaction buries, or whose remains it looks for."""

ROWS: Final = 2000
"""Rows of remains that one transaction removes."""

_runs = schema.runs.c
_tombstones = schema.tombstones.c


class Burial(NamedTuple):
    """Why runs are buried, now, and until when the tombstone stays; None for good."""

    reason: str
    now: int
    until: int | None


class Buried(NamedTuple):
    """How many runs were buried, and how many events they held."""

    runs: int
    events: int


def runs_after(
    connection: Connection,
    project_id: int,
    position: tuple[int, int],
    which: Sequence[ColumnElement[bool]],
) -> list[tuple[int, int]]:
    """First arrivals and ids of the next RUNS runs of a project, by both, of those meant."""
    order = (_runs.first_received_at, _runs.id)
    found = connection.execute(
        select(*order)
        .where(_runs.project_id == project_id, *which, tuple_(*order) > tuple_(*position))
        .order_by(*order)
        .limit(RUNS)
    )
    return [(int(row[0]), int(row[1])) for row in found]


def bury(
    connection: Connection,
    project_id: int,
    ids: Sequence[int],
    burial: Burial,
    *,
    before: int | None = None,
) -> Buried:
    """Bury those of the runs of a project that are there.

    ``ids`` are at most ``RUNS`` values of ``runs.id``. With ``before`` a run is left where evidence
    arrived for it at that time or later.
    """
    lock_folding(connection)
    wanted = [_runs.project_id == project_id, _runs.id.in_(ids)]
    if before is not None:
        wanted.append(_runs.last_received_at < before)
    # In the order in which whoever writes holds runs, so that nobody waits in a circle.
    here = select(_runs.id, _runs.workflow).where(*wanted).order_by(_runs.key)
    found = connection.execute(here.with_for_update()).all()
    if not found:
        return Buried(0, 0)
    held = [row[0] for row in found]
    events, groups = _held(connection, held)
    forget(connection, held)
    connection.execute(
        insert(schema.tombstones).from_select(
            ["key", "project_id", "reason", "made_at", "until", "run"],
            select(
                _runs.key,
                _runs.project_id,
                literal(burial.reason),
                literal(burial.now, _tombstones.made_at.type),
                literal(burial.until, _tombstones.until.type),
                _runs.id,
            ).where(_runs.id.in_(held)),
        ),
    )
    connection.execute(delete(schema.runs).where(_runs.id.in_(held)))
    _uncount(connection, project_id, events, groups)
    _forget_names(connection, project_id, sorted({str(row[1]) for row in found}))
    return Buried(len(held), events)


def clear(connection: Connection, rows: int = ROWS) -> bool:
    """Remove up to so many rows of remains; whether there may be more."""
    pending = [
        row[0]
        for row in connection.execute(
            select(_tombstones.run)
            .where(_tombstones.run.is_not(None))
            .order_by(_tombstones.run)
            .limit(RUNS)
            .with_for_update(skip_locked=True),
        ).fetchall()
    ]
    if not pending:
        return False
    left = rows
    # Events go first: once there are none, nothing new can be refused for one of them.
    for table in (schema.events, schema.rejections):
        left -= _remove(connection, table, table.c.run.in_(pending), left)
        if left <= 0:
            return True
    if _remove_occurrences(connection, pending, left) == left:
        return True
    rejections = schema.rejections
    connection.execute(
        update(rejections).where(rejections.c.accepted_run.in_(pending)).values(accepted_run=None),
    )
    connection.execute(
        update(schema.tombstones).where(_tombstones.run.in_(pending)).values(run=None),
    )
    return True


def drop_tombstones(connection: Connection, now: int, rows: int = ROWS) -> bool:
    """Remove up to so many tombstones whose time is over; whether there may be more."""
    over = (_tombstones.until <= now) & _tombstones.run.is_(None)
    return _remove(connection, schema.tombstones, over, rows) == rows


def drop_rejections(connection: Connection, project_id: int, before: int, rows: int = ROWS) -> bool:
    """Remove up to so many rejections that are older and of no run; whether there may be more."""
    columns = schema.rejections.c
    old = (
        (columns.project_id == project_id)
        & (columns.received_at < before)
        & columns.run.is_(None)
        & columns.accepted_run.is_(None)
    )
    return _remove(connection, schema.rejections, old, rows) == rows


def _remove(connection: Connection, table: Table, which: ColumnElement[bool], most: int) -> int:
    [key] = table.primary_key.columns
    some = select(key).where(which).limit(most)
    return connection.execute(delete(table).where(key.in_(some))).rowcount


def _remove_occurrences(connection: Connection, runs: Sequence[int], most: int) -> int:
    """As ``_remove``, for a key of two columns: up to the first row that stays.

    A look-up of many such keys would go through the whole run each time.
    """
    columns = schema.occurrences.c
    ours = columns.run.in_(runs)
    edge = connection.execute(
        select(columns.run, columns.operation_id)
        .where(ours)
        .order_by(columns.run, columns.operation_id)
        .offset(most)
        .limit(1),
    ).fetchone()
    if edge is None:
        return connection.execute(delete(schema.occurrences).where(ours)).rowcount
    before = ours & (columns.run < edge[0])
    of_run = (columns.run == edge[0]) & (columns.operation_id < edge[1])
    return sum(
        connection.execute(delete(schema.occurrences).where(which)).rowcount
        for which in (before, of_run)
    )


def _held(connection: Connection, ids: Sequence[int]) -> tuple[int, int]:
    """The events and the groups of runs."""
    events, occurrences = schema.events.c, schema.occurrences.c
    groups = (
        select(occurrences.run)
        .where(occurrences.run.in_(ids), occurrences.group_id.is_not(None))
        .group_by(occurrences.run, occurrences.operation, occurrences.group_id)
        .subquery("groups_held")
    )
    held = select(
        select(func.count()).where(events.run.in_(ids)).scalar_subquery(),
        select(func.count()).select_from(groups).scalar_subquery(),
    )
    found = connection.execute(held).one()
    return int(found[0]), int(found[1])


def _uncount(connection: Connection, project_id: int, events: int, groups: int) -> None:
    """Take away from a shard of the project what is no longer held; only the sum has a meaning."""
    usage = schema.usage
    first = (
        select(func.min(usage.c.shard)).where(usage.c.project_id == project_id).scalar_subquery()
    )
    connection.execute(
        update(usage)
        .where(usage.c.project_id == project_id, usage.c.shard == first)
        .values(events=usage.c.events - events, groups=usage.c.groups - groups),
    )


def _forget_names(connection: Connection, project_id: int, workflows: Sequence[str]) -> None:
    """Forget the names of workflows that have no run any more."""
    names = schema.known_names
    used = exists().where(
        _runs.project_id == names.c.project_id, _runs.workflow == names.c.workflow
    )
    connection.execute(
        delete(names).where(
            names.c.project_id == project_id, names.c.workflow.in_(workflows), ~used
        ),
    )
