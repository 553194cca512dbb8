"""The element of each kind of exporter; its module is imported when a plan uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

from flowmark_otel.clock import Clock
from flowmark_otel.collector.accepting import Branch
from flowmark_otel.collector.config.options import FileExporter, FlowmarkExporter, OtlpExporter
from flowmark_otel.collector.element import Element
from flowmark_otel.collector.exporters.backend import BackendElement
from flowmark_otel.collector.exporters.branch import PeerBranch
from flowmark_otel.collector.exporters.courier import Routing, SpoolCourier
from flowmark_otel.collector.exporters.custody import Custody, pace_of
from flowmark_otel.collector.exporters.file import FileElement
from flowmark_otel.collector.exporters.options import client_options
from flowmark_otel.collector.exporters.peer import Peers, PeerTransport
from flowmark_otel.collector.exporters.sending import sender_of
from flowmark_otel.collector.exporters.spooling import (
    SpoolBranch,
    SpoolElement,
    Watched,
    reported,
)
from flowmark_otel.collector.exporters.watch import Watch
from flowmark_otel.collector.meter import Meter, NodeMeter
from flowmark_otel.collector.node import Taking
from flowmark_otel.collector.pipelines import rules_of
from flowmark_otel.collector.plan import Acknowledge, Component, Kind, Plan
from flowmark_otel.deliver.transports import transport_of


class Workshop:
    """Makes the elements of a plan's exporters; ``port`` is where a component's letters go."""

    def __init__(
        self,
        plan: Plan,
        meter: Meter,
        clock: Clock,
        port: Callable[[Component], Taking | None],
    ) -> None:
        self._plan = plan
        self._meter = meter
        self._clock = clock
        self._port = port
        self.branches: list[Branch] = []

    def make(self, component: Component) -> Element:
        """The element of an exporter; a way to a backend is added to ``branches``."""
        options = component.options
        if isinstance(options, FlowmarkExporter):
            return self._flowmark(component, options)
        if isinstance(options, OtlpExporter):
            return _otlp(options, self._meter.node(Kind.EXPORTER, component.id), self._clock)
        if isinstance(options, FileExporter):
            return FileElement(options)
        msg = f"there is no exporter of type {component.type}"
        raise TypeError(msg)

    def _flowmark(self, component: Component, options: FlowmarkExporter) -> Element:
        settings = client_options(options)
        connect = cast("Callable[..., PeerTransport]", transport_of(settings.protocol))
        peers = Peers(lambda: connect(settings))
        node = self._meter.node(Kind.EXPORTER, component.id)
        watch = Watch(peers, node)
        branch = PeerBranch(peers, watch)
        if self._plan.acknowledge is not Acknowledge.ON_SPOOL or options.spool is None:
            self.branches.append(branch)
            return BackendElement(sender_of(options), peers, watch, node, self._clock)
        port = self._port(component) if options.on_error == "route" else None
        routing = Routing(watch, node, port, asyncio.get_running_loop())
        custody = Custody(
            options.spool.directory,
            options.spool.max_bytes,
            Watched(connect(settings), watch),
            self._clock,
            reported(node),
            pace=pace_of(rules_of(options)),
            courier=partial(SpoolCourier, routing=routing),
        )
        self.branches.append(SpoolBranch(custody, branch))
        return SpoolElement(custody, watch, node)


def _otlp(options: OtlpExporter, meter: NodeMeter, clock: Clock) -> Element:
    from flowmark_otel.collector.exporters.otlp import OtlpElement  # noqa: PLC0415 - aiohttp

    return OtlpElement(options, meter, clock)
