"""The proxy as ASGI middleware, or as an application of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from typing_extensions import Unpack

from flowmark_otel.errors import RequestError, Unavailable
from flowmark_otel.proxy.answer import Answer, refused
from flowmark_otel.proxy.decide import PATHS, Head, check_head, method_refused, too_large
from flowmark_otel.proxy.forward import Forwarder
from flowmark_otel.proxy.settings import ProxySettings, options_from

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class AsgiProxy:
    """Forwards ``/v1/traces`` and ``/v1/logs`` of pages to the backend with the server's key.

    ``app`` answers every other path; without it they are 404. ``settings`` as in
    ``config.ProxyOptions``. Runs on asyncio; nothing in it blocks the loop. Raises
    ConfigurationError with every fault of the settings.
    """

    def __init__(self, app: AsgiApp | None = None, **settings: Unpack[ProxySettings]) -> None:
        options = options_from(settings)
        self._app = app or _nothing
        self._limit = options.max_request_bytes
        self._paths = {options.prefix_path + path: path for path in PATHS}
        self._forwarder = Forwarder(options)

    def close(self) -> None:
        """Wait for what is being forwarded, then end threads and connections."""
        self._forwarder.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection of the server."""
        path = self._paths.get(_path(scope)) if scope["type"] == "http" else None
        if path is None:
            await self._app(scope, receive, send)
            return
        head = _head(scope)
        try:
            answer = method_refused(head) or await self._answer(path, head, receive)
        except RequestError as error:
            answer = refused(error, head.kind)
        if answer is not None:
            await _send(send, answer)

    async def _answer(self, path: str, head: Head, receive: Receive) -> Answer | None:
        """The answer, None where nobody waits for it any more. Raises RequestError."""
        check_head(head, self._limit)
        seconds = self._forwarder.seconds
        try:
            body = await asyncio.wait_for(self._body(receive), seconds)
        except asyncio.TimeoutError as error:
            msg = f"the request did not arrive within {seconds:g} seconds"
            raise Unavailable(msg) from error
        if body is None:
            return None
        answering = self._forwarder.submit(path, head.kind, body, zipped=head.zipped)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(answering), seconds)
        except asyncio.TimeoutError:
            return self._forwarder.late(head.kind)

    async def _body(self, receive: Receive) -> bytes | None:
        parts: list[bytes] = []
        room = self._limit
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            part: bytes = message.get("body", b"")
            room -= len(part)
            if room < 0:
                raise too_large(self._limit)
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)


def _path(scope: Scope) -> str:
    """The path below where this is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def _head(scope: Scope) -> Head:
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        # Two values are none that any rule accepts.
        headers[name] = headers[name] + b", " + value if name in headers else value

    def text(name: bytes) -> str:
        return headers.get(name, b"").decode("latin-1")

    length = text(b"content-length")
    return Head(
        scope["method"],
        text(b"content-type"),
        text(b"content-encoding"),
        int(length) if length.isdecimal() and length.isascii() else None,
        text(b"sec-fetch-site"),
    )


async def _send(send: Send, answer: Answer) -> None:
    headers = [(name.encode(), value.encode()) for name, value in answer.all_headers()]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """The application where none is given: 404, and a lifespan in which nothing happens."""
    if scope["type"] == "http":
        await _send(send, Answer(404, "text/plain", b"there is nothing at this path\n"))
    elif scope["type"] == "lifespan":
        for stage in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{stage}.complete"})
    else:
        await send({"type": "websocket.close"})
