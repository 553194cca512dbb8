"""The evidence of one run in order of arrival, rejected events among the accepted ones."""

from __future__ import annotations

from typing import Final

import orjson
from sqlalchemy import Connection, or_, select

from flowmark_otel.backend.evidence import ACCEPTED, DbRow, accepted, belongs
from flowmark_otel.backend.read import cursor, render
from flowmark_otel.backend.read.runs import RunRow
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.times import unwrap_time
from flowmark_otel.backend.views import EventView, Page, SenderView, Time
from flowmark_otel.fold import digest
from flowmark_otel.model import Envelope

_events = schema.events.c
_rejections = schema.rejections.c
_senders = schema.senders.c
_SENDER: Final = (
    _senders.user_agent,
    _senders.service_name,
    _senders.service_version,
    _senders.service_instance_id,
)


def event_page(
    connection: Connection, project_id: int, run: RunRow, limit: int, after: str | None
) -> Page[EventView]:
    """Events by arrival.

    Accepted and rejected ones have an order of their own each; the cursor holds both, so neither
    a step of the clock nor a new event moves what was shown.
    """
    name = f"events {run.key.hex()}"
    stored, rejected = cursor.decode(name, after, (int, int)) or (0, 0)
    found = sorted(
        [
            *_stored(connection, project_id, run, int(stored), limit + 1),
            *_rejected(connection, project_id, run, int(rejected), limit + 1),
        ],
        key=lambda one: one[0],
    )
    position = {"stored": int(stored), "rejected": int(rejected)}
    for _, order, view in found[:limit]:
        position[view.state] = order
    more = None
    if len(found) > limit:
        more = cursor.encode(name, (position["stored"], position["rejected"]))
    return Page(tuple(view for _, _, view in found[:limit]), more)


def _stored(
    connection: Connection, project_id: int, run: RunRow, begin: int, limit: int
) -> list[tuple[int, int, EventView]]:
    statement = (
        select(*ACCEPTED, *_SENDER)
        .outerjoin(schema.senders, _senders.id == _events.sender)
        .where(_events.run == run.id, _events.id > begin, belongs(_events.project_id, project_id))
        .order_by(_events.id)
        .limit(limit)
    )
    found = []
    latest = 0
    for row in connection.execute(statement):
        event = accepted(row)
        envelope = Envelope(
            event.event,
            event.trace_id,
            event.span_id,
            event.part,
            event.sent_at,
            dict(event.attributes),
        )
        view = EventView(
            event_id=event.event_id,
            event=event.event,
            state="stored",
            code=None,
            message=None,
            origin=run.origin,
            trace_id=event.trace_id.hex(),
            span_id=event.span_id.hex(),
            sent_at=render.sent_time(event.sent_at),
            received_at=Time(event.received_at),
            digest=digest(envelope).hex(),
            attributes=event.attributes,
            dropped_attributes=event.dropped_attributes,
            characters_replaced=event.characters_replaced,
            sender=_sender(row),
        )
        latest = max(latest, event.received_at)
        found.append((latest, event.order, view))
    return found


def _rejected(
    connection: Connection, project_id: int, run: RunRow, begin: int, limit: int
) -> list[tuple[int, int, EventView]]:
    statement = (
        select(schema.rejections, *_SENDER)
        .outerjoin(schema.senders, _senders.id == _rejections.sender)
        .where(
            or_(_rejections.run == run.id, _rejections.accepted_run == run.id),
            _rejections.id > begin,
            belongs(_rejections.project_id, project_id),
        )
        .order_by(_rejections.id)
        .limit(limit)
    )
    found = []
    latest = 0
    for row in connection.execute(statement):
        view = EventView(
            event_id=row.event_id,
            event=row.event,
            state="rejected",
            code=row.code,
            message=row.message,
            origin=row.origin,
            trace_id=row.trace_id.hex(),
            span_id=row.span_id.hex(),
            sent_at=render.sent_time(unwrap_time(row.sent_at)),
            received_at=Time(row.received_at),
            digest=row.digest.hex(),
            attributes=orjson.loads(row.attributes),
            dropped_attributes=0,
            characters_replaced=False,
            sender=_sender(row),
        )
        latest = max(latest, row.received_at)
        found.append((latest, row.id, view))
    return found


def _sender(row: DbRow) -> SenderView:
    return SenderView(
        user_agent=row.user_agent or None,
        service_name=row.service_name or None,
        service_version=row.service_version or None,
        service_instance_id=row.service_instance_id or None,
    )
