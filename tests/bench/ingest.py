"""The backend on SQLite: rows made durable and acknowledged, against a bare ``executemany``.

The probe writes the same rows into the same table with the same indices, 1,024 a transaction,
``synchronous=FULL``, in the same run.
"""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
import time
from pathlib import Path

from flowmark_otel.backend.store import open_store
from flowmark_otel.backend.store.schema import events
from tests.bench import load
from tests.bench.report import Figure
from tests.support.serving import Serving

ROUNDS = 3
REQUESTS = 120
TRANSACTION = 1024
LEAST = 0.30


def measure() -> list[Figure]:
    """Annotated spans in batches of 512 over both transports, then 0, 1 and 10 % annotated."""
    with tempfile.TemporaryDirectory() as folder:
        return [*_annotated(Path(folder)), *_mixed(Path(folder))]


def _annotated(folder: Path) -> list[Figure]:
    rates: dict[str, list[float]] = {"http": [], "grpc": []}
    bare: list[float] = []
    for turn in range(ROUNDS):
        for transport, found in rates.items():
            requests = folder / "requests"
            load.write(requests, load.bodies(REQUESTS, 1.0, seed=turn))
            store = folder / f"{transport}-{turn}.db"
            with Serving(store, "--insecure-no-auth") as serving:
                address = serving.http if transport == "http" else serving.grpc
                sent = load.send(requests, address, transport)
            rows = REQUESTS * load.BATCH * 2
            assert sent["stored"] == sent["received"] == rows, sent
            found.append(rows / sent["seconds"])
        bare.append(_bare(store, folder / f"bare-{turn}.db"))
    probe = statistics.median(bare)
    figures = [Figure("bare executemany", probe, "rows/s")]
    for transport, found in rates.items():
        rate = statistics.median(found)
        figures.append(Figure(f"annotated, {transport}", rate, "rows/s"))
        figures.append(
            Figure(f"annotated, {transport}, of the probe", rate / probe, "ratio", least=LEAST)
        )
    return figures


def _bare(filled: Path, empty: Path) -> float:
    """Rows per second of a bare ``executemany`` of what a filled store holds."""
    open_store(f"sqlite:///{empty}").close()
    with sqlite3.connect(filled) as source:
        rows = source.execute("SELECT * FROM events ORDER BY id").fetchall()
    connection = sqlite3.connect(empty, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    marks = ", ".join("?" * len(events.columns))
    statement = f"INSERT INTO events VALUES ({marks})"  # noqa: S608  question marks alone
    began = time.perf_counter()
    for start in range(0, len(rows), TRANSACTION):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(statement, rows[start : start + TRANSACTION])
        connection.execute("COMMIT")
    seconds = time.perf_counter() - began
    connection.close()
    return len(rows) / seconds


def _mixed(folder: Path) -> list[Figure]:
    figures = []
    for share in (0.0, 0.01, 0.1):
        requests = folder / "requests"
        load.write(requests, load.bodies(REQUESTS, share, seed=7))
        for transport in ("http", "grpc"):
            store = folder / f"mixed-{transport}-{share}.db"
            with Serving(store, "--insecure-no-auth") as serving:
                address = serving.http if transport == "http" else serving.grpc
                sent = load.send(requests, address, transport)
            rate = REQUESTS * load.BATCH / sent["seconds"]
            figures.append(Figure(f"{share:.0%} annotated, {transport}", rate, "spans/s"))
    return figures
