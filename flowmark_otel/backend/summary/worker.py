"""Folds stale runs in the background while a backend serves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Protocol, TypeVar

from sqlalchemy import Connection, Engine

from flowmark_otel.backend.background import Background
from flowmark_otel.backend.store.reading import snapshot
from flowmark_otel.backend.summary.analysing import analyse_grown
from flowmark_otel.backend.summary.ids import Ids
from flowmark_otel.backend.summary.writing import Folded, Place, fold_stale, stale_runs
from flowmark_otel.clock import Clock, SystemClock
from flowmark_otel.errors import Unavailable

T = TypeVar("T")

IDLE_SECONDS: Final = 0.2
ANALYSE_SECONDS: Final = 5.0
"""So often at most the database is asked whether its statistics are old."""
FAILED_SECONDS: Final = 2.0
SHARE_WHILE_BUSY: Final = 0.2
"""Of the writer's time, while others wait for it; what is stale is read from its evidence."""

_WAITED: Final = 0.002  # seconds; who waits longer is not alone

_logger = logging.getLogger(__name__)


class Writing(Protocol):
    """A store, as far as it is asked and written by jobs."""

    @property
    def engine(self) -> Engine:
        """Where connections that read come from."""
        ...

    def write(self, job: Callable[[Connection], T]) -> Future[T]:
        """Run a job in a transaction of its own."""
        ...


class Summariser(Background):
    """A thread that keeps what is derived of runs up to date.

    ``stop`` lets the transaction in hand end; stop it before the store is closed. Several
    processes may have one each: they fold by turns.
    """

    def __init__(self, store: Writing, clock: Clock | None = None) -> None:
        super().__init__("flowmark-summaries")
        self._store = store
        self._clock = clock or SystemClock()
        self._ids = Ids()
        self._last: Place | None = None
        self._analysed = self._clock.monotonic() - ANALYSE_SECONDS

    def fold_all(self) -> None:
        """Fold in the calling thread until nothing is stale."""
        while self._fold()[0] or self._fold()[0]:
            pass  # the second time from the first place on

    def _run(self) -> None:
        failing = False
        while not self._stopping.is_set():
            try:
                # Asked of a reader: a store that rests is not locked again and again.
                folded, pause = self._fold() if self._is_stale() else (0, 0.0)
                failing = False
            except Unavailable as error:
                folded, pause = 0, FAILED_SECONDS
                if not failing:
                    _logger.warning("summaries wait for the store: %s", error)
                failing = True
            except Exception:
                # Lists and figures stay right without: they read what is stale from the evidence.
                folded, pause = 0, FAILED_SECONDS
                if not failing:
                    _logger.exception("runs cannot be summarised")
                failing = True
            self._stopping.wait(pause if folded or failing else IDLE_SECONDS)

    def _is_stale(self) -> bool:
        with snapshot(self._store.engine) as connection:
            return connection.execute(stale_runs(None).limit(1)).first() is not None

    def _fold(self) -> tuple[int, float]:
        """One transaction: how many runs, and how long to leave the writer to others."""
        asked = self._clock.monotonic()
        analyse = asked - self._analysed >= ANALYSE_SECONDS
        if analyse:
            self._analysed = asked
        started = 0.0

        def job(connection: Connection) -> Folded:
            nonlocal started
            if started:
                self._ids.forget()  # run again: what the first run gave was rolled back
            started = self._clock.monotonic()
            if analyse:
                analyse_grown(connection)
            return fold_stale(connection, self._ids, self._last)

        try:
            folded, self._last = self._store.write(job).result()
        except BaseException:
            self._ids.forget()
            raise
        if started - asked < _WAITED:
            return folded, 0.0
        took = self._clock.monotonic() - started
        return folded, took * (1 / SHARE_WHILE_BUSY - 1)


def fold_all(store: Writing) -> None:
    """Fold until nothing is stale; for commands and tests, which have no thread for it."""
    Summariser(store).fold_all()
