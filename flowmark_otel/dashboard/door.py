"""Signing in with a read key, and out."""

from __future__ import annotations

import contextlib
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from flowmark_otel.dashboard.guard import html, see_other
from flowmark_otel.dashboard.pages.frame import Frame, Link
from flowmark_otel.dashboard.pages.links import HOME, LOGIN, RUNS, own_path
from flowmark_otel.dashboard.pages.plain import LoginPage, MessagePage
from flowmark_otel.dashboard.session import COOKIE, Sessions, drop_cookie, own_site, set_cookie
from flowmark_otel.errors import Forbidden, Unauthenticated, Unavailable

_LONGEST_FORM: Final = 16_384
_REFUSED: Final = "Not accepted: this is no read key of this server."
_LATER: Final = "The keys cannot be read now. Try again in a moment."


class Door:
    """The sign-in form and what it posts; ``sessions`` is None where there is no authentication."""

    def __init__(self, sessions: Sessions | None) -> None:
        self._sessions = sessions

    def form(self, request: Request) -> Response:
        """The form; without authentication there is nothing to sign in to."""
        if self._sessions is None:
            return see_other(HOME)
        return html(LoginPage(Frame("Sign in"), own_path(request.query_params.get("next"))))

    async def sign_in(self, request: Request) -> Response:
        """Exchange a read key for a session cookie."""
        if self._sessions is None:
            return see_other(HOME)
        if not own_site(request):
            return _foreign()
        fields = await _form(request)
        if fields is None:
            return _too_large()
        onward = own_path(fields.get("next"))
        try:
            # Authentication reads the store, which must not hold up the event loop.
            token = await run_in_threadpool(self._sessions.open, fields.get("key", "").strip())
        except (Unauthenticated, Forbidden):
            page = LoginPage(Frame("Sign in"), onward, _REFUSED)
            return html(page, HTTPStatus.FORBIDDEN)
        except Unavailable:
            page = LoginPage(Frame("Sign in"), onward, _LATER)
            return html(page, HTTPStatus.SERVICE_UNAVAILABLE)
        with contextlib.suppress(Unavailable):
            # A browser keeps one cookie: the session that it parts with ends by itself in time.
            await run_in_threadpool(self._sessions.close, request.cookies.get(COOKIE))
        response = see_other(onward)
        set_cookie(response, request, token, self._sessions.lifetime)
        return response

    def sign_out(self, request: Request) -> Response:
        """End the session, here and in the browser."""
        if not own_site(request):
            return _foreign()
        response = see_other(LOGIN)
        if self._sessions is not None:
            try:
                self._sessions.close(request.cookies.get(COOKIE))
            except Unavailable:
                return _still_open()
            drop_cookie(response, request)
        return response


async def _form(request: Request) -> dict[str, str] | None:
    """The fields of a posted form, None where it is larger than any of ours."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LONGEST_FORM:
            return None
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {name: values[0] for name, values in fields.items()}


def _foreign() -> Response:
    text = "This was asked by a page of another site."
    page = MessagePage(Frame("Refused"), "Refused", text, Link("All runs", RUNS))
    return html(page, HTTPStatus.FORBIDDEN)


def _still_open() -> Response:
    text = "Not signed out: the store cannot be written now. Try again in a moment."
    page = MessagePage(Frame("Not to be had now"), "Not to be had now", text, Link("Back", RUNS))
    return html(page, HTTPStatus.SERVICE_UNAVAILABLE)


def _too_large() -> Response:
    page = MessagePage(Frame("Refused"), "Refused", "That form is too large.", Link("Back", LOGIN))
    return html(page, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
