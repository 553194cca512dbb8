"""Bytes on disk per event, indices, summaries and full text included (docs/sizing.md).

Events go the real way, with trace ids, run ids and groups as SDKs make them, and are summarised
as they come: a B-tree that is filled in order would look a third smaller than it gets.
"""

from __future__ import annotations

import random
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

import psycopg

from flowmark_otel import names
from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.retention import SECOND_NS, Retention
from flowmark_otel.backend.store import Arrival, Batch, Store, open_store
from flowmark_otel.backend.summary.worker import fold_all
from flowmark_otel.clock import SystemClock
from flowmark_otel.errors import Unavailable
from flowmark_otel.fold import fold_span
from flowmark_otel.model import Sender, Span
from tests.bench.report import Figure
from tests.support.postgres import cluster

SIZES: Final = (100_000, 1_000_000)
ATTEMPTS: Final = 9
"""Spans of a run beside its own; each span makes two events."""

_EVENTS_OF_RUN: Final = 2 * (ATTEMPTS + 1)
_BATCH: Final = 1024  # events of one request: 512 spans
_FOLDED_EVERY: Final = 16  # requests
_TRIES: Final = 20
_BEGIN: Final = 1_796_000_000_000_000_000
_WORKFLOWS: Final = ("crm.sync", "booking.confirm", "invoice.send", "stock.import", "mail.out")
_CODES: Final = ("CRM_UNAVAILABLE", "TIMEOUT", "RATE_LIMITED")
_SENDER: Final = Sender("OTel-OTLP-Exporter-Python/1.38.0", "crm-worker", "1.2.3", "worker-1")
_GB: Final = 1_000_000_000
_DAY_SECONDS: Final = 86_400
_PARTS: Final = {
    "evidence": ("events", "runs", "occurrences"),
    "summaries": ("summaries", "postings", "terms", "series", "rollups", "rollup_values"),
}
"""What the tables of a store are for; all else is full text, or small."""


class Size(NamedTuple):
    """Bytes of a store by table, indices included, without what an empty one has."""

    total: int
    tables: dict[str, int]


class Later(SystemClock):
    """A clock ten days ahead: all has expired."""

    def now_ns(self) -> int:
        """Epoch nanoseconds."""
        return super().now_ns() + 10 * _DAY_SECONDS * SECOND_NS


def measure() -> list[Figure]:
    """SQLite, small and large; what a run leaves once it expired; how large an event is."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        for events in SIZES:
            path = Path(folder) / f"{events}.db"
            url = f"sqlite:///{path}"
            figures += _measured("SQLite", url, events, partial(_sqlite, path))
            if events == SIZES[0]:
                figures.append(_left("SQLite", url, events, partial(_sqlite, path)))
                figures.append(_payload())
            path.unlink()
    return figures


def measure_postgresql() -> list[Figure]:
    """PostgreSQL, small and large."""
    figures: list[Figure] = []
    with cluster() as server:
        for events in SIZES:
            url = server.store()
            figures += _measured("PostgreSQL", url, events, partial(_postgresql, url))
    return figures


def _measured(name: str, url: str, events: int, size: Callable[[], Size]) -> list[Figure]:
    open_store(url).close()
    empty = size()
    store = open_store(url)
    _fill(store, events)
    store.close()
    full = size()
    each = (full.total - empty.total) / events
    parts = {
        what: sum(full.tables.get(table, 0) - empty.tables.get(table, 0) for table in tables)
        for what, tables in _PARTS.items()
    }
    parts["full text"] = full.total - empty.total - sum(parts.values())
    return [
        Figure(f"{name}, {events:,} events", each, "bytes per event"),
        Figure(f"{name}, {events:,} events", _GB / each, "events per GB"),
        *(
            Figure(f"{name}, {events:,} events, {what}", bytes_ / events, "bytes per event")
            for what, bytes_ in parts.items()
        ),
    ]


def _left(name: str, url: str, events: int, size: Callable[[], Size]) -> Figure:
    """What stays of a run that expired, for as long again."""
    store = open_store(url, clock=Later())
    Retention(store, _DAY_SECONDS).round()
    store.close()
    left = size().tables["tombstones"] * _EVENTS_OF_RUN / events
    return Figure(f"{name}, an expired run", left, "bytes per run")


def _payload() -> Figure:
    """How much of it a sender chose: to compare with one's own events."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{folder}/sample.db")
        _fill(store, _BATCH)
        store.close()
        connection = sqlite3.connect(f"{folder}/sample.db")
        [(mean,)] = connection.execute("SELECT avg(length(attributes)) FROM events")
        connection.close()
    return Figure("attributes of an event, as JSON", mean, "bytes per event")


def _fill(store: Store, events: int) -> None:
    project = Keys(store).ensure_project("default")
    arrivals = _arrivals(random.Random(events))
    sent = 0
    while sent < events:
        for _ in range(_FOLDED_EVERY):
            some = list(islice(arrivals, min(_BATCH, events - sent)))
            if not some:
                break
            store.submit(Batch(project, names.ORIGIN_SERVER, some)).result()
            sent += len(some)
        _fold(store)


def _fold(store: Store) -> None:
    """As the thread of ``serve`` does: once more where the store could not in its time."""
    for _ in range(_TRIES):
        try:
            fold_all(store)
        except Unavailable:
            continue
        return
    msg = "the store could not be summarised"
    raise AssertionError(msg)


def _arrivals(chance: random.Random) -> Iterator[Arrival]:
    while True:
        for span in _run(chance):
            for event in fold_span(span):
                yield Arrival(0, _SENDER, event)


def _run(chance: random.Random) -> Iterator[Span]:
    """Three operations of three attempts each, and the run itself: failures, then a success."""
    trace_id = chance.randbytes(16)
    identity = {
        names.WORKFLOW_NAME: chance.choice(_WORKFLOWS),
        names.RUN_ID: str(UUID(bytes=chance.randbytes(16), version=4)),
    }
    batch = chance.randrange(10**9)
    for number in range(ATTEMPTS):
        failed = number % 3 < 2
        given: dict[str, Any] = {
            **identity,
            names.OPERATION_NAME: f"push-to-system-{number // 3}",
            names.ATTEMPT_GROUP_ID: f"customer-batch-{batch}-{number // 3}",
            names.ATTEMPT_NUMBER: number % 3 + 1,
            names.ATTEMPT_LIMIT: 5,
        }
        if failed:
            given |= {names.ERROR_CODE: chance.choice(_CODES), names.ERROR_RETRYABLE: True}
        yield _span(chance, trace_id, number, given, failed=failed)
    ended = {**identity, names.RUN_OUTCOME: "complete", f"{names.RUN_RESULT_PREFIX}imported": 3}
    yield _span(chance, trace_id, ATTEMPTS, ended, failed=False)


def _span(
    chance: random.Random, trace_id: bytes, number: int, given: dict[str, Any], *, failed: bool
) -> Span:
    begin = _BEGIN + chance.randrange(10**15) + number * 1_000_000
    end = begin + chance.randrange(10**9)
    return Span(trace_id, chance.randbytes(8), "POST", begin, end, failed, given)


def _sqlite(path: Path) -> Size:
    """The file without what is free in it, and its parts."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    owners = dict(connection.execute("SELECT name, tbl_name FROM sqlite_master"))
    tables: dict[str, int] = {}
    for name, bytes_ in connection.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name"):
        table = owners.get(name, name)
        tables[table] = tables.get(table, 0) + bytes_
    connection.close()
    return Size((pages - free) * size, tables)


def _postgresql(url: str) -> Size:
    """The database as its files are, dead rows and what autovacuum freed included."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        [(total,)] = connection.execute("SELECT pg_database_size(current_database())").fetchall()
        tables = connection.execute(
            "SELECT relname, pg_total_relation_size(oid) FROM pg_class"
            " WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
        ).fetchall()
    return Size(int(total), {str(name): int(size) for name, size in tables})
