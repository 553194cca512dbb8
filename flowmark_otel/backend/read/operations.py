"""The occurrences and groups of one run, paged, and the evidence behind a page of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import ColumnElement, Connection, case, func, select, tuple_

from flowmark_otel import names
from flowmark_otel.backend.evidence import (
    DbRow,
    belongs,
    chunks,
    conflicts,
    conflicts_with,
    events_by_id,
    observed_events,
)
from flowmark_otel.backend.read import cursor, render
from flowmark_otel.backend.read.elsewhere import elsewhere
from flowmark_otel.backend.read.runs import RunRow
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.tries import GroupKey
from flowmark_otel.backend.views import GroupView, OccurrenceView, Page
from flowmark_otel.fold.groups import groups
from flowmark_otel.fold.rows import Accepted, Conflicting
from flowmark_otel.fold.state import Occurrence, occurrences

_ACCEPTED: Final = "accepted"
_REJECTED: Final = "rejected"
_columns = schema.occurrences.c
_rejections = schema.rejections.c

# The order of arrival of whichever of start and end came first.
_FIRST: Final[ColumnElement[int]] = case(
    (_columns.start_event.is_(None), _columns.end_event),
    (_columns.end_event.is_(None), _columns.start_event),
    (_columns.start_event < _columns.end_event, _columns.start_event),
    else_=_columns.end_event,
)


def occurrence_page(
    connection: Connection, project_id: int, run: RunRow, limit: int, after: str | None
) -> Page[OccurrenceView]:
    """Occurrences by first arrival."""
    name = f"operations {run.key.hex()}"
    (begin,) = cursor.decode(name, after, (int,)) or (0,)
    rows = connection.execute(
        select(_columns.start_event, _columns.end_event, _FIRST.label("first"))
        .where(
            _columns.run == run.id,
            _columns.fields.is_not(None),
            begin < _FIRST,
        )
        .order_by(_FIRST)
        .limit(limit + 1)
    ).all()
    shown = rows[:limit]
    found, _ = _evidence(connection, project_id, run, shown)
    more = cursor.encode(name, (shown[-1].first,)) if len(rows) > limit else None
    return Page(tuple(map(render.occurrence, found)), more)


def group_page(
    connection: Connection,
    project_id: int,
    run: RunRow,
    limit: int,
    after: str | None,
    *,
    others: bool = True,
    operation: str | None = None,
) -> Page[GroupView]:
    """Groups by first arrival; those known only from rejected evidence come last.

    ``others``: whether the other runs that name the same groups are looked for.
    ``operation``: those of this name alone.
    """
    name = f"attempts {run.key.hex()}"
    if operation is not None:
        name = cursor.name_of(name, operation)
    part, begin = cursor.decode(name, after, (str, int)) or (_ACCEPTED, 0)
    listed: list[tuple[str, int, GroupKey]] = []
    if part == _ACCEPTED:
        listed += _accepted_groups(connection, run, operation, int(begin), limit + 1)
        begin = 0
    if len(listed) <= limit:
        room = limit + 1 - len(listed)
        listed += _rejected_groups(connection, project_id, run, operation, int(begin), room)
    more = cursor.encode(name, listed[limit - 1][:2]) if len(listed) > limit else None
    keys = [key for _, _, key in listed[:limit]]
    return Page(groups_of(connection, project_id, run, keys, others=others), more)


def groups_of(
    connection: Connection,
    project_id: int,
    run: RunRow,
    keys: Sequence[GroupKey],
    *,
    others: bool = True,
) -> tuple[GroupView, ...]:
    """The groups of these operation names and group ids, without those that the run has not."""
    rows = [
        row
        for some in chunks(keys)
        for row in connection.execute(
            select(_columns.start_event, _columns.end_event).where(
                _columns.run == run.id,
                tuple_(_columns.operation, _columns.group_id).in_(some),
                _columns.group_id.is_not(None),
            )
        )
    ]
    found, rejected = _evidence(connection, project_id, run, rows)
    by_key = {(group.operation, group.group_id): group for group in groups(found, rejected)}
    known = [key for key in keys if key in by_key]
    found_elsewhere = elsewhere(connection, project_id, run, known if others else ())
    nowhere = render.Elsewhere()
    return tuple(render.group(by_key[key], found_elsewhere.get(key, nowhere)) for key in known)


def occurrence_of(
    connection: Connection, project_id: int, run: RunRow, operation_id: str
) -> OccurrenceView | None:
    """The occurrence with an operation id, None where the run has none."""
    rows = connection.execute(
        select(_columns.start_event, _columns.end_event).where(
            _columns.run == run.id,
            _columns.operation_id == operation_id,
            _columns.fields.is_not(None),
        )
    ).all()
    found, _ = _evidence(connection, project_id, run, rows)
    return render.occurrence(found[0]) if found else None


def _accepted_groups(
    connection: Connection, run: RunRow, operation: str | None, begin: int, limit: int
) -> list[tuple[str, int, GroupKey]]:
    first = func.min(_FIRST)
    statement = (
        select(_columns.operation, _columns.group_id, first)
        .where(
            _columns.run == run.id,
            _columns.group_id.is_not(None),
            *([] if operation is None else [_columns.operation == operation]),
        )
        .group_by(_columns.operation, _columns.group_id)
        .having(first > begin)
        .order_by(first)
        .limit(limit)
    )
    return [
        (_ACCEPTED, position, (name, group_id))
        for name, group_id, position in connection.execute(statement)
    ]


def _rejected_groups(
    connection: Connection,
    project_id: int,
    run: RunRow,
    operation: str | None,
    begin: int,
    limit: int,
) -> list[tuple[str, int, GroupKey]]:
    first = func.min(_rejections.id)
    named = connection.execute(
        select(_rejections.operation, _rejections.group_id, first)
        .where(
            _rejections.run == run.id,
            belongs(_rejections.project_id, project_id),
            _rejections.code == names.CONFLICT,
            _rejections.group_id.is_not(None),
            *([] if operation is None else [_rejections.operation == operation]),
        )
        .group_by(_rejections.operation, _rejections.group_id)
        .having(first > begin)
        .order_by(first)
    ).all()
    if not named:
        return []
    rows = connection.execute(
        select(_columns.operation, _columns.group_id)
        .where(_columns.run == run.id, _columns.group_id.is_not(None))
        .distinct()
    )
    accepted = set(map(tuple, rows))
    listed = [
        (_REJECTED, position, (name, group_id))
        for name, group_id, position in named
        if (name, group_id) not in accepted
    ]
    return listed[:limit]


def _evidence(
    connection: Connection, project_id: int, run: RunRow, rows: Sequence[DbRow]
) -> tuple[tuple[Occurrence, ...], list[Conflicting]]:
    """The occurrences whose start and end events ``rows`` name, by first arrival.

    And the rejected events that matter to them, or to any other place of the run.
    """
    ids = [event for row in rows for event in (row.start_event, row.end_event)]
    events: list[Accepted] = list(events_by_id(connection, project_id, ids))
    shown = {event.attributes[names.OPERATION_ID] for event in events}
    events += (
        event
        for event in observed_events(connection, project_id, run.id)
        if event.attributes[names.OPERATION_ID] in shown
    )
    rejected = {
        record.order: record
        for record in (
            *conflicts(connection, project_id, [run.id])[run.id],
            *conflicts_with(connection, project_id, run.id, run.origin, events),
        )
    }
    found = list(rejected.values())
    return occurrences(events, found), found
