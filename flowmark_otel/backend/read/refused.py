"""What was refused, event by event, the latest arrival first (contract, section 5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Select, select, tuple_

from flowmark_otel import names
from flowmark_otel.backend.evidence import DbRow, belongs
from flowmark_otel.backend.read.unknown import attempt_name, run_ref
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.views import EvidenceItem, Time
from flowmark_otel.model import event_id

_rejections = schema.rejections.c
_runs = schema.runs.c
_senders = schema.senders.c
_events = schema.events.c
_occurrences = schema.occurrences.c
_ENDS: Final = (names.OPERATION_COMPLETED, names.OPERATION_FAILED)
_RUN: Final = (_runs.workflow, _runs.run_id, _runs.key)


def places(
    project_id: int,
    since: int | None,
    until: int | None,
    after: tuple[int, int] | None,
    size: int,
) -> Select[Any]:
    """Arrival and ``rejections.id`` of the refused events of a project, the latest first."""
    arrival = _rejections.received_at
    statement = select(arrival, _rejections.id).where(_rejections.project_id == project_id)
    if since is not None:
        statement = statement.where(arrival >= since)
    if until is not None:
        statement = statement.where(arrival < until)
    if after is not None:
        statement = statement.where(tuple_(arrival, _rejections.id) < tuple_(*after))
    return statement.order_by(arrival.desc(), _rejections.id.desc()).limit(size)


def items_of(
    connection: Connection,
    project_id: int,
    ids: Sequence[int],
    *,
    conflicts: bool,
    workflow: str | None,
    service: str | None,
) -> Iterator[tuple[int, EvidenceItem]]:
    """Those of the refused events that are wanted, with their ``rejections.id``, in order.

    ``conflicts``: as places in conflict, with the accepted evidence that each of them met.
    """
    statement = (
        select(schema.rejections, *_RUN, _senders.service_name)
        .outerjoin(schema.runs, _runs.id == _rejections.run)
        .outerjoin(schema.senders, _senders.id == _rejections.sender)
        .where(_rejections.id.in_(ids), belongs(_rejections.project_id, project_id))
        .order_by(_rejections.received_at.desc(), _rejections.id.desc())
    )
    if conflicts:
        statement = statement.where(_rejections.code == names.CONFLICT)
    if workflow is not None:
        statement = statement.where(_runs.workflow == workflow)
    if service is not None:
        statement = statement.where(_senders.service_name == service)
    rows = connection.execute(statement).all()
    for row in rows:
        if conflicts:
            yield row.id, _view("conflict", row, *_met(connection, row))
        else:
            yield row.id, _view("rejected", row, row.code, [])


def _view(
    kind: names.Problem, row: DbRow, reason: names.EvidenceReason, met: Sequence[str]
) -> EvidenceItem:
    own = [row.event_id] if row.event_id else []
    named = attempt_name(row.operation, row.group_id, row.number)
    about = f" for {named.rstrip(',')}" if row.run is not None else ""
    return EvidenceItem(
        kind=kind,
        reason=reason,
        run=None if row.key is None else run_ref(row),
        operation=row.operation,
        group_id=row.group_id,
        number=row.number,
        last_number=None,
        service=row.service_name or None,
        event_ids=tuple(dict.fromkeys((*own, *met))),
        first_received_at=Time(row.received_at),
        says=f"An event{about} was refused as {row.code}: {row.message}.",
    )


def _met(connection: Connection, row: DbRow) -> tuple[names.EvidenceReason, list[str]]:
    """What a conflict met, and the ids of the accepted events of it."""
    same = connection.execute(
        select(_events.id).where(
            _events.project_id == row.project_id,
            _events.trace_id == row.trace_id,
            _events.span_id == row.span_id,
            _events.part == row.part,
            _events.origin == row.origin,
        )
    ).first()
    if same is not None:
        return names.EVIDENCE_EVENT_ID, []
    known = connection.execute(
        select(_occurrences.start_event, _occurrences.end_event, _occurrences.fields).where(
            _occurrences.run == row.run, _occurrences.operation_id == row.operation_id
        )
    ).first()
    if known is not None:
        second = row.event in _ENDS and known.end_event is not None
        found = _ids(connection, known)
        return (names.EVIDENCE_SECOND_END if second else names.EVIDENCE_OPERATION_ID), found
    place = connection.execute(
        select(_occurrences.start_event, _occurrences.end_event).where(
            _occurrences.run == row.run,
            _occurrences.operation == row.operation,
            _occurrences.group_id == row.group_id,
            _occurrences.group_id.is_not(None),
            _occurrences.number == row.number,
        )
    ).first()
    return names.EVIDENCE_PLACE, [] if place is None else _ids(connection, place)


def _ids(connection: Connection, known: DbRow) -> list[str]:
    wanted = [one for one in (known.start_event, known.end_event) if one is not None]
    rows = connection.execute(
        select(_events.trace_id, _events.span_id, _events.part)
        .where(_events.id.in_(wanted))
        .order_by(_events.id)
    )
    return [event_id(*row) for row in rows]
