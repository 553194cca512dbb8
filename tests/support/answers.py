"""Servers that answer to order, well or badly: HTTP by hand on sockets, gRPC by the stock library.

A script is a list of answers, one for each request; the last one is given for ever.
"""

from __future__ import annotations

import contextlib
import gzip
import random
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import grpc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)

from flowmark_otel.model import LogRecord, Receipt
from flowmark_otel.wire import receipt
from flowmark_otel.wire.decode import decode_logs

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
_ENCODINGS: Final = {PROTOBUF: "protobuf", JSON: "json"}
_WAIT: Final = 20
_RESET: Final = struct.pack("ii", 1, 0)
_EXPORT: Final = re.compile(r"/opentelemetry\.proto\.collector\.\w+\.v1\.\w+Service/Export")


class Received(NamedTuple):
    """One request: its path, its headers by lower-case name, its body (gunzipped)."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def encoding(self) -> str:
        """How its body is written, as ``wire`` names it."""
        return _ENCODINGS[self.headers["content-type"]]

    @property
    def event_ids(self) -> list[str]:
        """The ids of the events in it."""
        items = decode_logs(self.body, self.encoding).marked
        records = [item.record for item in items]
        found = [each for each in records if isinstance(each, LogRecord)]
        return [str(each.attributes["flowmark.event.id"]) for each in found]


@dataclass(frozen=True)
class Reply:
    """An HTTP answer.

    ``cut``: only so many bytes of it are sent, all if None; then the connection
    is closed, or reset. ``after``: nothing is sent before this is set. ``drip``: one byte at a
    time, each after this flag has been waited for as long as ``drip_seconds``.
    """

    status: int = 200
    body: bytes = b""
    content_type: str = PROTOBUF
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None
    reset: bool = False
    after: threading.Event | None = None
    drip_seconds: float | None = None

    def encoded(self) -> bytes:
        """The whole answer as it goes over the wire."""
        lines = [f"HTTP/1.1 {self.status} X", f"content-type: {self.content_type}"]
        lines += [f"content-length: {len(self.body)}", *map(": ".join, self.headers.items())]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + self.body


Answer = Reply | Callable[[Received], Reply]


def acknowledging(**counts: int) -> Callable[[Received], Reply]:
    """A receipt that says all was stored, or what these counts say."""

    def answer(request: Received) -> Reply:
        number = len(request.event_ids)
        made = Receipt(backend_id="b", stored=number, received=number)
        made = replace(made, **counts)  # type: ignore[arg-type]
        content_type = request.headers["content-type"]
        body = receipt.encode(made, request.encoding, "logs")
        return Reply(body=body, content_type=content_type)

    return answer


def stock(request: Received) -> Reply:
    """What a stock OTLP server answers: success, and nothing else."""
    ExportLogsServiceRequest.FromString(request.body)
    return Reply(body=ExportLogsServiceResponse().SerializeToString())


class Answering:
    """An HTTP server; ``received`` is what reached it, ``arrived`` is set at each request."""

    def __init__(self, script: Sequence[Answer], address: tuple[str, int]) -> None:
        self.received: list[Received] = []
        self.arrived = threading.Event()
        self._script = list(script)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closing = threading.Event()
        self._listener = socket.create_server(address)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """Its address."""
        return "http://{}:{}".format(*self._listener.getsockname()[:2])

    @property
    def exports(self) -> list[Received]:
        """The exports among what reached it."""
        return [each for each in self.received if each.path == "/v1/logs"]

    def script(self, *answers: Answer) -> None:
        """Answer like this from now on."""
        with self._lock:
            self._script = list(answers)

    def close(self) -> None:
        """Close every connection."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            left = list(self._open)
        for each in left:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._thread.join(_WAIT)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as stream:
            while request := _read(stream):
                with self._lock:
                    self.received.append(request)
                    found = self._script.pop(0) if len(self._script) > 1 else self._script[0]
                reply = found if isinstance(found, Reply) else found(request)
                self.arrived.set()
                if not self._reply(connection, reply):
                    break
        with self._lock:
            self._open.discard(connection)

    def _reply(self, connection: socket.socket, reply: Reply) -> bool:
        """Send it; whether the connection stays open."""
        if reply.after is not None:
            reply.after.wait(_WAIT)
        whole = reply.encoded()
        sent = whole if reply.cut is None else whole[: reply.cut]
        if reply.drip_seconds is not None:
            for place in range(len(sent)):
                connection.sendall(sent[place : place + 1])
                if self._closing.wait(reply.drip_seconds):
                    return False
        else:
            connection.sendall(sent)
        if reply.reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        return reply.cut is None and not reply.reset


def _read(stream: Any) -> Received | None:
    first = stream.readline().split()
    if len(first) != 3:
        return None
    headers: dict[str, str] = {}
    while line := stream.readline().strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    body = stream.read(int(headers.get("content-length", "0")))
    if headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    return Received(first[1].decode(), headers, body)


@contextmanager
def answering(*script: Answer, port: int = 0) -> Iterator[Answering]:
    """An HTTP server with this script, on a free port unless one is named."""
    server = Answering(script, ("127.0.0.1", port))
    try:
        yield server
    finally:
        server.close()


_GIVEN_TO_NOBODY: Final = range(20_000, 32_000)


def free_port() -> int:
    """A port of loopback that nobody listens on.

    It is none of those that the system gives to connections: those may be taken before it is used.
    """
    while True:
        port = random.choice(_GIVEN_TO_NOBODY)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


# -- gRPC --------------------------------------------------------------------------------------
class Failure(NamedTuple):
    """A gRPC status with trailers."""

    code: grpc.StatusCode
    message: str = ""
    trailers: tuple[tuple[str, str | bytes], ...] = ()


GrpcAnswer = Failure | Callable[[bytes], bytes]


def grpc_stock(body: bytes) -> bytes:
    """What a stock OTLP server answers."""
    ExportLogsServiceRequest.FromString(body)
    return ExportLogsServiceResponse().SerializeToString()


def grpc_acknowledging(body: bytes) -> bytes:
    """A receipt that says all was stored."""
    number = decode_logs(body, "protobuf").items
    made = Receipt(backend_id="b", stored=number, received=number)
    return receipt.encode(made, "protobuf", "logs")


class GrpcAnswering(NamedTuple):
    """A gRPC server: its address, what reached it, and the answers left, to be changed in place."""

    endpoint: str
    bodies: list[bytes]
    metadata: list[dict[str, str | bytes]]
    script: list[GrpcAnswer]


@contextmanager
def grpc_answering(*script: GrpcAnswer, port: int = 0) -> Iterator[GrpcAnswering]:
    """A gRPC server with this script."""
    left = list(script)
    bodies: list[bytes] = []
    metadata: list[dict[str, str | bytes]] = []

    def export(body: bytes, context: grpc.ServicerContext) -> bytes:
        bodies.append(body)
        metadata.append(dict(context.invocation_metadata()))
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Failure):
            context.set_trailing_metadata(found.trailers)
            context.abort(found.code, found.message)
        return found(body)

    class Handlers(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> Any:
            if _EXPORT.fullmatch(details.method):
                return grpc.unary_unary_rpc_method_handler(export)
            return None

    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads, handlers=[Handlers()], options=[("grpc.so_reuseport", 0)])
        bound = server.add_insecure_port(f"127.0.0.1:{port}")
        server.start()
        try:
            yield GrpcAnswering(f"http://127.0.0.1:{bound}", bodies, metadata, left)
        finally:
            server.stop(None).wait(_WAIT)
