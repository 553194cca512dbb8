"""What is derived of runs so that lists and figures need not read them all (contract, section 5).

The summariser alone writes these tables, apart from ``counters``; all can be made again from the
evidence. Each run whose row says ``stale`` is read from its evidence instead.

``search`` is no table of SQLAlchemy's: full text differs between the dialects. Its rows are named
by ``runs.id`` and hold ``summaries.body``.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    DDL,
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    String,
    Table,
    UniqueConstraint,
    event,
)

from flowmark_otel.backend.store.schema import metadata
from flowmark_otel.fold.rates import COUNTS

__all__ = [
    "SEARCH",
    "SUMS",
    "counters",
    "postings",
    "rollup_values",
    "rollups",
    "series",
    "summaries",
    "terms",
]

_Serial = BigInteger().with_variant(Integer, "sqlite")

SUMS: Final = (*(name for name in COUNTS if name != "lost_ns"), "lost_s", "lost_rest_ns")
"""Columns that are added up. Lost time is kept as seconds and the rest in nanoseconds: the clocks
of senders may be off by centuries, and a sum of such times does not fit 64 bits."""

summaries = Table(
    "summaries",
    metadata,
    Column("run", BigInteger, primary_key=True, autoincrement=False),  # runs.id
    Column("project_id", BigInteger, nullable=False),
    Column("origin", String, nullable=False),
    Column("workflow", String, nullable=False),
    Column("first_received_at", BigInteger, nullable=False),
    Column("most_attempts", BigInteger, nullable=False),
    Column("terms", LargeBinary, nullable=False),  # JSON list of terms.id
    Column("tallies", LargeBinary, nullable=False),  # JSON, by operation name
    Column("body", String, nullable=False),  # the words that a text search finds it by
    Index("summaries_by_arrival", "project_id", "first_received_at"),
)

terms = Table(
    "terms",
    metadata,
    Column("id", _Serial, primary_key=True),
    Column("project_id", BigInteger, nullable=False),
    Column("kind", String, nullable=False),
    Column("value", String, nullable=False),
    UniqueConstraint("project_id", "kind", "value", name="terms_as_named"),
)
"""What runs are filtered by: a workflow's name, a verdict, an error code, …"""

postings = Table(
    "postings",
    metadata,
    Column("term", BigInteger, primary_key=True, autoincrement=False),
    Column("first_received_at", BigInteger, primary_key=True, autoincrement=False),
    Column("run", BigInteger, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)
"""Which runs a term holds of, in the order of their lists."""

series = Table(
    "series",
    metadata,
    Column("id", _Serial, primary_key=True),
    Column("project_id", BigInteger, nullable=False),
    Column("origin", String, nullable=False),
    Column("workflow", String, nullable=False),
    Column("operation", String, nullable=False),
    UniqueConstraint("project_id", "origin", "workflow", "operation", name="series_as_named"),
)
"""What figures are kept of; the one of two empty names is of all runs of a project and origin."""

rollups = Table(
    "rollups",
    metadata,
    Column("series", BigInteger, primary_key=True, autoincrement=False),
    Column("level", SmallInteger, primary_key=True, autoincrement=False),  # index of spans.LEVELS
    Column("start", BigInteger, primary_key=True, autoincrement=False),
    *(Column(name, BigInteger, nullable=False) for name in SUMS),
    sqlite_with_rowid=False,
)
"""Sums of the runs that first arrived within a minute, an hour, a day."""

rollup_values = Table(
    "rollup_values",
    metadata,
    Column("series", BigInteger, primary_key=True, autoincrement=False),
    Column("level", SmallInteger, primary_key=True, autoincrement=False),
    Column("start", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String, primary_key=True),  # size, error; of all runs: status, problem
    Column("value", String, primary_key=True),
    Column("number", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""The same for what has a spread."""

counters = Table(
    "counters",
    metadata,
    Column("project_id", BigInteger, primary_key=True, autoincrement=False),
    Column("origin", String, primary_key=True),
    Column("state", String, primary_key=True),
    Column("reason", String, primary_key=True),  # empty where the state says all
    Column("writer", SmallInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""What became of events, by the writers; each adds to rows of its own, so that none waits."""

SEARCH: Final = {
    "sqlite": (
        "CREATE VIRTUAL TABLE search USING fts5(body, content='', columnsize=0, tokenize='ascii')",
    ),
    "postgresql": (
        "CREATE TABLE search (run BIGINT PRIMARY KEY, body TSVECTOR NOT NULL)",
        "CREATE INDEX search_by_word ON search USING gin (body)",
    ),
}
"""How the full text is made, by dialect."""

for _dialect, _statements in SEARCH.items():
    for _statement in _statements:
        _made = DDL(_statement)  # type: ignore[no-untyped-call]
        event.listen(metadata, "after_create", _made.execute_if(dialect=_dialect))
