"""Rows of the store → evidence as ``fold`` reads it. Every statement carries the project."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import orjson
from sqlalchemy import ColumnElement, Connection, and_, or_, select, text

from flowmark_otel import names
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.times import unwrap_time
from flowmark_otel.fold.rows import Accepted, Conflicting
from flowmark_otel.model import Value

T = TypeVar("T")
DbRow: TypeAlias = Any
"""A row of the driver; the statement beside its use says which columns it has."""
Conflicts: TypeAlias = dict[int, list[Conflicting]]
"""Rejected events that matter to a run, by ``runs.id``."""

_CHUNK: Final = 500  # parameters of one statement
_events = schema.events.c
_rejections = schema.rejections.c

ACCEPTED: Final = (
    _events.id,
    _events.event,
    _events.trace_id,
    _events.span_id,
    _events.part,
    _events.sent_at,
    _events.received_at,
    _events.attributes,
    _events.dropped_attributes,
    _events.characters_replaced,
)
CONFLICTING: Final = (
    _rejections.id,
    _rejections.event,
    _rejections.event_id,
    _rejections.message,
    _rejections.sent_at,
    _rejections.received_at,
    _rejections.digest,
    _rejections.attributes,
    _rejections.operation,
    _rejections.operation_id,
    _rejections.group_id,
    _rejections.number,
    _rejections.run,
)
# Written out, not bound: only so can a planner see that the partial index holds all rows.
OF_RUNS: Final = text("events.part IN ('run-start', 'run-end')")
OBSERVED: Final = text("events.event = 'flowmark.attempt.observed'")

# The accepted event that a rejected one shares its event id with.
SAME_EVENT_ID: Final = and_(
    _events.project_id == _rejections.project_id,
    _events.trace_id == _rejections.trace_id,
    _events.span_id == _rejections.span_id,
    _events.part == _rejections.part,
    _events.origin == _rejections.origin,
)


def belongs(column: ColumnElement[int], project_id: int) -> ColumnElement[bool]:
    """Whether a row that is found by another key is the project's.

    Written so that no planner takes the project for the way to the row: a project is most of a
    store, and its rows would be read one by one.
    """
    return column + 0 == project_id


def chunks(items: Iterable[T], size: int = _CHUNK) -> Iterator[Sequence[T]]:
    """Cut into lists that one statement can name."""
    found = list(items)
    for begin in range(0, len(found), size):
        yield found[begin : begin + size]


def accepted(row: DbRow) -> Accepted:
    """A row of the columns ``ACCEPTED``; further columns are left aside."""
    order, event, trace_id, span_id, part, sent_at, received_at, attributes, dropped, replaced = (
        row[: len(ACCEPTED)]
    )
    return Accepted(
        order,
        event,
        trace_id,
        span_id,
        part,
        unwrap_time(sent_at),
        received_at,
        orjson.loads(attributes),
        dropped,
        bool(replaced),
    )


def conflicting(row: DbRow, run: int, met: str | None = None) -> Conflicting:
    """A row of the columns ``CONFLICTING``, as the run with the id ``run`` sees it."""
    return Conflicting(
        row.id,
        row.event,
        row.event_id,
        row.message,
        unwrap_time(row.sent_at),
        row.received_at,
        row.digest,
        orjson.loads(row.attributes),
        row.operation,
        row.operation_id,
        row.group_id,
        row.number,
        row.run == run,
        met,
    )


def run_events(
    connection: Connection, project_id: int, runs: Sequence[int]
) -> dict[int, list[Accepted]]:
    """The own events of runs, by ``runs.id``, in order of arrival."""
    found: dict[int, list[Accepted]] = {run: [] for run in runs}
    for some in chunks(runs):
        statement = (
            select(*ACCEPTED, _events.run)
            .where(_events.run.in_(some), OF_RUNS, belongs(_events.project_id, project_id))
            .order_by(_events.run, _events.id)
        )
        for row in connection.execute(statement):
            found[row.run].append(accepted(row))
    return found


def events_by_id(
    connection: Connection, project_id: int, ids: Iterable[int | None]
) -> Iterator[Accepted]:
    """Events by ``events.id``; None among the ids stands for nothing."""
    for some in chunks(one for one in ids if one is not None):
        statement = select(*ACCEPTED).where(
            _events.id.in_(some), belongs(_events.project_id, project_id)
        )
        yield from map(accepted, connection.execute(statement))


def observed_events(connection: Connection, project_id: int, run: int) -> list[Accepted]:
    """The tries observed inside the operations of a run, in order of arrival."""
    statement = (
        select(*ACCEPTED)
        .where(_events.run == run, OBSERVED, belongs(_events.project_id, project_id))
        .order_by(_events.id)
    )
    return [accepted(row) for row in connection.execute(statement)]


def conflicts(connection: Connection, project_id: int, runs: Sequence[int]) -> Conflicts:
    """The rejected events that matter to runs, by ``runs.id``, in order of arrival.

    Those that name the run, and those that name another but have the event id of one of its
    accepted events.
    """
    found: Conflicts = {run: [] for run in runs}
    for some in chunks(runs):
        _add_conflicts(
            connection,
            found,
            and_(
                belongs(_rejections.project_id, project_id),
                or_(_rejections.run.in_(some), _rejections.accepted_run.in_(some)),
            ),
        )
    return found


def conflicts_with(
    connection: Connection, project_id: int, run: int, origin: str, events: Iterable[Accepted]
) -> list[Conflicting]:
    """The rejected events that have the event id of one of the given accepted ones of a run."""
    found: Conflicts = {run: []}
    for some in chunks({event.event_id for event in events}):
        _add_conflicts(
            connection,
            found,
            and_(
                _rejections.project_id == project_id,
                _rejections.origin == origin,
                _rejections.event_id.in_(some),
            ),
        )
    return found[run]


def _add_conflicts(connection: Connection, found: Conflicts, which: ColumnElement[bool]) -> None:
    statement = (
        select(*CONFLICTING, _events.run.label("met_run"), _events.attributes.label("met"))
        .select_from(schema.rejections.outerjoin(schema.events, SAME_EVENT_ID))
        .where(which, _rejections.code == names.CONFLICT)
        .order_by(_rejections.id)
    )
    for row in connection.execute(statement):
        met: Value | None = None
        if row.met_run in found:
            met = orjson.loads(row.met).get(names.OPERATION_ID)
        for run in {row.run, row.met_run} & found.keys():
            operation_id = str(met) if met is not None and run == row.met_run else None
            found[run].append(conflicting(row, run, operation_id))
