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
from tests.support.programs import ALL_LOADED
from tests.support.serving import Serving

SERVICE: Final = """
from celery import Celery

app = Celery("tasks", broker="filesystem://", backend="file://results")
app.conf.broker_transport_options = {
    "data_folder_in": "queue", "data_folder_out": "queue", "control_folder": "control",
    "polling_interval": 0.05,
}

@app.task(bind=True)
def fetch(self):
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
    ("tasks.fetch", 1, "failed", "observed"),
    ("tasks.fetch", 2, "failed", "observed"),
    ("tasks.fetch", 3, "completed", "observed"),
]


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A backend with keys and the default settings."""
    with Serving(tmp_path / "s.db") as found:
        yield found


@contextmanager
def worker(folder: Path, env: dict[str, str]) -> Iterator[None]:
    """The service's worker, as it is started without us, until it has ended by itself."""
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--pool=solo"]
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
    ("stocked", "processed", "duplicates"),
    [(True, False, 0), (False, True, 0), (True, True, 6)],
    ids=["stock exporter alone", "our processor alone", "both"],
)
def test_retries_are_shown_once(
    serving: Serving, tmp_path: Path, *, stocked: bool, processed: bool, duplicates: int
) -> None:
    """D2, E3, A8: tries of a task in another process, shown once whoever reads the signal."""
    if processed:
        needs_entry_points()
    for folder in ("queue", "control", "results"):
        (tmp_path / folder).mkdir()
    (tmp_path / "tasks.py").write_text(SERVICE)
    told = (stock(serving) if stocked else {}) | (ours(serving) if processed else {})
    env = environment(**ALL_LOADED, **told)
    with worker(tmp_path, env):
        assert run_instrumented(CALL, tmp_path, env) == "2\n"
    key = serving.keys[1]
    [run] = serving.get("/runs", key)["items"]
    [group] = serving.get(f"/runs/{run['key']}/attempts", key)["items"]
    assert [
        (group["operation"], attempt["number"], attempt["status"], attempt["kind"])
        for attempt in group["attempts"]
    ] == _EXPECTED
    assert group["verdict"] == "after_retry"
    counted = {row["state"]: row["count"] for row in serving.get("/ingest", key)["events"]}
    assert counted == {names.STORED: 6} | ({names.DUPLICATE: duplicates} if duplicates else {})
