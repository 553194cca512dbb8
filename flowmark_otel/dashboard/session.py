"""The dashboard's sessions: what it asks of whoever keeps them, and the cookie.

The cookie is HttpOnly and SameSite=Strict. It holds the sessions of several projects, the one that
is looked at first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from flowmark_otel.model import Principal

COOKIE: Final = "flowmark_session"
MOST: Final = 8
"""Sessions of one browser; the one that was looked at longest ago gives way."""

_BETWEEN: Final = "."  # in no token
_OWN_SITE: Final = frozenset({"same-origin", "none"})


class Sessions(Protocol):
    """Who has signed in; all methods wait for the store and raise Unavailable where it cannot."""

    @property
    def lifetime(self) -> int:
        """Seconds after which one has to sign in again."""
        ...

    def open(self, key: str) -> str:
        """Sign in with a read key and return the value of the cookie.

        Raises Unauthenticated, or Forbidden where the key is not one for reading.
        """
        ...

    def principal(self, token: str | None) -> Principal:
        """Whom a cookie stands for. Raises Unauthenticated or Forbidden."""
        ...

    def close(self, token: str | None) -> None:
        """Sign out; nothing if not signed in."""
        ...


def tokens(request: Request) -> tuple[str, ...]:
    """The sessions of a browser, the one that is looked at first."""
    found = request.cookies.get(COOKIE, "").split(_BETWEEN)[:MOST]
    return tuple(token for token in found if token)


def set_cookie(
    response: Response, request: Request, sessions: Sequence[str], lifetime: int
) -> None:
    """Give the browser its sessions; Secure under TLS."""
    response.set_cookie(
        COOKIE,
        _BETWEEN.join(sessions[:MOST]),
        max_age=lifetime,
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def drop_cookie(response: Response, request: Request) -> None:
    """Take the session from the browser."""
    response.delete_cookie(
        COOKIE,
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def own_site(request: Request) -> bool:
    """Whether a request that changes something comes from our own pages.

    By Sec-Fetch-Site, by Origin where a browser does not send it; a client that sends neither is
    no browser and carries no cookie that it was not given.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in _OWN_SITE
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")
