"""The composition root of the collector: nodes, then who listens (D3).

Build order: threads, meter, nodes with their pipelines, elements started, receivers, telemetry.
Shutdown is the reverse: receivers finish what is in flight, what goes on after its sender was
answered ends, elements let go, the threads end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Final, NamedTuple, final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from flowmark_otel.clock import Clock, SystemClock
from flowmark_otel.collector.accepting import Branch, Door
from flowmark_otel.collector.config.options import (
    BearerTokenAuth,
    GrpcServer,
    HttpServer,
    OtlpReceiver,
)
from flowmark_otel.collector.element import Element
from flowmark_otel.collector.elements import Workshop
from flowmark_otel.collector.memory import admission_of
from flowmark_otel.collector.meter import Meter, NodeState
from flowmark_otel.collector.operating import telemetry_of
from flowmark_otel.collector.pipelines import Builder, Graph
from flowmark_otel.collector.plan import Kind, Plan
from flowmark_otel.collector.tokens import authenticator
from flowmark_otel.errors import ConfigurationError
from flowmark_otel.listen import health, http
from flowmark_otel.listen.hosts import LoopbackNames
from flowmark_otel.listen.intake import Intake
from flowmark_otel.listen.reads import Reads
from flowmark_otel.listen.serving import Listeners, Tls
from flowmark_otel.model import Principal

THREADS: Final = 2
"""They read and fold: more would only wait for each other."""

DRAIN_SECONDS: Final = 5.0
_DRAINING: Final = "the collector is stopping"


class Started(NamedTuple):
    """Where a collector listens, ``HOST:PORT``, in the order of the file."""

    grpc: tuple[str, ...]
    http: tuple[str, ...]
    telemetry: str | None = None


@final
class Collector:
    """One collector on the loop that starts it. Raises what its elements raise at their start."""

    def __init__(self, plan: Plan, *, clock: Clock | None = None) -> None:
        self._plan = plan
        self._clock = clock or SystemClock()
        self._stack = AsyncExitStack()
        self._draining = False
        self._admission = admission_of(plan.memory_limit, now=self._clock.monotonic)
        self.meter = Meter(plan, self._clock)

    async def start(self) -> Started:
        """Open what the nodes need, then listen; closed again if any of it fails."""
        try:
            return await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop listening, finish what is in flight, close the nodes. May be called again."""
        self._draining = True
        await self._stack.aclose()

    async def ready(self) -> str:
        """Why requests cannot be taken now; empty where they can."""
        return _DRAINING if self._draining else await self.meter.ready()

    async def _start(self) -> Started:
        threads = ThreadPoolExecutor(THREADS, thread_name_prefix="flowmark-fold")
        self._stack.callback(threads.shutdown)
        builder = Builder(self._plan, self.meter, self._clock, threads)
        workshop = Workshop(self._plan, self.meter, self._clock, builder.port)
        graph = builder.build(workshop.make)
        for name, element in graph.exporters.items():
            self._stack.push_async_callback(element.close)
            await _started(element, f"{Kind.EXPORTER.value}.{name}")
            node = self.meter.node(Kind.EXPORTER, name)
            if node.state is NodeState.STARTING:
                node.now(NodeState.OK)
        self._stack.push_async_callback(graph.left.drain, DRAIN_SECONDS)
        started = await self._listen(graph, workshop.branches)
        if self._plan.telemetry is None:
            return started
        telemetry = telemetry_of(self._plan.telemetry, self.meter, self._admission, self.ready)
        self._stack.push_async_callback(telemetry.stop)
        await telemetry.start()
        return started._replace(telemetry=telemetry.address)

    async def _listen(self, graph: Graph, branches: Sequence[Branch]) -> Started:
        reads = Reads()
        listening: list[Listeners] = []
        self._stack.push_async_callback(_stop, listening)
        grpc: list[str] = []
        web: list[str] = []
        for receiver in self._plan.receivers.values():
            self.meter.node(Kind.RECEIVER, receiver.id).now(NodeState.OK)
            options = receiver.options
            for server in options.servers if isinstance(options, OtlpReceiver) else ():
                entries = {
                    signal: entry
                    for (name, signal), entry in graph.entries.items()
                    if name == receiver.id
                }
                meter = self.meter.node(Kind.RECEIVER, receiver.id)
                door = Door(entries, branches, self._authenticate(server), meter)
                intake = Intake(door, server.max_bytes, admission=self._admission, reads=reads)
                listeners = self._listeners(intake, server)
                listening.append(listeners)
                await listeners.start()
                grpc += [listeners.grpc_address] if listeners.grpc_address else []
                web += [listeners.http_address] if listeners.http_address else []
        return Started(tuple(grpc), tuple(web))

    def _listeners(self, intake: Intake, server: GrpcServer | HttpServer) -> Listeners:
        tls = None if server.tls is None else Tls(server.tls.cert_file, server.tls.key_file)
        app = Starlette(
            routes=[*http.routes(intake), *health.routes(self.ready)],
            exception_handlers={HTTPException: http.no_such_route},
            # Where no token is asked for, a page of another site must not be able to send.
            middleware=[] if server.auth is not None else [Middleware(LoopbackNames)],
        )
        over_grpc = isinstance(server, GrpcServer)
        return Listeners(
            intake,
            app,
            grpc_address=server.endpoint if over_grpc else None,
            http_address=None if over_grpc else server.endpoint,
            tls=tls,
            ready=self.ready,
        )

    def _authenticate(self, server: GrpcServer | HttpServer) -> Callable[[str | None], Principal]:
        if server.auth is None:
            return authenticator(None)
        options = self._plan.extensions[server.auth.authenticator].options
        if not isinstance(options, BearerTokenAuth):
            msg = f"{server.auth.authenticator} is no authenticator"
            raise TypeError(msg)
        return authenticator(options, self._clock.monotonic)


async def _stop(listening: Sequence[Listeners]) -> None:
    """All at once: none takes requests while another finishes its own."""
    await asyncio.gather(*(each.stop() for each in listening))


async def _started(element: Element, place: str) -> None:
    """Start a node; what cannot work is said with its place in the file."""
    try:
        await element.start()
    except ConfigurationError as error:
        raise ConfigurationError([f"{place}: {fault}" for fault in error.faults]) from error
