"""``export``: the evidence of a store, a line an event, in order of arrival."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from typing import Any, Final

import click
import orjson
from sqlalchemy import Engine, Row, Select, func, select

from flowmark_otel import names
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.store.reading import snapshot
from flowmark_otel.backend.times import unwrap_time
from flowmark_otel.backend.views import rfc3339
from flowmark_otel.commands import cells, moments
from flowmark_otel.commands.database import database, existing
from flowmark_otel.commands.sources import project_of
from flowmark_otel.fold import digest
from flowmark_otel.model import Envelope, event_id

_CHUNK: Final = 1000
_events = schema.events.c
_rejections = schema.rejections.c
_runs = schema.runs.c
_senders = schema.senders.c
_ABOUT: Final = (
    schema.projects.c.name.label("project"),
    _runs.workflow,
    _runs.run_id,
    _runs.key.label("run_key"),
    _senders.user_agent,
    _senders.service_name,
    _senders.service_version,
    _senders.service_instance_id,
)

Found = tuple[int, dict[str, object]]
"""When an event was received, in epoch nanoseconds, and its document."""


@click.command()
@database
@click.option("--since", type=moments.since, metavar="WHEN", help="Received since: 12h, a date.")
@click.option("--project", metavar="NAME", help="Of this project alone; default all.")
@click.option(
    "--format", "form", type=click.Choice(["jsonl", "csv"]), default="jsonl", show_default=True
)
def command(db: str | None, since: int | None, project: str | None, form: str) -> None:
    """Write all evidence to standard output: stored events, and rejected ones with their reason.

    Reads the store itself; serve may run meanwhile. What arrives after the start is left out. In
    CSV, attributes are JSON in one cell, and a cell that a spreadsheet would take for a formula
    begins with an apostrophe.
    """
    with existing(db) as store:
        if project is not None:
            project_of(store, project)
        documents = (
            document
            for _, document in heapq.merge(
                _stored(store.engine, since, project),
                _rejected(store.engine, since, project),
                key=lambda found: found[0],
            )
        )
        for line in _FORMS[form](documents):
            click.echo(line)


def _json_lines(documents: Iterator[dict[str, object]]) -> Iterator[str]:
    for document in documents:
        yield json.dumps(document, separators=(",", ":"))


_FORMS: Final = {"jsonl": _json_lines, "csv": cells.csv_lines}


def _stored(engine: Engine, since: int | None, project: str | None) -> Iterator[Found]:
    statement = (
        select(schema.events, *_ABOUT)
        .join(schema.projects, schema.projects.c.id == _events.project_id)
        .outerjoin(schema.runs, _runs.id == _events.run)
        .outerjoin(schema.senders, _senders.id == _events.sender)
    )
    for row in _rows(engine, statement, schema.events, since, project):
        attributes = orjson.loads(row.attributes)
        sent_at = unwrap_time(row.sent_at)
        envelope = Envelope(row.event, row.trace_id, row.span_id, row.part, sent_at, attributes)
        yield (
            row.received_at,
            {
                "state": names.STORED,
                "code": None,
                "message": None,
                "event_id": event_id(row.trace_id, row.span_id, row.part),
                "event": row.event,
                "digest": digest(envelope).hex(),
                **_about(row),
                "trace_id": row.trace_id.hex(),
                "span_id": row.span_id.hex(),
                "sent_at": rfc3339(sent_at) if sent_at else None,
                "attributes": attributes,
                "dropped_attributes": row.dropped_attributes,
                "characters_replaced": bool(row.characters_replaced),
            },
        )


def _rejected(engine: Engine, since: int | None, project: str | None) -> Iterator[Found]:
    statement = (
        select(schema.rejections, *_ABOUT)
        .join(schema.projects, schema.projects.c.id == _rejections.project_id)
        .outerjoin(schema.runs, _runs.id == _rejections.run)
        .outerjoin(schema.senders, _senders.id == _rejections.sender)
    )
    for row in _rows(engine, statement, schema.rejections, since, project):
        sent_at = None if row.sent_at is None else unwrap_time(row.sent_at)
        yield (
            row.received_at,
            {
                "state": names.STATE_REJECTED,
                "code": row.code,
                "message": row.message,
                "event_id": row.event_id or None,
                "event": row.event,
                "digest": row.digest.hex(),
                **_about(row),
                "trace_id": row.trace_id.hex() if row.trace_id else None,
                "span_id": row.span_id.hex() if row.span_id else None,
                "sent_at": rfc3339(sent_at) if sent_at else None,
                "attributes": None if row.attributes is None else json.loads(row.attributes),
            },
        )


def _rows(
    engine: Engine,
    statement: Select[Any],
    table: Any,  # noqa: ANN401  a Table's columns have no static type
    since: int | None,
    project: str | None,
) -> Iterator[Row[Any]]:
    """Rows by id in chunks, each a transaction of its own, so that no reader holds the log back."""
    columns = table.c
    if since is not None:
        statement = statement.where(columns.received_at >= since)
    if project is not None:
        statement = statement.where(schema.projects.c.name == project)
    with snapshot(engine) as connection:
        latest = connection.execute(select(func.max(columns.id))).scalar() or 0
    at = 0
    while True:
        chunk = (
            statement.where(columns.id > at, columns.id <= latest)
            .order_by(columns.id)
            .limit(_CHUNK)
        )
        with snapshot(engine) as connection:
            rows = connection.execute(chunk).all()
        yield from rows
        if len(rows) < _CHUNK:
            return
        at = rows[-1].id


def _about(row: Row[Any]) -> dict[str, object]:
    return {
        "project": row.project,
        "origin": row.origin,
        "workflow": row.workflow,
        "run_id": row.run_id,
        "run_key": row.run_key.hex() if row.run_key else None,
        "received_at": rfc3339(row.received_at),
        "sender": {
            "user_agent": row.user_agent or None,
            "service_name": row.service_name or None,
            "service_version": row.service_version or None,
            "service_instance_id": row.service_instance_id or None,
        },
    }
