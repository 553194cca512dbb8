"""Spans made by the stock SDK, ready for a stock exporter."""

from __future__ import annotations

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.util.types import AttributeValue


def finished_spans(
    *names: str, attributes: dict[str, AttributeValue] | None = None
) -> list[ReadableSpan]:
    """One finished root span a name, all with the same attributes, of the service ``tests``."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "tests"}))
    provider.add_span_processor(SimpleSpanProcessor(kept))
    for name in names:
        provider.get_tracer("tests").start_span(name, attributes=attributes).end()
    return list(kept.get_finished_spans())
