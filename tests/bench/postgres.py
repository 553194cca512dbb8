"""The backend on PostgreSQL: rows made durable and acknowledged, against a bare COPY.

The probe copies the same rows, which are those of runs, events and occurrences, into temporary
tables and inserts them from there into the same tables with the same indices, ``ON CONFLICT DO
NOTHING``, in the transactions that it is fastest with, in the same run. Beside it stands what is
left when only the rows of events are counted and copied. Two servers on one database are measured
against one where there are cores for both, each with a client of its own.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Table

from flowmark_otel.backend.store import schema
from flowmark_otel.backend.store.postgresql.statements import type_of
from tests.bench import load
from tests.bench.report import Figure
from tests.support.postgres import Cluster, cluster
from tests.support.serving import Serving

ROUNDS = 3
REQUESTS = 120
TRANSACTIONS = (1024, 8192, 1 << 20)
LEAST = 0.40
LEAST_OF_TWO = 1.6
CORES = 6
"""Two servers, a client and a process of the database for each."""

Row = tuple[Any, ...]


def measure() -> list[Figure]:
    """Annotated spans in batches of 512 over both transports; then one server against two."""
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster(fsync="on", shared_buffers="256MB", max_wal_size="4GB") as server,
    ):
        return [*_against_probe(server, Path(folder)), *_two_of_one(server, Path(folder))]


def _against_probe(server: Cluster, folder: Path) -> list[Figure]:
    seconds: dict[str, list[float]] = {"http": [], "grpc": []}
    bare: list[float] = []
    bare_of_events: list[float] = []
    events = written = 0
    for turn in range(ROUNDS):
        for transport, took in seconds.items():
            url = server.store()
            events = REQUESTS * load.BATCH * 2
            took.append(events / _rate(url, folder, transport, seed=turn))
        rows = _rows(url)
        written = sum(map(len, rows.values()))
        bare.append(max(_bare(server.store(), rows, size) for size in TRANSACTIONS))
        alone = {schema.events: rows[schema.events]}
        bare_of_events.append(max(_bare(server.store(), alone, size) for size in TRANSACTIONS))
    probe, probe_of_events = statistics.median(bare), statistics.median(bare_of_events)
    figures = [
        Figure("bare COPY and INSERT", probe, "rows/s"),
        Figure("bare COPY and INSERT, events alone", probe_of_events, "rows/s"),
    ]
    for transport, took in seconds.items():
        name, median = f"postgresql, {transport}", statistics.median(took)
        share = written / median / probe
        of_events = events / median / probe_of_events
        figures += [
            Figure(name, written / median, "rows/s"),
            Figure(f"{name}, of the probe", share, "ratio", least=LEAST),
            Figure(f"{name}, events alone of the probe's", of_events, "ratio"),
        ]
    return figures


def _two_of_one(server: Cluster, folder: Path) -> list[Figure]:
    one, two = (
        statistics.median(_together(server.store(), folder, count) for _ in range(ROUNDS))
        for count in (1, 2)
    )
    cores = len(os.sched_getaffinity(0))
    free = cores >= CORES
    return [
        Figure("postgresql, one server", one, "rows/s"),
        Figure("postgresql, two servers", two, "rows/s"),
        Figure(
            "postgresql, two servers of one",
            two / one,
            "ratio",
            least=LEAST_OF_TWO if free else None,
            note="" if free else f"{cores} cores; a target from {CORES} on",
        ),
    ]


def _rate(url: str, folder: Path, transport: str, seed: int) -> float:
    requests = folder / "requests"
    load.write(requests, load.bodies(REQUESTS, 1.0, seed=seed))
    with Serving(url, "--insecure-no-auth") as serving:
        address = serving.http if transport == "http" else serving.grpc
        sent = load.send(requests, address, transport)
    rows = REQUESTS * load.BATCH * 2
    assert sent["stored"] == sent["received"] == rows, sent
    return rows / sent["seconds"]


def _together(url: str, folder: Path, count: int) -> float:
    """Rows per second of so many servers on one database, each sent requests of its own."""
    files = [folder / f"requests-{number}" for number in range(count)]
    for number, path in enumerate(files):
        load.write(path, load.bodies(REQUESTS, 1.0, seed=100 + number))
    with ExitStack() as stack:
        servers = [stack.enter_context(Serving(url, "--insecure-no-auth")) for _ in files]
        with ThreadPoolExecutor(count) as threads:
            sent = list(
                threads.map(
                    lambda pair: load.send(pair[0], pair[1].http, "http"),
                    zip(files, servers, strict=True),
                )
            )
    return sum(each["stored"] for each in sent) / max(each["seconds"] for each in sent)


def _rows(url: str) -> dict[Table, list[Row]]:
    """All rows that requests made, but for sums of which there is one a project."""
    with psycopg.connect(url) as connection:
        return {
            table: connection.execute(f"SELECT * FROM {table.name}").fetchall()  # noqa: S608  ours
            for table in (schema.runs, schema.events, schema.occurrences)
        }


def _bare(url: str, rows: dict[Table, list[Row]], size: int) -> float:
    """Rows per second of COPY and INSERT, so many rows a transaction."""
    total = sum(map(len, rows.values()))
    transactions = -(-total // size)
    with psycopg.connect(url) as connection:
        for table in rows:
            given = f"CREATE TEMPORARY TABLE given_{table.name} (LIKE {table.name})"
            connection.execute(f"{given} ON COMMIT DELETE ROWS")
        connection.commit()
        began = time.perf_counter()
        for number in range(transactions):
            for table, ours in rows.items():
                start, end = (len(ours) * each // transactions for each in (number, number + 1))
                _copied(connection, table, ours[start:end])
            connection.commit()
        return total / (time.perf_counter() - began)


def _copied(connection: psycopg.Connection, table: Table, rows: list[Row]) -> None:
    given = f"given_{table.name}"
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY {given} FROM STDIN (FORMAT BINARY)") as copy,
    ):
        copy.set_types([type_of(table, column.name) for column in table.columns])
        for row in rows:
            copy.write_row(row)
    connection.execute(
        f"INSERT INTO {table.name} SELECT * FROM {given} ON CONFLICT DO NOTHING"  # noqa: S608  ours
    )
