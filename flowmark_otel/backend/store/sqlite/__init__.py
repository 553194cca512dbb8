"""A store in one SQLite file: one writer, readers that never wait for it."""

from __future__ import annotations

from flowmark_otel.backend.store.sqlite.database import SqliteDatabase

__all__ = ["SqliteDatabase"]
