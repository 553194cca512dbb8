"""A store in a PostgreSQL database, written by any number of processes and hosts at once."""

from __future__ import annotations

from flowmark_otel.backend.store.postgresql.database import PostgresqlDatabase

__all__ = ["PostgresqlDatabase"]
