"""A Django service, a sync and an async view, recorded by attributes; nothing of ours imported.

`opentelemetry-instrument` makes the span of each request, which becomes the run; the views open
one span for each try. Settings, views and paths are in this one file.

    pip install 'flowmark-otel[server]' django httpx uvicorn opentelemetry-distro \
        opentelemetry-instrumentation-django opentelemetry-instrumentation-asgi
    flowmark-otel serve --insecure-no-auth                 # in a terminal of its own
    python examples/crm.py                                 # in another
    cd examples/django_service
    export OTEL_SERVICE_NAME=crm-sync FLOWMARK_ENDPOINT=http://127.0.0.1:4318
    export OTEL_TRACES_EXPORTER=none OTEL_METRICS_EXPORTER=none OTEL_LOGS_EXPORTER=none
    export DJANGO_SETTINGS_MODULE=app
    opentelemetry-instrument uvicorn --factory django.core.asgi:get_asgi_application --port 5000
    curl -X POST http://127.0.0.1:5000/sync/customer-batch-42
    curl -X POST http://127.0.0.1:5000/async/customer-batch-43
    flowmark-otel runs list
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from django.http import HttpRequest, JsonResponse
from django.urls import path
from opentelemetry import trace
from opentelemetry.util.types import AttributeValue

SECRET_KEY = "for this example"  # noqa: S105 - it signs nothing
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = __name__

CRM = os.environ.get("CRM_URL", "http://127.0.0.1:5050")
LIMIT = 3

tracer = trace.get_tracer("examples.django_service")


@contextmanager
def attempt(batch: str, number: int) -> Iterator[trace.Span]:
    """The span of one try."""
    attributes: dict[str, AttributeValue] = {
        "flowmark.attempt.group_id": batch,
        "flowmark.attempt.number": number,
        "flowmark.attempt.limit": LIMIT,
    }
    # An exception that leaves a span makes it failed.
    with tracer.start_as_current_span("push-to-crm", attributes=attributes) as span:
        try:
            yield span
        except httpx.HTTPStatusError:
            span.set_attribute("flowmark.error.code", "CRM_UNAVAILABLE")
            raise


def begun() -> trace.Span:
    """Django's own span, as a run: its workflow is the service, its run id the trace."""
    span = trace.get_current_span()
    span.set_attribute("flowmark.record.type", "run")
    return span


def completed(run: trace.Span, batch: str, tries: int) -> JsonResponse:
    """The run's outcome on its span, and the answer to the request."""
    run.set_attribute("flowmark.run.outcome", "complete")
    run.set_attribute("flowmark.run.result.batches", 1)
    run_id = trace.format_trace_id(run.get_span_context().trace_id)
    return JsonResponse({"batch": batch, "tries": tries, "run_id": run_id})


def sync_view(_: HttpRequest, batch: str) -> JsonResponse:
    """Try again in plain code."""
    run = begun()
    for number in range(1, LIMIT + 1):
        span = attempt(batch, number)
        try:
            with span:
                httpx.post(f"{CRM}/{batch}").raise_for_status()
        except httpx.HTTPStatusError:
            if number == LIMIT:
                raise
        else:
            return completed(run, batch, number)
    msg = "unreachable"
    raise AssertionError(msg)


async def async_view(_: HttpRequest, batch: str) -> JsonResponse:
    """Try again in plain code, in the event loop."""
    run = begun()
    async with httpx.AsyncClient(base_url=CRM) as crm:
        for number in range(1, LIMIT + 1):
            span = attempt(batch, number)
            try:
                with span:
                    (await crm.post(f"/{batch}")).raise_for_status()
            except httpx.HTTPStatusError:
                if number == LIMIT:
                    raise
            else:
                return completed(run, batch, number)
    msg = "unreachable"
    raise AssertionError(msg)


urlpatterns = [path("sync/<batch>", sync_view), path("async/<batch>", async_view)]
