"""Under which names a server without authentication answers: those of loopback (DNS rebinding).

A page of another site can have its name lead to 127.0.0.1, and is then of the same origin as a
server there: where no key is asked for, only the name in ``Host`` tells such a page from ours.
"""

from __future__ import annotations

import ipaddress
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_FOR_PROGRAMS: Final = ("/v1/", "/healthz", "/readyz")
_LOCAL: Final = "localhost"
_SAID: Final = (
    "this server asks for no key, so it answers under the names of loopback only: open it as"
    " localhost or 127.0.0.1, or serve it with keys"
)


class LoopbackNames:
    """Refuses requests under any other name with 403.

    Programs send OTLP under the name of whatever forwards to this server, so there only what a
    browser sent is refused: a request with an ``Origin``.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http" and not _allowed(scope):
            error = {"code": "permission_denied", "message": _SAID}
            answer = JSONResponse({"error": error}, HTTPStatus.FORBIDDEN)
            await answer(scope, receive, send)
            return
        await self.app(scope, receive, send)


def _allowed(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    if scope["path"].startswith(_FOR_PROGRAMS) and "origin" not in headers:
        return True
    return is_loopback_name(headers.get("host", ""))


def is_loopback_name(host: str) -> bool:
    """Whether ``NAME`` or ``NAME:PORT`` is ``localhost``, a name below it, or such an address."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    name = name.removesuffix(".")
    if name == _LOCAL or name.endswith(f".{_LOCAL}"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
