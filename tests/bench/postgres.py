"""The backend on PostgreSQL: rows made durable and acknowledged, against a bare COPY.

The probe copies the same rows into a temporary table and inserts them from there into the same
table with the same indices, ``ON CONFLICT DO NOTHING``, in the transactions that it is fastest
with, in the same run. Two servers on one database are measured against one where there are cores
for both, each with a client of its own.
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

from flowmark_otel.backend.store.postgresql.statements import type_of
from flowmark_otel.backend.store.schema import events
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
    rates: dict[str, list[float]] = {"http": [], "grpc": []}
    bare: list[float] = []
    for turn in range(ROUNDS):
        for transport, found in rates.items():
            url = server.store()
            found.append(_rate(url, folder, transport, seed=turn))
        rows = _rows(url)
        bare.append(max(_bare(server.store(), rows, size) for size in TRANSACTIONS))
    probe = statistics.median(bare)
    figures = [Figure("bare COPY and INSERT", probe, "rows/s")]
    for transport, found in rates.items():
        rate = statistics.median(found)
        figures += [
            Figure(f"postgresql, {transport}", rate, "rows/s"),
            Figure(f"postgresql, {transport}, of the probe", rate / probe, "ratio", least=LEAST),
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


def _rows(url: str) -> list[Row]:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT * FROM events ORDER BY id").fetchall()


def _bare(url: str, rows: list[Row], size: int) -> float:
    """Rows per second of COPY and INSERT, so many rows a transaction."""
    types = [type_of(events, column.name) for column in events.columns]
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TEMPORARY TABLE given (LIKE events) ON COMMIT DELETE ROWS")
        connection.commit()
        began = time.perf_counter()
        for start in range(0, len(rows), size):
            with (
                connection.cursor() as cursor,
                cursor.copy("COPY given FROM STDIN (FORMAT BINARY)") as copy,
            ):
                copy.set_types(types)
                for row in rows[start : start + size]:
                    copy.write_row(row)
            connection.execute("INSERT INTO events SELECT * FROM given ON CONFLICT DO NOTHING")
            connection.commit()
        return len(rows) / (time.perf_counter() - began)
