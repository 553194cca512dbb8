"""Programs under ``opentelemetry-instrument``, as a person starts them, against a real backend."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

import pytest

from tests.support.programs import NOT_LOADED
from tests.support.serving import Serving

INSTRUMENT: Final = Path(sys.executable).with_name("opentelemetry-instrument")

SCRIPT: Final = """
from opentelemetry import trace
from opentelemetry.trace import StatusCode

tracer = trace.get_tracer("script")
with tracer.start_as_current_span("sync"):
    for number in (1, 2):
        attempt = {"flowmark.attempt.group_id": "batch-42", "flowmark.attempt.number": number}
        with tracer.start_as_current_span("push-to-crm", attributes=attempt) as span:
            span.update_name("renamed")
            if number == 1:
                span.set_attribute("flowmark.error.code", "CRM_UNAVAILABLE")
                span.set_status(StatusCode.ERROR)
"""
"""Two attempts in plain code, by attributes alone; nothing of ours is imported."""

_SDK_SAYS: Final = (
    "OTEL_CONFIG_FILE is set; ignoring configurator kwargs",
    "Configuration of configurator not loaded because none is set",
)

COUNTED: Final = (
    SCRIPT
    + """
import flowmark_otel
from flowmark_otel.client import current

flowmark_otel.flush(timeout=30)
print({state: count for (state, _), count in current().delivery.counts().items() if count})
"""
)
"""The same, and what the client counted: every event that was given to it is in one state."""

LOOK: Final = """
import threading
from opentelemetry import trace

provider = trace.get_tracer_provider()
for processor in provider._active_span_processor._span_processors:
    print(type(processor).__module__, type(processor).__name__)
print(provider.sampler.get_description())
print(sorted(thread.name for thread in threading.enumerate() if "flowmark" in thread.name))
"""
"""What the set-up has made of the provider."""


def needs_entry_points() -> None:
    """Skip where this package is on the path but not installed: nothing finds it by name then."""
    if not entry_points(group="opentelemetry_pre_instrument", name="flowmark"):
        pytest.skip("the package is not installed; make test installs it")


def environment(**more: str) -> dict[str, str]:
    """The environment without anything of OpenTelemetry or ours but ``more``; no other signals."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OTEL_", "FLOWMARK_"))
    }
    return {
        **clean,
        **NOT_LOADED,
        "OTEL_SERVICE_NAME": "crm",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_TRACES_EXPORTER": "none",
        **more,
    }


def run_instrumented(script: str, folder: Path, env: dict[str, str]) -> str:
    """Run a script to its end; what it printed. Fails unless it ended well and said no word."""
    path = folder / "script.py"
    path.write_text(script)
    done = subprocess.run(
        [str(INSTRUMENT), sys.executable, str(path)],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith(_SDK_SAYS)]
    assert said == [], said
    return done.stdout


def attempts(serving: Serving) -> list[tuple[str, str, int, str, str | None]]:
    """Operation, group, number, status and error code of each attempt of the one run."""
    key = serving.keys[1]
    [run] = serving.get("/runs", key)["items"]
    return [
        (
            group["operation"],
            group["group_id"],
            attempt["number"],
            attempt["status"],
            attempt["error"]["code"] if attempt["error"] else None,
        )
        for group in serving.get(f"/runs/{run['key']}/attempts", key)["items"]
        for attempt in group["attempts"]
    ]


def evidence(serving: Serving) -> list[str]:
    """The states of the events of the one run, stored or rejected, in order of arrival."""
    key = serving.keys[1]
    [run] = serving.get("/runs", key)["items"]
    return [event["state"] for event in serving.get(f"/runs/{run['key']}/events", key)["items"]]


EXPECTED: Final = [
    ("push-to-crm", "batch-42", 1, "failed", "CRM_UNAVAILABLE"),
    ("push-to-crm", "batch-42", 2, "completed", None),
]
"""What ``attempts`` gives after ``SCRIPT``."""
