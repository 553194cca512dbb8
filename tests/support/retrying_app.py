"""An application whose other side is well until its standard input says ``trouble``.

Arguments: the port of its metrics, the name of its workflow. It ends when its input does.
"""

from __future__ import annotations

import sys
import threading
from typing import Final

from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import start_http_server

import flowmark_otel as flowmark

PACE: Final = 0.2
"""Seconds between two runs: so many are recorded that a rate says something after a few seconds."""

LIMIT: Final = 6


def well(flow: flowmark.Workflow) -> None:
    """Ten pushes and one pull, each of which its first attempt completes."""
    for number in range(10):
        flow.operation("push", attempt=flowmark.Attempt(f"batch-{number}", 1)).complete()
    flow.operation("pull", attempt=flowmark.Attempt("page", 1)).complete()


def refused(flow: flowmark.Workflow) -> None:
    """A push that its last attempt completes, and a pull that is given up."""
    for number in range(1, LIMIT):
        flow.operation("push", attempt=flowmark.Attempt("batch", number)).fail(code="REFUSED")
    flow.operation("push", attempt=flowmark.Attempt("batch", LIMIT)).complete()
    flow.operation("pull", attempt=flowmark.Attempt("page", 1), limit=1).fail(code="REFUSED")


def main() -> None:
    """Record until the input ends."""
    metrics.set_meter_provider(MeterProvider([PrometheusMetricReader()]))
    start_http_server(int(sys.argv[1]), "127.0.0.1")
    trouble, ended = threading.Event(), threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            if line.strip() == "trouble":
                trouble.set()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    while not ended.wait(PACE):
        with flowmark.workflow(sys.argv[2]) as flow:
            (refused if trouble.is_set() else well)(flow)


if __name__ == "__main__":
    main()
