"""Whether, and how, a process counts: alone, as a worker, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import grpc
from sqlalchemy import func, select
from starlette.middleware import Middleware

from flowmark_otel.backend.meter import Meter
from flowmark_otel.backend.settling import Waiting
from flowmark_otel.backend.store import Store
from flowmark_otel.backend.store.reading import snapshot
from flowmark_otel.backend.store.sqlite import SqliteDatabase
from flowmark_otel.config import ServeOptions
from flowmark_otel.errors import Unavailable
from flowmark_otel.listen.prometheus import CONTENT_TYPE
from flowmark_otel.listen.telemetry import Page
from flowmark_otel.server.readiness import Readiness, Watch

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Decides, when the library is imported, where a process keeps its values."""


class Metering(NamedTuple):
    """What is put around the judge and both transports, and what makes the page.

    ``waiting``: what the metrics have to ask the store about later, None where nobody counts.
    """

    meter: Meter
    waiting: Waiting | None
    middleware: Sequence[Middleware]
    interceptors: Sequence[grpc.aio.ServerInterceptor]
    page: Callable[[Store], Page]

    @staticmethod
    def of(options: ServeOptions, readiness: Readiness, *, shared: bool) -> Metering:
        """Counting if there is an address for it, or if a supervisor asks for it."""
        if shared != (FOLDER_VARIABLE in os.environ) or not (shared or options.metrics):
            return Metering(Watch(readiness), None, (), (), _no_page)
        # Only here: whoever asks for no metrics pays for none.
        from prometheus_client import CollectorRegistry  # noqa: PLC0415

        from flowmark_otel.server import metering, metrics, processes  # noqa: PLC0415

        registry = None if shared else CollectorRegistry()
        waiting = Waiting(options.failed_after)
        instruments = metrics.Instruments(registry, readiness, waiting)

        def page(store: Store) -> Page:
            own = processes.Processes((os.getpid(),))

            def made(ready: bool) -> tuple[bytes, str]:  # noqa: FBT001  the one thing it depends on
                state = metrics.State(size_of(store), ready=ready, workers=1, deaths=0)
                collectors = (state, own, *(() if registry is None else (registry,)))
                return metrics.page_of(*collectors), CONTENT_TYPE

            return made

        return Metering(
            instruments,
            waiting,
            (Middleware(metering.HttpMeter, count=instruments.request),),
            (metering.GrpcMeter(instruments.request),),
            page,
        )


def size_of(store: Store) -> int | None:
    """Bytes of a store on disk, its log included; None where that cannot be found now."""
    database = store.database
    if isinstance(database, SqliteDatabase):
        files = (database.path, database.path.with_name(f"{database.path.name}-wal"))
        return sum(each.stat().st_size for each in files if each.exists())
    try:
        with snapshot(store.engine) as connection:
            asked = select(func.pg_database_size(func.current_database()))
            return int(connection.execute(asked).scalar_one())
    except Unavailable:
        return None


def _no_page(_store: Store) -> Page:
    msg = "nothing is counted"
    raise RuntimeError(msg)
