"""The same-origin proxy in real servers on loopback, ASGI and WSGI, and scripted backends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from flowmark_otel.proxy import AsgiProxy, WsgiProxy
from tests.support.loop import loop_thread

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

PAGE: Final = b"a page of the shop"


@contextmanager
def asgi(pages: Callable[[str], str] | None = None, **settings: Any) -> Iterator[str]:
    """``HOST:PORT`` of uvicorn with a site behind the proxy; ``pages`` makes its pages."""

    async def page(request: Request) -> PlainTextResponse:
        if pages is None:
            return PlainTextResponse(PAGE)
        kind = "text/javascript" if request.url.path.endswith(".js") else "text/html"
        return PlainTextResponse(pages(request.url.path), media_type=kind)

    site = Starlette(routes=[Route("/{path:path}", page)])
    proxy = AsgiProxy(site, **settings)
    config = uvicorn.Config(proxy, port=0, lifespan="off", log_config=None, loop="asyncio")
    server = uvicorn.Server(config)

    async def start() -> str:
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        host, port = server.servers[0].sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    with loop_thread() as loop:
        try:
            yield loop.run(start())
        finally:
            server.should_exit = True
            loop.run(asyncio.wait_for(server.shutdown(), 10))
            proxy.close()


class _Threading(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_args: object) -> None:
        """Nothing is printed."""


@contextmanager
def wsgi(**settings: Any) -> Iterator[str]:
    """``HOST:PORT`` of wsgiref's server with a site behind the proxy."""

    def site(_environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        start_response("200 OK", [("content-type", "text/plain")])
        return [PAGE]

    proxy = WsgiProxy(site, **settings)
    server = make_server("127.0.0.1", 0, proxy, server_class=_Threading, handler_class=_Quiet)
    with _threaded(server) as address:
        yield address
    proxy.close()


class Sent(NamedTuple):
    """A request as a backend got it, header names in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes


class Said(NamedTuple):
    """What a scripted backend answers."""

    status: int
    headers: dict[str, str]
    body: bytes = b""


@contextmanager
def scripted(say: Callable[[Sent], Said]) -> Iterator[str]:
    """The address of a backend that answers what it is told to."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            said = say(Sent(self.path, headers, body))
            self.send_response(said.status)
            for name, value in (said.headers | {"content-length": str(len(said.body))}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said.body)

        def log_message(self, *_args: object) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with _threaded(server) as address:
        yield f"http://{address}"


@contextmanager
def _threaded(server: Any) -> Iterator[str]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        host, port = server.server_address[:2]
        yield f"{host}:{port}"
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
