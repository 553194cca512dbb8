"""The reader: questions about one project → views. Owns nothing; each answer is one snapshot."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final, Protocol

from sqlalchemy import Connection, Engine

from flowmark_otel.backend.read import events, operations, runs, statistics
from flowmark_otel.backend.read.errors import BadParameter
from flowmark_otel.backend.read.filters import RunFilters
from flowmark_otel.backend.store.reading import snapshot
from flowmark_otel.backend.views import (
    EventView,
    GroupView,
    OccurrenceView,
    OperationRow,
    Page,
    RunView,
)

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 500
"""Items of one page."""


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
    store cannot be read.
    """

    def __init__(self, store: Readable) -> None:
        self._store = store

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
        self, project_id: int, key: str, limit: int = DEFAULT_LIMIT, cursor: str | None = None
    ) -> Page[GroupView]:
        """The groups of a run, by first arrival; all attempts of a group are on its page."""
        _check(limit)
        with self._snapshot() as connection:
            found = runs.find(connection, project_id, key)
            return operations.group_page(connection, project_id, found, limit, cursor)

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
        filters: RunFilters | None = None,
        limit: int = DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> Page[OperationRow]:
        """Figures per operation name over the runs that ``filters`` names, most time lost first."""
        _check(limit)
        with self._snapshot() as connection:
            wanted = filters or RunFilters()
            return statistics.operation_page(connection, project_id, wanted, limit, cursor)

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
        return snapshot(self._store.engine)


def _check(limit: int) -> None:
    if not 1 <= limit <= MAX_LIMIT:
        msg = f"limit: found {limit}; set a number from 1 to {MAX_LIMIT}"
        raise BadParameter(msg)
