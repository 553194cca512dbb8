"""The two servers of a backend or collector, on the loop that starts them.

Build order: bind gRPC, bind HTTP, serve both. Shutdown order: report unhealthy, stop
listening, let requests in flight finish within a bound, cancel the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
import uvicorn
from starlette.applications import Starlette

from flowmark_otel.config import split_address
from flowmark_otel.errors import ConfigurationError
from flowmark_otel.listen.connections import BoundedProtocol
from flowmark_otel.listen.grpc import new_server
from flowmark_otel.listen.health import Health, Ready
from flowmark_otel.listen.intake import Intake

GRACE_SECONDS: Final = 8.0
_BACKLOG: Final = 512


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificate chain and private key, PEM files."""

    certificate: Path
    key: Path


class Listeners:
    """Serves one intake over gRPC and one application over HTTP.

    ``grpc_address`` and ``http_address`` are ``HOST:PORT``, port 0 for any free one; None is not
    served. ``shared``: other processes may listen on the same ports. ``ready`` is what the gRPC
    health service answers. Owns both sockets and the task that runs uvicorn.
    """

    def __init__(  # noqa: PLR0913  by keyword, each an addition to the two that are served
        self,
        intake: Intake,
        app: Starlette,
        *,
        grpc_address: str | None,
        http_address: str | None,
        tls: Tls | None = None,
        ready: Ready | None = None,
        shared: bool = False,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    ) -> None:
        self._intake = intake
        self._app = app
        self._tls = tls
        self._ready = ready or _always
        self._shared = shared
        self._interceptors = interceptors
        self._asked = (grpc_address, http_address)
        self._grpc: grpc.aio.Server | None = None
        self._health: Health | None = None
        self._http: HttpServer | None = None
        self.grpc_address = ""
        self.http_address = ""

    async def start(self) -> None:
        """Bind and serve.

        Raises ConfigurationError naming every address that cannot be bound, or the certificate.
        """
        grpc_asked, http_asked = self._asked
        if self._tls is not None:
            _check(self._tls)
        faults: list[str] = []
        if grpc_asked is not None:
            self._grpc, self._health = new_server(
                self._intake, self._ready, shared=self._shared, interceptors=self._interceptors
            )
            try:
                self.grpc_address = self._bind_grpc(self._grpc, grpc_asked)
            except (RuntimeError, OSError):
                faults.append(cannot_bind("grpc", grpc_asked, _fault_of(grpc_asked)))
        if http_asked is not None:
            try:
                listening = listen(http_asked, shared=self._shared)
            except OSError as error:
                faults.append(cannot_bind("http", http_asked, error))
                raise ConfigurationError(faults) from error
            if faults:
                listening.close()
            else:
                self.http_address = shown(http_asked, listening.getsockname()[1])
                self._http = HttpServer(self._app, listening, self._tls)
        if faults:
            raise ConfigurationError(faults)
        if self._http is not None:
            await self._http.start()
        if self._grpc is not None:
            await self._grpc.start()

    async def stop(self) -> None:
        """Stop listening and finish what is in flight, within ``GRACE_SECONDS``."""
        stopping = []
        if self._health is not None:
            await self._health.drain()
        if self._http is not None:
            stopping.append(self._http.stop())
        if self._grpc is not None:
            stopping.append(self._grpc.stop(GRACE_SECONDS))
        await asyncio.gather(*stopping)
        self._http = self._grpc = self._health = None

    def _bind_grpc(self, server: grpc.aio.Server, address: str) -> str:
        if self._tls is None:
            port = server.add_insecure_port(address)
        else:
            pair = (self._tls.key.read_bytes(), self._tls.certificate.read_bytes())
            port = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        if port == 0:
            raise OSError
        return shown(address, port)


class HttpServer(uvicorn.Server):
    """uvicorn as a part: on a bound socket, on the loop of its caller, without signal handlers."""

    def __init__(self, app: Starlette, listening: socket.socket, tls: Tls | None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=BoundedProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=int(GRACE_SECONDS),
                ssl_certfile=None if tls is None else str(tls.certificate),
                ssl_keyfile=None if tls is None else str(tls.key),
            )
        )
        self._listening = listening
        self._ticking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve from now on."""
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.startup(sockets=[self._listening])
        self._ticking = asyncio.create_task(self.main_loop())

    async def stop(self) -> None:
        """Close idle connections, wait for the others, cancel what outlasts the bound."""
        self.should_exit = True
        if self._ticking is not None:
            await self._ticking
            await self.shutdown(sockets=[self._listening])

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the program."""
        yield


def _check(tls: Tls) -> None:
    """Load the pair, since grpc says of a bad one only that the address cannot be bound."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key)
    except (ssl.SSLError, OSError) as error:
        raise ConfigurationError([f"tls_cert or tls_key cannot be used: {error}"]) from error


async def _always() -> str:
    return ""


def listen(address: str, *, shared: bool = False) -> socket.socket:
    """A socket that listens at ``HOST:PORT``; raises OSError.

    ``shared``: other sockets of this user that are shared too may listen there.
    """
    host, port = split_address(address)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, where = found[0]
    listening = socket.create_server(where[:2], family=family, backlog=_BACKLOG, reuse_port=shared)
    # Accepted connections inherit it. asyncio sets it only where a socket names its protocol; an
    # answer written in two pieces then waits 40 ms for the peer's delayed acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def shown(address: str, port: int) -> str:
    """The address with the port that it was given."""
    return f"{address.rpartition(':')[0]}:{port}"


def _fault_of(address: str) -> OSError:
    """What the system says against an address; gRPC itself keeps it to its log."""
    try:
        listen(address).close()
    except OSError as error:
        return error
    return OSError(0, "refused by gRPC")


def cannot_bind(name: str, address: str, error: OSError) -> str:
    """What is said of an address that cannot be had, with the mend."""
    # asyncio and socket add words of their own to what the system says.
    code = error.errno or 0
    reason = os.strerror(code) if code > 0 else error.strerror or str(error)
    return f"{name} {address} cannot be bound ({reason}): choose another port, or 0 for a free one"
