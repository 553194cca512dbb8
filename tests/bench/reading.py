"""Reading one large run, in a small store and in a large one."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.store import open_store
from tests.bench.report import Figure
from tests.support.large import fill, pairs
from tests.support.serving import Serving

OPERATIONS = 10_000
LARGE = 1_000_000
ROUNDS = 5
MOST = 3.0


def measure() -> list[Figure]:
    """The same run of 10,000 operations beside few and beside many other events."""
    with tempfile.TemporaryDirectory() as folder:
        small = _time(Path(folder) / "small.db", 0)
        large = _time(Path(folder) / "large.db", LARGE)
    figures = []
    for what, few in small.items():
        many = large[what]
        figures += [
            Figure(f"{what}, {2 * OPERATIONS:,} events stored", few * 1000, "ms"),
            Figure(f"{what}, {LARGE:,} more stored", many * 1000, "ms"),
            Figure(f"{what}, large by small", many / few, "ratio", most=MOST),
        ]
    return figures


def _time(path: Path, others: int) -> dict[str, float]:
    """Median seconds of the answers about one run, ``others`` events stored beside it."""
    store = open_store(f"sqlite:///{path}")
    project = Keys(store).ensure_project("default")
    fill(store, project, pairs("large", 1, OPERATIONS))
    fill(store, project, pairs("other", others // 20, 10, OPERATIONS))
    store.close()
    found: dict[str, list[float]] = {}
    with Serving(path, "--insecure-no-auth") as serving:
        (run,) = serving.get("/runs", run_id="large-0")["items"]
        key = run["key"]
        assert run["counts"]["occurrences"] == OPERATIONS
        for _ in range(ROUNDS):
            for what, path_, pages in (
                ("the run itself", f"/runs/{key}", 1),
                ("one page of its operations", f"/runs/{key}/operations", 1),
                ("all its operations", f"/runs/{key}/operations", 0),
                ("all its attempts", f"/runs/{key}/attempts", 0),
                ("first page of runs", "/runs", 1),
            ):
                began = time.perf_counter()
                _pages(serving, path_, pages)
                found.setdefault(what, []).append(time.perf_counter() - began)
    return {what: statistics.median(times) for what, times in found.items()}


def _pages(serving: Serving, path: str, most: int) -> None:
    """Read pages of a list until its end, or so many."""
    query: dict[str, object] = {"limit": 500} if most == 0 else {}
    while True:
        answer = serving.get(path, None, **query)
        most -= 1
        if most == 0 or answer.get("next") is None:
            return
        query["cursor"] = answer["next"]
