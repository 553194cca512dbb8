"""``/healthz`` and ``/readyz``: health without data, for whoever restarts or routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route


def routes(ready: Callable[[], Awaitable[bool]]) -> list[BaseRoute]:
    """Alive is whoever answers; ready says whether requests can be taken now (200 or 503)."""

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_request: Request) -> Response:
        return PlainTextResponse("ready\n") if await ready() else _not_ready()

    return [Route("/healthz", healthz), Route("/readyz", readyz)]


def _not_ready() -> Response:
    return PlainTextResponse("not ready\n", 503, {"retry-after": "1"})
