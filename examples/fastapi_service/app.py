"""A FastAPI service whose retries are recorded by attributes on spans; nothing of ours imported.

`opentelemetry-instrument` makes the span of each request, which becomes the run; the service opens
one span for each try. Installing flowmark-otel and setting an address is all the rest.

    pip install 'flowmark-otel[server]' fastapi httpx uvicorn opentelemetry-distro \
        opentelemetry-instrumentation-fastapi
    flowmark-otel serve --insecure-no-auth                 # in a terminal of its own
    python examples/crm.py                                 # in another
    cd examples/fastapi_service
    export OTEL_SERVICE_NAME=crm-sync FLOWMARK_ENDPOINT=http://127.0.0.1:4318
    export OTEL_TRACES_EXPORTER=none OTEL_METRICS_EXPORTER=none OTEL_LOGS_EXPORTER=none
    opentelemetry-instrument uvicorn app:app --port 5000
    curl -X POST http://127.0.0.1:5000/sync/customer-batch-42
    flowmark-otel runs list
"""

from __future__ import annotations

import os

import httpx
from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.util.types import AttributeValue

CRM = os.environ.get("CRM_URL", "http://127.0.0.1:5050")
LIMIT = 3

app = FastAPI()
tracer = trace.get_tracer("examples.fastapi_service")


async def push(batch: str) -> int:
    """Push one batch, trying again in plain code; returns the number of tries it took."""
    async with httpx.AsyncClient(base_url=CRM) as crm:
        for number in range(1, LIMIT + 1):
            attempt: dict[str, AttributeValue] = {
                "flowmark.attempt.group_id": batch,
                "flowmark.attempt.number": number,
                "flowmark.attempt.limit": LIMIT,
            }
            try:
                with tracer.start_as_current_span("push-to-crm", attributes=attempt) as span:
                    answer = await crm.post(f"/{batch}")
                    if answer.is_server_error:
                        span.set_attribute("flowmark.error.code", "CRM_UNAVAILABLE")
                    answer.raise_for_status()  # an exception that leaves a span makes it failed
            except httpx.HTTPStatusError:
                if number == LIMIT:
                    raise
            else:
                return number
    msg = "unreachable"
    raise AssertionError(msg)


@app.post("/sync/{batch}")
async def sync(batch: str) -> dict[str, object]:
    """One request is one run: the workflow is the service, the run id the trace."""
    span = trace.get_current_span()
    span.set_attribute("flowmark.record.type", "run")
    tries = await push(batch)
    span.set_attribute("flowmark.run.outcome", "complete")
    span.set_attribute("flowmark.run.result.batches", 1)
    run_id = trace.format_trace_id(span.get_span_context().trace_id)
    return {"batch": batch, "tries": tries, "run_id": run_id}
