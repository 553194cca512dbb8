"""The one writer: a thread that owns the write connection and commits waiting requests together.

Nothing is answered before its transaction is durable: a future is resolved after COMMIT. Whoever
waits for a future that was not yet taken may cancel it; then nothing of it is written.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from flowmark_otel.backend.batch import Prepared, Verdict
from flowmark_otel.backend.store.senders import Senders
from flowmark_otel.backend.store.transaction import judge_and_write
from flowmark_otel.clock import Clock
from flowmark_otel.errors import Unavailable

Job: TypeAlias = Callable[[sqlite3.Connection], Any]
"""Work on the write connection inside a transaction of its own."""

MAX_EVENTS: Final = 8192
"""Events of one transaction; a request is never split."""

MAX_WAITING: Final = 64 * 1024 * 1024
"""Bytes of the requests that wait, about; a request finding more is turned away."""


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """One entry of the queue: a request, or a job."""

    request: Prepared | None
    job: Job | None
    future: Future[Any] = field(default_factory=Future)

    @property
    def cost(self) -> int:
        return 0 if self.request is None else self.request.cost

    @property
    def events(self) -> int:
        return 0 if self.request is None else len(self.request.events)


class Writer:
    """Takes requests and jobs from any thread, writes them in the order in which they came.

    Build: the connection is opened in the constructor, in the caller's thread, so that a store
    that cannot be written fails at once. Shutdown: ``close`` refuses newcomers, writes what waits,
    ends the thread and closes the connection, in this order.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        clock: Clock,
        *,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._max_waiting = max_waiting
        self._connection: sqlite3.Connection | None = connect()
        self._senders = Senders()
        self._changed = threading.Condition()
        self._waiting: deque[_Work] = deque()  # guarded by _changed, like the next two
        self._cost = 0
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="flowmark-writer", daemon=True)
        self._thread.start()

    def submit(self, request: Prepared) -> Future[Verdict]:
        """Queue a request; raises Unavailable where too much waits or the store is closed."""
        return self._put(_Work(request, None))

    def run(self, job: Job) -> Future[Any]:
        """Queue a job; its result is the future's. Raises Unavailable where the store is closed."""
        return self._put(_Work(None, job))

    def close(self) -> None:
        """Write what waits, then stop. May be called again."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _put(self, work: _Work) -> Future[Any]:
        with self._changed:
            if self._closing:
                msg = "the store is closed"
                raise Unavailable(msg)
            if self._waiting and self._cost + work.cost > self._max_waiting:
                msg = "too many requests wait for the store"
                raise Unavailable(msg)
            self._waiting.append(work)
            self._cost += work.cost
            self._changed.notify_all()
        return work.future

    def _run(self) -> None:
        while group := self._take():
            started = [work for work in group if work.future.set_running_or_notify_cancel()]
            if started:
                self._commit(started)

    def _take(self) -> list[_Work]:
        """What is written next: one job, or as many requests as a transaction holds. Empty: end."""
        with self._changed:
            while not self._waiting:
                if self._closing:
                    return []
                self._changed.wait()
            group = [self._waiting.popleft()]
            events = group[0].events
            while group[0].job is None and self._waiting:
                following = self._waiting[0]
                events += following.events
                if following.job is not None or events > MAX_EVENTS:
                    break
                group.append(self._waiting.popleft())
            self._cost -= sum(work.cost for work in group)
            return group

    def _commit(self, group: Sequence[_Work]) -> None:
        try:
            results = self._transaction(group)
        except (sqlite3.OperationalError, OSError) as error:
            self._fail(group, _unavailable(error))
        except Exception as error:  # noqa: BLE001  every waiting future must be resolved
            # The content of one request is at fault: it must not take its neighbours with it.
            if len(group) == 1:
                self._fail(group, _translated(error))
            else:
                for work in group:
                    self._commit([work])
        else:
            for work, result in zip(group, results, strict=True):
                work.future.set_result(result)

    def _transaction(self, group: Sequence[_Work]) -> list[Any]:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._connect()
        try:
            connection.execute("BEGIN IMMEDIATE")
            job = group[0].job
            if job is not None:
                results: list[Any] = [job(connection)]
            else:
                results = list(
                    judge_and_write(
                        connection,
                        [work.request for work in group if work.request is not None],
                        self._senders,
                        self._clock.now_ns(),
                    )
                )
            connection.execute("COMMIT")
        except BaseException as error:
            self._roll_back(connection, error)
            raise
        return results

    def _roll_back(self, connection: sqlite3.Connection, error: BaseException) -> None:
        """Undo, and part with a connection that may no longer know what is on the disk."""
        self._senders.forget()
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            broken = True
        else:
            broken = isinstance(error, sqlite3.DatabaseError) and _is_io(error)
        if broken:
            self._connection = None
            connection.close()

    @staticmethod
    def _fail(group: Sequence[_Work], error: Exception) -> None:
        for work in group:
            work.future.set_exception(error)


_IO_WORDS: Final = ("disk I/O", "malformed", "not a database", "unable to open")


def _is_io(error: sqlite3.DatabaseError) -> bool:
    """Whether the file failed, not the statement; Python 3.10 tells it by the message alone."""
    return any(word in str(error) for word in _IO_WORDS)


def _unavailable(error: Exception) -> Unavailable:
    unavailable = Unavailable(f"the store cannot write: {error}")
    unavailable.__cause__ = error
    return unavailable


def _translated(error: Exception) -> Exception:
    """A damaged file reads unavailable; anything else is a defect of ours and stays what it is."""
    if type(error) is sqlite3.DatabaseError:
        return _unavailable(error)
    return error
