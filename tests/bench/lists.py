"""Lists, text search and figures of 30 days, in a small store and in a large one."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

from flowmark_otel import names
from flowmark_otel.backend.read import EvidenceFilters, Reader, RunFilters
from flowmark_otel.backend.store import open_store
from flowmark_otel.backend.summary.spans import DAY
from tests.bench.filling import fill
from tests.bench.report import Figure
from tests.support.postgres import cluster

SMALL = 50_000
LARGE = 5_000_000
DAYS = 30
ROUNDS = 7
MOST_RATIO = 3.0
MOST_MS = 300.0
LEAST_MS = 5.0
"""Below this a ratio says nothing: the time is that of a few statements."""


def measure() -> list[Figure]:
    """The same questions to a store of 50,000 events and to one of 5,000,000."""
    with tempfile.TemporaryDirectory() as folder:
        small = _time(f"sqlite:///{folder}/small.db", SMALL)
        large = _time(f"sqlite:///{folder}/large.db", LARGE)
    return compared(small, large)


def measure_postgresql() -> list[Figure]:
    """The same on PostgreSQL."""
    with cluster() as server:
        small = _time(server.store(), SMALL)
        large = _time(server.store(), LARGE)
    return compared(small, large)


class Taken(NamedTuple):
    """Seconds of one question: by the wall, and of the reading thread, which noise leaves alone."""

    wall: float
    thread: float


def compared(small: Mapping[str, Taken], large: Mapping[str, Taken]) -> list[Figure]:
    """Both times of each question as figures, and how the thread's times compare."""
    figures = []
    for what, few in small.items():
        many = large[what]
        figures += [
            Figure(f"{what}, {SMALL:,} events", few.wall * 1000, "ms"),
            Figure(f"{what}, {LARGE:,} events", many.wall * 1000, "ms", most=MOST_MS),
        ]
        if many.thread * 1000 > LEAST_MS:
            ratio = many.thread / few.thread
            figures.append(Figure(f"{what}, large by small", ratio, "ratio", most=MOST_RATIO))
    return figures


def _time(url: str, events: int) -> dict[str, Taken]:
    fill(url, events, DAYS, time.time_ns())
    store = open_store(url)
    try:
        return times(Reader(store))
    finally:
        store.close()


def times(reader: Reader) -> dict[str, Taken]:
    """Median seconds of each question to a store that ``fill`` made."""
    found = {}
    for what, ask in questions(reader).items():
        taken = []
        for _ in range(ROUNDS):
            began, spent = time.perf_counter(), time.thread_time()
            ask()
            taken.append((time.perf_counter() - began, time.thread_time() - spent))
        found[what] = Taken(*map(statistics.median, zip(*taken, strict=True)))
    return found


def questions(reader: Reader) -> dict[str, Callable[[], object]]:
    """Each filter, one run, text searches, the overview, the other lists."""
    first = reader.runs(1, None, 1).items[0]
    middle = RunFilters(until=first.first_received_at - DAYS * DAY // 2)
    run = reader.runs(1, middle, 1).items[0]
    serial = run.run_id.rpartition("-")[2]
    filters: list[dict[str, Any]] = [
        {},
        {"workflow": "crm.sync"},
        *({"status": one} for one in get_args(names.RunStatus)),
        *({"verdict": one} for one in get_args(names.Verdict)),
        *({"problem": one} for one in get_args(names.Problem)),
        {"operation": "step-1"},
        {"error_code": "E_RARE"},
        {"has_retries": True},
        {"has_retries": False},
        {"min_attempts": 2},
        {"min_attempts": 9},
        {"origin": "server"},
        {"origin": "browser"},
        {"q": "crm"},
        {"q": "e_rare"},
        {"q": "nothing"},
        {"workflow": "crm.sync", "verdict": "failed", "has_retries": True},
        {"verdict": "open", "error_code": "E_RARE"},
        {"q": "crm", "problem": "conflict"},
    ]

    def page(given: Mapping[str, Any]) -> Callable[[], object]:
        return lambda: reader.runs(1, RunFilters(**given))

    found = {f"runs {_said(given)}": page(given) for given in filters}
    named: dict[str, dict[str, Any]] = {
        "of a run id": {"run_id": run.run_id},
        "of a group id": {"group_id": f"batch-{serial}-0"},
        "of a trace": {"trace_id": int(serial).to_bytes(16, "big")},
        "of a day": {"since": run.first_received_at - DAY, "until": run.first_received_at},
        "of a run id as text": {"q": run.run_id},
    }
    found |= {f"runs {what}": page(given) for what, given in named.items()}
    found["one run"] = lambda: reader.run(1, run.key)
    found["its attempts"] = lambda: reader.attempts(1, run.key)
    found["overview of 30 days"] = lambda: reader.overview(1)
    found["operations"] = lambda: reader.operation_statistics(1)
    found["ingest"] = lambda: reader.ingest(1)

    def evidence(kind: names.Problem) -> Callable[[], object]:
        return lambda: reader.evidence(1, EvidenceFilters(kind=kind))

    return found | {f"evidence of {kind}": evidence(kind) for kind in get_args(names.Problem)}


def _said(given: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in given.items())
