"""The composition root of the backend: store, keys, judge, reader, pages, listeners (D5).

Build order: store, summariser, readiness, settler, keys, acceptor, reader, application, listeners,
telemetry. Shutdown is the reverse: listeners finish what is in flight, the acceptor what was read,
the store writes what waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, NamedTuple, final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from flowmark_otel import dashboard, names
from flowmark_otel.backend import api
from flowmark_otel.backend.accept import INSECURE_PROJECT, Acceptor
from flowmark_otel.backend.deletion import Deleter
from flowmark_otel.backend.holding import Limits
from flowmark_otel.backend.keys import Keys, bearer
from flowmark_otel.backend.read import Reader
from flowmark_otel.backend.retention import Sweeper
from flowmark_otel.backend.sessions import Sessions
from flowmark_otel.backend.settling import Settler
from flowmark_otel.backend.store import Store, database_of, open_store
from flowmark_otel.backend.store.sqlite import SqliteDatabase
from flowmark_otel.backend.store.sqlite.soundness import check_file
from flowmark_otel.backend.summary.worker import Summariser
from flowmark_otel.clock import Clock, SystemClock
from flowmark_otel.config import ServeOptions
from flowmark_otel.errors import ConfigurationError
from flowmark_otel.listen import health, http
from flowmark_otel.listen.hosts import LoopbackNames
from flowmark_otel.listen.intake import Intake
from flowmark_otel.listen.serving import Listeners, Tls
from flowmark_otel.listen.telemetry import Telemetry
from flowmark_otel.model import Principal
from flowmark_otel.server.counting import Metering
from flowmark_otel.server.readiness import Readiness
from flowmark_otel.signals import signals_of

FIRST_PROJECT: Final = INSECURE_PROJECT
NANOSECONDS: Final = 1_000_000_000


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
    metrics: str | None = None


@final
class Server:
    """One backend on the loop that starts it; owns the store it opens.

    ``shared``: a worker, beside others on the same ports; its supervisor makes the keys, brings up
    the schema, and serves the metrics, which are counted if ``FOLDER_VARIABLE`` is set. Raises
    ConfigurationError where the options cannot be served.
    """

    def __init__(
        self, options: ServeOptions, *, clock: Clock | None = None, shared: bool = False
    ) -> None:
        faults = options.faults()
        if faults:
            raise ConfigurationError(faults)
        self._options = options
        self._clock = clock or SystemClock()
        self._shared = shared
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
        store = open_sound_store(options, self._clock, check=not self._shared)
        self._stack.push_async_callback(asyncio.to_thread, store.close)
        summariser = Summariser(store)
        summariser.start()
        self._stack.push_async_callback(asyncio.to_thread, summariser.stop)
        readiness = Readiness(store)
        metering = Metering.of(options, readiness, shared=self._shared)
        if metering.waiting is not None:
            settler = Settler(store, metering.waiting, metering.meter.measured)
            settler.start()
            self._stack.push_async_callback(asyncio.to_thread, settler.stop)
        sweeper = Sweeper(store, options.retain)
        self._stack.push_async_callback(asyncio.to_thread, sweeper.close)
        keys = Keys(store)
        acceptor = Acceptor(
            store,
            keys,
            insecure=options.insecure_no_auth,
            capabilities=options.capabilities,
            meter=metering.meter,
            signals=signals_of(options.signals),
        )
        self._stack.push_async_callback(asyncio.to_thread, acceptor.close)
        intake = Intake(acceptor, options.max_request_bytes)
        self._listeners = Listeners(
            intake,
            Starlette(
                routes=[
                    *http.routes(intake, self._pages(keys)),
                    *health.routes(readiness.reason),
                    *self._reading(store, keys),
                ],
                exception_handlers={HTTPException: http.no_such_route},
                middleware=[*metering.middleware, *self._names()],
            ),
            grpc_address=options.grpc,
            http_address=options.http,
            tls=tls_of(options),
            ready=readiness.reason,
            shared=self._shared,
            interceptors=metering.interceptors,
        )
        self._stack.push_async_callback(self._listeners.stop)
        self._stack.callback(readiness.drain)
        await self._listeners.start()
        telemetry = None
        if options.metrics is not None and not self._shared:
            telemetry = Telemetry(options.metrics, metering.page(store), readiness.reason)
            self._stack.push_async_callback(telemetry.stop)
            await telemetry.start()
        made: Keyring = Keyring(None, None, ())
        if not options.insecure_no_auth and not self._shared:
            made = await asyncio.to_thread(first_keys, keys)
        return Started(
            self.grpc_address,
            self.http_address,
            *made,
            None if telemetry is None else telemetry.address,
        )

    def _names(self) -> list[Middleware]:
        """Without authentication nobody is served under a foreign name."""
        return [Middleware(LoopbackNames)] if self._options.insecure_no_auth else []

    def _pages(self, keys: Keys) -> Callable[[], Collection[str]] | None:
        """The origins of pages that may send; none where keys are not looked at."""
        return None if self._options.insecure_no_auth else keys.page_origins

    def _reading(self, store: Store, keys: Keys) -> list[BaseRoute]:
        """API and pages: all that is not OTLP."""
        anyone = _anyone(keys) if self._options.insecure_no_auth else None
        reader = Reader(store, self._clock, open_after_ns=self._options.open_after * NANOSECONDS)
        return [
            *api.routes(reader, _reader_of(keys, anyone), Deleter(store)),
            *dashboard.routes(
                reader,
                Sessions(store, keys),
                anyone=anyone,
                trace_url=self._options.trace_url,
                clock=self._clock,
                about=dashboard.About(self._options.retain, lambda: self.grpc_address),
            ),
        ]


class Keyring(NamedTuple):
    """The keys of a new store, and the kinds that nobody has, as in ``Started``."""

    ingest_key: str | None
    read_key: str | None
    missing_kinds: tuple[str, ...]


def first_keys(keys: Keys) -> Keyring:
    """Make the keys of a new store; to be called once all else has started.

    Keys made by a start that then fails would never be shown to anybody.
    """
    made = keys.first(FIRST_PROJECT) or (None, None)
    return Keyring(made[0], made[1], keys.missing())


def open_sound_store(options: ServeOptions, clock: Clock, *, check: bool) -> Store:
    """The store, looked through for damage first if asked; raises what ``open_store`` raises."""
    database = database_of(options.database_url)
    if check and isinstance(database, SqliteDatabase):
        check_file(database.path)
    return open_store(
        options.database_url, clock=clock, migrate=options.migrate, limits=_limits(options)
    )


def _anyone(keys: Keys) -> Principal:
    """For whom everybody reads where there are no keys."""
    return Principal(keys.ensure_project(INSECURE_PROJECT), INSECURE_PROJECT, names.KEY_READ)


def _reader_of(keys: Keys, anyone: Principal | None) -> Callable[[str | None], Principal]:
    """Who reads, by the value of an ``authorization`` header; the kind of key is its caller's."""
    if anyone is None:
        return lambda authorization: keys.authenticate(bearer(authorization))
    return lambda _authorization: anyone


def tls_of(options: ServeOptions) -> Tls | None:
    """The certificate to serve with, None without one."""
    if options.tls_cert is None or options.tls_key is None:
        return None
    return Tls(options.tls_cert, options.tls_key)


def _limits(options: ServeOptions) -> Limits:
    return Limits(
        options.max_events, options.max_workflows, options.max_operations, options.max_groups
    )
