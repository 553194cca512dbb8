"""Statistics of tables that grew faster than the database looks at them by itself.

PostgreSQL plans a statement by what it knew of a table last; of a new one it assumes a few pages,
until autovacuum comes by, a minute later or more. Until then each read may go through all rows.
"""

from __future__ import annotations

from sqlalchemy import Connection, text

LEAST = 2_000
"""Rows that changed before a table is looked at; then when half of it is not known yet."""

_GROWN = text(
    "SELECT c.relname FROM pg_stat_user_tables AS s JOIN pg_class AS c ON c.oid = s.relid"
    " WHERE s.schemaname = current_schema() AND s.n_mod_since_analyze > :least"
    " AND s.n_mod_since_analyze > c.reltuples ORDER BY c.relname"
)


def analyse_grown(connection: Connection) -> list[str]:
    """Have the database look at the tables that grew, and return their names.

    A table that another session looks at just then is left to it.
    """
    if connection.dialect.name != "postgresql":
        return []
    quote = connection.dialect.identifier_preparer.quote
    grown = list(connection.execute(_GROWN, {"least": LEAST}).scalars())
    for table in grown:
        connection.execute(text(f"ANALYZE (SKIP_LOCKED) {quote(table)}"))
    return grown
