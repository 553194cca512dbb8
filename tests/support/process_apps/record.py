"""What all of them record: one run with one attempt, named by whoever asks."""

from __future__ import annotations

import atexit
import os
import time
from pathlib import Path
from typing import Final

import flowmark_otel as flowmark
from tests.support.process_apps import HOOKS

WAIT: Final = 20.0
WORKFLOW: Final = os.environ.get("RECORD_WORKFLOW", "process.models")


def record(run_id: str) -> str:
    """Record a run of this id; gives the process that did."""
    with flowmark.workflow(WORKFLOW, run_id=run_id) as flow:
        flow.operation("push", attempt=flowmark.Attempt("batch", 1)).complete()
    return str(os.getpid())


def say_hooks() -> None:
    """Say that this process ends in a way that lets its hooks run, and wait until the test knows.

    What is registered last runs first: so nothing is flushed before the test has opened the way.
    """
    os.write(2, f"{HOOKS}\n".encode())
    go = Path(os.environ["RECORD_GO"])
    end = time.monotonic() + WAIT
    while not go.exists() and time.monotonic() < end:
        time.sleep(0.01)


atexit.register(say_hooks)

if "RECORD_AT_IMPORT" in os.environ:  # before a server forks its workers, if it loads us first
    record("at-import")
