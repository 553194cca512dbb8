"""The views of a whole project: overview, ingest, and how to begin where nothing was received."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from flowmark_otel import names
from flowmark_otel.backend import views
from flowmark_otel.backend.api.parameters import BUCKETS, choice
from flowmark_otel.backend.read import Reader
from flowmark_otel.clock import Clock
from flowmark_otel.dashboard import asking
from flowmark_otel.dashboard.guard import Guard, Handler, html
from flowmark_otel.dashboard.pages.ingest import ingest_page
from flowmark_otel.dashboard.pages.links import HOME, INGEST, OVERVIEW, query
from flowmark_otel.dashboard.pages.news import of_events
from flowmark_otel.dashboard.pages.overview import json_way, overview_page
from flowmark_otel.dashboard.pages.plain import EmptyPage, first_spans
from flowmark_otel.dashboard.pages.ways import carry
from flowmark_otel.dashboard.ranges import Range
from flowmark_otel.dashboard.tables import csv_answer
from flowmark_otel.model import Principal

_DEFAULT: Final = "24h"
_HOST: Final = re.compile(r"[A-Za-z0-9._:\[\]-]{1,255}")
_HERE: Final = "127.0.0.1:4318"
_OVERVIEW_TABLES: Final = choice("table", "Which table.", Literal["operations", "buckets"])
_INGEST_TABLES: Final = choice("table", "Which table.", Literal["senders", "events"])


class About(NamedTuple):
    """What the pages tell of the server itself.

    ``retain``: seconds that a run is kept, None for ever. ``grpc``: ``HOST:PORT`` of OTLP over
    gRPC, once it listens; None where it is not told.
    """

    retain: int | None = None
    grpc: Callable[[], str] | None = None


class Overall:
    """One method for each address; all read for the principal that the guard let through."""

    def __init__(self, reader: Reader, guard: Guard, clock: Clock, about: About) -> None:
        self._reader = reader
        self._guard = guard
        self._clock = clock
        self._about = about

    # -- overview ---------------------------------------------------------------------------------

    def overview(self, request: Request, principal: Principal) -> Response:
        """The answer to: is retrying getting worse, and where."""
        now = self._clock.now_ns()
        asked = asking.read(request, (), now, default=_DEFAULT)
        time = asked.range
        since, until = time.bounds(now)
        # Before all else is read: what comes in between is announced rather than missed.
        mark = self._reader.received(principal.project_id)
        view = self._reader.overview(principal.project_id, since, until, time.buckets)
        frame = self._guard.frame(
            principal,
            "Overview",
            json=json_way(view, time.buckets),
            current="page",
            tab="overview",
            carry=carry(time),
            asks=None if time.ended else of_events(OVERVIEW, mark, query(HOME, asked.filters)),
        )
        return html(overview_page(frame, view, self._before(principal, time, now), time))

    def overview_json(self, request: Request, principal: Principal) -> Response:
        """The same, as the API answers."""
        return _json(self._overview(request, principal)[0])

    def overview_csv(self, request: Request, principal: Principal) -> Response:
        """One of its tables: operation names, or buckets."""
        view, table = self._overview(request, principal)
        if table == "buckets":
            return csv_answer("overview-buckets", views.Bucket, view.buckets)
        return csv_answer("overview-operations", views.OverviewOperation, view.operations)

    def _overview(self, request: Request, principal: Principal) -> tuple[views.Overview, str]:
        now = self._clock.now_ns()
        asked = asking.read(request, (_OVERVIEW_TABLES, BUCKETS), now, default=_DEFAULT)
        buckets = asked.values.get("buckets", asked.range.buckets)
        view = self._reader.overview(principal.project_id, *asked.range.bounds(now), buckets)
        return view, asked.values.get("table", "operations")

    def _before(self, principal: Principal, time: Range, now: int) -> views.Amplification | None:
        """Extra attempts in the time of the same length before."""
        since, until = time.earlier(now)
        if since >= until:
            return None
        earlier = self._reader.overview(principal.project_id, since, until, 1)
        return earlier.figures.extra_attempts

    # -- ingest -----------------------------------------------------------------------------------

    def ingest(self, request: Request, principal: Principal) -> Response:
        """What arrived, from whom, and what holds it."""
        asked = asking.read(request, (), self._clock.now_ns())
        mark = self._reader.received(principal.project_id)
        frame = self._guard.frame(
            principal,
            "Ingest",
            json=f"{INGEST}.json",
            current="page",
            tab="ingest",
            carry=carry(asked.range),
            asks=of_events(INGEST, mark, query(INGEST, asked.filters)),
        )
        view = self._reader.ingest(principal.project_id)
        return html(ingest_page(frame, view, self._about.retain))

    def ingest_json(self, _request: Request, principal: Principal) -> Response:
        """The same, as the API answers."""
        return _json(self._reader.ingest(principal.project_id))

    def ingest_csv(self, request: Request, principal: Principal) -> Response:
        """One of its tables: senders, or events by state."""
        asked = asking.read(request, (_INGEST_TABLES,), self._clock.now_ns())
        view = self._reader.ingest(principal.project_id)
        if asked.values.get("table") == "events":
            return csv_answer("ingest-events", views.EventCount, view.events)
        return csv_answer("ingest-senders", views.SenderStats, view.senders)

    # -- the first start --------------------------------------------------------------------------

    def unless_empty(self, handler: Handler) -> Handler:
        """A page, or how to send a first span where nothing was ever received."""

        def answer(request: Request, principal: Principal) -> Response:
            if self._reader.latest_arrival(principal.project_id).received_at is None:
                return self._empty(request, principal)
            return handler(request, principal)

        return answer

    def _empty(self, request: Request, principal: Principal) -> Response:
        host = request.headers.get("host", "")
        host = host if _HOST.fullmatch(host) else _HERE
        frame = self._guard.frame(
            principal, "First start", json=f"{OVERVIEW}.json", current="true", tab="overview"
        )
        counts = self._reader.ingest(principal.project_id).events
        ids = (secrets.token_hex(8), secrets.token_hex(8))
        return html(
            EmptyPage(
                frame,
                f"{request.url.scheme}://{host}",
                keys=frame.session,
                trace_id=secrets.token_hex(16),
                spans=first_spans(self._clock.now_ns(), ids),
                grpc=self._grpc(request.url.scheme, host),
                refused=sum(one.count for one in counts if one.state == names.STATE_REJECTED),
            )
        )

    def _grpc(self, scheme: str, host: str) -> str | None:
        """The address of OTLP over gRPC as the reader's machine knows it."""
        told = self._about.grpc
        port = told().rpartition(":")[2] if told is not None else ""
        if not port:
            return None
        name = host.rpartition(":")[0] if re.search(r":\d+$", host) else host
        return f"{scheme}://{name}:{port}"


def _json(view: object) -> Response:
    return JSONResponse(views.jsonable(view))
