"""What ingest gives up while runs are summarised beside it: the same load with and without.

Both stores; rounds take turns, so that what else the machine does meets both. The server without a
summariser is the same program with that one thread not started.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.bench import load
from tests.bench.report import Figure
from tests.support.postgres import cluster
from tests.support.serving import Serving
from tests.support.urls import Place

ROUNDS: Final = 3
REQUESTS: Final = 120
LEAST: Final = 0.75
"""The summariser takes a fifth of the writer's time while others wait for it
(``worker.SHARE_WHILE_BUSY``), which leaves 0.8; the rest is what the machine does."""
WITHOUT: Final = """
import sys
from flowmark_otel.backend.summary.worker import Summariser
from flowmark_otel.cli import main
Summariser.start = lambda summariser: None
sys.argv = ["flowmark-otel", *sys.argv[4:]]
main()
"""


def measure() -> list[Figure]:
    """The ratio of rows per second with the summariser to those without, by store."""
    found: dict[str, dict[bool, list[float]]] = {}
    with (
        tempfile.TemporaryDirectory() as name,
        cluster(fsync="on", shared_buffers="256MB", max_wal_size="4GB") as server,
    ):
        folder = Path(name)
        for turn in range(ROUNDS):
            requests = folder / "requests"
            load.write(requests, load.bodies(REQUESTS, 1.0, seed=turn))
            for beside in (False, True):
                stores: dict[str, Place] = {
                    "sqlite": folder / f"{turn}-{beside}.db",
                    "postgresql": server.store(),
                }
                for kind, store in stores.items():
                    rates = found.setdefault(kind, {False: [], True: []})
                    rates[beside].append(_rate(store, requests, beside=beside))
    figures = []
    for kind, rates in found.items():
        alone, both = statistics.median(rates[False]), statistics.median(rates[True])
        figures += [
            Figure(f"{kind}, not summarising", alone, "rows/s"),
            Figure(f"{kind}, while summarising", both, "rows/s"),
            Figure(f"{kind}, while summarising, of not", both / alone, "ratio", least=LEAST),
        ]
    return figures


def _rate(store: Place, requests: Path, *, beside: bool) -> float:
    under = () if beside else (sys.executable, "-c", WITHOUT)
    with Serving(store, "--insecure-no-auth", under=under) as serving:
        sent = load.send(requests, serving.http, "http")
    rows = REQUESTS * load.BATCH * 2
    assert sent["stored"] == rows, sent
    return rows / sent["seconds"]
