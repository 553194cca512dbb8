"""The Celery task with the Python API: every execution continues the run of the root id.

The code that speaks to the CRM asks for the handle of the attempt it is in, and sends the same
idempotency key with every try, in whichever execution, worker or process that is. A try that is
repeated leaves the run open; the last one ends it. Since the task says what its tries are, the
adapter for Celery does not, and what the instrumentation says of them is not read as well. The
queue is a folder, which needs no broker.

    pip install 'flowmark-otel[server]' celery requests opentelemetry-distro \
        opentelemetry-instrumentation-celery
    flowmark-otel serve --insecure-no-auth                 # in a terminal of its own
    python examples/crm.py                                 # in another
    cd examples/celery_worker
    export FLOWMARK_ENDPOINT=http://127.0.0.1:4318 FLOWMARK_SIGNALS=none
    export OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=flowmark_celery
    export OTEL_TRACES_EXPORTER=none OTEL_METRICS_EXPORTER=none OTEL_LOGS_EXPORTER=none
    opentelemetry-instrument celery -A tasks_with_handle worker --pool solo
    celery -A tasks_with_handle call tasks.sync --args '["customer-batch-42"]'     # in a third
    flowmark-otel runs list
"""

from __future__ import annotations

import os
from pathlib import Path

import requests
from celery import Celery, Task

import flowmark_otel as flowmark

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


def same_for_every_attempt(workflow: str, run_id: str, operation: str, group_id: str) -> str:
    """The idempotency key of a batch: the CRM can tell a second try from a second batch."""
    return f"{workflow}:{run_id}:{operation}:{group_id}"


def crm_failure(error: Exception) -> flowmark.Failure | None:
    """How the application names what can go wrong with the CRM."""
    if isinstance(error, requests.HTTPError):
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


def post(batch: str) -> int:
    """Push a batch once; says by how many idempotency keys the CRM knows it."""
    key = flowmark.current_attempt().idempotency_key or ""
    answer = requests.post(f"{CRM}/{batch}", headers={"Idempotency-Key": key}, timeout=10)
    answer.raise_for_status()
    return int(answer.json()["keys"])


@app.task(bind=True, max_retries=LIMIT - 1, name="tasks.sync")
def sync(self: Task, batch: str) -> None:
    """Push one batch; Celery tries again."""
    flow = CRM_SYNC.start(run_id=self.request.root_id)
    number = self.request.retries + 1
    try:
        keys = flow.call(PUSH, post, batch, attempt=flowmark.Attempt(batch, number))
    except requests.HTTPError as error:
        if number == LIMIT:
            flow.fail(code="CRM_UNAVAILABLE", outcome="none")
            raise
        raise self.retry(exc=error, countdown=0) from error
    flow.done(outcome="complete", result={"keys": keys})
