"""The reader: questions about one project → views. Owns nothing; each answer is one snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from sqlalchemy import Connection, Engine

from flowmark_otel.backend.read import events, intake, news, operations, problems, runs, statistics
from flowmark_otel.backend.read.errors import BadParameter, NotFound
from flowmark_otel.backend.read.filters import RunFilters, storable
from flowmark_otel.backend.read.overview import overview
from flowmark_otel.backend.read.problems import EvidenceFilters
from flowmark_otel.backend.store.reading import READ_SECONDS, snapshot
from flowmark_otel.backend.summary.spans import DAY, MINUTE
from flowmark_otel.backend.views import (
    Arrival,
    EventView,
    EvidenceItem,
    GroupView,
    Ingest,
    OccurrenceView,
    OperationRow,
    Overview,
    Page,
    RunView,
)
from flowmark_otel.clock import Clock, SystemClock

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 500
"""Items of one page."""

DEFAULT_BUCKETS: Final = 30
MAX_BUCKETS: Final = 200
OVERVIEW_NS: Final = 30 * DAY
"""What an overview is of where no time is given."""

OPEN_AFTER_NS: Final = 15 * MINUTE
"""An end may be on its way for so long before its absence is listed."""

_LATEST: Final = 2**63 - 1


class Readable(Protocol):
    """A store, as far as it is read: connections of ``engine`` do not wait for the writer."""

    @property
    def engine(self) -> Engine:
        """Where connections come from; a transaction is one snapshot."""
        ...


class Reader:
    """Answers questions about one project; every method takes its id first and reads no other.

    Blocking; may be called from any thread. Raises NotFound for a run that the project does not
    have, BadParameter for a limit outside 1 to 500 or a cursor that is none, Unavailable where the
    store cannot be read, or not within ``seconds``.
    """

    def __init__(
        self,
        store: Readable,
        clock: Clock | None = None,
        *,
        open_after_ns: int = OPEN_AFTER_NS,
        seconds: float = READ_SECONDS,
    ) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._open_after_ns = open_after_ns
        self._seconds = seconds

    @property
    def open_after_ns(self) -> int:
        """Nanoseconds after its arrival that what has no end is listed as open."""
        return self._open_after_ns

    def runs(
        self,
        project_id: int,
        filters: RunFilters | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> Page[RunView]:
        """Runs by first arrival, the latest first."""
        _check(limit)
        with self._snapshot() as connection:
            return runs.page(connection, project_id, filters or RunFilters(), limit, cursor)

    def run(self, project_id: int, key: str) -> RunView:
        """One run by its opaque key, as lists give it."""
        with self._snapshot() as connection:
            found = runs.find(connection, project_id, key)
            return runs.views_of(connection, project_id, [found])[0]

    def operations(
        self, project_id: int, key: str, limit: int = DEFAULT_LIMIT, cursor: str | None = None
    ) -> Page[OccurrenceView]:
        """The occurrences of a run, by first arrival."""
        _check(limit)
        with self._snapshot() as connection:
            found = runs.find(connection, project_id, key)
            return operations.occurrence_page(connection, project_id, found, limit, cursor)

    def attempts(
        self,
        project_id: int,
        key: str,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        *,
        others: bool = True,
        operation: str | None = None,
    ) -> Page[GroupView]:
        """The groups of a run, by first arrival; all attempts of a group are on its page.

        ``others``: whether the other runs that name the same groups are looked for.
        ``operation``: the groups of this operation name only.
        """
        _check(limit)
        with self._snapshot() as connection:
            found = runs.find(connection, project_id, key)
            return operations.group_page(
                connection, project_id, found, limit, cursor, others=others, operation=operation
            )

    def group(self, project_id: int, key: str, operation: str, group_id: str) -> GroupView:
        """One group of a run. Raises NotFound where the run has none of that name and id."""
        with self._snapshot() as connection:
            found = runs.find(connection, project_id, key)
            wanted = [(operation, group_id)] if storable(operation, group_id) else []
            for group in operations.groups_of(connection, project_id, found, wanted):
                return group
        msg = "no such group in this run"
        raise NotFound(msg)

    def occurrence(self, project_id: int, key: str, operation_id: str) -> OccurrenceView:
        """One occurrence of a run. Raises NotFound where the run has none of that id."""
        with self._snapshot() as connection:
            found = runs.find(connection, project_id, key)
            if storable(operation_id):
                one = operations.occurrence_of(connection, project_id, found, operation_id)
                if one is not None:
                    return one
        msg = "no such operation in this run"
        raise NotFound(msg)

    def events_named(
        self, project_id: int, key: str, event_ids: Sequence[str]
    ) -> tuple[EventView, ...]:
        """The evidence of a run under these event ids, accepted and rejected, by arrival."""
        with self._snapshot() as connection:
            found = runs.find(connection, project_id, key)
            return events.named_events(connection, project_id, found, event_ids)

    def events(
        self, project_id: int, key: str, limit: int = DEFAULT_LIMIT, cursor: str | None = None
    ) -> Page[EventView]:
        """The evidence of a run in order of arrival, accepted and rejected."""
        _check(limit)
        with self._snapshot() as connection:
            found = runs.find(connection, project_id, key)
            return events.event_page(connection, project_id, found, limit, cursor)

    def operation_statistics(
        self,
        project_id: int,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
        *,
        since: int | None = None,
        until: int | None = None,
        workflow: str | None = None,
    ) -> Page[OperationRow]:
        """Figures per operation name over the runs of a time, most time lost first.

        Times are epoch nanoseconds of the first arrival.
        """
        _check(limit)
        with self._snapshot() as connection:
            return statistics.operation_page(
                connection, project_id, (since, until, workflow), limit, cursor
            )

    def run_statistics(self, project_id: int, key: str) -> tuple[OperationRow, ...]:
        """The same figures of one run."""
        with self._snapshot() as connection:
            found = runs.find(connection, project_id, key)
            return statistics.of_run(connection, project_id, found)

    def overview(
        self,
        project_id: int,
        since: int | None = None,
        until: int | None = None,
        buckets: int = DEFAULT_BUCKETS,
    ) -> Overview:
        """Figures over time and per operation name; without times of the last 30 days.

        Raises BadParameter where ``since`` is not before ``until``, or ``buckets`` not 1 to 200.
        """
        if not 1 <= buckets <= MAX_BUCKETS:
            msg = f"buckets: found {buckets}; set a number from 1 to {MAX_BUCKETS}"
            raise BadParameter(msg)
        end = min(self._clock.now_ns() + 1, _LATEST) if until is None else until
        begin = max(end - OVERVIEW_NS, 0) if since is None else since
        if begin >= end:
            msg = "since: is not before until; set an earlier time, or a later until"
            raise BadParameter(msg)
        with self._snapshot() as connection:
            return overview(connection, project_id, begin, end, buckets)

    def evidence(
        self,
        project_id: int,
        filters: EvidenceFilters | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> Page[EvidenceItem]:
        """What is not known and what was refused."""
        _check(limit)
        before = self._clock.now_ns() - self._open_after_ns
        with self._snapshot() as connection:
            wanted = filters or EvidenceFilters()
            return problems.evidence_page(connection, project_id, wanted, before, limit, cursor)

    def ingest(self, project_id: int) -> Ingest:
        """What arrived, from whom, and what holds it."""
        with self._snapshot() as connection:
            return intake.ingest(connection, project_id, self._clock.now_ns())

    def received(self, project_id: int) -> int:
        """How many events arrived for the project, whatever became of them."""
        with self._snapshot() as connection:
            return intake.received(connection, project_id)

    def newer_items(self, project_id: int, filters: EvidenceFilters, after: int) -> int:
        """How many of the latest items of ``evidence`` were not there at ``after``.

        ``after`` is epoch nanoseconds; what a page of MOST_NEWS items holds is counted.
        """
        times = (after, self._clock.now_ns(), self._open_after_ns)
        with self._snapshot() as connection:
            return news.newer_items(connection, project_id, filters, times)

    def newer_runs(self, project_id: int, filters: RunFilters, after: int) -> int:
        """How many runs first arrived after ``after``, epoch nanoseconds; at most MOST_NEWS."""
        with self._snapshot() as connection:
            return news.newer_runs(connection, project_id, filters, after)

    def mark(self, project_id: int, key: str) -> tuple[int, int]:
        """How far the evidence of a run reaches, for ``newer_events``."""
        with self._snapshot() as connection:
            return news.mark(connection, project_id, runs.find(connection, project_id, key))

    def newer_events(self, project_id: int, key: str, after: tuple[int, int]) -> int:
        """How many events of a run arrived after a mark; at most MOST_NEWS."""
        with self._snapshot() as connection:
            found = runs.find(connection, project_id, key)
            return news.newer_events(connection, project_id, found, after)

    def latest_arrival(self, project_id: int) -> Arrival:
        """How far the evidence reaches; cheap enough for every page."""
        with self._snapshot() as connection:
            return intake.latest_arrival(connection, project_id, self._clock.now_ns())

    def trace(
        self,
        project_id: int,
        trace_id: bytes,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> Page[RunView]:
        """The runs that events of a trace belong to, the latest first; ``trace_id``: 16 bytes."""
        return self.runs(project_id, RunFilters(trace_id=trace_id), limit, cursor)

    def _snapshot(self) -> AbstractContextManager[Connection]:
        return snapshot(self._store.engine, self._seconds)


def _check(limit: int) -> None:
    if not 1 <= limit <= MAX_LIMIT:
        msg = f"limit: found {limit}; set a number from 1 to {MAX_LIMIT}"
        raise BadParameter(msg)
