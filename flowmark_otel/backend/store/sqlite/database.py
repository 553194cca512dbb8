"""SQLite: how connections to the file are made, and what its errors mean.

WAL, so readers and the writer never wait for each other; ``synchronous=FULL``, so a commit is on
the disk before it is acknowledged.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Final

from sqlalchemy import URL, Column, Connection, Engine, create_engine, event, func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool, QueuePool

from flowmark_otel.backend.store import schema
from flowmark_otel.backend.store.database import Fault, Row
from flowmark_otel.backend.store.sqlite.statements import Statements
from flowmark_otel.backend.store.sqlite.turn import turn
from flowmark_otel.errors import ConfigurationError

_BUSY_SECONDS: Final = 5.0
_STATEMENTS: Final = 256
_WRITE_CACHE_KIB: Final = 32 * 1024
_CHECKPOINT_PAGES: Final = 4000
_KEEP_LOG_BYTES: Final = 64 * 1024 * 1024
_READERS: Final = 8
_IO_WORDS: Final = ("disk I/O", "malformed", "not a database", "unable to open")


class SqliteDatabase:
    """Implements ``database.Database`` on the file that a URL names.

    Whoever writes holds the lock of the whole file from the start of the transaction, so there is
    nothing to claim, and ids follow from what is stored: several processes may write by turns.
    """

    writers: Final = 1

    def __init__(self, url: URL) -> None:
        """Raises ConfigurationError where the URL names no file."""
        if url.database in (None, "", ":memory:"):
            fault = "--db: a store needs a file; set sqlite:////absolute/path.db"
            raise ConfigurationError([fault])
        self.path = Path(str(url.database)).absolute()
        self.name = str(self.path)
        self.url = url.render_as_string()
        self.dialect = Statements()

    def create(self) -> None:
        """Make the file, readable by its owner alone, and its folder, where they are missing."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            fault = f"--db: {self.path} cannot be made: {error.strerror}"
            raise ConfigurationError([fault]) from error

    def exists(self) -> bool:
        """Whether the file is there."""
        return self.path.is_file()

    def readers(self) -> Engine:
        """Pooled connections that refuse to write; a transaction is a snapshot."""

        def connect() -> sqlite3.Connection:
            connection = _connect(self.path)
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
            connection.exec_driver_sql("BEGIN")

        return made

    def writing(self) -> Engine:
        """Connections that take the lock of the file as their transactions begin."""

        def connect() -> sqlite3.Connection:
            connection = _connect(self.path)
            for name, value in (
                ("cache_size", -_WRITE_CACHE_KIB),
                ("wal_autocheckpoint", _CHECKPOINT_PAGES),
                ("journal_size_limit", _KEEP_LOG_BYTES),
            ):
                connection.execute(f"PRAGMA {name} = {value}")
            return connection

        made = create_engine("sqlite://", creator=connect, poolclass=NullPool)

        @event.listens_for(made, "begin")
        def begin(connection: Connection) -> None:
            with turn(self.path, _BUSY_SECONDS):
                connection.exec_driver_sql("BEGIN IMMEDIATE")

        return made

    def lock_schema(self, connection: Connection) -> None:
        """Nothing: the transaction holds the lock of the file."""

    def event_ids(self, connection: Connection, most: int) -> Iterator[int]:
        """From the last stored one on."""
        del most
        return _after(connection, schema.events.c.id)

    def run_ids(self, connection: Connection) -> Iterator[int]:
        """From the last stored one on, or the last that a deleted run left rows of."""
        return _after(connection, schema.runs.c.id, schema.tombstones.c.run)

    def claim(
        self,
        connection: Connection,
        claims: Sequence[Row],
        received_at: int,
        *,
        also: Sequence[bytes] = (),
    ) -> set[bytes]:
        """Nothing: the transaction holds the lock of the file."""
        del connection, claims, received_at, also
        return set()

    def hold(self, connection: Connection, runs: Sequence[int]) -> None:
        """Nothing: the transaction holds the lock of the file."""

    def unclaim(self, connection: Connection, keys: Sequence[bytes]) -> None:
        """Nothing, since ``claim`` makes nothing."""

    def lock_rejections(self, connection: Connection, scopes: Sequence[tuple[int, str]]) -> None:
        """Nothing: the transaction holds the lock of the file."""

    def await_rejections(self, connection: Connection, scopes: Sequence[tuple[int, str]]) -> None:
        """Nothing, as above."""

    def overtaken(self) -> Exception:
        """Nobody can have: it would be a defect."""
        return AssertionError("another transaction wrote beside this one")

    def fault(self, error: BaseException) -> Fault:
        """Locked and full are passing; a file that fails or is damaged has to be opened again."""
        cause = _cause(error)
        if isinstance(cause, sqlite3.DatabaseError) and any(
            word in str(cause) for word in _IO_WORDS
        ):
            return Fault.BROKEN
        if isinstance(cause, (sqlite3.OperationalError, OSError)):
            return Fault.UNAVAILABLE
        if type(cause) is sqlite3.DatabaseError:
            return Fault.UNAVAILABLE
        return Fault.DEFECT

    def said(self, error: BaseException) -> str:
        """The driver's words."""
        return str(_cause(error))

    def refusal(self, error: BaseException) -> str | None:
        """That the file holds something else, or is damaged."""
        cause = _cause(error)
        if isinstance(cause, sqlite3.DatabaseError) and not isinstance(
            cause, sqlite3.OperationalError
        ):
            return f"{self.path} is no SQLite database, or damaged"
        return None


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


def _after(connection: Connection, *columns: Column[int]) -> Iterator[int]:
    last = [connection.execute(select(func.max(column))).scalar() for column in columns]
    return count(1 + max(0 if each is None else each for each in last))


def _cause(error: BaseException) -> BaseException:
    found = error.orig if isinstance(error, DBAPIError) else error
    return error if found is None else found
