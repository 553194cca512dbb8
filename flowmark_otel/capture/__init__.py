"""Spans of the SDK → events: the only place that reads SDK spans (contract, sections 1 and 2)."""

from flowmark_otel.capture.attach import attach, is_captured, say, sdk_provider
from flowmark_otel.capture.processor import FlowmarkSpanProcessor
from flowmark_otel.capture.reading import attributes_of, read_signals, read_span
from flowmark_otel.capture.sampler import FlowmarkSampler, sampler_from_name

__all__ = [
    "FlowmarkSampler",
    "FlowmarkSpanProcessor",
    "attach",
    "attributes_of",
    "is_captured",
    "read_signals",
    "read_span",
    "sampler_from_name",
    "say",
    "sdk_provider",
]
