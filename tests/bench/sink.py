"""Where the collectors under measurement deliver: a process that takes all and keeps nothing.

OTLP over HTTP and over gRPC; logs are answered with a receipt over as many events as the body
names, and the capability is there, so that a collector believes it. ``python -m tests.bench.sink``
prints both addresses.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.request import urlopen

import grpc
import uvicorn
from grpc import aio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from flowmark_otel import names
from flowmark_otel.wire.pb import acceptance_pb2
from tests.bench.blackhole import stored

_PROTOBUF: Final = "application/x-protobuf"
_ID: Final = "sink"


class Sink(NamedTuple):
    """``HOST:PORT`` of each."""

    grpc: str
    http: str

    def received(self) -> int:
        """Bytes of traces that came so far."""
        with urlopen(f"http://{self.http}/received", timeout=10) as answer:
            return int(json.load(answer)["traces"])


_taken: Final = {"traces": 0}
"""Bytes of traces so far: whether a collector has delivered all of a load."""


async def _take(request: Request) -> Response:
    body = await request.body()
    if request.url.path == "/v1/traces":
        _taken["traces"] += len(body)
    answer = stored(body) if request.url.path == "/v1/logs" else b""
    return Response(answer, media_type=_PROTOBUF)


async def _received(_: Request) -> JSONResponse:
    return JSONResponse(_taken)


async def _capabilities(_: Request) -> JSONResponse:
    return JSONResponse({"capabilities": [names.CAPABILITY], "backendId": _ID})


class _Handlers(grpc.GenericRpcHandler):
    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """Take every unary call."""
        method = details.method or ""

        async def answer(body: bytes, _: Any) -> bytes:
            if method.endswith("/Capabilities"):
                found = acceptance_pb2.CapabilitiesResponse(
                    capabilities=[names.CAPABILITY], backend_id=_ID
                )
                return found.SerializeToString()
            if "LogsService" in method:
                return stored(body)
            _taken["traces"] += len(body)
            return b""

        return grpc.unary_unary_rpc_method_handler(answer)


async def _serve() -> None:
    limits = [("grpc.max_receive_message_length", -1)]
    over_grpc = aio.server(handlers=[_Handlers()], options=limits)
    port = over_grpc.add_insecure_port("127.0.0.1:0")
    await over_grpc.start()
    app = Starlette(
        routes=[
            Route("/v1/flowmark/capabilities", _capabilities),
            Route("/received", _received),
            Route("/{path:path}", _take, methods=["POST"]),
        ]
    )
    config = uvicorn.Config(app, log_level="error", access_log=False, http="httptools")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(port, listener.getsockname()[1], flush=True)  # noqa: T201
        await uvicorn.Server(config).serve([listener])


@contextmanager
def sink() -> Iterator[Sink]:
    """Run one."""
    command = [sys.executable, "-m", "tests.bench.sink"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            ports = process.stdout.readline().split()
            yield Sink(*(f"127.0.0.1:{int(port)}" for port in ports))
        finally:
            process.terminate()


if __name__ == "__main__":
    asyncio.run(_serve())
