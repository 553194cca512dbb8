"""A Flask service whose retries are recorded by attributes on the spans it has anyway.

Run it under ``opentelemetry-instrument``, which sets up the SDK, the exporter and the spans of
Flask and requests; README.md has the commands. Nothing of flowmark-otel is imported here.
"""

from __future__ import annotations

import argparse
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests
from flask import Flask
from opentelemetry import trace
from opentelemetry.util.types import AttributeValue
from werkzeug.serving import make_server

MAX_TRIES = 3
TIMEOUT_SECONDS = 5

tracer = trace.get_tracer("examples.flask_service")


class FlakyCrm(BaseHTTPRequestHandler):
    """The dependency: answers 503 to the first request for each path, then 200."""

    seen: set[str] = set()  # noqa: RUF012  shared by all requests on purpose

    def do_GET(self) -> None:
        """Fail once for each batch."""
        known = self.path in self.seen
        self.seen.add(self.path)
        self.send_response(HTTPStatus.OK if known else HTTPStatus.SERVICE_UNAVAILABLE)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Keep the terminal for the service itself."""


def push(crm: str, batch: str) -> int:
    """Push one batch, trying again in plain code; returns the number of tries it took."""
    for number in range(1, MAX_TRIES + 1):
        attempt: dict[str, AttributeValue] = {
            "flowmark.attempt.group_id": batch,
            "flowmark.attempt.number": number,
        }
        try:
            with tracer.start_as_current_span("push-to-crm", attributes=attempt) as span:
                answer = requests.get(f"{crm}/{batch}", timeout=TIMEOUT_SECONDS)
                if answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
                    span.set_attribute("flowmark.error.code", "CRM_UNAVAILABLE")
                answer.raise_for_status()  # an exception that leaves a span makes it failed
        except requests.HTTPError:
            if number == MAX_TRIES:
                raise
        else:
            return number
    msg = "unreachable"
    raise AssertionError(msg)


def make_app(crm: str) -> Flask:
    """The service, pushing to the CRM at that base address."""
    app = Flask(__name__)

    @app.post("/sync/<batch>")
    def sync(batch: str) -> dict[str, object]:
        # Flask's own span is the run; its workflow is the service, its run id the trace.
        span = trace.get_current_span()
        span.set_attribute("flowmark.record.type", "run")
        tries = push(crm, batch)
        span.set_attribute("flowmark.run.outcome", "complete")
        span.set_attribute("flowmark.run.result.batches", 1)
        trace_id = trace.format_trace_id(span.get_span_context().trace_id)
        return {"batch": batch, "tries": tries, "trace_id": trace_id}

    return app


def main() -> None:
    """Serve on loopback until interrupted; prints the address."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=5000, help="0 takes any free port")
    port = parser.parse_args().port

    crm = ThreadingHTTPServer(("127.0.0.1", 0), FlakyCrm)
    threading.Thread(target=crm.serve_forever, daemon=True).start()
    service = make_server(
        "127.0.0.1", port, make_app(f"http://127.0.0.1:{crm.server_port}"), threaded=True
    )
    print(f"serving on http://127.0.0.1:{service.server_port}", flush=True)
    try:
        service.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        crm.shutdown()


if __name__ == "__main__":
    main()
