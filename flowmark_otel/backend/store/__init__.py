"""Where evidence is kept: writers that commit in groups, many readers (D5)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError

from flowmark_otel.backend.batch import Arrival, Batch, Verdict
from flowmark_otel.backend.holding import NO_LIMITS, Limits
from flowmark_otel.backend.store import derived as derived  # its tables are part of the schema
from flowmark_otel.backend.store.database import Database, Fault
from flowmark_otel.backend.store.locate import database_of
from flowmark_otel.backend.store.migrate import bring_up, revision_of
from flowmark_otel.backend.store.store import Store
from flowmark_otel.clock import Clock, SystemClock
from flowmark_otel.errors import ConfigurationError, FlowmarkError, Unavailable

__all__ = [
    "Arrival",
    "Batch",
    "Store",
    "Verdict",
    "database_of",
    "has_store",
    "migrate_store",
    "open_store",
]


def open_store(
    url: str, *, clock: Clock | None = None, migrate: bool = False, limits: Limits = NO_LIMITS
) -> Store:
    """Open the store that a URL names, made if it is missing.

    ``limits`` are the quotas of projects that have none of their own.

    ``sqlite:////abs/path.db``, made with its folder, or ``postgresql://user@host/name``, a
    database that is there. Raises SchemaMismatch, naming the command that mends it, where the
    schema is old or newer; with ``migrate`` an old one is upgraded. Raises ConfigurationError for
    what cannot be served, Unavailable where it cannot be opened now.
    """
    database = database_of(url)
    with _opening(database):
        database.create()
        bring_up(database, migrate=migrate)
        return Store(database, clock or SystemClock(), limits=limits)


def migrate_store(url: str) -> str | None:
    """Bring a store's schema to this version; the revision it had, None where there was none.

    Raises what ``open_store`` raises.
    """
    before = _revision(database_of(url))
    open_store(url, migrate=True).close()
    return before


def has_store(url: str) -> bool:
    """Whether there is a store at a URL, of whatever version; makes none.

    Raises what ``open_store`` raises.
    """
    return _revision(database_of(url)) is not None


def _revision(database: Database) -> str | None:
    if not database.exists():
        return None
    with _opening(database):
        return revision_of(database)


@contextmanager
def _opening(database: Database) -> Iterator[None]:
    try:
        yield
    except FlowmarkError:
        raise
    except Exception as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        fault = database.refusal(error)
        if fault is not None:
            raise ConfigurationError([f"--db: {fault}"]) from cause
        if database.fault(error) is Fault.DEFECT:
            raise
        msg = f"{database.name} cannot be opened now: {database.said(error)}"
        raise Unavailable(msg) from cause
