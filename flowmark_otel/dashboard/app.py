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
from flowmark_otel.dashboard.guard import Guard
from flowmark_otel.dashboard.headers import SecurityHeaders
from flowmark_otel.dashboard.lists import Lists
from flowmark_otel.dashboard.news import News
from flowmark_otel.dashboard.overall import About, Overall
from flowmark_otel.dashboard.pace import Pace
from flowmark_otel.dashboard.pages.links import (
    EVIDENCE,
    HOME,
    INGEST,
    LOGIN,
    LOGOUT,
    OVERVIEW,
    PROJECTS,
    RUNS,
)
from flowmark_otel.dashboard.pages.viewer import Viewer, no_viewer
from flowmark_otel.dashboard.project import PATH
from flowmark_otel.dashboard.proof import Proof
from flowmark_otel.dashboard.run_tables import RunTables
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
    about: About | None = None,
) -> list[BaseRoute]:
    """The routes of the dashboard (contract, sections 4 and 5).

    ``anyone``: for whom everybody reads, so that nobody is asked to sign in; None where reading
    takes a key. ``trace_url``: a trace viewer's address with ``{trace_id}`` and ``{span_id}``.
    ``about``: what the pages tell of the server itself.
    """
    time = clock or SystemClock()
    guard = Guard(sessions, anyone, reader.latest_arrival)
    lists = Lists(reader, guard, time)
    overall = Overall(reader, guard, time, about or About())
    answers = Answers(reader, guard, lists, _viewer(trace_url))
    proof = Proof(reader, guard, _viewer(trace_url))
    news = News(reader, time)
    door = Door(None if anyone else sessions, guard, Pace(time))
    page, json = guard.page, guard.json
    pages = [
        _route(HOME, page(overall.unless_empty(overall.overview))),
        _route(f"{OVERVIEW}.json", json(overall.overview_json)),
        _route(f"{OVERVIEW}.csv", page(overall.overview_csv)),
        _route(f"{OVERVIEW}/news", json(news.events)),
        _route(EVIDENCE, page(lists.evidence)),
        _route(f"{EVIDENCE}.json", json(lists.evidence_json)),
        _route(f"{EVIDENCE}.csv", page(lists.evidence_csv)),
        _route(f"{EVIDENCE}/news", json(news.items)),
        _route(INGEST, page(overall.ingest)),
        _route(f"{INGEST}.json", json(overall.ingest_json)),
        _route(f"{INGEST}.csv", page(overall.ingest_csv)),
        _route(f"{INGEST}/news", json(news.events)),
        _route(RUNS, page(overall.unless_empty(lists.runs))),
        _route(f"{RUNS}.json", json(lists.runs_json)),
        _route(f"{RUNS}.csv", page(lists.runs_csv)),
        _route(f"{RUNS}/news", json(news.runs)),
        _route(f"{RUNS}/{{key}}/news", json(news.run)),
        *_tables(RunTables(reader, proof), guard),
        _route(f"{RUNS}/{{key}}/attempts.json", json(answers.attempts_json)),
        _route(f"{RUNS}/{{key}}/operations.json", json(answers.operations_json)),
        _route(f"{RUNS}/{{key}}/events.json", json(answers.events_json)),
        _route(f"{RUNS}/{{key}}/events", page(answers.events)),
        _route(f"{RUNS}/{{key}}/group.json", json(proof.group_json)),
        _route(f"{RUNS}/{{key}}/group", page(proof.group)),
        _route(f"{RUNS}/{{key}}/attempt.json", json(proof.attempt_json)),
        _route(f"{RUNS}/{{key}}/attempt", page(proof.attempt)),
        _route(f"{RUNS}/{{key}}/occurrence.json", json(proof.occurrence_json)),
        _route(f"{RUNS}/{{key}}/occurrence", page(proof.occurrence)),
        _route(f"{RUNS}/{{key}}.json", json(answers.run_json)),
        _route(f"{RUNS}/{{key}}", page(answers.run)),
        _route("/trace/{trace_id}", page(answers.trace)),
        _route(PROJECTS, page(door.projects)),
    ]
    # Without keys there is one project, and nothing to tell it from.
    in_project = [] if anyone else [_route(f"{PATH}{one.path}", one.endpoint) for one in pages]
    return [
        *pages,
        *in_project,
        _route(LOGIN, door.form),
        Route(LOGIN, door.sign_in, methods=["POST"], middleware=_HEADERS),
        Route(LOGOUT, door.sign_out, methods=["POST"], middleware=_HEADERS),
        Mount("/static", StaticFiles(directory=_STATIC), middleware=_HEADERS),
    ]


def _tables(tables: RunTables, guard: Guard) -> list[Route]:
    """The tables of a run, each beside its page."""
    return [
        _route(f"{RUNS}/{{key}}.csv", guard.page(tables.run)),
        *(
            _route(f"{RUNS}/{{key}}/{name}.csv", guard.page(answer))
            for name, answer in (
                ("attempts", tables.attempts),
                ("attempt", tables.attempt),
                ("events", tables.events),
                ("group", tables.group),
                ("occurrence", tables.occurrence),
                ("operations", tables.operations),
                ("rates", tables.rates),
            )
        ),
        _route(f"{RUNS}/{{key}}/rates.json", guard.json(tables.rates_json)),
    ]


def _route(path: str, endpoint: Callable[[Request], Response]) -> Route:
    return Route(path, endpoint, methods=["GET"], middleware=_HEADERS)


def _viewer(template: str | None) -> Viewer:
    """Addresses of a configured viewer; ids are hex, so the address keeps its shape."""
    if template is None or not template.startswith(("http://", "https://")):
        return no_viewer
    return lambda trace_id, span_id: template.replace("{trace_id}", trace_id).replace(
        "{span_id}", span_id
    )
