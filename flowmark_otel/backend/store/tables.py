"""The statements of the writer, one per thing it reads or writes, in whatever dialect."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Table

from flowmark_otel.backend.known import Occurrence, Run
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.store.database import Dialect

_EVENT: Final = ("trace_id", "span_id", "part", "run", "event", "sent_at", "attributes")
_EVENT_ID: Final = ("project_id", "trace_id", "span_id", "part", "origin")
_REJECTION: Final = ("event_id", "digest", "code")


def _columns(table: Table) -> tuple[str, ...]:
    return tuple(f"t.{column.name}" for column in table.columns)


def _t(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"t.{name}" for name in names)


class Statements:
    """All of them, rendered once for a store."""

    def __init__(self, dialect: Dialect) -> None:
        runs, occurrences = schema.runs, schema.occurrences
        self.insert_events = dialect.insert(schema.events, order=_EVENT_ID)
        self.insert_runs = dialect.insert(runs)
        self.insert_occurrences = dialect.insert(occurrences)
        self.insert_rejections = dialect.insert(schema.rejections, without=("id",), ignore=True)
        self.update_runs = dialect.update(runs, ("id",), Run.CHANGING)
        self.mark_runs = dialect.update(runs, ("id",), ("stale",))
        self.link_rejections = dialect.update(schema.rejections, _EVENT_ID, ("accepted_run",))
        self.update_occurrences = dialect.update(
            occurrences, ("run", "operation_id"), Occurrence.CHANGING
        )
        self.bind_occurrences = dialect.update(
            occurrences,
            ("run", "operation_id"),
            (*Occurrence.BINDING, *Occurrence.CHANGING),
        )
        self.events = dialect.seek(
            schema.events,
            ("trace_id", "span_id", "part"),
            _t(_EVENT),
            fixed=("project_id", "origin"),
        )
        self.runs = dialect.seek(
            runs,
            ("key",),
            (*_columns(runs), "e.sent_at", "e.trace_id", "e.span_id"),
            tail="LEFT JOIN events AS e ON e.id = t.end_event",
        )
        self.occurrences = dialect.seek(occurrences, ("run", "operation_id"), _columns(occurrences))
        self.places = dialect.seek(
            occurrences,
            ("run", "operation", "group_id", "number"),
            ("t.run", "t.operation", "t.group_id", "t.number"),
        )
        self.rejections = dialect.seek(
            schema.rejections,
            ("event_id",),
            _t(_REJECTION),
            fixed=("project_id", "origin"),
            tail="ORDER BY t.id",
        )
        self.tombstones = dialect.seek(schema.tombstones, ("key",), ("t.key",))
        # One row a group, whatever its attempts: that of its highest known number.
        self.groups = dialect.seek(
            occurrences,
            ("run", "operation", "group_id"),
            _columns(occurrences),
            also="t.number = (SELECT max(m.number) FROM occurrences AS m"
            " WHERE m.run = given.run AND m.operation = given.operation"
            " AND m.group_id = given.group_id)",
        )
        self.decide = dialect.update(occurrences, ("run", "operation_id"), ("decided",))
        self.names = dialect.seek(
            schema.known_names,
            ("workflow", "operation"),
            ("t.workflow", "t.operation", "t.last_seen_at"),
            fixed=("project_id",),
        )
        self.insert_names = dialect.insert(schema.known_names, ignore=True)
        self.see_names = dialect.update(
            schema.known_names, ("project_id", "workflow", "operation"), ("last_seen_at",)
        )
