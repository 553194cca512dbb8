"""The same service over WSGI and ASGI: a request records the run that its path names."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import flowmark_otel as flowmark
from tests.support.process_apps.record import record, say_hooks


def application(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """Serve over WSGI."""
    body = record(environ["PATH_INFO"].strip("/")).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


async def asgi(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Serve over ASGI; at its end it flushes if it is told to."""
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown" and os.environ.get("FLUSH_AT_THE_END"):
                say_hooks()
                await asyncio.to_thread(flowmark.flush, 5)
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    body = record(scope["path"].strip("/")).encode()
    length = str(len(body)).encode()
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]}
    )
    await send({"type": "http.response.body", "body": body})
