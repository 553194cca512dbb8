"""SQLite: how connections to the file are made, and the store that owns them.

WAL, so readers and the writer never wait for each other; ``synchronous=FULL``, so a commit is on
the disk before it is acknowledged.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Final, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, make_url, select
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import QueuePool

from flowmark_otel.backend.batch import Batch, Verdict, prepare
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.store.writer import Writer
from flowmark_otel.clock import Clock
from flowmark_otel.errors import ConfigurationError

T = TypeVar("T")

BACKEND_ID: Final = "backend_id"
_BUSY_SECONDS: Final = 5.0
_STATEMENTS: Final = 256
_WRITE_CACHE_KIB: Final = 32 * 1024
_CHECKPOINT_PAGES: Final = 4000
_KEEP_LOG_BYTES: Final = 64 * 1024 * 1024
_READERS: Final = 8


class Store:
    """An open store.

    ``engine`` is for reads, each ``connect()`` block one snapshot; it refuses to write.
    Shutdown: ``close`` lets the writer finish what waits, then disposes of the readers. All
    methods may be called from any thread.
    """

    def __init__(self, path: Path, clock: Clock, *, max_waiting: int | None = None) -> None:
        self.path = path
        self.clock = clock
        self.engine = engine(path, read_only=True)
        with self.engine.connect() as connection:
            self.backend_id: str = connection.execute(
                select(schema.meta.c.value).where(schema.meta.c.name == BACKEND_ID)
            ).scalar_one()
        limits = {} if max_waiting is None else {"max_waiting": max_waiting}
        self._writer = Writer(lambda: connect_writer(path), clock, **limits)

    def submit(self, batch: Batch) -> Future[Verdict]:
        """Judge and store a request; the future is resolved after COMMIT.

        The preparation runs in the calling thread. Raises Unavailable, or the future does, where
        the store cannot take the request now.
        """
        return self._writer.submit(prepare(batch))

    def write(self, job: Callable[[sqlite3.Connection], T]) -> Future[T]:
        """Run a job on the write connection in a transaction of its own."""
        return self._writer.run(job)

    def close(self) -> None:
        """Write what waits, then close; later submissions raise Unavailable."""
        self._writer.close()
        self.engine.dispose()


def path_of(url: str) -> Path:
    """The file that ``sqlite:////abs/path.db`` names; raises ConfigurationError."""
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        fault = f"--db: {url!r} is no database URL; set sqlite:////absolute/path.db"
        raise ConfigurationError([fault]) from error
    if parsed.get_backend_name() != "sqlite":
        fault = f"--db: {parsed.get_backend_name()} is not supported; set sqlite:////path.db"
        raise ConfigurationError([fault])
    if parsed.database in (None, "", ":memory:"):
        fault = "--db: a store needs a file; set sqlite:////absolute/path.db"
        raise ConfigurationError([fault])
    return Path(str(parsed.database)).absolute()


def create_file(path: Path) -> None:
    """Make the file, readable by its owner alone, and its folder, where they are missing."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def engine(path: Path, *, read_only: bool) -> Engine:
    """Pooled connections; a transaction is a snapshot, or takes the write lock at once."""

    def connect() -> sqlite3.Connection:
        connection = _connect(path)
        if read_only:
            connection.execute("PRAGMA query_only = ON")
        return connection

    made = create_engine(
        "sqlite://",
        creator=connect,
        poolclass=QueuePool,
        pool_size=_READERS,
        max_overflow=_READERS,
    )

    @event.listens_for(made, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return made


def connect_writer(path: Path) -> sqlite3.Connection:
    """The connection that the writer thread owns."""
    connection = _connect(path)
    for name, value in (
        ("cache_size", -_WRITE_CACHE_KIB),
        ("wal_autocheckpoint", _CHECKPOINT_PAGES),
        ("journal_size_limit", _KEEP_LOG_BYTES),
    ):
        connection.execute(f"PRAGMA {name} = {value}")
    return connection


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw",
        uri=True,
        timeout=_BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_STATEMENTS,
    )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection
