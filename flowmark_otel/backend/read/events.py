"""The evidence of one run in order of arrival, rejected events among the accepted ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import orjson
from sqlalchemy import Connection, Select, or_, select, tuple_

from flowmark_otel.backend.evidence import ACCEPTED, DbRow, accepted, belongs, chunks
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
_STORED: Final = (
    select(*ACCEPTED, *_SENDER)
    .outerjoin(schema.senders, _senders.id == _events.sender)
    .order_by(_events.id)
)
_REJECTED: Final = (
    select(schema.rejections, *_SENDER)
    .outerjoin(schema.senders, _senders.id == _rejections.sender)
    .order_by(_rejections.id)
)
_EVENT_ID: Final = re.compile(r"(run|op)-([0-9a-f]{32})-([0-9a-f]{16})-(.+)", re.DOTALL)
_KEYS: Final = 100  # three parameters each
_Found: TypeAlias = tuple[int, int, EventView]
"""Latest arrival so far, the row's id, the view."""


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


def named_events(
    connection: Connection, project_id: int, run: RunRow, event_ids: Sequence[str]
) -> tuple[EventView, ...]:
    """Those events of a run that have one of these ids, accepted and rejected, by arrival."""
    asked = [key for key in map(_key_of, event_ids) if key is not None]
    found: list[_Found] = []
    for keys in chunks(asked, _KEYS):
        found += _accepted(
            connection,
            run,
            _STORED.where(
                _events.project_id == project_id,
                tuple_(_events.trace_id, _events.span_id, _events.part).in_(keys),
                _events.origin == run.origin,
                _events.run == run.id,
            ),
        )
        found += _refused(
            connection,
            _REJECTED.where(
                _rejections.project_id == project_id,
                tuple_(_rejections.trace_id, _rejections.span_id, _rejections.part).in_(keys),
                _rejections.origin == run.origin,
                _rejections.trace_id.is_not(None),
                or_(_rejections.run == run.id, _rejections.accepted_run == run.id),
            ),
        )
    return tuple(view for _, _, view in sorted(found, key=lambda one: one[0]))


def _key_of(text: str) -> tuple[bytes, bytes, str] | None:
    match = _EVENT_ID.fullmatch(text)
    if match is None:
        return None
    kind, trace_id, span_id, rest = match.groups()
    return bytes.fromhex(trace_id), bytes.fromhex(span_id), f"{kind}-{rest}"


def _stored(
    connection: Connection, project_id: int, run: RunRow, begin: int, limit: int
) -> list[_Found]:
    return _accepted(
        connection,
        run,
        _STORED.where(
            _events.run == run.id, _events.id > begin, belongs(_events.project_id, project_id)
        ).limit(limit),
    )


def _accepted(connection: Connection, run: RunRow, statement: Select[Any]) -> list[_Found]:
    found: list[_Found] = []
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
) -> list[_Found]:
    return _refused(
        connection,
        _REJECTED.where(
            or_(_rejections.run == run.id, _rejections.accepted_run == run.id),
            _rejections.id > begin,
            belongs(_rejections.project_id, project_id),
        ).limit(limit),
    )


def _refused(connection: Connection, statement: Select[Any]) -> list[_Found]:
    found: list[_Found] = []
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
