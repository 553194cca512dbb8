"""Pages of the dashboard over a store of a million events: how long the server works on each."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Final

import httpx
from starlette.applications import Starlette

from flowmark_otel import dashboard, names
from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.read import Reader, RunFilters
from flowmark_otel.backend.sessions import Sessions
from flowmark_otel.backend.store import Store, open_store
from flowmark_otel.backend.summary.worker import Summariser
from flowmark_otel.model import Principal
from tests.bench.report import Figure
from tests.support import large

EVENTS: Final = 1_000_000
ROUNDS: Final = 7
MOST_MS: Final = 200.0
MOST_KB: Final = 300.0
_SUMMARISED_SECONDS: Final = 900


def measure() -> list[Figure]:
    """Time of this process and size of each page; the fastest of some rounds, so without others."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{Path(folder) / 'store.db'}")
        try:
            project = Keys(store).ensure_project("default")
            large.fill(store, project, large.pairs("other", EVENTS // 20, 10))
            large.fill(store, project, large.pairs("pairs", 1, 10_000, 10**9))
            large.fill(store, project, large.one_group("group", 1_000, 2 * 10**9))
            large.fill(store, project, large.mixed("mixed", 10_000, 3 * 10**9))
            _summarise(store, project)
            return asyncio.run(_figures(store, project))
        finally:
            store.close()


def _summarise(store: Store, project: int) -> None:
    """Wait until figures come from summaries, as on a store that has served for a while."""
    summariser = Summariser(store)
    summariser.start()
    until = time.monotonic() + _SUMMARISED_SECONDS
    while Reader(store).overview(project).not_included and time.monotonic() < until:
        time.sleep(1)
    summariser.stop()


async def _figures(store: Store, project: int) -> list[Figure]:
    reader = Reader(store)
    anyone = Principal(project, "default", names.KEY_READ)
    routes = dashboard.routes(reader, Sessions(store, Keys(store)), anyone=anyone)
    keys = {
        run: reader.runs(project, RunFilters(run_id=run)).items[0].key
        for run in ("pairs-0", "group", "mixed")
    }
    group = f"/runs/{keys['group']}/{{}}?operation=push&group_id=one"
    pages = {
        "overview": "/",
        "runs": "/runs",
        "evidence": "/evidence",
        "ingest": "/ingest",
        "a run of 10,000 operations in pairs": f"/runs/{keys['pairs-0']}",
        "a run of 10,000 operations, half in twenties": f"/runs/{keys['mixed']}",
        "a run with a group of 1,000 attempts": f"/runs/{keys['group']}",
        "100 of 1,000 attempts": group.format("group"),
        "one of 1,000 attempts": f"{group.format('attempt')}&number=500",
        "events of 10,000 operations": f"/runs/{keys['pairs-0']}/events",
    }
    figures: list[Figure] = []
    transport = httpx.ASGITransport(Starlette(routes=routes))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for name, path in pages.items():
            took = []
            for _ in range(ROUNDS):
                began = time.process_time()
                answer = await client.get(path)
                took.append(time.process_time() - began)
                assert answer.status_code == httpx.codes.OK, answer.text
            size = len(answer.content) / 1000
            # The list holds all three large runs at once; the target is that of one of them.
            most = None if name == "runs" else MOST_MS
            figures.append(Figure(f"page: {name}", min(took) * 1000, "ms", most=most))
            figures.append(Figure(f"size: {name}", size, "kB", most=MOST_KB))
    return figures
