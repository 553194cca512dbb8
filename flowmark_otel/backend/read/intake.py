"""What arrived and what holds it: ``/ingest`` (contract, section 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, column, func, select, table, text

from flowmark_otel.backend import views
from flowmark_otel.backend.evidence import DbRow, belongs, chunks
from flowmark_otel.backend.store import derived, schema
from flowmark_otel.backend.summary.spans import LEVELS
from flowmark_otel.backend.times import unwrap_time
from flowmark_otel.backend.views import Time

MOST_SENDERS: Final = 200
MOST_RUNS: Final = 250
MOST_EVENTS: Final = 5_000
"""Clocks are compared over so many events of so many runs, the latest of the project."""

MOST_LATEST: Final = 100
"""Runs among which the latest arrival is looked for on every page."""

_MOST_COUNTED: Final = 100_000
_counters = derived.counters.c
_events = schema.events.c
_rollups = derived.rollups.c
_runs = schema.runs.c
_senders = schema.senders.c
_series = derived.series.c


def ingest(connection: Connection, project_id: int, now: int) -> views.Ingest:
    """The state of one project's intake; ``now`` is epoch nanoseconds."""
    store_bytes = _store_bytes(connection)
    attempts = _attempts(connection)
    waiting = (
        select(_runs.id)
        .where(
            _runs.project_id == project_id,
            text("runs.stale = 1"),
            _runs.first_received_at >= 0,  # the second column of the index, lest another is taken
        )
        .limit(_MOST_COUNTED)
        .subquery("waiting")
    )
    oldest, latest = (
        connection.execute(
            select(_runs.first_received_at)
            .where(_runs.project_id == project_id)
            .order_by(order(_runs.first_received_at), order(_runs.id))
            .limit(1)
        ).scalar()
        for order in (_ascending, _descending)
    )
    version = table("alembic_version", column("version_num"))
    return views.Ingest(
        read_at=Time(now),
        events=_counts(connection, project_id),
        senders=_sending(connection, project_id),
        sender_count=connection.execute(
            select(func.count()).where(_senders.project_id == project_id)
        ).scalar_one(),
        store_bytes=store_bytes,
        bytes_per_attempt=store_bytes // attempts if attempts else None,
        schema=connection.execute(select(version.c.version_num)).scalar_one(),
        oldest_evidence=None if oldest is None else Time(oldest),
        latest_evidence=None if latest is None else Time(latest),
        waiting_runs=connection.execute(select(func.count()).select_from(waiting)).scalar_one(),
    )


def received(connection: Connection, project_id: int) -> int:
    """How many events arrived for a project since the store was made, whatever became of them."""
    counted = select(func.sum(_counters.number)).where(_counters.project_id == project_id)
    return int(connection.execute(counted).scalar() or 0)


def latest_arrival(connection: Connection, project_id: int, now: int) -> views.Arrival:
    """The latest arrival for any of the runs that began to arrive last; ``now`` as above."""
    latest = (
        select(_runs.last_received_at)
        .where(_runs.project_id == project_id)
        .order_by(_runs.first_received_at.desc(), _runs.id.desc())
        .limit(MOST_LATEST)
        .subquery("latest")
    )
    received_at = connection.execute(select(func.max(latest.c.last_received_at))).scalar()
    return views.Arrival(None if received_at is None else Time(received_at), Time(now))


def _ascending(one: DbRow) -> DbRow:
    return one.asc()


def _descending(one: DbRow) -> DbRow:
    return one.desc()


def _counts(connection: Connection, project_id: int) -> tuple[views.EventCount, ...]:
    key = (_counters.origin, _counters.state, _counters.reason)
    rows = connection.execute(
        select(*key, func.sum(_counters.number))
        .where(_counters.project_id == project_id)
        .group_by(*key)
        .order_by(*key)
    )
    return tuple(
        views.EventCount(origin, state, reason or None, int(number))
        for origin, state, reason, number in rows
    )


def _attempts(connection: Connection) -> int:
    """Attempts of the whole store, as far as summarised: the sums of all runs by day."""
    sums = _rollups.attempts_open + _rollups.attempts_completed + _rollups.attempts_failed
    of_all = connection.execute(select(_series.id).where(_series.workflow == "")).scalars()
    total = 0
    for some in chunks(of_all):
        day = (_rollups.series.in_(some), _rollups.level == len(LEVELS) - 1)
        total += int(connection.execute(select(func.sum(sums)).where(*day)).scalar() or 0)
    return total


def _store_bytes(connection: Connection) -> int:
    if connection.dialect.name == "postgresql":
        size = select(func.pg_database_size(func.current_database()))
        return int(connection.execute(size).scalar_one())
    pages, size = (
        connection.execute(text(f"PRAGMA {name}")).scalar_one()
        for name in ("page_count", "page_size")
    )
    return int(pages) * int(size)


def _sending(connection: Connection, project_id: int) -> tuple[views.SenderStats, ...]:
    senders = connection.execute(
        select(schema.senders)
        .where(belongs(_senders.project_id, project_id))
        .order_by(_senders.id.desc())
        .limit(MOST_SENDERS)
    ).all()
    behind: dict[int, list[int]] = {}
    latest: dict[int, int] = {}
    for row in events_of(connection, project_id, _latest_runs(connection, project_id)):
        latest[row.sender] = max(latest.get(row.sender, 0), row.received_at)
        times = behind.setdefault(row.sender, [])
        if row.sent_at:
            times.append(row.received_at - unwrap_time(row.sent_at))
    return tuple(_stats(row, behind.get(row.id), latest.get(row.id)) for row in senders)


def _latest_runs(connection: Connection, project_id: int) -> Sequence[int]:
    latest = (
        select(_runs.id)
        .where(_runs.project_id == project_id)
        .order_by(_runs.first_received_at.desc(), _runs.id.desc())
        .limit(MOST_RUNS)
    )
    return connection.execute(latest).scalars().all()


def events_of(connection: Connection, project_id: int, runs: Sequence[int]) -> Sequence[DbRow]:
    """Sender and times of at most MOST_EVENTS events of some runs, those of the project."""
    return connection.execute(
        select(_events.sender, _events.sent_at, _events.received_at)
        .where(_events.run.in_(runs), belongs(_events.project_id, project_id))
        .limit(MOST_EVENTS)
    ).all()


def _stats(row: DbRow, behind: list[int] | None, latest: int | None) -> views.SenderStats:
    ordered = sorted(behind or ())
    return views.SenderStats(
        user_agent=row.user_agent or None,
        service_name=row.service_name or None,
        service_version=row.service_version or None,
        service_instance_id=row.service_instance_id or None,
        events=len(ordered),
        latest_received_at=None if latest is None else Time(latest),
        behind_p50_ns=_nearest_rank(ordered, 50),
        behind_p95_ns=_nearest_rank(ordered, 95),
    )


def _nearest_rank(ordered: Sequence[int], percent: int) -> int | None:
    return ordered[-(-percent * len(ordered) // 100) - 1] if ordered else None
