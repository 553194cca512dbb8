"""Servers on loopback that carry a peer's answers over HTTP or gRPC."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from flowmark_otel.testing.conformance.peer import Peer
from flowmark_otel.wire.receipt import dumps, load_object

_STATUS_PATH: Final = "/v1/flowmark/status"
_EXPORT: Final = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
_STATUS: Final = "/flowmark.v1.Acceptance/Status"
_STOP_SECONDS: Final = 5.0


@contextmanager
def serve_http(peer: Peer) -> Iterator[str]:
    """A plain HTTP server; yields its endpoint, ``http://127.0.0.1:PORT``."""
    handler = type("_Bound", (_Handler,), {"peer": peer})
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            peer.released.set()
            server.shutdown()
            thread.join(_STOP_SECONDS)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - its base
        """Say nothing of a client that went away: some checks have it do so."""


class _Handler(BaseHTTPRequestHandler):
    """One connection; every POST is an export unless it asks for the status of events."""

    protocol_version = "HTTP/1.1"
    peer: Peer

    def do_POST(self) -> None:
        """Carry one request to the peer, and its answer back."""
        body = self._body()
        if self.path == _STATUS_PATH:
            asked = load_object(body).get("eventIds")
            found = self.peer.statuses(asked if isinstance(asked, list) else [])
            events = [{key: value or None for key, value in _json(each).items()} for each in found]
            self._write(200, dumps({"events": events}), {"content-type": "application/json"})
            return
        kind = self.headers.get("content-type", "").partition(";")[0]
        answer = self.peer.answer(body, kind)
        if answer is None:
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\ncontent-type: ")
            self.wfile.write(kind.encode() + b"\r\n\r\nhalf of it")
            self.close_connection = True
            return
        self._write(answer.status, answer.body, answer.headers)

    def do_GET(self) -> None:
        """What a followed redirect becomes: it counts as a request."""
        self.do_POST()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - as its base
        """Write nothing."""

    def _body(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        return gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body

    def _write(self, status: int, body: bytes, headers: Any) -> None:  # noqa: ANN401 - a mapping
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _json(status: Any) -> dict[str, str]:  # noqa: ANN401 - an EventStatus
    return {
        "eventId": status.event_id,
        "state": status.state,
        "digest": status.digest,
        "code": status.code,
    }


@contextmanager
def serve_grpc(peer: Peer) -> Iterator[str]:
    """A gRPC server; yields its endpoint, ``http://127.0.0.1:PORT``."""
    import grpc  # noqa: PLC0415 - only where it is served

    from flowmark_otel.wire.pb import acceptance_pb2  # noqa: PLC0415 - as grpc

    peer.grpc = True
    codes = {code.value[0]: code for code in grpc.StatusCode}

    def export(body: bytes, context: grpc.ServicerContext) -> bytes:
        answer = peer.answer(body, "application/x-protobuf")
        if answer is None:  # to a client a lost connection is this code, without trailers
            context.abort(grpc.StatusCode.UNAVAILABLE, "")
        if answer.headers:
            context.set_trailing_metadata(tuple(answer.headers.items()))
        if answer.status:
            context.abort(codes[answer.status], answer.message)
        return answer.body

    def status(body: bytes, _: grpc.ServicerContext) -> bytes:
        asked = acceptance_pb2.StatusRequest.FromString(body)
        found = acceptance_pb2.StatusResponse()
        for each in peer.statuses(asked.event_ids):
            found.events.add(**each._asdict())
        return bytes(found.SerializeToString())

    handlers: dict[str, Callable[[bytes, grpc.ServicerContext], bytes]] = {
        _EXPORT: export,
        _STATUS: status,
    }

    class Raw(grpc.GenericRpcHandler):
        """Bytes in, bytes out."""

        def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
            handler = handlers.get(call.method)
            return None if handler is None else grpc.unary_unary_rpc_method_handler(handler)

    server = grpc.server(
        ThreadPoolExecutor(4), handlers=[Raw()], options=(("grpc.so_reuseport", 0),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        peer.released.set()
        server.stop(0).wait(_STOP_SECONDS)
