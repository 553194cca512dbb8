"""A backend in this process: the real server on loopback, its loop in a thread of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from flowmark_otel.clock import Clock
from flowmark_otel.config import ServeOptions
from flowmark_otel.server import Server
from tests.support.loop import loop_thread
from tests.support.urls import Place, url_of


class Running(NamedTuple):
    """Where a backend listens, ``HOST:PORT``, and the keys it made; empty unless it was new."""

    grpc: str
    http: str
    ingest_key: str
    read_key: str

    @property
    def ingest(self) -> str:
        """The value of an ``authorization`` header that may send."""
        return f"Bearer {self.ingest_key}"

    @property
    def read(self) -> str:
        """The value of an ``authorization`` header that may read."""
        return f"Bearer {self.read_key}"


def options(store: Place, **changes: object) -> ServeOptions:
    """Options to serve a store on free ports of loopback."""
    plain = ServeOptions(db=url_of(store), grpc="127.0.0.1:0", http="127.0.0.1:0")
    return replace(plain, **changes)  # type: ignore[arg-type]


@contextmanager
def running(served: ServeOptions, clock: Clock | None = None) -> Iterator[Running]:
    """A backend, from its start to its orderly stop; by the machine's clock if none is given."""
    server = Server(served, clock=clock)
    with loop_thread() as loop:
        started = loop.run(server.start())
        try:
            yield Running(
                started.grpc, started.http, started.ingest_key or "", started.read_key or ""
            )
        finally:
            loop.run(server.stop())
