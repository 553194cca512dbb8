"""Where evidence is kept: one writer, many readers (D5)."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DatabaseError, OperationalError

from flowmark_otel.backend.batch import Arrival, Batch, Verdict
from flowmark_otel.backend.store.migrate import bring_up
from flowmark_otel.backend.store.sqlite import Store, create_file, path_of
from flowmark_otel.clock import Clock, SystemClock
from flowmark_otel.errors import ConfigurationError, Unavailable

__all__ = ["Arrival", "Batch", "Store", "Verdict", "open_store"]


def open_store(url: str, *, clock: Clock | None = None, migrate: bool = False) -> Store:
    """Open the store that ``sqlite:////abs/path.db`` names, made with its folder if missing.

    Raises SchemaMismatch, naming the command that mends it, where the schema is old or newer;
    with ``migrate`` an old one is upgraded. Raises ConfigurationError for a URL or a file that
    cannot be served, Unavailable where the file is locked or cannot be read now.
    """
    path = path_of(url)
    try:
        create_file(path)
        bring_up(path, url, migrate=migrate)
        return Store(path, clock or SystemClock())
    except OSError as error:
        fault = f"--db: {path} cannot be made: {error.strerror}"
        raise ConfigurationError([fault]) from error
    except (OperationalError, sqlite3.OperationalError) as error:
        msg = f"{path} cannot be opened now: {error}"
        raise Unavailable(msg) from error
    except (DatabaseError, sqlite3.DatabaseError) as error:
        fault = f"--db: {path} is no SQLite database, or damaged"
        raise ConfigurationError([fault]) from error
