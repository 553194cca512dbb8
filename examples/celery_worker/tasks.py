"""A Celery task whose own retries are recorded by nothing but install and environment.

Celery runs every retry as another execution of the task. The adapter for Celery records each
(docs/adapters.md): the operation is the task, the group and the run are the task's id, the
workflow is the service. With opentelemetry-instrumentation-celery, as here, its spans are the
attempts; without it the adapter has its own. The task knows nothing of OpenTelemetry. The queue
is a folder, which needs no broker.

    pip install 'flowmark-otel[server]' celery requests opentelemetry-distro \
        opentelemetry-instrumentation-celery
    flowmark-otel serve --insecure-no-auth                 # in a terminal of its own
    python examples/crm.py                                 # in another
    cd examples/celery_worker
    export OTEL_SERVICE_NAME=crm-sync FLOWMARK_ENDPOINT=http://127.0.0.1:4318
    export OTEL_TRACES_EXPORTER=none OTEL_METRICS_EXPORTER=none OTEL_LOGS_EXPORTER=none
    opentelemetry-instrument celery -A tasks worker --pool solo
    celery -A tasks call tasks.sync --args '["customer-batch-42"]'     # in a third
    flowmark-otel runs list
"""

from __future__ import annotations

import os
from pathlib import Path

import requests
from celery import Celery, Task

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


@app.task(bind=True, max_retries=LIMIT - 1, name="tasks.sync")
def sync(self: Task, batch: str) -> None:
    """Push one batch; Celery tries again."""
    try:
        requests.post(f"{CRM}/{batch}", timeout=10).raise_for_status()
    except requests.HTTPError as error:
        raise self.retry(exc=error, countdown=0) from error
