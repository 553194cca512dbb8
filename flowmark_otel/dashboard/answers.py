"""What the dashboard answers about one run, or one trace: each page, and the same as JSON."""

from __future__ import annotations

import re
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from flowmark_otel.backend import views
from flowmark_otel.backend.read import BadParameter, NotFound, Reader
from flowmark_otel.dashboard.guard import Guard, html, see_other
from flowmark_otel.dashboard.lists import Lists
from flowmark_otel.dashboard.pages.events import events_page
from flowmark_otel.dashboard.pages.frame import Asking, Frame
from flowmark_otel.dashboard.pages.links import RUNS, query, run_path
from flowmark_otel.dashboard.pages.news import of_run
from flowmark_otel.dashboard.pages.run import Answered, Asked, run_page
from flowmark_otel.dashboard.pages.runs import trace_page
from flowmark_otel.dashboard.pages.viewer import Viewer
from flowmark_otel.dashboard.places import DRAWN, fold, places
from flowmark_otel.model import Principal

_RUNS: Final = 20
_GROUPS: Final = 50
_FEWEST: Final = 10
_ROWS: Final = 100  # of groups, on one page
_OCCURRENCES: Final = 50
_EVENTS: Final = 50
_TRACE_ID: Final = re.compile(r"[0-9a-fA-F]{32}")
_LOOKS: Final = 5  # pages of occurrences that one page of ordinary ones is picked from


class Answers:
    """One method for each address; all read for the principal that the guard let through."""

    def __init__(self, reader: Reader, guard: Guard, lists: Lists, viewer: Viewer) -> None:
        self._reader = reader
        self._guard = guard
        self._lists = lists
        self._viewer = viewer

    # -- one run ----------------------------------------------------------------------------------

    def run(self, request: Request, principal: Principal) -> Response:
        """One run, with a page of its groups and one of its ordinary occurrences."""
        key = request.path_params["key"]
        given = request.query_params
        asked = Asked(given.get("groups"), given.get("occurrences"))
        # Before all else is read: what comes in between is announced rather than missed.
        mark = self._reader.mark(principal.project_id, key)
        run = self._reader.run(principal.project_id, key)
        groups = self._groups(principal, run, asked.groups)
        ordinary = self._ordinary(principal, run, asked.occurrences)
        asks = of_run(key, mark, asked.path(key))
        frame = self._frame(principal, run, run_path(key), asks=asks)
        rates = self._reader.run_statistics(principal.project_id, key)
        return html(run_page(frame, Answered(run, groups, ordinary, rates), asked))

    def run_json(self, request: Request, principal: Principal) -> Response:
        """The run, as the API answers."""
        return _json(self._reader.run(principal.project_id, request.path_params["key"]))

    def attempts_json(self, request: Request, principal: Principal) -> Response:
        """A page of its groups, as the API answers."""
        key, cursor = request.path_params["key"], request.query_params.get("cursor")
        return _json(self._reader.attempts(principal.project_id, key, _GROUPS, cursor))

    def operations_json(self, request: Request, principal: Principal) -> Response:
        """A page of its occurrences, as the API answers."""
        key, cursor = request.path_params["key"], request.query_params.get("cursor")
        return _json(self._reader.operations(principal.project_id, key, _OCCURRENCES, cursor))

    def events(self, request: Request, principal: Principal) -> Response:
        """A page of the run's evidence in order of arrival."""
        key, cursor = request.path_params["key"], request.query_params.get("cursor")
        run = self._reader.run(principal.project_id, key)
        found = self._reader.events(principal.project_id, key, _EVENTS, cursor)
        frame = self._frame(principal, run, f"{run_path(key)}/events", cursor)
        return html(events_page(frame, run, found, cursor, self._viewer))

    def events_json(self, request: Request, principal: Principal) -> Response:
        """The same page of evidence, as the API answers."""
        key, cursor = request.path_params["key"], request.query_params.get("cursor")
        return _json(self._reader.events(principal.project_id, key, _EVENTS, cursor))

    def _frame(
        self,
        principal: Principal,
        run: views.RunView,
        path: str,
        cursor: str | None = None,
        asks: Asking | None = None,
    ) -> Frame:
        json = query(f"{path}.json", {"cursor": cursor})
        return self._guard.frame(
            principal, run.run_id, json=json, csv=f"{path}.csv", current="true", asks=asks
        )

    def _groups(
        self, principal: Principal, run: views.RunView, cursor: str | None
    ) -> views.Page[views.GroupView]:
        """So many groups that a page stays readable: by their rows, of which each has a few."""
        size = run.counts.attempts / max(run.counts.groups, 1)
        limit = max(_FEWEST, min(_GROUPS, round(_ROWS / (1 + min(size, DRAWN)))))
        while True:
            found = self._reader.attempts(principal.project_id, run.key, limit, cursor)
            rows = sum(1 + len(fold(places(group))) for group in found.items)
            if rows <= _ROWS * 2 or limit == 1:
                return found
            limit = max(1, limit * _ROWS // rows)  # these have more than those of the run mostly do

    def _ordinary(
        self, principal: Principal, run: views.RunView, cursor: str | None
    ) -> views.Page[views.OccurrenceView]:
        """Occurrences without an attempt (A4), out of a bounded number of all of them."""
        if run.counts.occurrences == run.counts.attempts:
            return views.Page((), None)
        found: list[views.OccurrenceView] = []
        for _ in range(_LOOKS):
            page = self._reader.operations(principal.project_id, run.key, _OCCURRENCES, cursor)
            found += [occurrence for occurrence in page.items if occurrence.attempt is None]
            cursor = page.next
            if cursor is None or len(found) >= _OCCURRENCES:
                break
        return views.Page(tuple(found), cursor)

    # -- from elsewhere ---------------------------------------------------------------------------

    def trace(self, request: Request, principal: Principal) -> Response:
        """The run with evidence from a trace, or the list of them where there are several."""
        text = request.path_params["trace_id"]
        if not _TRACE_ID.fullmatch(text):
            msg = "a trace id has 32 hexadecimal digits"
            raise BadParameter(msg)
        found = self._reader.trace(principal.project_id, bytes.fromhex(text), _RUNS)
        if not found.items:
            msg = "no run has evidence from this trace"
            raise NotFound(msg)
        if len(found.items) == 1:
            return see_other(f"{self._guard.base(principal)}{run_path(found.items[0].key)}")
        named = {"trace_id": text}
        frame = self._guard.frame(
            principal,
            f"Trace {text}",
            json=query(f"{RUNS}.json", named),
            csv=query(f"{RUNS}.csv", named),
            current="true",
        )
        listed = [self._lists.listed(principal, run) for run in found.items]
        return html(trace_page(frame, listed, text))


def _json(view: object) -> Response:
    return JSONResponse(views.jsonable(view))
