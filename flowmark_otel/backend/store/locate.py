"""Which database a URL names."""

from __future__ import annotations

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from flowmark_otel.backend.store.database import Database
from flowmark_otel.backend.store.sqlite import SqliteDatabase
from flowmark_otel.errors import ConfigurationError

_SHAPES = "set sqlite:////absolute/path.db or postgresql://user@host/database"


def database_of(url: str) -> Database:
    """The database of a URL, not yet connected to; raises ConfigurationError."""
    # Others write the short form too, SQLAlchemy does not read it.
    written = f"postgresql{url[8:]}" if url.startswith("postgres:") else url
    try:
        parsed = make_url(written)
    except ArgumentError as error:
        # What cannot be parsed may hold a password all the same.
        shown = url if "@" not in url else "what it names"
        fault = f"--db: {shown!r} is no database URL; {_SHAPES}"
        raise ConfigurationError([fault]) from error
    if parsed.get_backend_name() == "sqlite":
        return SqliteDatabase(parsed)
    if parsed.drivername in ("postgresql", "postgresql+psycopg"):
        try:
            # The base of the server needs no PostgreSQL driver.
            from flowmark_otel.backend.store.postgresql import (  # noqa: PLC0415
                PostgresqlDatabase,
            )
        except ImportError as error:
            fault = "--db: PostgreSQL needs a driver: pip install 'flowmark-otel[postgres]'"
            raise ConfigurationError([fault]) from error
        return PostgresqlDatabase(parsed)
    fault = f"--db: {parsed.drivername} is not supported; {_SHAPES}"
    raise ConfigurationError([fault])
