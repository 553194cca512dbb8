"""An adapter switched on, recorded into memory, beside a stock exporter that keeps spans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

from flowmark_otel.adapters.instrumentor import Adapter
from flowmark_otel.fold import digest
from flowmark_otel.model import Diagnostic, Envelope
from flowmark_otel.signals import EVERY
from flowmark_otel.testing import InMemoryBackend, recording
from flowmark_otel.testing.runs import attempt_line
from tests.support.capturing import as_exported


class Adapted(NamedTuple):
    """What was recorded, exported and reported while adapters were on."""

    backend: InMemoryBackend
    exporter: InMemorySpanExporter
    provider: TracerProvider
    diagnostics: list[Diagnostic]

    @property
    def tracer(self) -> Tracer:
        """A tracer of the application's provider."""
        return self.provider.get_tracer("tests")

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """The spans that ended, as a stock exporter gets them."""
        return self.exporter.get_finished_spans()

    @property
    def traces(self) -> list[int]:
        """The trace of each span that ended, in order."""
        return [span.context.trace_id for span in self.spans if span.context]

    def groups(self) -> list[tuple[str, list[str]]]:
        """Operation and attempts, ``1 failed (ValueError)``, of each group by first arrival."""
        return [
            (group.operation, [attempt_line(each) for each in group.attempts])
            for run in self.backend.runs()
            for group in run.groups
        ]

    def sent(self) -> dict[str, str]:
        """The events that the SDK sent and the backend has, each with its digest."""
        self.backend.runs()
        assert self.backend.rejections == []
        return dict(self.backend._digests)

    def exported(self) -> dict[str, str]:
        """What a backend behind a stock exporter makes of the same spans, with every signal.

        Equal to ``sent`` where each try is counted once, whoever counts.
        """
        found: dict[str, str] = {}
        for each in as_exported(self.spans, EVERY):
            assert isinstance(each, Envelope)
            found[each.event_id] = digest(each).hex()
        return found


@contextmanager
def adapted(*instrumentors: Adapter) -> Iterator[Adapted]:
    """Instrument, record until the block ends, and put all back."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "tests"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    diagnostics: list[Diagnostic] = []
    with recording(
        tracer_provider=provider, strict=False, on_diagnostic=diagnostics.append
    ) as backend:
        for each in instrumentors:
            each.instrument()
        try:
            yield Adapted(backend, exporter, provider, diagnostics)
        finally:
            for each in reversed(instrumentors):
                each.uninstrument()
