"""The tables, declared once for both dialects (D5).

``events`` holds the evidence and is never changed; ``occurrences`` and the derived columns of
``runs`` are the remembered decisions: what an arriving event is judged against, and what lists
are filtered by. They can be rebuilt from ``events``.

Times are epoch nanoseconds. Sent times are uint64 and kept in signed columns by wrapping
(``wrap_time``), so they are stored as sent and never compared in SQL; ``*received_at`` is this
backend's clock.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    UniqueConstraint,
    text,
)

from flowmark_otel.backend.times import unwrap_time, wrap_time

__all__ = [
    "audit",
    "browser_keys",
    "events",
    "keys",
    "known_names",
    "meta",
    "metadata",
    "occurrences",
    "projects",
    "quotas",
    "rejections",
    "runs",
    "senders",
    "tombstones",
    "unwrap_time",
    "usage",
    "wrap_time",
]

metadata = MetaData()

_Serial = BigInteger().with_variant(Integer, "sqlite")

meta = Table(
    "meta",
    metadata,
    Column("name", String, primary_key=True),
    Column("value", String, nullable=False),
)

projects = Table(
    "projects",
    metadata,
    Column("id", _Serial, primary_key=True),
    Column("name", String, nullable=False, unique=True),
    Column("created_at", BigInteger, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("id", String, primary_key=True),
    Column("project_id", ForeignKey("projects.id"), nullable=False),
    Column("kind", String, nullable=False),
    Column("secret_hash", LargeBinary, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("revoked_at", BigInteger),
    Column("last_used_at", BigInteger),
)

browser_keys = Table(
    "browser_keys",
    metadata,
    Column("key_id", ForeignKey("keys.id"), primary_key=True),
    Column("pages", String, nullable=False),  # origins of web pages, joined by spaces
    Column("events_per_minute", Integer, nullable=False),
)
"""What a key of kind ``browser`` has beside a row of ``keys``."""

senders = Table(
    "senders",
    metadata,
    Column("id", _Serial, primary_key=True),
    Column("project_id", BigInteger, nullable=False),
    Column("user_agent", String, nullable=False),
    Column("service_name", String, nullable=False),
    Column("service_version", String, nullable=False),
    Column("service_instance_id", String, nullable=False),
    # About when it sent last: at most a day behind, so that an old one can be told (retention).
    Column("last_seen_at", BigInteger, nullable=False, server_default="0"),
    UniqueConstraint(
        "project_id",
        "user_agent",
        "service_name",
        "service_version",
        "service_instance_id",
        name="senders_as_named",
    ),
)
"""Who sent; an empty text is unknown, so that the unique constraint holds."""

runs = Table(
    "runs",
    metadata,
    Column("id", _Serial, primary_key=True),
    Column("key", LargeBinary(16), nullable=False, unique=True),  # model.run_key
    Column("project_id", BigInteger, nullable=False),
    Column("origin", String, nullable=False),
    Column("workflow", String, nullable=False),
    Column("run_id", String, nullable=False),
    Column("first_received_at", BigInteger, nullable=False),
    Column("last_received_at", BigInteger, nullable=False),
    # Derived from the run's own events (contract, section 5); null while none is known.
    Column("status", String, nullable=False, server_default="unknown"),
    Column("start_event", BigInteger),  # events.id of the first accepted start
    Column("end_event", BigInteger),  # events.id of the latest end by sent time, ties by event id
    Column("fields_from", BigInteger),  # events.id the four start fields below were taken from
    Column("retry_of_workflow", String),
    Column("retry_of_run_id", String),
    Column("retry_of_key", LargeBinary(16)),  # runs.key of the target, stored or not
    Column("parent_run_id", String),
    Column("correlation_id", String),
    # 1: what is derived of the run (derived.py) is older than its evidence.
    Column("stale", SmallInteger, nullable=False, server_default="1"),
    Index("runs_by_arrival", "project_id", "first_received_at", "id"),
    Index(
        "runs_stale",
        "project_id",
        "first_received_at",
        "id",
        sqlite_where=text("stale = 1"),
        postgresql_where=text("stale = 1"),
    ),
    Index("runs_by_run_id", "project_id", "run_id"),  # legacy parents name no workflow (A19)
    Index("runs_by_workflow", "project_id", "workflow", "first_received_at", "id"),
    Index(
        "runs_by_retry_of",
        "retry_of_key",
        sqlite_where=text("retry_of_key IS NOT NULL"),
        postgresql_where=text("retry_of_key IS NOT NULL"),
    ),
)

events = Table(
    "events",
    metadata,
    Column("id", _Serial, primary_key=True),  # in order of arrival
    Column("project_id", BigInteger, nullable=False),
    Column("origin", String, nullable=False),
    Column("trace_id", LargeBinary(16), nullable=False),
    Column("span_id", LargeBinary(8), nullable=False),
    Column("part", String, nullable=False),  # the event id without trace and span id
    Column("run", BigInteger, nullable=False),  # runs.id
    Column("event", String, nullable=False),
    Column("sent_at", BigInteger, nullable=False),  # wrapped; 0 where unknown
    Column("received_at", BigInteger, nullable=False),
    Column("sender", BigInteger, nullable=False),  # senders.id
    Column("dropped_attributes", BigInteger, nullable=False),
    Column("characters_replaced", SmallInteger, nullable=False),
    Column("attributes", LargeBinary, nullable=False),  # JSON object of all the envelope carries
    # I2: one row per event id; trace look-ups use the same index.
    UniqueConstraint(
        "project_id", "trace_id", "span_id", "part", "origin", name="events_by_event_id"
    ),
    Index("events_of_run", "run", "id"),
    Index(
        "run_events_of_run",
        "run",
        "id",
        sqlite_where=text("part IN ('run-start', 'run-end')"),
        postgresql_where=text("part IN ('run-start', 'run-end')"),
    ),
    Index(
        "observed_of_run",
        "run",
        "id",
        sqlite_where=text("event = 'flowmark.attempt.observed'"),
        postgresql_where=text("event = 'flowmark.attempt.observed'"),
    ),
)

occurrences = Table(
    "occurrences",
    metadata,
    Column("run", BigInteger, primary_key=True),  # runs.id
    Column("operation_id", String, primary_key=True),
    Column("operation", String, nullable=False),
    Column("group_id", String),
    Column("number", BigInteger),
    # JSON object of the flowmark.attempt.* start fields, keys sorted. Null: only observed tries
    # are known, which carry none; such a row is a claim on the name, no occurrence.
    Column("fields", String),
    Column("status", String, nullable=False),  # open, completed, failed
    Column("start_event", BigInteger),  # events.id of the first accepted start
    Column("end_event", BigInteger),  # events.id of the one accepted end
    Column("started_at", BigInteger),  # wrapped sent time; null without a start
    Column("ended_at", BigInteger),
    Column("duration_ns", BigInteger),
    Column("error_code", String),
    # 1: metrics have counted its operation; of a group the highest attempt says so.
    Column("decided", SmallInteger, nullable=False, server_default="0"),
    # The run's, so that what goes by a group id goes through one project's rows alone.
    Column("project_id", BigInteger, nullable=False),
    # A place (group, number) of a run and operation name names one operation id (A6).
    Index(
        "occurrences_by_place",
        "run",
        "operation",
        "group_id",
        "number",
        unique=True,
        sqlite_where=text("group_id IS NOT NULL"),
        postgresql_where=text("group_id IS NOT NULL"),
    ),
    # The same group id and operation name in other runs (contract, section 1: ``elsewhere``).
    Index(
        "occurrences_elsewhere",
        "project_id",
        "group_id",
        "operation",
        "run",
        sqlite_where=text("group_id IS NOT NULL"),
        postgresql_where=text("group_id IS NOT NULL"),
    ),
    sqlite_with_rowid=False,
)

rejections = Table(
    "rejections",
    metadata,
    Column("id", _Serial, primary_key=True),
    Column("project_id", BigInteger, nullable=False),
    Column("origin", String, nullable=False),
    Column("event_id", String, nullable=False),  # empty where none can be derived
    Column("digest", LargeBinary(32), nullable=False),
    Column("code", String, nullable=False),
    Column("message", String, nullable=False),
    Column("received_at", BigInteger, nullable=False),
    Column("sender", BigInteger, nullable=False),
    Column("run", BigInteger),  # runs.id, of conflicts: the run that the rejected event names
    # runs.id of the event accepted under this event id, where it is of another run: its place is
    # in conflict too, as it would be had they come in the other order (fault row 12).
    Column("accepted_run", BigInteger),
    Column("event", String),
    Column("trace_id", LargeBinary),
    Column("span_id", LargeBinary),
    Column("part", String),
    Column("sent_at", BigInteger),
    Column("operation", String),  # what a conflict names: its places are marked (section 5)
    Column("operation_id", String),
    Column("group_id", String),
    Column("number", BigInteger),
    Column("attributes", LargeBinary),  # JSON; null where nothing could be read
    UniqueConstraint("project_id", "origin", "event_id", "digest", name="rejections_once"),
    Index(
        "rejections_of_run",
        "run",
        sqlite_where=text("run IS NOT NULL"),
        postgresql_where=text("run IS NOT NULL"),
    ),
    Index(
        "rejections_of_accepted_run",
        "accepted_run",
        sqlite_where=text("accepted_run IS NOT NULL"),
        postgresql_where=text("accepted_run IS NOT NULL"),
    ),
    # An event that is accepted after another of its id was refused: both are in conflict.
    Index(
        "rejections_by_event_id",
        *("project_id", "trace_id", "span_id", "part", "origin"),
        sqlite_where=text("trace_id IS NOT NULL"),
        postgresql_where=text("trace_id IS NOT NULL"),
    ),
    Index("rejections_by_arrival", "project_id", "received_at", "id"),
    # Of events over a quota few are kept, and those are counted.
    Index(
        "rejections_over_quota",
        "project_id",
        "origin",
        sqlite_where=text("code = 'limit'"),
        postgresql_where=text("code = 'limit'"),
    ),
)
"""Rejected events, kept apart as evidence of their rejection; at most 16 for one event id."""

tombstones = Table(
    "tombstones",
    metadata,
    Column("key", LargeBinary(16), primary_key=True),  # model.run_key, all that is kept of its name
    Column("project_id", BigInteger, nullable=False),
    Column("reason", String, nullable=False),  # expired, deleted
    Column("made_at", BigInteger, nullable=False),
    Column("until", BigInteger),  # null: for good
    Column("run", BigInteger),  # what was runs.id, while rows of the run are still to be removed
    Index(
        "tombstones_by_end",
        "until",
        sqlite_where=text("until IS NOT NULL"),
        postgresql_where=text("until IS NOT NULL"),
    ),
    Index(
        "tombstones_with_remains",
        "run",
        sqlite_where=text("run IS NOT NULL"),
        postgresql_where=text("run IS NOT NULL"),
    ),
    sqlite_with_rowid=False,
)
"""Runs that expired or were deleted: evidence that still arrives for them is not kept."""

audit = Table(
    "audit",
    metadata,
    Column("id", _Serial, primary_key=True),
    Column("project_id", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("actor", String, nullable=False),  # id of a key, or the command and its user
    Column("action", String, nullable=False),
    Column("subject", String, nullable=False),  # key of the run, workflow, or id of a key
    Column("runs", BigInteger, nullable=False),
    Column("events", BigInteger, nullable=False),
    Column("finished_at", BigInteger),  # null: interrupted, or not finished yet
    Index("audit_of_project", "project_id", "id"),
)
"""Who deleted what, made or revoked which key; outlives what it speaks of."""

usage = Table(
    "usage",
    metadata,
    Column("project_id", BigInteger, primary_key=True, autoincrement=False),
    Column("shard", Integer, primary_key=True),
    Column("events", BigInteger, nullable=False),
    Column("groups", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""What a project holds, as a sum over shards: writers of one store change different rows."""

known_names = Table(
    "known_names",
    metadata,
    Column("project_id", BigInteger, primary_key=True, autoincrement=False),
    Column("workflow", String, primary_key=True),
    Column("operation", String, primary_key=True),  # empty: the workflow's own name
    Column("last_seen_at", BigInteger, nullable=False),  # at most a day behind
    sqlite_with_rowid=False,
)
"""The names that a project uses, for its quotas of workflows and operation names."""

quotas = Table(
    "quotas",
    metadata,
    Column("project_id", BigInteger, primary_key=True, autoincrement=False),
    Column("events", BigInteger),
    Column("workflows", BigInteger),
    Column("operations", BigInteger),
    Column("groups", BigInteger),
)
"""What a project may hold; null is what ``serve`` was told, -1 no limit."""
