"""One writing connection: transactions that are run again where that may help, and its faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, Generic, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from flowmark_otel.backend.batch import Prepared, Verdict
from flowmark_otel.backend.store.database import Database, Fault
from flowmark_otel.backend.store.holdings import Holdings
from flowmark_otel.backend.store.tables import Statements
from flowmark_otel.backend.store.transaction import Transactions
from flowmark_otel.errors import Unavailable

T = TypeVar("T")

MOST_RUNS: Final = 8
"""A transaction that others were before so many times is given up."""


@dataclass(frozen=True, slots=True)
class _Done(Generic[T]):
    result: T


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception
    fault: Fault


class Session:
    """Owned by one thread; ``close`` may be called by another after that one has ended.

    The connection is opened in the constructor, and anew after it was lost.
    """

    def __init__(
        self, database: Database, statements: Statements, engine: Engine, holdings: Holdings
    ) -> None:
        self._database = database
        self._engine = engine
        self._transactions = Transactions(database, statements, holdings)
        self._connection: Connection | None = engine.connect()

    def judge(self, requests: Sequence[Prepared], received_at: int) -> list[Verdict]:
        """Judge and write requests in one transaction, durable on return.

        After a connection was lost during COMMIT nobody knows whether it took place; run again,
        what it wrote is met by its event ids and answered as duplicate. Raises Unavailable where
        the database cannot do it now, else what is wrong with the requests.
        """
        runs = count()
        return self._durable(
            lambda connection: self._transactions.judge_and_write(
                connection, requests, received_at, again=next(runs) > 0
            )
        )

    def run(self, job: Callable[[Connection], T]) -> T:
        """Run a job in a transaction of its own, durable on return; raises as ``judge``."""
        done = self._durable(job)
        self._transactions.recount()
        return done

    def close(self) -> None:
        """Close the connection. May be called again."""
        self._part()

    def _durable(self, work: Callable[[Connection], T]) -> T:
        runs, lost = 0, False
        while True:
            done = self._attempt(work)
            if isinstance(done, _Done):
                return done.result
            runs += 1
            helps = done.fault is Fault.AGAIN or (done.fault is Fault.LOST and not lost)
            if helps and runs < MOST_RUNS:
                lost = lost or done.fault is Fault.LOST
                continue
            if done.fault is Fault.DEFECT:
                raise done.error
            msg = f"the store cannot write: {self._database.said(done.error)}"
            raise Unavailable(msg) from _cause(done.error)

    def _attempt(self, work: Callable[[Connection], T]) -> _Done[T] | _Failed:
        try:
            return _Done(self._once(work))
        except Exception as error:  # noqa: BLE001  the database says what it means
            return _Failed(error, self._database.fault(error))

    def _once(self, work: Callable[[Connection], T]) -> T:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._engine.connect()
        try:
            with connection.begin():
                return work(connection)
        except BaseException as error:
            self._transactions.forget()
            fault = self._database.fault(error)
            if fault in (Fault.LOST, Fault.BROKEN) or connection.in_transaction():
                self._part()
            raise

    def _part(self) -> None:
        """Close a connection that may no longer know what is on the disk."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.invalidate()
            connection.close()
        except SQLAlchemyError:
            # It was gone before; what it held is gone with it.
            return


def _cause(error: BaseException) -> BaseException:
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
