"""Without code: a Flask service under ``opentelemetry-instrument``, recorded by us alone (D2)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.support.instrumented import INSTRUMENT, attempts, environment, needs_entry_points
from tests.support.serving import Serving

APP = Path(__file__).parents[2] / "examples" / "flask_service" / "app.py"


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A backend with keys."""
    needs_entry_points()
    with Serving(tmp_path / "s.db") as found:
        yield found


def test_a_service_records_its_retries(serving: Serving) -> None:
    """D2, E1: spans of Flask and requests pass by; the annotated ones arrive, each once.

    The run is Flask's own span, annotated after its start; the tries are spans of the service. It
    is stopped as a supervisor does, and nothing is lost.
    """
    env = environment(FLOWMARK_ENDPOINT=serving.endpoint, FLOWMARK_API_KEY=serving.keys[0])
    service = subprocess.Popen(
        [str(INSTRUMENT), sys.executable, str(APP), "--port", "0"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert service.stdout is not None
        address = service.stdout.readline().split()[-1]
        answer = requests.post(f"{address}/sync/customer-batch-42", timeout=30)
        assert answer.json()["tries"] == 2
    finally:
        service.send_signal(signal.SIGINT)
        _, said = service.communicate(timeout=30)
    assert "flowmark" not in said
    assert attempts(serving) == [
        ("push-to-crm", "customer-batch-42", 1, "failed", "CRM_UNAVAILABLE"),
        ("push-to-crm", "customer-batch-42", 2, "completed", None),
    ]
    [run] = serving.get("/runs", serving.keys[1])["items"]
    assert (run["status"], run["outcome"], run["result"]) == (
        "completed",
        "complete",
        {"batches": 1},
    )
    assert run["counts"]["occurrences"] == 2
