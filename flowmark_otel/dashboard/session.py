"""Who has signed in: an opaque cookie for a read key, held in this process's memory only.

A session keeps the key it was opened with and every request authenticates it again, so a revoked
or expired key ends its sessions at once. The cookie is HttpOnly and SameSite=Strict; what is
stored is a digest of it.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from flowmark_otel import names
from flowmark_otel.clock import Clock
from flowmark_otel.errors import Forbidden, Unauthenticated
from flowmark_otel.model import Principal

COOKIE: Final = "flowmark_session"
LIFETIME: Final = 12 * 60 * 60
"""Seconds after which one has to sign in again."""

_MOST: Final = 1_000
_MAY_READ: Final = frozenset({names.KEY_READ, names.KEY_ADMIN})
_OWN_SITE: Final = frozenset({"same-origin", "none"})


Authenticate: TypeAlias = Callable[[str | None], Principal]
"""From the value of an ``authorization`` header, None without one, to whom it stands for."""


class _Session(NamedTuple):
    authorization: str
    ends: float


class Sessions:
    """All sessions of this process, at most a thousand: the oldest make room."""

    def __init__(self, authenticate: Authenticate, clock: Clock) -> None:
        self._authenticate = authenticate
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()  # owned by the lock

    def open(self, key: str) -> str:
        """Sign in with a read key and return the value of the cookie.

        Raises Unauthenticated, or Forbidden where the key is not one for reading.
        """
        authorization = f"Bearer {key}"
        self._principal(authorization)
        token = secrets.token_urlsafe(32)
        with self._lock:
            while len(self._sessions) >= _MOST:
                self._sessions.popitem(last=False)
            ends = self._clock.monotonic() + LIFETIME
            self._sessions[_digest(token)] = _Session(authorization, ends)
        return token

    def principal(self, token: str | None) -> Principal:
        """Whom a cookie stands for. Raises Unauthenticated or Forbidden."""
        with self._lock:
            session = self._sessions.get(_digest(token)) if token else None
        if session is None or session.ends <= self._clock.monotonic():
            self.close(token)
            msg = "not signed in"
            raise Unauthenticated(msg)
        try:
            return self._principal(session.authorization)
        except (Unauthenticated, Forbidden):
            self.close(token)
            raise

    def close(self, token: str | None) -> None:
        """Sign out; nothing if not signed in."""
        if token:
            with self._lock:
                self._sessions.pop(_digest(token), None)

    def _principal(self, authorization: str) -> Principal:
        principal = self._authenticate(authorization)
        if principal.kind not in _MAY_READ:
            msg = "not a key for reading"
            raise Forbidden(msg)
        return principal


def set_cookie(response: Response, request: Request, token: str) -> None:
    """Give the browser its session; Secure under TLS."""
    response.set_cookie(
        COOKIE,
        token,
        max_age=LIFETIME,
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


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
