"""A client in memory: what the recording API gives to the sink, under any kind of provider."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON

from flowmark_otel.annotate import hook
from flowmark_otel.capture import FlowmarkSpanProcessor, is_captured, say
from flowmark_otel.clock import Clock
from flowmark_otel.model import ObservedAttempt, Refused
from tests.support.sinks import RecordingSink

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
RESOURCE = Resource({"service.name": "tests"})
PROVIDERS = ("captured", "unsampled", "foreign", "none")
"""An SDK provider with our processor; one that samples nothing; one without; no SDK at all."""


class Ticking:
    """A clock that goes on by one second whenever it is asked."""

    def __init__(self) -> None:
        self.now = START

    def now_ns(self) -> int:
        """Epoch nanoseconds."""
        self.now += SECOND
        return self.now

    def monotonic(self) -> float:
        """Seconds."""
        return self.now / SECOND


class Kept(RecordingSink):
    """The strict sink, with words for what it was given."""

    @property
    def refused(self) -> list[Refused]:
        """The events that were refused."""
        return [event for event in self.events if isinstance(event, Refused)]

    def told(self) -> list[str]:
        """The names of the events in order, without prefix."""
        return [event.event.removeprefix("flowmark.") for event in self.envelopes]

    def codes(self) -> list[str]:
        """The codes of the diagnostics."""
        return [diagnostic.code for diagnostic in self.diagnostics]


class Recorder:
    """Implements ``annotate.hook.Client`` over one kind of provider."""

    def __init__(
        self,
        kind: str,
        *,
        strict: bool = False,
        sends_baggage: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.sink = Kept()
        self.clock = Ticking() if clock is None else clock
        self.strict = strict
        self.reported: list[ObservedAttempt] = []
        self.sends_baggage = sends_baggage
        self.spans = InMemorySpanExporter()
        self.provider = self._provider(kind)
        self.resource = RESOURCE.attributes

    def tracer(self) -> trace.Tracer:
        """The tracer of the provider."""
        return self.provider.get_tracer("tests")

    @property
    def on_attempt(self) -> Callable[[ObservedAttempt], object]:
        """Keeps what it is told."""
        return self.reported.append

    def captured(self, span: trace.Span) -> bool:
        """As the real client."""
        return is_captured(span)

    def say(self, span: trace.Span, values: Mapping[str, object]) -> None:
        """As the real client."""
        say(span, values)

    def _provider(self, kind: str) -> trace.TracerProvider:
        if kind == "none":
            return trace.NoOpTracerProvider()
        sampler = ALWAYS_OFF if kind == "unsampled" else ALWAYS_ON
        provider = TracerProvider(sampler=sampler, resource=RESOURCE, shutdown_on_exit=False)
        if kind != "foreign":
            provider.add_span_processor(FlowmarkSpanProcessor(self.sink, accept_baggage=False))
        provider.add_span_processor(SimpleSpanProcessor(self.spans))
        return provider


@contextmanager
def recorder(
    kind: str = "captured",
    *,
    strict: bool = False,
    sends_baggage: bool = False,
    clock: Clock | None = None,
) -> Iterator[Recorder]:
    """Record with a client in memory, for one ``with`` block."""
    before = hook._registry.factory
    made = Recorder(kind, strict=strict, sends_baggage=sends_baggage, clock=clock)
    hook.register(lambda: made)
    try:
        yield made
    finally:
        hook._registry.factory = before
    assert made.sink.faults == []
