"""The dashboard's routes. Build order: guard, answers, routes; nothing to shut down."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from flowmark_otel.backend.read import Reader
from flowmark_otel.clock import Clock, SystemClock
from flowmark_otel.dashboard.answers import Answers
from flowmark_otel.dashboard.door import Door
from flowmark_otel.dashboard.guard import Guard, see_other
from flowmark_otel.dashboard.headers import SecurityHeaders
from flowmark_otel.dashboard.pages.links import LOGIN, LOGOUT, RUNS
from flowmark_otel.dashboard.pages.records import Viewer, no_viewer
from flowmark_otel.dashboard.session import Sessions
from flowmark_otel.model import Principal

_STATIC: Final = Path(__file__).parent / "static"
_HEADERS: Final = [Middleware(SecurityHeaders)]


def routes(
    reader: Reader,
    sessions: Sessions,
    *,
    anyone: Principal | None = None,
    trace_url: str | None = None,
    clock: Clock | None = None,
) -> list[BaseRoute]:
    """The routes of the dashboard (contract, sections 4 and 5).

    ``anyone``: for whom everybody reads, so that nobody is asked to sign in; None where reading
    takes a key. ``trace_url``: a trace viewer's address with ``{trace_id}`` and ``{span_id}``.
    """
    time = clock or SystemClock()
    guard = Guard(sessions, anyone)
    answers = Answers(reader, guard, time, _viewer(trace_url))
    door = Door(None if anyone else sessions)
    page, json = guard.page, guard.json
    return [
        _route("/", _home),
        _route(f"{RUNS}.json", json(answers.runs_json)),
        _route(RUNS, page(answers.runs)),
        _route(f"{RUNS}/{{key}}/attempts.json", json(answers.attempts_json)),
        _route(f"{RUNS}/{{key}}/operations.json", json(answers.operations_json)),
        _route(f"{RUNS}/{{key}}/events.json", json(answers.events_json)),
        _route(f"{RUNS}/{{key}}/events", page(answers.events)),
        _route(f"{RUNS}/{{key}}.json", json(answers.run_json)),
        _route(f"{RUNS}/{{key}}", page(answers.run)),
        _route("/trace/{trace_id}", page(answers.trace)),
        _route(LOGIN, door.form),
        Route(LOGIN, door.sign_in, methods=["POST"], middleware=_HEADERS),
        Route(LOGOUT, door.sign_out, methods=["POST"], middleware=_HEADERS),
        Mount("/static", StaticFiles(directory=_STATIC), middleware=_HEADERS),
    ]


def _route(path: str, endpoint: Callable[[Request], Response]) -> Route:
    return Route(path, endpoint, methods=["GET"], middleware=_HEADERS)


def _home(_request: Request) -> Response:
    return see_other(RUNS)


def _viewer(template: str | None) -> Viewer:
    """Addresses of a configured viewer; ids are hex, so the address keeps its shape."""
    if template is None or not template.startswith(("http://", "https://")):
        return no_viewer
    return lambda trace_id, span_id: template.replace("{trace_id}", trace_id).replace(
        "{span_id}", span_id
    )
