"""Exporters of the collector as elements, made from options as a file would give them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from flowmark_otel.clock import SystemClock
from flowmark_otel.collector.config.options import OtlpGrpcExporter, OtlpHttpExporter
from flowmark_otel.collector.element import Element, ElementError
from flowmark_otel.collector.exporters.otlp import OtlpElement
from flowmark_otel.collector.meter import NodeMeter
from flowmark_otel.collector.payload import Payload
from flowmark_otel.collector.plan import Kind

SECONDS: Final = 20.0


class Node(NamedTuple):
    """An element and what is counted of it."""

    element: Element
    meter: NodeMeter


@asynccontextmanager
async def otlp(endpoint: str, *, grpc: bool = False, **options: Any) -> AsyncIterator[Node]:
    """A started ``otlp_http`` or ``otlp_grpc``."""
    kind = OtlpGrpcExporter if grpc else OtlpHttpExporter
    meter = NodeMeter(Kind.EXPORTER, "otlp/test", SystemClock())
    element = OtlpElement(kind(endpoint=endpoint, **options), meter, SystemClock())
    await element.start()
    try:
        yield Node(element, meter)
    finally:
        await element.close()


async def refused(element: Element, payload: Payload, seconds: float = SECONDS) -> ElementError:
    """The error of a try that fails."""
    try:
        await element.take(payload, seconds)
    except ElementError as error:
        return error
    msg = "it was taken"
    raise AssertionError(msg)
