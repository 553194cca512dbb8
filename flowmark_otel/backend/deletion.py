"""Deleting a run or a workflow: audited, in transactions that never hold ingest up for long.

Both `DELETE` of the API and the command `runs delete` come here (contract, section 5). A deleted
run has a tombstone for good: what arrives for it later is answered as a duplicate and not kept.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from sqlalchemy import Connection

from flowmark_otel.backend.audit import DELETE_RUN, DELETE_WORKFLOW, add, begin, finish
from flowmark_otel.backend.read import NotFound
from flowmark_otel.backend.read.runs import find
from flowmark_otel.backend.removal import DELETED, Burial, Buried, bury, clear, runs_after
from flowmark_otel.backend.store import Store, schema
from flowmark_otel.backend.store.reading import snapshot
from flowmark_otel.errors import Unavailable

T = TypeVar("T")

SAYS: Final = "Evidence that still arrives for what was deleted is acknowledged and not kept."
_TRIES: Final = 5

_columns = schema.runs.c


class Deleted(NamedTuple):
    """What was deleted; ``audit`` is the id of its entry there."""

    runs: int
    events: int
    audit: int


Progress = Callable[[Buried], None]
"""Hears after each transaction what is buried by then."""


class Deleter:
    """Deletes from one store; every method may be called from any thread, and blocks.

    Raises Unavailable where the store cannot be written; what was begun is then in the audit with
    what was done of it, and remains are removed by whoever sweeps the store next.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self, project_id: int, key: str, actor: str) -> Deleted:
        """Delete one run by its key; raises NotFound where the project has none."""
        with snapshot(self._store.engine) as connection:
            found = int(find(connection, project_id, key).id)
        now = self._store.clock.now_ns()

        def job(connection: Connection) -> Deleted:
            buried = bury(connection, project_id, [found], Burial(DELETED, now, None))
            if not buried.runs:
                msg = "no run with this key"
                raise NotFound(msg)
            entry = begin(
                connection,
                project_id=project_id,
                at=now,
                actor=actor,
                action=DELETE_RUN,
                subject=key,
            )
            add(connection, entry, buried)
            finish(connection, entry, now)
            return Deleted(*buried, entry)

        deleted = self._write(job)
        self._clear()
        return deleted

    def workflow(
        self, project_id: int, name: str, actor: str, progress: Progress | None = None
    ) -> Deleted:
        """Delete the runs that a workflow has now; raises NotFound where it has none."""
        now = self._store.clock.now_ns()
        total, entry = Buried(0, 0), 0
        position = (-1, -1)
        while page := self._page(project_id, name, position):
            position = page[-1]
            ids = [run for _, run in page]
            before = entry

            def job(
                connection: Connection, entry: int = before, ids: list[int] = ids
            ) -> tuple[Buried, int]:
                buried = bury(connection, project_id, ids, Burial(DELETED, now, None))
                if buried.runs and not entry:
                    entry = begin(
                        connection,
                        project_id=project_id,
                        at=now,
                        actor=actor,
                        action=DELETE_WORKFLOW,
                        subject=name,
                    )
                if entry:
                    add(connection, entry, buried)
                return buried, entry

            buried, entry = self._write(job)
            total = Buried(total.runs + buried.runs, total.events + buried.events)
            if progress is not None:
                progress(total)
        if not entry:
            msg = "no run of this workflow"
            raise NotFound(msg)
        ended = self._store.clock.now_ns()
        self._write(lambda connection: finish(connection, entry, ended))
        self._clear()
        return Deleted(*total, entry)

    def _page(self, project_id: int, name: str, after: tuple[int, int]) -> list[tuple[int, int]]:
        """First arrivals and ids of the next runs of a workflow."""
        with snapshot(self._store.engine) as connection:
            return runs_after(connection, project_id, after, (_columns.workflow == name,))

    def _clear(self) -> None:
        while self._write(clear):
            pass

    def _write(self, job: Callable[[Connection], T]) -> T:
        """Run a job; while another process keeps the store busy, a few times over."""
        for _ in range(_TRIES - 1):
            with suppress(Unavailable):
                return self._store.write(job).result()
        return self._store.write(job).result()
