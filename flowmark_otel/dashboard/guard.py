"""Who is asking, and what is answered where there is no page: sign in, not found, not now."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from flowmark_otel.backend.read import BadParameter, NotFound
from flowmark_otel.backend.views import Arrival
from flowmark_otel.dashboard import project
from flowmark_otel.dashboard.pages.foot import foot
from flowmark_otel.dashboard.pages.frame import Asking, Foot, Frame, Link, Page
from flowmark_otel.dashboard.pages.links import LOGIN, RUNS, query
from flowmark_otel.dashboard.pages.plain import HopPage, MessagePage
from flowmark_otel.dashboard.render import render
from flowmark_otel.dashboard.session import COOKIE, Sessions, tokens
from flowmark_otel.errors import FlowmarkError, Forbidden, Unauthenticated, Unavailable
from flowmark_otel.model import Principal

Handler: TypeAlias = Callable[[Request, Principal], Response]
Endpoint: TypeAlias = Callable[[Request], Response]


class _Known(NamedTuple):
    """How an error is answered: to programs by ``code``, to people under ``heading``."""

    status: HTTPStatus
    code: str
    heading: str


_STATUS: Final[dict[type[FlowmarkError], _Known]] = {
    NotFound: _Known(HTTPStatus.NOT_FOUND, "not_found", "Not found"),
    BadParameter: _Known(HTTPStatus.BAD_REQUEST, "bad_parameter", "This address cannot be read"),
    Unavailable: _Known(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "Not to be had now"),
}


def html(page: Page, status: HTTPStatus = HTTPStatus.OK) -> HTMLResponse:
    """A page as an answer."""
    return HTMLResponse(render(page), status_code=status)


def see_other(path: str) -> RedirectResponse:
    """Go on to another page with GET."""
    return RedirectResponse(path, status_code=HTTPStatus.SEE_OTHER)


class Guard:
    """Lets a request through to its handler with the principal it reads for."""

    def __init__(
        self,
        sessions: Sessions,
        insecure: Principal | None,
        latest: Callable[[int], Arrival],
    ) -> None:
        self._sessions = sessions
        self._insecure = insecure
        self._latest = latest

    def principal(self, request: Request) -> Principal:
        """Who is asking, of the project that the address names. Raises Unauthenticated."""
        for principal in self._principals(request):
            return principal
        msg = "not signed in"
        raise Unauthenticated(msg)

    def _principals(self, request: Request) -> Iterator[Principal]:
        """Whom a browser's sessions stand for, the one of the latest sign-in first.

        A project that is not there and one of others are alike: there is no session of it.
        """
        if self._insecure is not None:
            yield self._insecure
            return
        wanted = project.named(request)
        for token in tokens(request):
            with contextlib.suppress(Unauthenticated, Forbidden):
                # One of several may have ended; the next project is better than no page.
                principal = self._sessions.principal(token)
                if wanted in (None, principal.project):
                    yield principal

    def page(self, handler: Handler) -> Endpoint:
        """An endpoint for people: whoever has no session is led to the sign-in and back."""

        def endpoint(request: Request) -> Response:
            try:
                if self._insecure is None and project.named(request) is None:
                    return self._in_project(handler, request)
                principal = self.principal(request)
            except (Unauthenticated, Forbidden):
                return self._sign_in(request)
            except Unavailable as error:
                return _message(error, Frame(_STATUS[Unavailable].heading))
            try:
                return handler(request, principal)
            except (NotFound, BadParameter, Unavailable) as error:
                return _message(error, self.frame(principal, _STATUS[type(error)].heading))

        return endpoint

    def _in_project(self, handler: Handler, request: Request) -> Response:
        """On to the same address with its project, which can then be shared.

        Of a run or a trace it is the first of the reader's projects that has it.
        """
        chosen = self.principal(request)
        if request.path_params:
            for principal in self._principals(request):
                with contextlib.suppress(NotFound, BadParameter):
                    handler(request, principal)
                    chosen = principal
                    break
        return see_other(f"{self.base(chosen)}{project.here(request)}")

    def base(self, principal: Principal) -> str:
        """What the addresses begin with that a principal is led to; empty without sessions."""
        return "" if self._insecure is not None else project.base(principal.project)

    def json(self, handler: Handler) -> Endpoint:
        """An endpoint for programs and for the link "This page as JSON"."""

        def endpoint(request: Request) -> Response:
            try:
                return handler(request, self.principal(request))
            except (Unauthenticated, Forbidden):
                return _error(HTTPStatus.UNAUTHORIZED, "unauthenticated", "sign in first")
            except (NotFound, BadParameter, Unavailable) as error:
                known = _STATUS[type(error)]
                return _later(_error(known.status, known.code, str(error)), error)

        return endpoint

    def frame(  # noqa: PLR0913  the parts of a frame
        self,
        principal: Principal,
        title: str,
        *,
        json: str | None = None,
        csv: str | None = None,
        current: str | None = None,
        tab: str = "runs",
        carry: str = "",
        asks: Asking | None = None,
    ) -> Frame:
        """The frame of a page that a principal sees."""
        return Frame(
            title,
            project=principal.project,
            session=self._insecure is None,
            base=self.base(principal),
            current=current,
            json=json,
            csv=csv,
            tab=tab,
            carry=carry,
            foot=self._foot(principal),
            asks=asks,
        )

    def _foot(self, principal: Principal) -> Foot | None:
        """How far the evidence reaches; a page without that is better than none."""
        try:
            return foot(self._latest(principal.project_id))
        except Unavailable:
            return None

    def _sign_in(self, request: Request) -> Response:
        here = project.here(request)
        if COOKIE not in request.cookies and request.headers.get("sec-fetch-site") == "cross-site":
            # A SameSite=Strict cookie is kept back on a link from another site; the page that this
            # answer is asks again from our own.
            return html(HopPage(Frame("Opening"), here))
        return see_other(query(LOGIN, {"next": here}))


def _message(error: FlowmarkError, frame: Frame) -> Response:
    known = _STATUS[type(error)]
    page = MessagePage(frame, known.heading, f"{error}.", Link("All runs", RUNS))
    return _later(html(page, known.status), error)


def _error(status: HTTPStatus, code: str, message: str) -> JSONResponse:
    return JSONResponse({"error": {"code": code, "message": message}}, status_code=status)


def _later(response: Response, error: FlowmarkError) -> Response:
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(max(1, round(error.retry_after)))
    return response
