"""A Celery application whose one task records; its broker is a folder."""

from __future__ import annotations

import os
from pathlib import Path

from celery import Celery
from celery.signals import worker_process_shutdown

import flowmark_otel as flowmark
from tests.support.process_apps.record import record, say_hooks

_folder = Path(os.environ["BROKER_FOLDER"])
for name in ("messages", "control"):
    (_folder / name).mkdir(parents=True, exist_ok=True)

app = Celery("tasks", broker="filesystem://")
app.conf.update(
    broker_transport_options={
        "data_folder_in": str(_folder / "messages"),
        "data_folder_out": str(_folder / "messages"),
        "control_folder": str(_folder / "control"),
    },
    task_ignore_result=True,
)
app.task(record, name="record")


def flush_at_the_end(**_: object) -> None:
    """Children of the pool skip the exit of the interpreter."""
    say_hooks()
    flowmark.flush(timeout=5)


if os.environ.get("FLUSH_AT_THE_END"):
    worker_process_shutdown.connect(flush_at_the_end)
