"""The writers of a store: threads that each own a connection and commit waiting requests together.

Nothing is answered before its transaction is durable: a future is resolved after COMMIT. Whoever
waits for a future that was not yet taken may cancel it; then nothing of it is written.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection

from flowmark_otel.backend.batch import Prepared, Verdict
from flowmark_otel.backend.holding import NO_LIMITS, Limits
from flowmark_otel.backend.store.database import Database
from flowmark_otel.backend.store.holdings import Holdings
from flowmark_otel.backend.store.session import Session
from flowmark_otel.backend.store.tables import Statements
from flowmark_otel.clock import Clock
from flowmark_otel.errors import Unavailable

Job: TypeAlias = Callable[[Connection], Any]
"""Work in a transaction of its own; it may be run again, so it changes nothing else."""

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
    """Takes requests and jobs from any thread; with one connection in the order they came.

    Build: connections are opened in the constructor, in the caller's thread, so that a store that
    cannot be written fails at once. Shutdown: ``close`` refuses newcomers, writes what waits, ends
    the threads and closes the connections, in this order.
    """

    def __init__(
        self,
        database: Database,
        statements: Statements,
        clock: Clock,
        *,
        max_waiting: int = MAX_WAITING,
        limits: Limits = NO_LIMITS,
    ) -> None:
        self._clock = clock
        self._max_waiting = max_waiting
        self._changed = threading.Condition()
        self._waiting: deque[_Work] = deque()  # guarded by _changed, like the next two
        self._cost = 0
        self._closing = False
        engine = database.writing()
        self._sessions: list[Session] = []
        try:
            for _ in range(database.writers):
                holdings = Holdings(statements, clock, limits)
                self._sessions.append(Session(database, statements, engine, holdings))
        except BaseException:
            for session in self._sessions:
                session.close()
            raise
        self._threads = [
            threading.Thread(
                target=self._run, args=(session,), name=f"flowmark-writer-{number}", daemon=True
            )
            for number, session in enumerate(self._sessions)
        ]
        for thread in self._threads:
            thread.start()

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
        for thread in self._threads:
            thread.join()
        for session in self._sessions:
            session.close()

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
            self._changed.notify()
        return work.future

    def _run(self, session: Session) -> None:
        while group := self._take():
            started = [work for work in group if work.future.set_running_or_notify_cancel()]
            if started:
                self._commit(session, started)

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

    def _commit(self, session: Session, group: Sequence[_Work]) -> None:
        try:
            results = self._transaction(session, group)
        except Unavailable as error:
            self._fail(group, error)
        except Exception as error:  # noqa: BLE001  every waiting future must be resolved
            # The content of one request is at fault: it must not take its neighbours with it.
            if len(group) == 1:
                self._fail(group, error)
            else:
                for work in group:
                    self._commit(session, [work])
        else:
            for work, result in zip(group, results, strict=True):
                work.future.set_result(result)

    def _transaction(self, session: Session, group: Sequence[_Work]) -> list[Any]:
        job = group[0].job
        if job is not None:
            return [session.run(job)]
        requests = [work.request for work in group if work.request is not None]
        return list(session.judge(requests, self._clock.now_ns()))

    @staticmethod
    def _fail(group: Sequence[_Work], error: Exception) -> None:
        for work in group:
            work.future.set_exception(error)
