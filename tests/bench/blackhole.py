"""A server in a process of its own that takes every export, keeps nothing and says it is stored.

It answers logs with a receipt over as many events as the body names; ``python -m
tests.bench.blackhole`` prints its port.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from flowmark_otel import names
from flowmark_otel.model import Receipt
from flowmark_otel.wire import receipt

_EVENT = names.EVENT_ID.encode()


def stored(body: bytes) -> bytes:
    """The receipt of an encoded request: each of its events is stored."""
    events = body.count(_EVENT)
    return receipt.encode(Receipt(stored=events, received=events), "protobuf", "logs")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Take one request."""
        body = self.rfile.read(int(self.headers["content-length"]))
        answer = stored(body) if self.path == "/v1/logs" else b""
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as its base
        """Write nothing."""


@contextmanager
def blackhole() -> Iterator[str]:
    """Run one; yields its endpoint."""
    command = [sys.executable, "-m", "tests.bench.blackhole"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def main() -> None:
    """Serve until terminated."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        print(server.server_port, flush=True)  # noqa: T201
        server.serve_forever()


if __name__ == "__main__":
    main()
