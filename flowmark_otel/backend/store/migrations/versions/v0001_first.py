"""The first schema.

Revision: 0001, from an empty database.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make all tables and their indices."""
    _meta()
    _projects()
    _keys()
    _senders()
    _runs()
    _events()
    _occurrences()
    _rejections()


def _meta() -> None:
    op.create_table(
        "meta",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def _projects() -> None:
    op.create_table(
        "projects",
        sa.Column("id", _serial, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )


def _keys() -> None:
    op.create_table(
        "keys",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("project_id", _serial, nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("secret_hash", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=True),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.Column("last_used_at", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["project_id"],
            ["projects.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )


def _senders() -> None:
    op.create_table(
        "senders",
        sa.Column("id", _serial, nullable=False),
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.Column("user_agent", sa.String(), nullable=False),
        sa.Column("service_name", sa.String(), nullable=False),
        sa.Column("service_version", sa.String(), nullable=False),
        sa.Column("service_instance_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint(
            "project_id",
            "user_agent",
            "service_name",
            "service_version",
            "service_instance_id",
            name="senders_as_named",
        ),
    )


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", _serial, nullable=False),
        sa.Column("key", sa.LargeBinary(length=16), nullable=False),
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("workflow", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("first_received_at", sa.BigInteger(), nullable=False),
        sa.Column("last_received_at", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.String(), server_default="unknown", nullable=False),
        sa.Column("start_event", sa.BigInteger(), nullable=True),
        sa.Column("end_event", sa.BigInteger(), nullable=True),
        sa.Column("fields_from", sa.BigInteger(), nullable=True),
        sa.Column("retry_of_workflow", sa.String(), nullable=True),
        sa.Column("retry_of_run_id", sa.String(), nullable=True),
        sa.Column("retry_of_key", sa.LargeBinary(length=16), nullable=True),
        sa.Column("parent_run_id", sa.String(), nullable=True),
        sa.Column("correlation_id", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
    )
    op.create_index(
        "runs_by_arrival", "runs", ["project_id", "first_received_at", "id"], unique=False
    )
    op.create_index("runs_by_run_id", "runs", ["project_id", "run_id"], unique=False)
    op.create_index(
        "runs_by_retry_of",
        "runs",
        ["retry_of_key"],
        unique=False,
        sqlite_where=sa.text("retry_of_key IS NOT NULL"),
        postgresql_where=sa.text("retry_of_key IS NOT NULL"),
    )


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("id", _serial, nullable=False),
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("trace_id", sa.LargeBinary(length=16), nullable=False),
        sa.Column("span_id", sa.LargeBinary(length=8), nullable=False),
        sa.Column("part", sa.String(), nullable=False),
        sa.Column("run", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.String(), nullable=False),
        sa.Column("sent_at", sa.BigInteger(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.Column("sender", sa.BigInteger(), nullable=False),
        sa.Column("dropped_attributes", sa.BigInteger(), nullable=False),
        sa.Column("characters_replaced", sa.SmallInteger(), nullable=False),
        sa.Column("attributes", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint(
            "project_id", "trace_id", "span_id", "part", "origin", name="events_by_event_id"
        ),
    )
    op.create_index("events_of_run", "events", ["run", "id"], unique=False)
    op.create_index(
        "run_events_of_run",
        "events",
        ["run", "id"],
        unique=False,
        sqlite_where=sa.text("part IN ('run-start', 'run-end')"),
        postgresql_where=sa.text("part IN ('run-start', 'run-end')"),
    )
    op.create_index(
        "observed_of_run",
        "events",
        ["run", "id"],
        unique=False,
        sqlite_where=sa.text("event = 'flowmark.attempt.observed'"),
        postgresql_where=sa.text("event = 'flowmark.attempt.observed'"),
    )


def _occurrences() -> None:
    op.create_table(
        "occurrences",
        sa.Column("run", sa.BigInteger(), nullable=False),
        sa.Column("operation_id", sa.String(), nullable=False),
        sa.Column("operation", sa.String(), nullable=False),
        sa.Column("group_id", sa.String(), nullable=True),
        sa.Column("number", sa.BigInteger(), nullable=True),
        sa.Column("fields", sa.String(), nullable=True),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("start_event", sa.BigInteger(), nullable=True),
        sa.Column("end_event", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("ended_at", sa.BigInteger(), nullable=True),
        sa.Column("duration_ns", sa.BigInteger(), nullable=True),
        sa.Column("error_code", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("run", "operation_id"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "occurrences_by_place",
        "occurrences",
        ["run", "operation", "group_id", "number"],
        unique=True,
        sqlite_where=sa.text("group_id IS NOT NULL"),
        postgresql_where=sa.text("group_id IS NOT NULL"),
    )
    op.create_index(
        "occurrences_elsewhere",
        "occurrences",
        ["group_id", "operation", "run"],
        unique=False,
        sqlite_where=sa.text("group_id IS NOT NULL"),
        postgresql_where=sa.text("group_id IS NOT NULL"),
    )


def _rejections() -> None:
    op.create_table(
        "rejections",
        sa.Column("id", _serial, nullable=False),
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("event_id", sa.String(), nullable=False),
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("code", sa.String(), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("received_at", sa.BigInteger(), nullable=False),
        sa.Column("sender", sa.BigInteger(), nullable=False),
        sa.Column("run", sa.BigInteger(), nullable=True),
        sa.Column("accepted_run", sa.BigInteger(), nullable=True),
        sa.Column("event", sa.String(), nullable=True),
        sa.Column("trace_id", sa.LargeBinary(), nullable=True),
        sa.Column("span_id", sa.LargeBinary(), nullable=True),
        sa.Column("part", sa.String(), nullable=True),
        sa.Column("sent_at", sa.BigInteger(), nullable=True),
        sa.Column("operation", sa.String(), nullable=True),
        sa.Column("operation_id", sa.String(), nullable=True),
        sa.Column("group_id", sa.String(), nullable=True),
        sa.Column("number", sa.BigInteger(), nullable=True),
        sa.Column("attributes", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("project_id", "origin", "event_id", "digest", name="rejections_once"),
    )
    op.create_index(
        "rejections_by_arrival", "rejections", ["project_id", "received_at", "id"], unique=False
    )
    op.create_index(
        "rejections_of_accepted_run",
        "rejections",
        ["accepted_run"],
        unique=False,
        sqlite_where=sa.text("accepted_run IS NOT NULL"),
        postgresql_where=sa.text("accepted_run IS NOT NULL"),
    )
    op.create_index(
        "rejections_of_run",
        "rejections",
        ["run"],
        unique=False,
        sqlite_where=sa.text("run IS NOT NULL"),
        postgresql_where=sa.text("run IS NOT NULL"),
    )
