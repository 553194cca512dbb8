"""Each span once: two processors, spans seen twice, attaching again, spans that never end."""

from __future__ import annotations

import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import (
    ConcurrentMultiSpanProcessor,
    ReadableSpan,
    Span,
    SpanProcessor,
    TracerProvider,
)
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from flowmark_otel.capture import FlowmarkSpanProcessor, attach, is_captured, sdk_provider
from tests.support.capturing import PAIR, capturing
from tests.support.sinks import RecordingSink


def test_two_processors_of_one_sink_record_once() -> None:
    """D1: a second processor on a provider, early starts included, adds nothing."""
    kept = capturing()
    kept.provider.add_span_processor(FlowmarkSpanProcessor(kept.sink, accept_baggage=False))
    kept.tracer.start_span("early", attributes=PAIR).end()
    kept.tracer.start_span("late", attributes={"flowmark.operation.name": "late"}).end()
    assert kept.sink.parts == ["op-start", "op-end", "op-start", "op-end"]
    kept.sink.check()


def test_two_sinks_get_everything_each() -> None:
    """D1: processors of different sinks are no repetition: each sink has the whole."""
    kept, other = capturing(), RecordingSink()
    attach(kept.provider, other)
    kept.tracer.start_span("push", attributes=PAIR).end()
    assert sorted(kept.sink.parts) == sorted(other.parts) == ["op-end", "op-start"]


def test_concurrent_processors_record_once() -> None:
    """D1: the SDK's concurrent multi-processor calls both at once; one of them records."""
    concurrent = ConcurrentMultiSpanProcessor(4)
    provider = TracerProvider(active_span_processor=concurrent, shutdown_on_exit=False)
    sink = RecordingSink()
    for _ in range(4):
        provider.add_span_processor(FlowmarkSpanProcessor(sink, accept_baggage=False))
    for _ in range(50):
        provider.get_tracer("t").start_span("push", attributes=PAIR).end()
    provider.shutdown()
    concurrent._executor.shutdown()
    assert sorted(sink.parts) == ["op-end"] * 50 + ["op-start"] * 50
    sink.check()


def test_a_span_that_ends_twice_is_recorded_once() -> None:
    """D1: a finished span that is handed on again by someone in between counts once."""
    kept = capturing()
    kept.tracer.start_span("push", attributes=PAIR).end()
    [span] = kept.exporter.get_finished_spans()
    kept.processor.on_end(span)
    assert kept.sink.parts == ["op-start", "op-end"]


def test_attaching_again_changes_nothing() -> None:
    """D2: attach joins a provider once, in front of everything that was there."""
    provider = TracerProvider(shutdown_on_exit=False)
    stock = SimpleSpanProcessor(InMemorySpanExporter())
    provider.add_span_processor(stock)
    sink = RecordingSink()
    ours = attach(provider, sink)
    sampler = provider.sampler
    assert attach(provider, sink) is ours
    assert provider._active_span_processor._span_processors == (ours, stock)
    assert provider.sampler is sampler


def test_what_wraps_a_provider_is_looked_through() -> None:
    """D2: vendors wrap the SDK's provider; what is none is left alone."""

    class Wrapping:
        provider = TracerProvider(shutdown_on_exit=False)

    assert sdk_provider(Wrapping()) is Wrapping.provider
    assert sdk_provider(trace.NoOpTracerProvider()) is None
    assert sdk_provider(trace.ProxyTracerProvider()) is None
    assert attach(trace.NoOpTracerProvider(), RecordingSink()) is None


class _Wrapper(SpanProcessor):
    """A vendor's processor around another; as some do, it hands on a copy of a finished span."""

    def __init__(self, processor: SpanProcessor) -> None:
        self.processor = processor

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Hand on."""
        self.processor.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """Hand on a copy whose attributes are a plain mapping."""
        self.processor.on_end(
            ReadableSpan(
                name=span.name,
                context=span.context,
                resource=span.resource,
                attributes={**(span.attributes or {}), "vendor": 1},
                status=span.status,
                start_time=span.start_time,
                end_time=span.end_time,
            )
        )


def test_a_copy_of_a_finished_span_is_the_same_span() -> None:
    """D1: behind a vendor's processor that copies spans, start and end are still of one span."""
    provider, sink = TracerProvider(shutdown_on_exit=False), RecordingSink()
    provider.add_span_processor(_Wrapper(FlowmarkSpanProcessor(sink, accept_baggage=False)))
    assert attach(provider, sink) is not None
    span = provider.get_tracer("t").start_span("push", attributes=PAIR)
    assert is_captured(span)
    span.end()
    provider.get_tracer("t").start_span("get", attributes={"a": 1}).end()
    assert sink.parts == ["op-start", "op-end"]
    sink.check()


def test_who_captures_what() -> None:
    """D1: is_captured says whether a processor of ours records a span, or has."""
    kept = capturing()
    span = kept.tracer.start_span("push", attributes=PAIR)
    plain = kept.tracer.start_span("plain")
    assert is_captured(span)
    assert is_captured(plain)  # whatever is set on it later is seen at its end
    span.end()
    plain.end()
    recorded, ignored = kept.exporter.get_finished_spans()
    assert is_captured(recorded)
    assert not is_captured(ignored)
    stranger = TracerProvider(shutdown_on_exit=False).get_tracer("t").start_span("a")
    assert not is_captured(stranger)
    assert not is_captured(trace.INVALID_SPAN)
    assert not is_captured(trace.NonRecordingSpan(stranger.get_span_context()))


def test_a_span_that_never_ends_is_forgotten() -> None:
    """E1: what is kept of an open span goes with the span; its start stays recorded."""
    kept = capturing()
    for _ in range(20):
        kept.tracer.start_span("push", attributes=PAIR)
    gc.collect()
    journal = kept.processor._journal
    assert journal is not None
    assert journal._opened == {}
    assert kept.sink.parts == ["op-start"] * 20


def test_what_is_remembered_of_ended_spans_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """I6: ended spans are remembered up to a bound."""
    monkeypatch.setattr("flowmark_otel.capture.journal._REMEMBERED", 10)
    kept = capturing()
    for _ in range(50):
        kept.tracer.start_span("push", attributes=PAIR).end()
    for _ in range(50):  # no record: remembered at nobody's expense
        kept.tracer.start_span("plain", attributes={"flowmark.run.id": "r"}).end()
    journal = kept.processor._journal
    assert journal is not None
    assert len(journal._ended) == 10
    assert len(kept.sink.parts) == 100


def test_threads_record_each_span_once() -> None:
    """D1: spans of many threads are recorded once each, starts before ends."""
    kept = capturing()
    ready = threading.Barrier(8)

    def work(_: int) -> None:
        ready.wait()
        for _ in range(25):
            with kept.tracer.start_as_current_span("push", attributes=PAIR):
                pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    ids = [event.event_id for event in kept.sink.envelopes]
    assert len(ids) == len(set(ids)) == 400
    for position, event_id in enumerate(ids):
        if event_id.endswith("-end"):
            assert event_id.replace("-end", "-start") in ids[:position]
    kept.sink.check()


def test_a_fork_leaves_nothing_held() -> None:
    """E1: a child forked while other threads record can record itself: there are no locks."""
    kept = capturing()
    stop = threading.Event()

    def record() -> None:
        while not stop.is_set():
            kept.tracer.start_span("push", attributes=PAIR).end()

    thread = threading.Thread(target=record)
    thread.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                sink = RecordingSink()
                attach(kept.provider, sink)
                kept.provider.get_tracer("child").start_span("x", attributes=PAIR).end()
                os._exit(0 if sorted(sink.parts) == ["op-end", "op-start"] else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join()
