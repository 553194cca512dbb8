"""Cross-origin requests of pages: off by default, exact origins, no credentials (A20).

Cookies and client certificates are never asked for: a page sends a browser key, which its visitor
can read anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

_PATHS: Final = frozenset(("/v1/traces", "/v1/logs"))
_REMEMBERED_SECONDS: Final = 600


class PagesMaySend(CORSMiddleware):
    """Lets pages of some origins send to the paths of OTLP, and read what became of it.

    ``pages`` is asked with each request that names an origin; where it gives none the application
    answers as it would without this.
    """

    def __init__(self, app: ASGIApp, pages: Callable[[], Collection[str]]) -> None:
        super().__init__(
            app,
            allow_methods=("POST",),
            allow_headers=("authorization", "content-encoding", "content-type"),
            allow_credentials=False,
            expose_headers=("retry-after",),
            max_age=_REMEMBERED_SECONDS,
        )
        self._pages = pages

    def is_allowed_origin(self, origin: str) -> bool:
        """Whether pages of this origin may send: exactly one of those that keys name."""
        return origin in self._pages()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a preflight, or add to the answer of the application."""
        if scope["type"] == "http" and scope["path"] in _PATHS and self._pages():
            await super().__call__(scope, receive, send)
        else:
            await self.app(scope, receive, send)
