"""The Flask service with the Python API: runs and attempts by name, and the attempt's handle.

The code that speaks to the CRM asks for the handle of the attempt it is in: it waits no longer
than the deadline leaves, and sends the same idempotency key with every try.

    pip install 'flowmark-otel[server]' flask requests opentelemetry-distro \
        opentelemetry-instrumentation-flask opentelemetry-instrumentation-requests
    flowmark-otel serve --insecure-no-auth                 # in a terminal of its own
    python examples/crm.py                                 # in another
    cd examples/flask_service
    export FLOWMARK_ENDPOINT=http://127.0.0.1:4318
    export OTEL_TRACES_EXPORTER=none OTEL_METRICS_EXPORTER=none OTEL_LOGS_EXPORTER=none
    opentelemetry-instrument flask --app with_handle run
    curl -X POST http://127.0.0.1:5000/sync/customer-batch-42
    flowmark-otel runs list
"""

from __future__ import annotations

import os
import time

import requests
from flask import Flask

import flowmark_otel as flowmark

CRM = os.environ.get("CRM_URL", "http://127.0.0.1:5050")
LIMIT = 3
PATIENCE_SECONDS = 10

app = Flask(__name__)


def same_for_every_attempt(workflow: str, run_id: str, operation: str, group_id: str) -> str:
    """The idempotency key of a batch: the CRM can tell a second try from a second batch."""
    return f"{workflow}:{run_id}:{operation}:{group_id}"


def crm_failure(error: Exception) -> flowmark.Failure | None:
    """How the application names what can go wrong with the CRM."""
    if isinstance(error, requests.HTTPError):
        return flowmark.Failure("CRM_UNAVAILABLE", retryable=True)
    return None


def post(batch: str) -> int:
    """Push a batch once; says by how many idempotency keys the CRM knows it."""
    attempt = flowmark.current_attempt()
    answer = requests.post(
        f"{CRM}/{batch}",
        headers={"Idempotency-Key": attempt.idempotency_key or ""},
        timeout=min(attempt.remaining() / 1000, PATIENCE_SECONDS) or 0.001,
    )
    answer.raise_for_status()
    return int(answer.json()["keys"])


def push(flow: flowmark.Workflow, batch: str) -> tuple[int, int]:
    """Push until the CRM takes it; returns what `post` says and the tries it took."""
    deadline = int((time.time() + PATIENCE_SECONDS) * 1000)
    for number in range(1, LIMIT + 1):
        attempt = flowmark.Attempt(batch, number)
        try:
            keys = flow.call(
                "push-to-crm",
                post,
                batch,
                attempt=attempt,
                limit=LIMIT,
                deadline=deadline,
                idempotency_key=same_for_every_attempt,
                map_error=crm_failure,
            )
        except requests.HTTPError:
            if number == LIMIT:
                raise
        else:
            return keys, number
    msg = "unreachable"
    raise AssertionError(msg)


@app.post("/sync/<batch>")
def sync(batch: str) -> dict[str, object]:
    """One request is one run."""
    with flowmark.workflow("crm.sync") as flow:
        keys, tries = push(flow, batch)
        flow.done(outcome="complete", result={"batches": 1})
    return {"batch": batch, "tries": tries, "keys": keys, "run_id": flow.run_id}
