"""The composition root of the backend: store, keys, judge, reader, pages, listeners (D5).

Build order: store, summariser, keys, acceptor, reader, application, listeners. Shutdown is the
reverse: listeners finish what is in flight, the acceptor what was read, the store writes what
waits.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, NamedTuple, final

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute

from flowmark_otel import dashboard, names
from flowmark_otel.backend import api
from flowmark_otel.backend.accept import INSECURE_PROJECT, Acceptor
from flowmark_otel.backend.keys import Keys, bearer
from flowmark_otel.backend.read import Reader
from flowmark_otel.backend.sessions import Sessions
from flowmark_otel.backend.store import Store, open_store
from flowmark_otel.backend.summary.worker import Summariser
from flowmark_otel.clock import Clock, SystemClock
from flowmark_otel.config import ServeOptions
from flowmark_otel.errors import ConfigurationError
from flowmark_otel.listen import health, http
from flowmark_otel.listen.intake import Intake
from flowmark_otel.listen.memory import return_large_buffers
from flowmark_otel.listen.serving import Listeners, Tls
from flowmark_otel.model import Principal

FIRST_PROJECT: Final = INSECURE_PROJECT
STOP_SECONDS: Final = 10.0
NANOSECONDS: Final = 1_000_000_000
_SWITCH_SECONDS: Final = 0.0005


class Started(NamedTuple):
    """Where a server listens, ``HOST:PORT``, and the keys it made; None unless the store was new.

    Nothing else ever tells these keys again. ``missing_kinds``: the kinds of key without which
    nobody can send or read, as on a store that was used without keys before.
    """

    grpc: str
    http: str
    ingest_key: str | None
    read_key: str | None
    missing_kinds: tuple[str, ...] = ()


@final
class Server:
    """One backend on the loop that starts it; owns the store it opens.

    Raises ConfigurationError where the options cannot be served.
    """

    def __init__(self, options: ServeOptions, *, clock: Clock | None = None) -> None:
        faults = options.faults() + _not_offered(options)
        if faults:
            raise ConfigurationError(faults)
        self._options = options
        self._clock = clock or SystemClock()
        self._stack = AsyncExitStack()
        self._listeners: Listeners | None = None

    @property
    def grpc_address(self) -> str:
        """``HOST:PORT`` of OTLP over gRPC, empty before the start."""
        return self._listeners.grpc_address if self._listeners is not None else ""

    @property
    def http_address(self) -> str:
        """``HOST:PORT`` of OTLP over HTTP, API and pages, empty before the start."""
        return self._listeners.http_address if self._listeners is not None else ""

    async def start(self) -> Started:
        """Open the store and listen; what was opened is closed again if any of it fails.

        Raises ConfigurationError for addresses, certificate or URL, SchemaMismatch for the store.
        """
        try:
            return await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop listening, finish what is in flight, close the store. May be called again."""
        await self._stack.aclose()
        self._listeners = None

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def _start(self) -> Started:
        options = self._options
        store = open_store(options.database_url, clock=self._clock, migrate=options.migrate)
        self._stack.push_async_callback(asyncio.to_thread, store.close)
        summariser = Summariser(store)
        summariser.start()
        self._stack.push_async_callback(asyncio.to_thread, summariser.stop)
        keys = Keys(store)
        acceptor = Acceptor(
            store, keys, insecure=options.insecure_no_auth, capabilities=options.capabilities
        )
        self._stack.push_async_callback(asyncio.to_thread, acceptor.close)
        intake = Intake(acceptor, options.max_request_bytes)
        self._listeners = Listeners(
            intake,
            Starlette(
                routes=[
                    *http.routes(intake, self._pages(keys)),
                    *self._reading(store, keys),
                ],
                exception_handlers={HTTPException: http.no_such_route},
            ),
            grpc_address=options.grpc,
            http_address=options.http,
            tls=_tls(options),
        )
        self._stack.push_async_callback(self._listeners.stop)
        await self._listeners.start()
        if options.insecure_no_auth:
            return Started(self.grpc_address, self.http_address, None, None)
        # Only now: keys made by a start that then fails would never be shown to anybody.
        made = await asyncio.to_thread(keys.first, FIRST_PROJECT)
        missing = await asyncio.to_thread(keys.missing)
        ingest_key, read_key = made or (None, None)
        return Started(self.grpc_address, self.http_address, ingest_key, read_key, missing)

    def _pages(self, keys: Keys) -> Callable[[], Collection[str]] | None:
        """The origins of pages that may send; none where keys are not looked at."""
        return None if self._options.insecure_no_auth else keys.page_origins

    def _reading(self, store: Store, keys: Keys) -> list[BaseRoute]:
        """Health, API and pages: all that is not OTLP."""
        anyone = _anyone(keys) if self._options.insecure_no_auth else None
        authenticate = _reader_of(keys, anyone)
        sessions = Sessions(store, keys)
        reader = Reader(store, self._clock, open_after_ns=self._options.open_after * NANOSECONDS)
        trace_url = self._options.trace_url
        return [
            *health.routes(lambda: asyncio.to_thread(_readable, store)),
            *api.routes(reader, authenticate),
            *dashboard.routes(
                reader, sessions, anyone=anyone, trace_url=trace_url, clock=self._clock
            ),
        ]


def run(options: ServeOptions, announce: Callable[[Started], None]) -> None:
    """Serve until SIGTERM or SIGINT, then stop; a second signal ends the process at once.

    So does ``STOP_SECONDS`` after the first, since nothing acknowledged depends on an orderly end.
    ``announce`` is called once, before the ready line: it shows the keys of a new store.
    """
    return_large_buffers()
    asyncio.run(_serve(options, announce))


async def _serve(options: ServeOptions, announce: Callable[[Started], None]) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
        loop.call_later(STOP_SECONDS, _give_up)
        stopping.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop)
    server = Server(options)
    started = await server.start()
    # A thread that comes back from the database waits for the interpreter lock, by default up to
    # 5 ms; acceptor, writer and loop hand it to each other many times a transaction.
    sys.setswitchinterval(_SWITCH_SECONDS)
    # What was imported stays: the collector need not look through it again and again.
    gc.freeze()
    try:
        announce(started)
        print(f"ready grpc={started.grpc} http={started.http}", flush=True)  # noqa: T201 - scripts wait for it
        await stopping.wait()
    finally:
        await server.stop()


def _give_up() -> None:
    print(f"requests did not end within {STOP_SECONDS:g} seconds", file=sys.stderr)  # noqa: T201
    os._exit(1)


def _anyone(keys: Keys) -> Principal:
    """For whom everybody reads where there are no keys."""
    return Principal(keys.ensure_project(INSECURE_PROJECT), INSECURE_PROJECT, names.KEY_READ)


def _reader_of(keys: Keys, anyone: Principal | None) -> Callable[[str | None], Principal]:
    """Who reads, by the value of an ``authorization`` header; the kind of key is its caller's."""
    if anyone is None:
        return lambda authorization: keys.authenticate(bearer(authorization))
    return lambda _authorization: anyone


def _readable(store: Store) -> bool:
    try:
        with store.engine.connect() as connection:
            connection.execute(select(1))
    except SQLAlchemyError:
        return False
    return True


def _tls(options: ServeOptions) -> Tls | None:
    if options.tls_cert is None or options.tls_key is None:
        return None
    return Tls(options.tls_cert, options.tls_key)


def _not_offered(options: ServeOptions) -> list[str]:
    asked = {
        "workers": options.workers != 1,
        "retain": options.retain is not None,
        "metrics": options.metrics is not None,
    }
    return [f"{name} is not offered by this version" for name, given in asked.items() if given]
