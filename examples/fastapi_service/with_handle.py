"""The FastAPI service with the Python API: coroutines as attempts, and the attempt's handle.

The code that speaks to the CRM asks for the handle of the attempt it is in, and sends the same
idempotency key with every try. At the end the service says what was not acknowledged.

    pip install 'flowmark-otel[server]' fastapi httpx uvicorn opentelemetry-distro \
        opentelemetry-instrumentation-fastapi
    flowmark-otel serve --insecure-no-auth                 # in a terminal of its own
    python examples/crm.py                                 # in another
    cd examples/fastapi_service
    export FLOWMARK_ENDPOINT=http://127.0.0.1:4318
    export OTEL_TRACES_EXPORTER=none OTEL_METRICS_EXPORTER=none OTEL_LOGS_EXPORTER=none
    opentelemetry-instrument uvicorn with_handle:app --port 5000
    curl -X POST http://127.0.0.1:5000/sync/customer-batch-42
    flowmark-otel runs list
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI

import flowmark_otel as flowmark

CRM = os.environ.get("CRM_URL", "http://127.0.0.1:5050")
LIMIT = 3


def same_for_every_attempt(workflow: str, run_id: str, operation: str, group_id: str) -> str:
    """The idempotency key of a batch: the CRM can tell a second try from a second batch."""
    return f"{workflow}:{run_id}:{operation}:{group_id}"


def crm_failure(error: Exception) -> flowmark.Failure | None:
    """How the application names what can go wrong with the CRM."""
    if isinstance(error, httpx.HTTPStatusError):
        return flowmark.Failure("CRM_UNAVAILABLE", retryable=True)
    return None


# Named once: a typing mistake in a name would be another workflow.
CRM_SYNC = flowmark.WorkflowDefinition("crm.sync")
PUSH = CRM_SYNC.operation(
    "push-to-crm",
    limit=LIMIT,
    system="crm",
    idempotency_key=same_for_every_attempt,
    map_error=crm_failure,
)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Uvicorn lets SIGTERM end the process when the service has stopped: flush before that."""
    yield
    try:
        await asyncio.to_thread(flowmark.flush)  # it waits, so not in the event loop
    except flowmark.DeliveryError as lost:
        print(f"not acknowledged: {lost}")


app = FastAPI(lifespan=lifespan)


async def post(crm: httpx.AsyncClient, batch: str) -> int:
    """Push a batch once; says by how many idempotency keys the CRM knows it."""
    key = flowmark.current_attempt().idempotency_key or ""
    answer = await crm.post(f"/{batch}", headers={"Idempotency-Key": key})
    answer.raise_for_status()
    return int(answer.json()["keys"])


@app.post("/sync/{batch}")
async def sync(batch: str) -> dict[str, object]:
    """One request is one run, of as many tries as it needs."""
    with CRM_SYNC.start() as flow:
        async with httpx.AsyncClient(base_url=CRM) as crm:
            for number in range(1, LIMIT + 1):
                attempt = flowmark.Attempt(batch, number)
                try:
                    keys = await flow.acall(PUSH, post, crm, batch, attempt=attempt)
                except httpx.HTTPStatusError:
                    if number == LIMIT:
                        raise
                else:
                    flow.done(outcome="complete", result={"batches": 1})
                    return {"batch": batch, "tries": number, "keys": keys, "run_id": flow.run_id}
    msg = "unreachable"
    raise AssertionError(msg)
