"""Long life: tombstones, the audit of deletions, and what projects hold against their quotas.

Revision: 0004, from 0003. What a store holds already is counted here once.
"""

from __future__ import annotations

import time
from typing import Literal

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the tables and indices, then count what is there."""
    _tombstones()
    _audit()
    _usage()
    _names()
    _quotas()
    _senders()
    op.create_index(
        "runs_by_workflow",
        "runs",
        ["project_id", "workflow", "first_received_at", "id"],
        unique=False,
    )
    op.create_index(
        "rejections_over_quota",
        "rejections",
        ["project_id", "origin"],
        unique=False,
        sqlite_where=sa.text("code = 'limit'"),
        postgresql_where=sa.text("code = 'limit'"),
    )
    meta = sa.table("meta", sa.column("name"), sa.column("value"))
    op.get_bind().execute(meta.insert().values(name="sweeper", value="- 0"))  # free to be taken
    _count(time.time_ns())


def _tombstones() -> None:
    op.create_table(
        "tombstones",
        sa.Column("key", sa.LargeBinary(length=16), nullable=False),
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("made_at", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=True),
        sa.Column("run", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("key"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "tombstones_by_end",
        "tombstones",
        ["until"],
        unique=False,
        sqlite_where=sa.text("until IS NOT NULL"),
        postgresql_where=sa.text("until IS NOT NULL"),
    )
    op.create_index(
        "tombstones_with_remains",
        "tombstones",
        ["run"],
        unique=False,
        sqlite_where=sa.text("run IS NOT NULL"),
        postgresql_where=sa.text("run IS NOT NULL"),
    )


def _audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", _serial, nullable=False),
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("runs", sa.BigInteger(), nullable=False),
        sa.Column("events", sa.BigInteger(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("audit_of_project", "audit", ["project_id", "id"], unique=False)


def _usage() -> None:
    op.create_table(
        "usage",
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False),
        sa.Column("events", sa.BigInteger(), nullable=False),
        sa.Column("groups", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "shard"),
        sqlite_with_rowid=False,
    )


def _names() -> None:
    op.create_table(
        "known_names",
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.Column("workflow", sa.String(), nullable=False),
        sa.Column("operation", sa.String(), nullable=False),
        sa.Column("last_seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "workflow", "operation"),
        sqlite_with_rowid=False,
    )


def _quotas() -> None:
    op.create_table(
        "quotas",
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.Column("events", sa.BigInteger(), nullable=True),
        sa.Column("workflows", sa.BigInteger(), nullable=True),
        sa.Column("operations", sa.BigInteger(), nullable=True),
        sa.Column("groups", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("project_id"),
    )


def _senders() -> None:
    # SQLite would put the column behind the constraint; a copy of this small table is as declared.
    recreate: Literal["always", "never"] = (
        "always" if op.get_bind().dialect.name == "sqlite" else "never"
    )
    with op.batch_alter_table("senders", recreate=recreate) as senders:
        senders.add_column(
            sa.Column("last_seen_at", sa.BigInteger(), server_default="0", nullable=False)
        )


def _count(now: int) -> None:
    """Names and senders count as seen now: nothing tells how long ago it was."""
    connection = op.get_bind()
    runs = sa.table("runs", sa.column("id"), sa.column("project_id"), sa.column("workflow"))
    events = sa.table("events", sa.column("project_id"))
    occurrences = sa.table(
        "occurrences", *map(sa.column, ("run", "operation", "group_id", "number"))
    )
    usage = sa.table("usage", *map(sa.column, ("project_id", "shard", "events", "groups")))
    known = sa.table(
        "known_names", *map(sa.column, ("project_id", "workflow", "operation", "last_seen_at"))
    )
    senders = sa.table("senders", sa.column("last_seen_at"))
    connection.execute(senders.update().values(last_seen_at=now))
    groups = (
        sa.select(runs.c.project_id, occurrences.c.run)
        .join_from(occurrences, runs, runs.c.id == occurrences.c.run)
        .where(occurrences.c.group_id.is_not(None))
        .group_by(
            runs.c.project_id, occurrences.c.run, occurrences.c.operation, occurrences.c.group_id
        )
        .subquery("groups_held")
    )
    per_project = (
        sa.select(groups.c.project_id, sa.func.count().label("held"))
        .group_by(groups.c.project_id)
        .subquery("per_project")
    )
    held = (
        sa.select(events.c.project_id, sa.func.count().label("held"))
        .group_by(events.c.project_id)
        .subquery("events_held")
    )
    connection.execute(
        usage.insert().from_select(
            ["project_id", "shard", "events", "groups"],
            sa.select(
                held.c.project_id,
                sa.literal_column("0"),
                held.c.held,
                sa.func.coalesce(per_project.c.held, 0),
            ).join_from(
                held, per_project, held.c.project_id == per_project.c.project_id, isouter=True
            ),
        )
    )
    columns = ["project_id", "workflow", "operation", "last_seen_at"]
    seen: sa.ColumnClause[int] = sa.literal_column(str(now))
    connection.execute(
        known.insert().from_select(
            columns,
            sa.select(runs.c.project_id, runs.c.workflow, sa.literal_column("''"), seen).distinct(),
        )
    )
    connection.execute(
        known.insert().from_select(
            columns,
            sa.select(runs.c.project_id, runs.c.workflow, occurrences.c.operation, seen)
            .join_from(occurrences, runs, runs.c.id == occurrences.c.run)
            .distinct(),
        )
    )
