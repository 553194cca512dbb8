"""A server on loopback that answers as it is told, request after request, then with 200."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Reply(NamedTuple):
    """An answer; status 0 cuts the connection instead."""

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b"{}"


class Replying:
    """Where it listens, and the method and path of what it was asked."""

    def __init__(self, port: int, replies: list[Reply]) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.replies = replies
        self.asked: list[str] = []


@contextmanager
def replying(*replies: int | Reply, last: Reply | None = None, port: int = 0) -> Iterator[Replying]:
    """Serve until the block ends; ``last`` is what is answered when ``replies`` are used up."""
    lock = threading.Lock()
    final = last or Reply(200)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                found.asked.append(f"{self.command} {self.path}")
                reply = found.replies.pop(0) if found.replies else final
            if not reply.status:
                self.close_connection = True
                return
            self.send_response(reply.status)
            headers = {"Content-Type": "application/json", **reply.headers}
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(reply.body)

        do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = answer  # noqa: N815 - http.server's

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    given = [Reply(each) if isinstance(each, int) else each for each in replies]
    found = Replying(server.server_port, given)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def closed_port() -> int:
    """A port on which nobody listens any more."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.server_close()
    return server.server_port
