"""The composition root of the client: settings, recording, capture and delivery, joined."""

from flowmark_otel.annotate import hook
from flowmark_otel.client.exporter import FlowmarkSpanExporter
from flowmark_otel.client.instrument import pre_instrument
from flowmark_otel.client.lifecycle import configure, current, flush, shutdown

hook.register(current)

__all__ = ["FlowmarkSpanExporter", "configure", "current", "flush", "pre_instrument", "shutdown"]
