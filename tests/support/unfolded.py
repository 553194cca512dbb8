"""Events of spans as the fast path hands them to delivery: not folded, not written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from flowmark_otel import names
from flowmark_otel.capture import FlowmarkSpanProcessor
from flowmark_otel.fast import Unfolded
from flowmark_otel.model import Diagnostic, Envelope, Refused

_RESOURCE: Final = Resource({"service.name": "tests"})


class _Keeping:
    """A sink that keeps sequences as they come."""

    def __init__(self) -> None:
        self.given: list[Unfolded] = []

    def put(self, events: Sequence[Envelope | Refused], resource: Mapping[str, object]) -> None:
        """Keep what took the fast path."""
        del resource
        if isinstance(events, Unfolded):
            self.given.append(events)

    def diagnose(self, diagnostic: Diagnostic) -> None:
        """Nothing is the matter."""
        raise AssertionError(diagnostic)


def unfolded(first: int, last: int) -> list[Unfolded]:
    """Start and end of attempts of these numbers, each pair of a span of its own."""
    sink = _Keeping()
    provider = TracerProvider(resource=_RESOURCE, shutdown_on_exit=False)
    provider.add_span_processor(FlowmarkSpanProcessor(sink, accept_baggage=False))
    tracer = provider.get_tracer("tests")
    for number in (1, *range(first, last + 1)):  # the first may be new to it
        span = tracer.start_span("push")
        attributes: dict[str, Any] = {
            names.WORKFLOW_NAME: "crm.sync",
            names.RUN_ID: "run-1",
            names.ATTEMPT_GROUP_ID: "g",
            names.ATTEMPT_NUMBER: number,
        }
        span.set_attributes(attributes)
        span.end()
    return sink.given[-(last - first + 1) :]
