"""Joining a tracer provider: the processor first in its list, the sampler wrapped, each once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

from flowmark_otel.capture.journal import is_journaled
from flowmark_otel.capture.processor import FlowmarkSpanProcessor
from flowmark_otel.capture.reading import span_key
from flowmark_otel.capture.sampler import FlowmarkSampler
from flowmark_otel.model import Sink

_NESTED: Final = ("_span_processors", "processor", "_processor", "span_processor")
_DEEPEST: Final = 8
_MARK: Final = "_flowmark_captures"
"""Attribute of a provider's list of processors in which one is ours."""


def attach(
    provider: trace.TracerProvider,
    sink: Sink | None = None,
    *,
    accept_baggage: bool | None = None,
    signals: tuple[str, ...] | None = None,
    sampling: bool = True,
) -> FlowmarkSpanProcessor | None:
    """Record the spans of a provider; the processor, the one that was there, or None.

    None where this is no provider of the SDK, nor wraps one. ``sampling``: whether the sampler
    is wrapped as well (E2). The others: as for ``FlowmarkSpanProcessor``.
    """
    found = sdk_provider(provider)
    if found is None:
        return None
    if sampling:
        _wrap_sampler(found)
    for known in _ours(found._active_span_processor):  # noqa: SLF001  no public way to see it
        if sink is None or known.sink is sink:
            return known
    processor = FlowmarkSpanProcessor(sink, accept_baggage=accept_baggage, signals=signals)
    _put_first(found, processor)
    return processor


def sdk_provider(provider: object) -> TracerProvider | None:
    """The SDK's provider behind what vendors wrap around it; None if there is none."""
    for _ in range(_DEEPEST):
        if isinstance(provider, TracerProvider):
            return provider
        try:
            provider = getattr(provider, "provider", None)
        except Exception:  # noqa: BLE001  somebody else's provider
            return None
    return None


def is_captured(span: trace.Span | ReadableSpan) -> bool:
    """Whether a processor of ours records this span, or has; then nobody else may.

    Of an open span it is also True if its provider has a processor of ours, whatever the span
    carries by now.
    """
    # Asked of every span that we start: its provider's list knows, and keeps what it has.
    seen: Any = span
    try:
        if seen._end_time is None and getattr(seen._span_processor, _MARK, False):  # noqa: SLF001
            return True
    except AttributeError:  # no span of the SDK's, or one that has ended
        pass
    context = span.get_span_context()
    if context is None or not context.is_valid:
        return False
    if is_journaled(span_key(context)):
        return True
    processor = getattr(span, "_span_processor", None)  # of an SDK span that can still end
    return processor is not None and _is_open(span) and bool(_ours(processor))


def say(span: trace.Span | ReadableSpan, values: Mapping[str, object]) -> None:
    """Tell the processors of a span what was set on it, before a limit of the SDK cut it."""
    if isinstance(span, Span) and span.is_recording():
        for processor in _ours(getattr(span, "_span_processor", None)):
            processor.say(span, values)


def _is_open(span: trace.Span | ReadableSpan) -> bool:
    return isinstance(span, trace.Span) and span.is_recording()


def _ours(processor: Any, depth: int = 0) -> list[FlowmarkSpanProcessor]:  # noqa: ANN401
    """Our processors at or below one, in the SDK's multi-processors and vendors' wrappers."""
    if isinstance(processor, FlowmarkSpanProcessor):
        return [processor]
    found: list[FlowmarkSpanProcessor] = []
    if isinstance(processor, SpanProcessor) and depth < _DEEPEST:
        for name in _NESTED:
            inner = getattr(processor, name, ())
            for one in inner if isinstance(inner, (tuple, list)) else (inner,):
                found += _ours(one, depth + 1)
    return found


def _put_first(provider: TracerProvider, processor: FlowmarkSpanProcessor) -> None:
    """Register before all others, so that what we stamp is there for them.

    ``add_span_processor`` would register last, and some vendors' drops their own for it.
    """
    active: Any = provider._active_span_processor  # noqa: SLF001  no public way in front
    lock = getattr(active, "_lock", None)
    if lock is None or not isinstance(getattr(active, "_span_processors", None), tuple):
        provider.add_span_processor(processor)
        return
    with lock:
        active._span_processors = (processor, *active._span_processors)  # noqa: SLF001
    setattr(active, _MARK, True)


def _wrap_sampler(provider: TracerProvider) -> None:
    """Wrap the sampler of a provider, and of the tracers that it made already."""
    if not isinstance(provider.sampler, FlowmarkSampler):
        provider.sampler = FlowmarkSampler(provider.sampler)
    for tracer in list(getattr(provider, "_tracers", {}).values()):
        if not isinstance(tracer.sampler, FlowmarkSampler):
            tracer.sampler = provider.sampler
    limits = getattr(provider, "_span_limits", None)
    if getattr(limits, "max_span_attribute_length", None) is not None:
        provider.sampler.notes = True
