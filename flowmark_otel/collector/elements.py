"""The element of each kind of exporter; its module is imported when a plan uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

from flowmark_otel.clock import Clock
from flowmark_otel.collector.accepting import Branch
from flowmark_otel.collector.config.options import FileExporter, FlowmarkExporter, OtlpExporter
from flowmark_otel.collector.element import Element
from flowmark_otel.collector.exporters.backend import BackendElement
from flowmark_otel.collector.exporters.branch import PeerBranch
from flowmark_otel.collector.exporters.file import FileElement
from flowmark_otel.collector.exporters.options import client_options
from flowmark_otel.collector.exporters.peer import Peers, PeerTransport
from flowmark_otel.collector.exporters.watch import Watch
from flowmark_otel.collector.meter import Meter, NodeMeter
from flowmark_otel.collector.plan import Acknowledge, Component, Kind, Plan
from flowmark_otel.deliver.transports import transport_of


class Made(NamedTuple):
    """An exporter's element; ``branch`` where it is a way to a backend."""

    element: Element
    branch: Branch | None = None


def made(plan: Plan, component: Component, meter: Meter, clock: Clock) -> Made:
    """The element of an exporter of a plan."""
    options = component.options
    if isinstance(options, FlowmarkExporter):
        return _flowmark(plan, component, options, meter, clock)
    if isinstance(options, OtlpExporter):
        return Made(_otlp(options, meter.node(Kind.EXPORTER, component.id), clock))
    if isinstance(options, FileExporter):
        return Made(FileElement(options))
    msg = f"there is no exporter of type {component.type}"
    raise TypeError(msg)


def _otlp(options: OtlpExporter, meter: NodeMeter, clock: Clock) -> Element:
    from flowmark_otel.collector.exporters.otlp import OtlpElement  # noqa: PLC0415 - aiohttp

    return OtlpElement(options, meter, clock)


def _flowmark(
    plan: Plan, component: Component, options: FlowmarkExporter, meter: Meter, clock: Clock
) -> Made:
    settings = client_options(options)
    connect = cast("Callable[..., PeerTransport]", transport_of(settings.protocol))
    peers = Peers(lambda: connect(settings))
    node = meter.node(Kind.EXPORTER, component.id)
    watch = Watch(peers, node)
    if plan.acknowledge is Acknowledge.ON_SPOOL:
        raise NotImplementedError
    return Made(BackendElement(peers, watch, node, clock), PeerBranch(peers, watch))
