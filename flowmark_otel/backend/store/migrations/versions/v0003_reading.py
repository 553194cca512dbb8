"""Reading at scale: what is derived of runs, full text, and counters of what became of events.

Revision: 0003, from 0002. Every run is stale at first; the summariser derives the rest.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_SUMS = (
    *("groups", "ordinary", "with_gap", "extra"),
    *("attempts_open", "attempts_completed", "attempts_failed"),
    *("verdict_first_try", "verdict_after_retry", "verdict_failed", "verdict_open"),
    *("verdict_undetermined", "lost_s", "lost_rest_ns"),
)
_SEARCH = {
    "sqlite": (
        "CREATE VIRTUAL TABLE search USING fts5(body, content='', columnsize=0, tokenize='ascii')",
    ),
    "postgresql": (
        "CREATE TABLE search (run BIGINT PRIMARY KEY, body TSVECTOR NOT NULL)",
        "CREATE INDEX search_by_word ON search USING gin (body)",
    ),
}


def upgrade() -> None:
    """Add the mark of stale runs, the tables and the full text."""
    _stale()
    _rejections()
    _summaries()
    _terms()
    _rollups()
    _counters()
    for statement in _SEARCH[op.get_bind().dialect.name]:
        op.execute(statement)


def _stale() -> None:
    with op.batch_alter_table("runs") as batch:
        batch.add_column(sa.Column("stale", sa.SmallInteger(), nullable=False, server_default="1"))
    op.create_index(
        "runs_stale",
        "runs",
        ["project_id", "first_received_at", "id"],
        unique=False,
        sqlite_where=sa.text("stale = 1"),
        postgresql_where=sa.text("stale = 1"),
    )


def _rejections() -> None:
    op.create_index(
        "rejections_by_event_id",
        "rejections",
        ["project_id", "trace_id", "span_id", "part", "origin"],
        unique=False,
        sqlite_where=sa.text("trace_id IS NOT NULL"),
        postgresql_where=sa.text("trace_id IS NOT NULL"),
    )


def _summaries() -> None:
    op.create_table(
        "summaries",
        sa.Column("run", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("workflow", sa.String(), nullable=False),
        sa.Column("first_received_at", sa.BigInteger(), nullable=False),
        sa.Column("most_attempts", sa.BigInteger(), nullable=False),
        sa.Column("terms", sa.LargeBinary(), nullable=False),
        sa.Column("tallies", sa.LargeBinary(), nullable=False),
        sa.Column("body", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("run"),
    )
    op.create_index(
        "summaries_by_arrival", "summaries", ["project_id", "first_received_at"], unique=False
    )


def _terms() -> None:
    op.create_table(
        "terms",
        sa.Column("id", _serial, nullable=False),
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("project_id", "kind", "value", name="terms_as_named"),
    )
    op.create_table(
        "postings",
        sa.Column("term", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("first_received_at", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("run", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("term", "first_received_at", "run"),
        sqlite_with_rowid=False,
    )


def _rollups() -> None:
    op.create_table(
        "series",
        sa.Column("id", _serial, nullable=False),
        sa.Column("project_id", sa.BigInteger(), nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("workflow", sa.String(), nullable=False),
        sa.Column("operation", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint(
            "project_id", "origin", "workflow", "operation", name="series_as_named"
        ),
    )
    op.create_table(
        "rollups",
        *_cell(),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _SUMS),
        sa.PrimaryKeyConstraint("series", "level", "start"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "rollup_values",
        *_cell(),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("series", "level", "start", "kind", "value"),
        sqlite_with_rowid=False,
    )


def _cell() -> tuple[sa.Column[int], ...]:
    return (
        sa.Column("series", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("level", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("start", sa.BigInteger(), autoincrement=False, nullable=False),
    )


def _counters() -> None:
    op.create_table(
        "counters",
        sa.Column("project_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("origin", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("writer", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "origin", "state", "reason", "writer"),
        sqlite_with_rowid=False,
    )
