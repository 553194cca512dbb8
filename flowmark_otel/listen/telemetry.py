"""What a server says of itself, on an address of its own: metrics and health, without a key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from flowmark_otel.errors import ConfigurationError
from flowmark_otel.listen import health
from flowmark_otel.listen.health import Ready
from flowmark_otel.listen.serving import HttpServer, cannot_bind, listen, shown

Page: TypeAlias = Callable[[bool], tuple[bytes, str]]
"""From whether requests can be taken now to the metrics page and its content type."""


class Telemetry:
    """Serves ``/metrics``, ``/healthz``, ``/readyz`` and ``more`` on the loop that starts it.

    ``address`` is ``HOST:PORT``, port 0 for any free one; read it after the start. ``page`` is
    called in a thread.
    """

    def __init__(
        self, address: str, page: Page, ready: Ready, more: Sequence[BaseRoute] = ()
    ) -> None:
        self.address = address
        self._page = page
        self._ready = ready
        self._more = more
        self._http: HttpServer | None = None

    async def start(self) -> None:
        """Bind and serve; raises ConfigurationError where the address cannot be had."""
        try:
            listening = listen(self.address)
        except OSError as error:
            raise ConfigurationError([cannot_bind("metrics", self.address, error)]) from error
        self.address = shown(self.address, listening.getsockname()[1])
        routes = [Route("/metrics", self._metrics), *health.routes(self._ready), *self._more]
        self._http = HttpServer(Starlette(routes=routes), listening, None)
        await self._http.start()

    async def stop(self) -> None:
        """Stop listening."""
        if self._http is not None:
            await self._http.stop()
            self._http = None

    async def _metrics(self, _request: Request) -> Response:
        ready = not await self._ready()
        page, kind = await asyncio.to_thread(self._page, ready)
        return Response(page, headers={"content-type": kind})
