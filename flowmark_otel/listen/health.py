"""``/healthz``, ``/readyz`` and the gRPC health service: health without data, in step.

Alive is whoever answers. Ready is asked anew by whoever asks: nothing is probed for nobody. Only a
``Watch`` asks by itself, every ``WATCH_SECONDS`` while there is a watcher.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio as aio_health
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

Ready: TypeAlias = Callable[[], Awaitable[str]]
"""Why requests cannot be taken now, in words that anybody may read; empty where they can."""

WATCH_SECONDS: Final = 2.0

_Status = health_pb2.HealthCheckResponse.ServingStatus
_Context = grpc.aio.ServicerContext[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse]


def routes(ready: Ready) -> list[BaseRoute]:
    """Alive is whoever answers; ready says whether requests can be taken now (200 or 503)."""

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_request: Request) -> Response:
        reason = await ready()
        return _not_ready(reason) if reason else PlainTextResponse("ready\n")

    return [Route("/healthz", healthz), Route("/readyz", readyz)]


def _not_ready(reason: str) -> Response:
    return PlainTextResponse(f"not ready: {reason}\n", 503, {"retry-after": "1"})


class Health(aio_health.HealthServicer):  # type: ignore[misc]  # untyped
    """The standard service: answers for ``services`` what ``/readyz`` answers.

    ``""`` stands for the server. Another service is NOT_FOUND, as the standard wants it.
    """

    def __init__(self, ready: Ready, services: tuple[str, ...]) -> None:
        super().__init__()
        self._ready = ready
        self._services = services
        self._draining = False

    async def Check(  # noqa: N802  the protocol's name
        self, request: health_pb2.HealthCheckRequest, context: _Context
    ) -> health_pb2.HealthCheckResponse:
        """One answer."""
        await self._ask()
        answer: health_pb2.HealthCheckResponse = await super().Check(request, context)
        return answer

    async def Watch(  # noqa: N802  the protocol's name
        self, request: health_pb2.HealthCheckRequest, context: _Context
    ) -> None:
        """Each change, while the caller listens."""
        await self._ask()
        asking = asyncio.create_task(self._keep_asking())
        try:
            await super().Watch(request, context)
        finally:
            asking.cancel()

    async def drain(self) -> None:
        """NOT_SERVING from now on."""
        self._draining = True
        await self.enter_graceful_shutdown()

    async def _keep_asking(self) -> None:
        while not self._draining:
            await asyncio.sleep(WATCH_SECONDS)
            await self._ask()

    async def _ask(self) -> None:
        if not self._draining:
            status = _Status.NOT_SERVING if await self._ready() else _Status.SERVING
            for service in self._services:
                await self.set(service, status)
