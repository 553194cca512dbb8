"""The statements of the writer, one per thing it reads or writes."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Table

from flowmark_otel.backend.known import Occurrence, Run
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.store.statements import Insert, Lookup, Update


def _columns(table: Table, alias: str) -> str:
    return ", ".join(f"{alias}.{column.name}" for column in table.columns)


INSERT_EVENTS: Final = Insert(schema.events)
INSERT_RUNS: Final = Insert(schema.runs)
INSERT_OCCURRENCES: Final = Insert(schema.occurrences)
INSERT_SENDERS: Final = Insert(schema.senders)
INSERT_REJECTIONS: Final = Insert(schema.rejections, without=("id",), ignore=True)
UPDATE_RUNS: Final = Update(schema.runs, ("id",), Run.CHANGING)
UPDATE_OCCURRENCES: Final = Update(schema.occurrences, ("run", "operation_id"), Occurrence.CHANGING)
BIND_OCCURRENCES: Final = Update(
    schema.occurrences, ("run", "operation_id"), (*Occurrence.BINDING, *Occurrence.CHANGING)
)

EVENTS: Final = Lookup(
    ("trace_id", "span_id", "part"),
    "SELECT e.trace_id, e.span_id, e.part, e.run, e.event, e.sent_at, e.attributes"
    " FROM given CROSS JOIN events AS e ON e.trace_id = given.trace_id"
    " AND e.span_id = given.span_id AND e.part = given.part"
    " AND e.project_id = ? AND e.origin = ?",
)
RUNS: Final = Lookup(
    ("key",),
    f"SELECT {_columns(schema.runs, 'r')}, e.sent_at, e.trace_id, e.span_id"  # noqa: S608  own names
    " FROM given CROSS JOIN runs AS r ON r.key = given.key"
    " LEFT JOIN events AS e ON e.id = r.end_event",
)
OCCURRENCES: Final = Lookup(
    ("run", "operation_id"),
    f"SELECT {_columns(schema.occurrences, 'o')} FROM given CROSS JOIN occurrences AS o"  # noqa: S608  own names
    " ON o.run = given.run AND o.operation_id = given.operation_id",
)
PLACES: Final = Lookup(
    ("run", "operation", "group_id", "number"),
    "SELECT o.run, o.operation, o.group_id, o.number"
    " FROM given CROSS JOIN occurrences AS o ON o.run = given.run"
    " AND o.operation = given.operation AND o.group_id = given.group_id"
    " AND o.number = given.number",
)
REJECTIONS: Final = Lookup(
    ("event_id",),
    "SELECT r.event_id, r.digest, r.code FROM given CROSS JOIN rejections AS r"
    " ON r.event_id = given.event_id AND r.project_id = ? AND r.origin = ? ORDER BY r.id",
)
