"""A stock SDK provider with our processor and a recording sink, and what a stock exporter sends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

from flowmark_otel.capture import FlowmarkSpanProcessor, attach
from flowmark_otel.fold import fold_signals, fold_span
from flowmark_otel.model import Envelope, Refused, Span
from flowmark_otel.signals import NO_SIGNALS, Signals
from flowmark_otel.wire.decode import decode_traces
from tests.support.sinks import RecordingSink

PAIR: Final[dict[str, str | int]] = {"flowmark.attempt.group_id": "g", "flowmark.attempt.number": 1}


class Captured(NamedTuple):
    """A provider of service ``tests``, our sink, and a stock exporter that keeps spans."""

    provider: TracerProvider
    sink: RecordingSink
    exporter: InMemorySpanExporter

    @property
    def tracer(self) -> Tracer:
        """A tracer of the provider."""
        return self.provider.get_tracer("tests")

    @property
    def processor(self) -> FlowmarkSpanProcessor:
        """Our processor, the first of the provider's."""
        first = self.provider._active_span_processor._span_processors[0]
        assert isinstance(first, FlowmarkSpanProcessor)
        return first


def capturing(
    *,
    limits: SpanLimits | None = None,
    accept_baggage: bool = False,
    signals: tuple[str, ...] | None = None,
) -> Captured:
    """A provider whose stock exporter was there before our processor was attached."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(
        resource=Resource({"service.name": "tests"}), span_limits=limits, shutdown_on_exit=False
    )
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    sink = RecordingSink()
    attach(provider, sink, accept_baggage=accept_baggage, signals=signals)
    return Captured(provider, sink, exporter)


def as_exported(
    spans: Sequence[ReadableSpan], signals: Signals = NO_SIGNALS
) -> list[Envelope | Refused]:
    """What the next party folds out of spans, sent by the stock encoder."""
    folded: list[Envelope | Refused] = []
    body = encode_spans(spans).SerializeToString()
    for item in decode_traces(body, "protobuf", signals).marked:
        assert isinstance(item.record, Span)
        folded += fold_span(item.record) or fold_signals(item.record, signals)
    return folded
