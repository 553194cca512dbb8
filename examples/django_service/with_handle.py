"""The Django service with the Python API: `call` in a sync view, `acall` in an async one.

The code that speaks to the CRM asks for the handle of the attempt it is in, and sends the same
idempotency key with every try. Settings, views and paths are in this one file.

    pip install 'flowmark-otel[server]' django httpx uvicorn opentelemetry-distro \
        opentelemetry-instrumentation-django opentelemetry-instrumentation-asgi
    flowmark-otel serve --insecure-no-auth                 # in a terminal of its own
    python examples/crm.py                                 # in another
    cd examples/django_service
    export FLOWMARK_ENDPOINT=http://127.0.0.1:4318
    export OTEL_TRACES_EXPORTER=none OTEL_METRICS_EXPORTER=none OTEL_LOGS_EXPORTER=none
    export DJANGO_SETTINGS_MODULE=with_handle
    opentelemetry-instrument uvicorn --factory django.core.asgi:get_asgi_application --port 5000
    curl -X POST http://127.0.0.1:5000/sync/customer-batch-42
    curl -X POST http://127.0.0.1:5000/async/customer-batch-43
    flowmark-otel runs list
"""

from __future__ import annotations

import os

import httpx
from django.http import HttpRequest, JsonResponse
from django.urls import path

import flowmark_otel as flowmark

SECRET_KEY = "for this example"  # noqa: S105 - it signs nothing
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = __name__

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


def key_header() -> dict[str, str]:
    """The key of the attempt that is being made, wherever this is called from."""
    return {"Idempotency-Key": flowmark.current_attempt().idempotency_key or ""}


def keys_known(answer: httpx.Response) -> int:
    """By how many idempotency keys the CRM knows the batch; raises if it did not take it."""
    answer.raise_for_status()
    return int(answer.json()["keys"])


def post(batch: str) -> int:
    """Push a batch once."""
    return keys_known(httpx.post(f"{CRM}/{batch}", headers=key_header()))


async def apost(crm: httpx.AsyncClient, batch: str) -> int:
    """Push a batch once, in the event loop."""
    return keys_known(await crm.post(f"/{batch}", headers=key_header()))


def sync_view(_: HttpRequest, batch: str) -> JsonResponse:
    """One request is one run, of as many tries as it needs."""
    with CRM_SYNC.start() as flow:
        for number in range(1, LIMIT + 1):
            attempt = flowmark.Attempt(batch, number)
            try:
                keys = flow.call(PUSH, post, batch, attempt=attempt)
            except httpx.HTTPStatusError:
                if number == LIMIT:
                    raise
            else:
                flow.done(outcome="complete", result={"batches": 1})
                return JsonResponse({"tries": number, "keys": keys, "run_id": flow.run_id})
    msg = "unreachable"
    raise AssertionError(msg)


async def async_view(_: HttpRequest, batch: str) -> JsonResponse:
    """The same in the event loop."""
    with CRM_SYNC.start() as flow:
        async with httpx.AsyncClient(base_url=CRM) as crm:
            for number in range(1, LIMIT + 1):
                attempt = flowmark.Attempt(batch, number)
                try:
                    keys = await flow.acall(PUSH, apost, crm, batch, attempt=attempt)
                except httpx.HTTPStatusError:
                    if number == LIMIT:
                        raise
                else:
                    flow.done(outcome="complete", result={"batches": 1})
                    return JsonResponse({"tries": number, "keys": keys, "run_id": flow.run_id})
    msg = "unreachable"
    raise AssertionError(msg)


urlpatterns = [path("sync/<batch>", sync_view), path("async/<batch>", async_view)]
