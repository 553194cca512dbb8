"""The security headers of every answer of the dashboard (reliability, "Security")."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SELF: Final = ("script-src", "style-src", "img-src", "font-src", "connect-src", "form-action")

POLICY: Final = (
    "default-src 'none'; "
    + "".join(f"{name} 'self'; " for name in _SELF)
    + "frame-ancestors 'none'; base-uri 'none'"
)

HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class SecurityHeaders:
    """Adds the headers to whatever the application behind it answers."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; its answer gets the headers."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        try:
            await self.app(scope, receive, with_headers)
        except HTTPException as error:
            # Answered here: whoever answers further out would leave the headers off.
            answer = PlainTextResponse(error.detail, error.status_code, error.headers)
            await answer(scope, receive, with_headers)
