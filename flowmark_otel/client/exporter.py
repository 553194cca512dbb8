"""``OTEL_TRACES_EXPORTER=flowmark``: finished spans into the client's queue, each recorded once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from flowmark_otel import names
from flowmark_otel.annotate.hook import tell
from flowmark_otel.annotate.seconds import time_to_wait
from flowmark_otel.capture import (
    attributes_of,
    is_captured,
    read_signals,
    read_span,
    sdk_provider,
)
from flowmark_otel.client import lifecycle
from flowmark_otel.client.core import FlowmarkClient
from flowmark_otel.fold import fold_signals, fold_span
from flowmark_otel.signals import signals_of

FLUSH_MILLIS: Final = 30_000

_log = logging.getLogger("flowmark_otel")


class FlowmarkSpanExporter(SpanExporter):
    """Records the annotated spans it is given, unless a processor of ours has (D2).

    Its first batch also attaches the processor to the global provider, so that from then on
    starts are sent when they happen. ``export`` succeeds when the client has taken the spans;
    ``force_flush`` says whether they were acknowledged.
    """

    def __init__(self) -> None:
        self._attached = False
        lifecycle.drain_first(_drain_batches)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Take finished spans; those that say nothing of tries cost nothing more."""
        try:
            client = lifecycle.current()
            for span in spans:
                _record(client, span)
            if not self._attached:
                self._attached = True
                client.attach(sampling=False)
        except Exception:  # noqa: BLE001 - logged; the batch processor has no use for it
            _log.exception("spans could not be recorded")
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = FLUSH_MILLIS) -> bool:
        """False if anything recorded was not acknowledged."""
        millis, fault = time_to_wait(timeout_millis, FLUSH_MILLIS, "timeout_millis")
        if fault:
            tell(lifecycle.current(), names.DIAGNOSTIC_INVALID, f"{fault}; {millis:g} is used")
        return lifecycle.try_flush(millis / 1000)

    def shutdown(self) -> None:
        """Give what was taken last its chance; the client stays, others may use it."""
        lifecycle.try_flush(lifecycle.EXIT_SECONDS)


def _record(client: FlowmarkClient, span: ReadableSpan) -> None:
    if is_captured(span):
        return
    attributes = attributes_of(span)
    signals = signals_of(client.options.signals)
    found = read_signals(span, signals)
    if not (attributes or found):
        return
    resource = span.resource.attributes
    record = read_span(span, attributes, resource.get(names.SERVICE_NAME))
    events = fold_span(record)
    if found and not events:
        events = fold_signals(record._replace(attributes={**attributes, **found}), signals)
    if events:
        client.sink.put(events, resource)


def _drain_batches(seconds: float) -> None:
    """Have the batches that wait for our exporter handed over.

    Of the whole provider only they are flushed: its other exporters are not ours to wait for, and
    our own processor would take the judgement that the flush is asked for.
    """
    provider = sdk_provider(trace.get_tracer_provider())
    active = getattr(provider, "_active_span_processor", None)
    for processor in getattr(active, "_span_processors", ()):
        if isinstance(getattr(processor, "span_exporter", None), FlowmarkSpanExporter):
            processor.force_flush(int(seconds * 1000))
