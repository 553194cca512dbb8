"""Signing in with a read key, and out."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from flowmark_otel.dashboard import project, words
from flowmark_otel.dashboard.guard import Guard, html, see_other
from flowmark_otel.dashboard.pace import Pace
from flowmark_otel.dashboard.pages.frame import Frame, Link
from flowmark_otel.dashboard.pages.links import HOME, LOGIN, RUNS, own_path
from flowmark_otel.dashboard.pages.plain import LoginPage, MessagePage, ProjectsPage, ProjectWay
from flowmark_otel.dashboard.session import Sessions, drop_cookie, own_site, set_cookie, tokens
from flowmark_otel.errors import Forbidden, Unauthenticated, Unavailable
from flowmark_otel.model import Principal

_LONGEST_FORM: Final = 16_384
_REFUSED: Final = "Not accepted: this is no read key of this server."
_LATER: Final = "The keys cannot be read now. Try again in a moment."


class Door:
    """The sign-in form and what it posts; ``sessions`` is None where there is no authentication."""

    def __init__(self, sessions: Sessions | None, guard: Guard, pace: Pace) -> None:
        self._sessions = sessions
        self._guard = guard
        self._pace = pace

    def form(self, request: Request) -> Response:
        """The form; without authentication there is nothing to sign in to."""
        if self._sessions is None:
            return see_other(HOME)
        return html(_login(own_path(request.query_params.get("next"))))

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
        # Sessions are in the store, which must not hold up the event loop.
        return await run_in_threadpool(self._open, self._sessions, request, fields, onward)

    def _open(
        self, sessions: Sessions, request: Request, fields: Mapping[str, str], onward: str
    ) -> Response:
        address = request.client.host if request.client else ""
        wait = self._pace.wait(address)
        if wait:
            return _too_often(wait)
        try:
            token = sessions.open(fields.get("key", "").strip())
            opened = sessions.principal(token).project
        except (Unauthenticated, Forbidden):
            self._pace.wrong(address)
            return html(_login(onward, _REFUSED), HTTPStatus.FORBIDDEN)
        except Unavailable:
            return html(_login(onward, _LATER), HTTPStatus.SERVICE_UNAVAILABLE)
        others = [other for other in tokens(request) if self._stays(sessions, other, opened)]
        response = see_other(onward)
        set_cookie(response, request, [token, *others], sessions.lifetime)
        return response

    @staticmethod
    def _stays(sessions: Sessions, token: str, opened: str) -> bool:
        """Whether a session goes on beside a new one of a project; ends it where not."""
        try:
            if sessions.principal(token).project != opened:
                return True
            sessions.close(token)
        except (Unauthenticated, Forbidden):
            return False
        except Unavailable:
            return True  # it ends by itself in time
        return False

    def sign_out(self, request: Request) -> Response:
        """End all sessions of the browser, here and there."""
        if not own_site(request):
            return _foreign()
        response = see_other(LOGIN)
        if self._sessions is not None:
            try:
                for token in tokens(request):
                    self._sessions.close(token)
            except Unavailable:
                return _still_open()
            drop_cookie(response, request)
        return response

    # -- several projects -------------------------------------------------------------------------

    def projects(self, request: Request, principal: Principal) -> Response:
        """The projects that this browser has signed in to, and the way to another."""
        frame = self._guard.frame(principal, "Projects")
        ways = (
            ProjectWay(name, f"{project.base(name)}{HOME}", name == principal.project)
            for name in self._signed_in(request)
        )
        return html(ProjectsPage(frame, tuple(ways)))

    def _signed_in(self, request: Request) -> list[str]:
        """The projects of the browser, in the order of the cookie."""
        found: list[str] = []
        for token in tokens(request):
            with contextlib.suppress(Unauthenticated, Forbidden):
                if self._sessions is not None:
                    found.append(self._sessions.principal(token).project)
        return found


async def _form(request: Request) -> dict[str, str] | None:
    """The fields of a posted form, None where it is larger than any of ours."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LONGEST_FORM:
            return None
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {name: values[0] for name, values in fields.items()}


def _login(onward: str, error: str | None = None) -> LoginPage:
    return LoginPage(Frame("Sign in"), onward, error, project.of_path(onward))


def _foreign() -> Response:
    text = "This was asked by a page of another site."
    page = MessagePage(Frame("Refused"), "Refused", text, Link("All runs", RUNS))
    return html(page, HTTPStatus.FORBIDDEN)


def _too_often(wait: int) -> Response:
    text = (
        "Too many wrong keys were sent from this address, or from all together."
        f" Try again in {words.several(wait, 'second')}."
    )
    page = MessagePage(Frame("Not now"), "Too many tries", text, Link("Sign in", LOGIN))
    response = html(page, HTTPStatus.TOO_MANY_REQUESTS)
    response.headers["Retry-After"] = str(wait)
    return response


def _still_open() -> Response:
    text = "Not signed out: the store cannot be written now. Try again in a moment."
    page = MessagePage(Frame("Not to be had now"), "Not to be had now", text, Link("Back", RUNS))
    return html(page, HTTPStatus.SERVICE_UNAVAILABLE)


def _too_large() -> Response:
    page = MessagePage(Frame("Refused"), "Refused", "That form is too large.", Link("Back", LOGIN))
    return html(page, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
