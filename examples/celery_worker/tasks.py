"""A Celery task whose own retries are recorded by attributes on spans; nothing of ours imported.

Celery runs every retry as another execution of the task. What all of them have in common is the
root id, so that is the run; the task's own span says how the run ended, on the last try alone.
That span does not fail when a try does (Celery counts a retry as no failure), so each try is a
span of the task. The queue is a folder, which needs no broker.

    pip install 'flowmark-otel[server]' celery requests opentelemetry-distro \
        opentelemetry-instrumentation-celery
    flowmark-otel serve --insecure-no-auth                 # in a terminal of its own
    python examples/crm.py                                 # in another
    cd examples/celery_worker
    export OTEL_SERVICE_NAME=crm-sync FLOWMARK_ENDPOINT=http://127.0.0.1:4318
    export OTEL_TRACES_EXPORTER=none OTEL_METRICS_EXPORTER=none OTEL_LOGS_EXPORTER=none
    export FLOWMARK_SIGNALS=none           # the task records its tries itself
    opentelemetry-instrument celery -A tasks worker --pool solo
    celery -A tasks call tasks.sync --args '["customer-batch-42"]'     # in a third
    flowmark-otel runs list
"""

from __future__ import annotations

import os
from pathlib import Path

import requests
from celery import Celery, Task
from opentelemetry import trace
from opentelemetry.util.types import AttributeValue

CRM = os.environ.get("CRM_URL", "http://127.0.0.1:5050")
QUEUE = Path(os.environ.get("QUEUE_FOLDER", "queue"))
LIMIT = 3

QUEUE.mkdir(exist_ok=True)
app = Celery("tasks", broker="filesystem://")
app.conf.broker_transport_options = {
    "data_folder_in": str(QUEUE),
    "data_folder_out": str(QUEUE),
    "control_folder": str(QUEUE / "control"),
    "polling_interval": 0.1,
}

tracer = trace.get_tracer("examples.celery_worker")


@app.task(bind=True, max_retries=LIMIT - 1, name="tasks.sync")
def sync(self: Task, batch: str) -> None:
    """Push one batch; Celery tries again."""
    number = self.request.retries + 1
    run: dict[str, AttributeValue] = {
        "flowmark.workflow.name": "crm.sync",
        "flowmark.run.id": self.request.root_id,
    }
    attempt: dict[str, AttributeValue] = {
        "flowmark.attempt.group_id": batch,
        "flowmark.attempt.number": number,
        "flowmark.attempt.limit": LIMIT,
    }
    own = trace.get_current_span()
    try:
        with tracer.start_as_current_span("push-to-crm", attributes={**run, **attempt}) as span:
            answer = requests.post(f"{CRM}/{batch}", timeout=10)
            if not answer.ok:
                span.set_attribute("flowmark.error.code", "CRM_UNAVAILABLE")
            answer.raise_for_status()
    except requests.HTTPError as error:
        if number == LIMIT:
            own.set_attributes({**run, "flowmark.run.outcome": "none"})
            raise
        raise self.retry(exc=error, countdown=0) from error
    own.set_attributes({**run, "flowmark.run.outcome": "complete"})
    own.set_attribute("flowmark.run.result.batches", 1)
