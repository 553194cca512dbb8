"""A CRM on loopback that the services of these examples depend on, and that is flaky.

It answers 503 to the first request for each batch and 200 to every later one; a batch whose name
begins with `lost` it never takes. Start it in a terminal of its own, `python examples/crm.py`; it
listens on 127.0.0.1:5050 until Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Crm(BaseHTTPRequestHandler):
    """Takes a batch on `POST /<batch>` and tells by how many idempotency keys it was pushed."""

    lock = threading.Lock()
    keys: dict[str, list[str | None]] = {}  # noqa: RUF012  shared by all requests on purpose

    def do_POST(self) -> None:
        """Fail once for each batch, and always for a lost one."""
        with self.lock:
            keys = self.keys.setdefault(self.path, [])
            keys.append(self.headers["Idempotency-Key"])
        body = json.dumps({"tries": len(keys), "keys": len(set(keys))}).encode()
        down = len(keys) == 1 or self.path.startswith("/lost")
        self.send_response(HTTPStatus.SERVICE_UNAVAILABLE if down else HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Keep the terminal quiet."""


def main() -> None:
    """Serve on loopback until interrupted; prints the address."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=5050, help="0 takes any free port")
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Crm)
    print(f"CRM on http://127.0.0.1:{server.server_port}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
