"""What projects hold, as the writer remembers it between transactions (contract, section 4).

The counts live in the store, as sums over shards: each writer changes a shard of its own, so that
no row makes writers wait for each other. Where events or groups have a quota, their sums are read
in each transaction: exact on SQLite, where writers take turns, and on PostgreSQL passed at most by
what transactions write that are open at the same time. Names, and quotas themselves, are read at
least every ten seconds, and what a writer counts itself is always known to it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, func, insert, select, update

from flowmark_otel.backend.batch import Prepared
from flowmark_otel.backend.holding import NO_LIMITS, Holding, Limits
from flowmark_otel.backend.known import Known
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.store.database import Row, driver_of
from flowmark_otel.backend.store.quotas import UNLIMITED
from flowmark_otel.backend.store.senders import DAY_NS
from flowmark_otel.backend.store.tables import Statements
from flowmark_otel.clock import Clock

SHARDS: Final = 64
REFRESH_SECONDS: Final = 10.0
_REMEMBERED_NAMES: Final = 65_536


class Holdings:
    """Owned by the writer thread.

    ``limits`` are those of projects that have none of their own. ``forget`` must follow a
    rollback, and whatever else changed what is counted.
    """

    def __init__(self, statements: Statements, clock: Clock, limits: Limits = NO_LIMITS) -> None:
        self._statements = statements
        self._clock = clock
        self._limits = limits
        self._shard = secrets.randbelow(SHARDS)
        self._held: dict[int, Holding] = {}
        self._read_at = 0.0  # monotonic seconds

    def forget(self) -> None:
        """Remember nothing."""
        self._held.clear()

    def load(
        self,
        connection: Connection,
        known: Known,
        requests: Sequence[Prepared],
        received_at: int,
    ) -> None:
        """Give ``known`` what the projects of the requests hold, with the names that they use."""
        now = self._clock.monotonic()
        if now - self._read_at >= REFRESH_SECONDS:
            self.forget()
            self._read_at = now
        for project_id in {request.project_id for request in requests}:
            holding = self._held.get(project_id)
            if holding is None:
                holding = self._held[project_id] = self._stored(connection, project_id)
            elif holding.limits.events is not None or holding.limits.groups is not None:
                holding.events, holding.groups = _counted(connection, project_id)
            known.holdings[project_id] = holding
            named = set[tuple[str, str]]().union(
                *(request.names for request in requests if request.project_id == project_id)
            )
            if len(holding.names) + len(named) > _REMEMBERED_NAMES:
                holding.names.clear()
            missing = sorted(named - holding.names)
            self._load_names(connection, project_id, holding, missing, received_at)

    def write(self, connection: Connection, known: Known, received_at: int) -> None:
        """Write what the judge counted."""
        for project_id, holding in sorted(known.holdings.items()):
            names = [(project_id, *name, received_at) for name in sorted(holding.new_names)]
            self._statements.insert_names.run(driver_of(connection), names)
            if holding.new_events or holding.new_groups:
                self._add(connection, project_id, holding)
            holding.written()

    def _add(self, connection: Connection, project_id: int, holding: Holding) -> None:
        usage = schema.usage
        mine = (usage.c.project_id == project_id) & (usage.c.shard == self._shard)
        added = connection.execute(
            update(usage)
            .where(mine)
            .values(
                events=usage.c.events + holding.new_events,
                groups=usage.c.groups + holding.new_groups,
            )
        )
        if not added.rowcount:
            first = {"events": holding.new_events, "groups": holding.new_groups}
            connection.execute(
                insert(usage).values(project_id=project_id, shard=self._shard, **first)
            )

    def _stored(self, connection: Connection, project_id: int) -> Holding:
        quotas, names = schema.quotas, schema.known_names.c
        own = connection.execute(select(quotas).where(quotas.c.project_id == project_id)).fetchone()
        limits = self._limits
        if own is not None:
            limits = Limits(*map(_limit, own[1:], limits))
        workflows, all_names = connection.execute(
            select(func.count().filter(names.operation == ""), func.count()).where(
                names.project_id == project_id
            )
        ).one()
        events, groups = _counted(connection, project_id)
        return Holding(limits, events, groups, workflows, all_names - workflows)

    def _load_names(
        self,
        connection: Connection,
        project_id: int,
        holding: Holding,
        missing: Sequence[tuple[str, str]],
        received_at: int,
    ) -> None:
        if not missing:
            return
        stale: list[Row] = []
        driver = driver_of(connection)
        for row in self._statements.names.run(driver, missing, (project_id,)):
            workflow, operation, last_seen_at = row
            holding.names.add((workflow, operation))
            if received_at - last_seen_at > DAY_NS:
                stale.append((project_id, workflow, operation, received_at))
        self._statements.see_names.run(driver, stale)


def _counted(connection: Connection, project_id: int) -> tuple[int, int]:
    """The events and groups that a project holds."""
    usage = schema.usage.c
    found = connection.execute(
        select(
            func.coalesce(func.sum(usage.events), 0), func.coalesce(func.sum(usage.groups), 0)
        ).where(usage.project_id == project_id)
    ).one()
    return int(found[0]), int(found[1])


def _limit(own: int | None, default: int | None) -> int | None:
    if own is None:
        return default
    return None if own == UNLIMITED else own
