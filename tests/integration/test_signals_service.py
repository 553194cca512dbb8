"""Retries of a service that nobody changed: Celery under ``opentelemetry-instrument`` (D2, E3)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from flowmark_otel import names
from tests.support.instrumented import (
    INSTRUMENT,
    environment,
    needs_entry_points,
    run_instrumented,
)
from tests.support.programs import ALL_LOADED, entry_points_of
from tests.support.serving import Serving

SERVICE: Final = """
import os
from celery import Celery

app = Celery("tasks", broker="filesystem://", backend="file://results")
app.conf.broker_transport_options = {
    "data_folder_in": "queue", "data_folder_out": "queue", "control_folder": "control",
    "polling_interval": 0.05,
}

@app.task(bind=True)
def fetch(self):
    with open("processes", "a") as file:
        print(os.getpid(), file=file)
    if self.request.retries < 2:
        raise self.retry(exc=ConnectionError("refused"), countdown=0, max_retries=3)
    return self.request.retries
"""
"""A task that fails twice, as its author wrote it."""

CALL: Final = """
from tasks import fetch

print(fetch.delay().get(timeout=40))
"""
_SECONDS: Final = 30
_EXPECTED: Final = [
    ("tasks.fetch", 1, "failed"),
    ("tasks.fetch", 2, "failed"),
    ("tasks.fetch", 3, "completed"),
]
_SIGNAL: Final = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "flowmark_celery"}


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A backend with keys and the default settings."""
    with Serving(tmp_path / "s.db") as found:
        yield found


@contextmanager
def worker(folder: Path, env: dict[str, str], *options: str) -> Iterator[None]:
    """The service's worker, as it is started without us, until it has ended by itself."""
    for each in ("queue", "control", "results"):
        (folder / each).mkdir()
    (folder / "tasks.py").write_text(SERVICE)
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker"]
    command += options or ("--pool=solo",)
    command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    log = folder / "worker.log"
    with log.open("wb") as output:
        running = subprocess.Popen(
            [str(INSTRUMENT), *command], cwd=folder, env=env, stdout=output, stderr=output
        )
        try:
            yield
        finally:
            running.send_signal(signal.SIGTERM)
            running.wait(timeout=_SECONDS)
    assert "Traceback" not in log.read_text(errors="replace").partition("Warm shutdown")[2]


def stock(serving: Serving) -> dict[str, str]:
    """What sends spans with the stock exporter."""
    return {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": serving.endpoint,
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{serving.keys[0]}",
    }


def ours(serving: Serving) -> dict[str, str]:
    """What has attempts recorded by our processor."""
    return {"FLOWMARK_ENDPOINT": serving.endpoint, "FLOWMARK_API_KEY": serving.keys[0]}


@pytest.mark.parametrize(
    ("stocked", "processed", "loaded", "duplicates"),
    [
        pytest.param(True, False, ALL_LOADED, 0, id="stock exporter alone"),
        pytest.param(False, True, _SIGNAL, 0, id="our processor alone"),
        pytest.param(True, True, _SIGNAL, 6, id="both"),
        pytest.param(True, True, ALL_LOADED, 6, id="both, and the adapter"),
    ],
)
def test_retries_are_shown_once(
    serving: Serving,
    tmp_path: Path,
    *,
    stocked: bool,
    processed: bool,
    loaded: dict[str, str],
    duplicates: int,
) -> None:
    """D2, E3, A8: tries of a task in another process, shown once whoever reads the signal.

    The adapter makes the instrumentation's spans attempts by their own keys, with the errors.
    """
    if processed:
        needs_entry_points()
    told = (stock(serving) if stocked else {}) | (ours(serving) if processed else {})
    found = entry_points_of(tmp_path)  # of this tree, which may not be the one installed
    env = environment(**loaded, **told, PYTHONPATH=found)
    with worker(tmp_path, env):
        assert run_instrumented(CALL, tmp_path, env) == "2\n"
    key = serving.keys[1]
    [run] = serving.get("/runs", key)["items"]
    [group] = serving.get(f"/runs/{run['key']}/attempts", key)["items"]
    assert [
        (group["operation"], attempt["number"], attempt["status"]) for attempt in group["attempts"]
    ] == _EXPECTED
    adapted = processed and loaded is ALL_LOADED
    assert {attempt["kind"] for attempt in group["attempts"]} == {
        "reported" if adapted else "observed"
    }
    assert (run["run_id"] == group["group_id"]) is adapted
    errors = [attempt["error"] and attempt["error"]["code"] for attempt in group["attempts"]]
    assert errors == (["ConnectionError"] * 2 if adapted else [None] * 2) + [None]
    assert group["verdict"] == "after_retry"
    counted = {row["state"]: row["count"] for row in serving.get("/ingest", key)["events"]}
    assert counted == {names.STORED: 6} | ({names.DUPLICATE: duplicates} if duplicates else {})


def test_each_try_in_a_process_of_its_own(serving: Serving, tmp_path: Path) -> None:
    """E1, E3: the task id groups what three processes did, none of which was told to flush.

    By the adapter alone: Celery's instrumentation is not there.
    """
    env = environment(
        **ours(serving),
        PYTHONPATH=entry_points_of(tmp_path),
        FLOWMARK_SPOOL_DIR=str(tmp_path / "spool"),
        OTEL_PYTHON_DISABLED_INSTRUMENTATIONS="celery",
    )
    options = ("--pool=prefork", "--concurrency=1", "--max-tasks-per-child=1")
    with worker(tmp_path, env, *options):
        assert run_instrumented(CALL, tmp_path, env) == "2\n"
    assert len(set((tmp_path / "processes").read_text().split())) == len(_EXPECTED)
    run_instrumented("import flowmark_otel\nflowmark_otel.flush()\n", tmp_path, env)
    key = serving.keys[1]
    [run] = serving.get("/runs", key)["items"]
    [group] = serving.get(f"/runs/{run['key']}/attempts", key)["items"]
    found = [(group["operation"], each["number"], each["status"]) for each in group["attempts"]]
    assert found == _EXPECTED
    assert run["run_id"] == group["group_id"]
