"""The store: writers that commit in groups, many readers, on whatever database."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from sqlalchemy import Connection, select

from flowmark_otel.backend.batch import Batch, Verdict, prepare
from flowmark_otel.backend.holding import NO_LIMITS, Limits
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.store.database import Database
from flowmark_otel.backend.store.tables import Statements
from flowmark_otel.backend.store.writer import Writer
from flowmark_otel.clock import Clock

T = TypeVar("T")

BACKEND_ID: Final = "backend_id"


class Store:
    """An open store.

    ``engine`` is for reads, each ``connect()`` block one snapshot; it refuses to write.
    ``statements`` are those of the writer, for reads of many keys at once. Shutdown: ``close``
    lets the writers finish what waits, then disposes of the readers. All methods may be called
    from any thread.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        max_waiting: int | None = None,
        limits: Limits = NO_LIMITS,
    ) -> None:
        self.database = database
        self.clock = clock
        self.statements = Statements(database.dialect)
        self.engine = database.readers()
        try:
            with self.engine.connect() as connection:
                self.backend_id: str = connection.execute(
                    select(schema.meta.c.value).where(schema.meta.c.name == BACKEND_ID)
                ).scalar_one()
            bounds = {} if max_waiting is None else {"max_waiting": max_waiting}
            self._writer = Writer(database, self.statements, clock, limits=limits, **bounds)
        except BaseException:
            self.engine.dispose()
            raise

    def submit(self, batch: Batch) -> Future[Verdict]:
        """Judge and store a request; the future is resolved after COMMIT.

        The preparation runs in the calling thread. Raises Unavailable, or the future does, where
        the store cannot take the request now.
        """
        return self._writer.submit(prepare(batch))

    def write(self, job: Callable[[Connection], T]) -> Future[T]:
        """Run a job in a transaction of its own on a connection that writes.

        It may be run again where another transaction came first, so it must change nothing else.
        """
        return self._writer.run(job)

    def close(self) -> None:
        """Write what waits, then close; later submissions raise Unavailable."""
        self._writer.close()
        self.engine.dispose()
