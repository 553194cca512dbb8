"""Retries recorded with nothing but the stock OpenTelemetry SDK and plain span attributes.

The application decides to try again, in plain code; two attributes on each try say which try of
what it was. Start a backend, then run this file; README.md has the commands.
"""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Mapping

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.util.types import AttributeValue

MAX_TRIES = 3


class CrmUnavailableError(Exception):
    """The CRM answered 503."""


class Crm:
    """A CRM that is down the first time it is asked."""

    def __init__(self) -> None:
        self._asked = 0

    def push(self, customers: list[str]) -> int:
        """Take customers and say how many were imported."""
        self._asked += 1
        if self._asked == 1:
            msg = "503 Service Unavailable"
            raise CrmUnavailableError(msg)
        return len(customers)


def push_with_retries(
    tracer: trace.Tracer, identity: Mapping[str, str], crm: Crm, customers: list[str]
) -> int:
    """The application's own loop: each try is a span that carries its group and number."""
    for number in range(1, MAX_TRIES + 1):
        attempt: dict[str, AttributeValue] = {
            **identity,
            "flowmark.attempt.group_id": "customer-batch-42",
            "flowmark.attempt.number": number,
            "flowmark.attempt.limit": MAX_TRIES,
        }
        try:
            # The span ends with status ERROR when an exception leaves it: that try failed.
            with tracer.start_as_current_span("push-to-crm", attributes=attempt) as span:
                try:
                    return crm.push(customers)
                except CrmUnavailableError:
                    span.set_attribute("flowmark.error.code", "CRM_UNAVAILABLE")
                    span.set_attribute("flowmark.error.retryable", True)
                    raise
        except CrmUnavailableError:
            if number == MAX_TRIES:
                raise
    msg = "unreachable"
    raise AssertionError(msg)


def sync(tracer: trace.Tracer) -> str:
    """One run of the workflow crm.sync; returns its run id."""
    run_id = str(uuid.uuid4())
    # Without these two a span belongs to the workflow of its service name and the run of its trace.
    identity = {"flowmark.workflow.name": "crm.sync", "flowmark.run.id": run_id}
    with tracer.start_as_current_span("crm.sync", attributes=identity) as run:
        imported = push_with_retries(tracer, identity, Crm(), ["Ada", "Grace", "Edsger"])
        run.set_attribute("flowmark.run.outcome", "complete")
        run.set_attribute("flowmark.run.result.imported", imported)
    return run_id


def main() -> None:
    """Send the story to the endpoint of the OTEL_EXPORTER_OTLP_* variables, by default loopback."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocol", choices=["http", "grpc"], default="http")
    protocol = parser.parse_args().protocol

    provider = TracerProvider(resource=Resource.create({"service.name": "crm-sync"}))
    exporter = HttpExporter() if protocol == "http" else GrpcExporter()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    run_id = sync(provider.get_tracer("examples.stock_sdk"))
    provider.shutdown()
    # The stock exporter logs what it could not send and tells nobody else: what was recorded, the
    # backend says.
    print(f"handed run {run_id} of crm.sync to the exporter")


if __name__ == "__main__":
    main()
