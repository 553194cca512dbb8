"""The examples, run as their READMEs say, against a real ``serve``; the result is read back."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import requests

from tests.support.serving import Serving

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
INSTRUMENT: Final = Path(sys.executable).with_name("opentelemetry-instrument")
_DEADLINE: Final = 20.0


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """A backend with keys."""
    with Serving(tmp_path / "s.db") as found:
        yield found


def environment(endpoint: str, key: str, **more: str) -> dict[str, str]:
    """What a person exports: where to send, and the ingest key."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("OTEL_")},
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{key}",
        **more,
    }


def only_run(serving: Serving, **query: str) -> dict[str, Any]:
    """The one run that matches; spans are sent in batches, so it may take a moment to arrive."""
    deadline = time.monotonic() + _DEADLINE
    while True:
        items = serving.get("/runs", serving.keys[1], **query)["items"]
        if items and items[0]["status"] != "unknown":
            [run] = items
            found: dict[str, Any] = run
            return found
        assert time.monotonic() < deadline, f"no run {query} arrived"
        time.sleep(0.05)


def attempts(serving: Serving, run: dict[str, Any]) -> list[tuple[str, str, int, str, str | None]]:
    """Operation, group, number, status and error code of each attempt of a run."""
    groups = serving.get(f"/runs/{run['key']}/attempts", serving.keys[1])["items"]
    return [
        (
            group["operation"],
            group["group_id"],
            attempt["number"],
            attempt["status"],
            attempt["error"]["code"] if attempt["error"] else None,
        )
        for group in groups
        for attempt in group["attempts"]
    ]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_stock_sdk(serving: Serving, protocol: str) -> None:
    """D4: the stock SDK, a stock exporter of either transport and plain attributes are enough."""
    address = serving.http if protocol == "http" else serving.grpc
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "stock_sdk.py"), "--protocol", protocol],
        env=environment(f"http://{address}", serving.keys[0]),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    named = re.fullmatch(r"handed run (\S+) of crm\.sync to the exporter\n", done.stdout)
    assert named
    run = only_run(serving, run_id=named[1])
    assert (run["workflow"], run["status"], run["outcome"]) == (
        "crm.sync",
        "completed",
        "complete",
    )
    assert run["result"] == {"imported": 3}
    assert attempts(serving, run) == [
        ("push-to-crm", "customer-batch-42", 1, "failed", "CRM_UNAVAILABLE"),
        ("push-to-crm", "customer-batch-42", 2, "completed", None),
    ]


def test_stock_sdk_says_no_more_than_it_knows(serving: Serving) -> None:
    """D4: where the backend refuses the key, the example does not say that a run was recorded."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "stock_sdk.py")],
        env=environment(serving.endpoint, "fmk_wrong_key"),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert "recorded" not in done.stdout
    assert "401" in done.stderr
    assert serving.get("/runs", serving.keys[1])["items"] == []


def test_flask_service(serving: Serving) -> None:
    """D2: a Flask service under opentelemetry-instrument records retries by attributes alone."""
    env = environment(
        serving.endpoint,
        serving.keys[0],
        OTEL_SERVICE_NAME="crm-sync",
        OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
        OTEL_METRICS_EXPORTER="none",
        OTEL_LOGS_EXPORTER="none",
        OTEL_BSP_SCHEDULE_DELAY="100",
    )
    app = EXAMPLES / "flask_service" / "app.py"
    service = subprocess.Popen(
        [str(INSTRUMENT), sys.executable, str(app), "--port", "0"],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert service.stdout is not None
        address = service.stdout.readline().split()[-1]
        answer = requests.post(f"{address}/sync/customer-batch-42", timeout=30)
        assert answer.status_code == 200, answer.text
        assert answer.json()["tries"] == 2
        run = only_run(serving, run_id=answer.json()["trace_id"])
    finally:
        service.send_signal(signal.SIGINT)
        service.communicate(timeout=20)
    assert (run["workflow"], run["status"], run["outcome"]) == (
        "crm-sync",
        "completed",
        "complete",
    )
    assert run["defaulted"] == ["flowmark.run.id", "flowmark.workflow.name"]
    assert attempts(serving, run) == [
        ("push-to-crm", "customer-batch-42", 1, "failed", "CRM_UNAVAILABLE"),
        ("push-to-crm", "customer-batch-42", 2, "completed", None),
    ]
    assert run["counts"]["occurrences"] == 2


def test_examples_import_nothing_of_ours() -> None:
    """D4: an application needs no package of ours, unless it wants the API: attributes do."""
    own = ("explicit_attempts.py", "asyncio_service.py", "with_handle.py", "tasks_with_handle.py")
    for path in (path for path in EXAMPLES.rglob("*.py") if path.name not in own):
        assert not re.search(r"^\s*(import|from) flowmark", path.read_text(), re.MULTILINE), path
