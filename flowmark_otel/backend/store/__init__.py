"""Where evidence is kept: one writer, many readers (D5)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DatabaseError, OperationalError

from flowmark_otel.backend.batch import Arrival, Batch, Verdict
from flowmark_otel.backend.store.migrate import bring_up, revision_of
from flowmark_otel.backend.store.reading import said
from flowmark_otel.backend.store.sqlite import Store, create_file, path_of
from flowmark_otel.clock import Clock, SystemClock
from flowmark_otel.errors import ConfigurationError, Unavailable

__all__ = ["Arrival", "Batch", "Store", "Verdict", "migrate_store", "open_store"]


def open_store(url: str, *, clock: Clock | None = None, migrate: bool = False) -> Store:
    """Open the store that ``sqlite:////abs/path.db`` names, made with its folder if missing.

    Raises SchemaMismatch, naming the command that mends it, where the schema is old or newer;
    with ``migrate`` an old one is upgraded. Raises ConfigurationError for a URL or a file that
    cannot be served, Unavailable where the file is locked or cannot be read now.
    """
    path = path_of(url)
    with _opening(path):
        create_file(path)
        bring_up(path, url, migrate=migrate)
        return Store(path, clock or SystemClock())


def migrate_store(url: str) -> str | None:
    """Bring a store's schema to this version; the revision it had, None where there was none.

    Raises what ``open_store`` raises.
    """
    path = path_of(url)
    with _opening(path):
        before = revision_of(path) if path.is_file() else None
    open_store(url, migrate=True).close()
    return before


@contextmanager
def _opening(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        fault = f"--db: {path} cannot be made: {error.strerror}"
        raise ConfigurationError([fault]) from error
    except (OperationalError, sqlite3.OperationalError) as error:
        msg = f"{path} cannot be opened now: {said(error)}"
        raise Unavailable(msg) from error
    except (DatabaseError, sqlite3.DatabaseError) as error:
        fault = f"--db: {path} is no SQLite database, or damaged"
        raise ConfigurationError([fault]) from error
