"""Retention: what nobody wants to keep for longer goes, in small steps (contract, section 5).

A run expires as a whole, by its latest arrival, and leaves a tombstone for as long again. With it
go old rejections that belong to no run, names and senders that nothing refers to any more, and
tombstones whose time is over. Each step is one transaction of a bounded number of rows. Of several
processes on one store one does it at a time: it holds a lease, and renews it with every step.

Remains of deletions that were broken off are removed without any retention, too.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from sqlalchemy import Connection, delete, select, update

from flowmark_otel.backend.background import Background
from flowmark_otel.backend.removal import (
    EXPIRED,
    RUNS,
    Burial,
    Buried,
    bury,
    clear,
    drop_rejections,
    drop_tombstones,
    runs_after,
)
from flowmark_otel.backend.store import Store, schema
from flowmark_otel.backend.store.reading import snapshot
from flowmark_otel.backend.store.senders import DAY_NS
from flowmark_otel.errors import Unavailable

T = TypeVar("T")

SECOND_NS: Final = 1_000_000_000
LEASE: Final = "sweeper"
FREE: Final = "- 0"
LEASE_NS: Final = 120 * SECOND_NS
_OFTEN_SECONDS: Final = 1.0
_SELDOM_SECONDS: Final = 600.0
_ROUNDS: Final = 100
"""Rounds in the time that a run is kept: so much longer than asked it may be there."""

_log = logging.getLogger("flowmark_otel.retention")
_runs = schema.runs.c


class Retention:
    """Rounds through one store; ``retain`` in seconds, None for ever.

    Used by one thread. ``pause`` is called between steps, so that whoever else writes gets its
    turn; it returns whether to go on.
    """

    def __init__(
        self, store: Store, retain: int | None, pause: Callable[[], bool] = lambda: True
    ) -> None:
        self._store = store
        self._retain_ns = None if retain is None else retain * SECOND_NS
        self._pause = pause
        self._holder = secrets.token_hex(8)

    def round(self) -> Buried:
        """Go through the store once; what expired. Nothing where another process is at it.

        Raises Unavailable where the store cannot be read or written now.
        """
        runs = events = 0
        for buried in self._steps():
            runs, events = runs + buried.runs, events + buried.events
            if not self._pause():
                break
        return Buried(runs, events)

    def release(self) -> None:
        """Give up the lease, so that another process need not wait until it is over."""
        meta = schema.meta
        mine = (meta.c.name == LEASE) & meta.c.value.startswith(self._holder)
        free = update(meta).where(mine).values(value=FREE)
        self._store.write(lambda connection: connection.execute(free)).result()

    def _steps(self) -> Iterator[Buried]:
        nothing = Buried(0, 0)
        while (more := self._step(clear)) is not None:
            yield nothing
            if not more:
                break
        else:
            return
        now = self._store.clock.now_ns()
        while self._step(lambda connection: drop_tombstones(connection, now)):
            yield nothing
        if self._retain_ns is None:
            return
        before = now - self._retain_ns
        until = now + self._retain_ns
        for project_id in self._projects():
            yield from self._expire(project_id, before, Burial(EXPIRED, now, until))
            while self._step(_dropping(project_id, before)):
                yield nothing
            self._step(_forgetting_names(project_id, before - DAY_NS))
            yield nothing
            self._step(self._forgetting_senders(project_id, before))
            yield nothing

    def _expire(self, project_id: int, before: int, burial: Burial) -> Iterator[Buried]:
        position = (-1, -1)
        while page := self._old_runs(project_id, before, position):
            position = page[-1]
            ids = [run for _, run in page]

            def burying(connection: Connection, ids: list[int] = ids) -> Buried:
                return bury(connection, project_id, ids, burial, before=before)

            buried = self._step(burying)
            if buried is None:
                return
            yield buried
            # At once, so that the space is there for what arrives now.
            while self._step(clear):
                yield Buried(0, 0)

    def _old_runs(
        self, project_id: int, before: int, after: tuple[int, int]
    ) -> list[tuple[int, int]]:
        """First arrivals and ids of runs that nothing arrived for since ``before``."""
        # The first arrival as well: it is what the index of runs is ordered by.
        old = (_runs.first_received_at < before, _runs.last_received_at < before)
        with snapshot(self._store.engine) as connection:
            return runs_after(connection, project_id, after, old)

    def _projects(self) -> list[int]:
        with snapshot(self._store.engine) as connection:
            return list(connection.execute(select(schema.projects.c.id)).scalars())

    def _forgetting_senders(self, project_id: int, before: int) -> Callable[[Connection], None]:
        """Forget senders that were not seen for so long and that nothing kept refers to.

        What arrived since ``before`` has a sender that was seen since, so only older runs and
        rejections that are still there can refer to one that was not.
        """
        senders = schema.senders
        old = (senders.c.project_id == project_id) & (senders.c.last_seen_at < before - DAY_NS)
        with snapshot(self._store.engine) as connection:
            candidates = set(connection.execute(select(senders.c.id).where(old)).scalars())
            if candidates:
                candidates -= _referred(connection, project_id, before)
        gone = sorted(candidates)[: RUNS * 10]

        def job(connection: Connection) -> None:
            connection.execute(delete(senders).where(old, senders.c.id.in_(gone)))

        return job

    def _step(self, work: Callable[[Connection], T]) -> T | None:
        """One transaction under the lease; None where another process holds it."""
        now = self._store.clock.now_ns()

        def job(connection: Connection) -> T | None:
            return work(connection) if _leased(connection, self._holder, now) else None

        return self._store.write(job).result()


class Sweeper(Background):
    """Runs rounds of retention in a thread of its own, until it is closed; close the store after.

    A round that fails is logged and made up for by the next.
    """

    def __init__(self, store: Store, retain: int | None) -> None:
        super().__init__("flowmark-sweeper")
        self._retention = Retention(store, retain, self._go_on)
        kept = _SELDOM_SECONDS * _ROUNDS if retain is None else float(retain)
        self._every = min(max(kept / _ROUNDS, _OFTEN_SECONDS), _SELDOM_SECONDS)
        self._began = 0.0
        self._monotonic = store.clock.monotonic
        self.start()

    def close(self) -> None:
        """Stop after the step that is running. May be called again."""
        self.stop()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._began = self._monotonic()
            try:
                expired = self._retention.round()
            except Unavailable as error:
                _log.warning("retention waits for the store: %s", error)
            except Exception as error:  # noqa: BLE001  a thread that died would keep all for ever
                # Its message is not logged: drivers quote the values they were given.
                _log.error("a round of retention failed: %s", type(error).__name__)
            else:
                if expired.runs:
                    _log.info("%d runs with %d events expired", *expired)
            self._stopping.wait(self._every)
        try:
            self._retention.release()
        except Unavailable as error:
            _log.warning("the lease of retention stays until it is over: %s", error)

    def _go_on(self) -> bool:
        """Leave the store to others for as long as the step took."""
        stopping = self._stopping.wait(min(self._monotonic() - self._began, _OFTEN_SECONDS))
        self._began = self._monotonic()
        return not stopping


def _leased(connection: Connection, holder: str, now: int) -> bool:
    """Take or renew the lease; False while it is another's.

    The row, made with the schema, is ``<holder> <until>``. One that reaches further ahead than a
    lease does was written by a clock that was wrong.
    """
    meta = schema.meta
    mine = f"{holder} {now + LEASE_NS}"
    asked = select(meta.c.value).where(meta.c.name == LEASE)
    held = str(connection.execute(asked).scalar_one())
    other, _, until = held.partition(" ")
    if other != holder and now < int(until) <= now + LEASE_NS:
        return False
    unchanged = (meta.c.name == LEASE) & (meta.c.value == held)
    return connection.execute(update(meta).where(unchanged).values(value=mine)).rowcount == 1


def _dropping(project_id: int, before: int) -> Callable[[Connection], bool]:
    return lambda connection: drop_rejections(connection, project_id, before)


def _forgetting_names(project_id: int, before: int) -> Callable[[Connection], None]:
    """Forget names that were last seen before that; some old run may still have one."""
    names = schema.known_names
    old = (names.c.project_id == project_id) & (names.c.last_seen_at < before)

    def job(connection: Connection) -> None:
        connection.execute(delete(names).where(old))

    return job


def _referred(connection: Connection, project_id: int, before: int) -> set[int]:
    """The senders that events of older runs and older rejections name."""
    events, rejections = schema.events.c, schema.rejections.c
    of_runs = (
        select(events.sender)
        .distinct()
        .join_from(schema.runs, schema.events, events.run == _runs.id)
        .where(_runs.project_id == project_id, _runs.first_received_at < before)
    )
    of_rejections = (
        select(rejections.sender)
        .distinct()
        .where(rejections.project_id == project_id, rejections.received_at < before)
    )
    return {int(row[0]) for one in (of_runs, of_rejections) for row in connection.execute(one)}
