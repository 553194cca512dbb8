"""What the dashboard answers to a signed-in reader: each page, and the same as JSON."""

from __future__ import annotations

import re
import secrets
from typing import Final, get_args

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from flowmark_otel import names
from flowmark_otel.backend import views
from flowmark_otel.backend.read import BadParameter, NotFound, Reader, RunFilters
from flowmark_otel.clock import Clock
from flowmark_otel.dashboard.guard import Guard, html, see_other
from flowmark_otel.dashboard.pages.events import events_page
from flowmark_otel.dashboard.pages.frame import Frame
from flowmark_otel.dashboard.pages.links import RUNS, query, run_path
from flowmark_otel.dashboard.pages.plain import EmptyPage, first_spans
from flowmark_otel.dashboard.pages.records import Viewer
from flowmark_otel.dashboard.pages.run import Answered, Asked, run_page
from flowmark_otel.dashboard.pages.runs import GROUPS, Listed, runs_page, trace_page
from flowmark_otel.model import Principal

_RUNS: Final = 20
_GROUPS: Final = 50
_OCCURRENCES: Final = 50
_EVENTS: Final = 50
_OPERATIONS: Final = 50
_HOST: Final = re.compile(r"[A-Za-z0-9._:\[\]-]{1,255}")
_HERE: Final = "127.0.0.1:4318"

_CHOICES: Final = {
    "status": get_args(names.RunStatus),
    "verdict": get_args(names.Verdict),
    "problem": get_args(names.Problem),
}
_TEXTS: Final = ("workflow", "error_code", "q")
_DIGITS: Final = 15
_TRACE_ID: Final = re.compile(r"[0-9a-fA-F]{32}")
_LOOKS: Final = 5  # pages of occurrences that one page of ordinary ones is picked from


class Answers:
    """One method for each address; all read for the principal that the guard let through."""

    def __init__(self, reader: Reader, guard: Guard, clock: Clock, viewer: Viewer) -> None:
        self._reader = reader
        self._guard = guard
        self._clock = clock
        self._viewer = viewer

    # -- runs -------------------------------------------------------------------------------------

    def runs(self, request: Request, principal: Principal) -> Response:
        """The list; where nothing was ever received, how to send a first span."""
        asked = {name: text for name, text in request.query_params.items() if text.strip()}
        found = self._runs(asked, principal)
        if not found.items and not asked:
            return self._empty(request, principal)
        frame = self._guard.frame(
            principal, "Runs", json=query(f"{RUNS}.json", asked), current="page"
        )
        listed = [self._listed(principal, run) for run in found.items]
        return html(runs_page(frame, listed, following=found.next, asked=asked))

    def runs_json(self, request: Request, principal: Principal) -> Response:
        """The same page of runs, as the API answers."""
        asked = {name: text for name, text in request.query_params.items() if text.strip()}
        return _json(self._runs(asked, principal))

    def _runs(self, asked: dict[str, str], principal: Principal) -> views.Page[views.RunView]:
        return self._reader.runs(principal.project_id, _filters(asked), _RUNS, asked.get("cursor"))

    def _listed(self, principal: Principal, run: views.RunView) -> Listed:
        if not run.counts.groups:
            return run, views.Page((), None)
        return run, self._reader.attempts(principal.project_id, run.key, GROUPS)

    def _empty(self, request: Request, principal: Principal) -> Response:
        host = request.headers.get("host", "")
        endpoint = f"{request.url.scheme}://{host if _HOST.fullmatch(host) else _HERE}"
        ids = (secrets.token_hex(8), secrets.token_hex(8))
        frame = self._guard.frame(principal, "First start", json=f"{RUNS}.json", current="page")
        return html(
            EmptyPage(
                frame,
                endpoint,
                keys=frame.session,
                trace_id=secrets.token_hex(16),
                spans=first_spans(self._clock.now_ns(), ids),
            )
        )

    # -- one run ----------------------------------------------------------------------------------

    def run(self, request: Request, principal: Principal) -> Response:
        """One run, with a page of its groups and one of its ordinary occurrences."""
        key = request.path_params["key"]
        given = request.query_params
        asked = Asked(given.get("groups"), given.get("occurrences"), given.get("whole"))
        run = self._reader.run(principal.project_id, key)
        groups = self._reader.attempts(principal.project_id, key, _GROUPS, asked.groups)
        ordinary = self._ordinary(principal, run, asked.occurrences)
        frame = self._frame(principal, run, f"{run_path(key)}.json")
        rates = self._reader.run_statistics(principal.project_id, key)
        return html(run_page(frame, Answered(run, groups, ordinary, rates), asked, self._viewer))

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
        here = query(f"{run_path(key)}/events.json", {"cursor": cursor})
        frame = self._frame(principal, run, here)
        return html(events_page(frame, run, found, cursor, self._viewer))

    def events_json(self, request: Request, principal: Principal) -> Response:
        """The same page of evidence, as the API answers."""
        key, cursor = request.path_params["key"], request.query_params.get("cursor")
        return _json(self._reader.events(principal.project_id, key, _EVENTS, cursor))

    def _frame(self, principal: Principal, run: views.RunView, json: str) -> Frame:
        return self._guard.frame(principal, run.run_id, json=json, current="true")

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
            return see_other(run_path(found.items[0].key))
        frame = self._guard.frame(principal, f"Trace {text}", current="true")
        listed = [self._listed(principal, run) for run in found.items]
        return html(trace_page(frame, listed, text))


def _filters(asked: dict[str, str]) -> RunFilters:
    """The filters an address names. Raises BadParameter for a value that none can have."""
    for name, allowed in _CHOICES.items():
        if name in asked and asked[name] not in allowed:
            msg = f"{name}: found {asked[name]!r}; set one of {', '.join(allowed)}"
            raise BadParameter(msg)
    least = asked.get("min_attempts")
    if least is not None and not (least.isascii() and least.isdecimal() and len(least) <= _DIGITS):
        msg = f"min_attempts: found {least!r}; set a whole number"
        raise BadParameter(msg)
    given = {name: asked[name] for name in (*_TEXTS, *_CHOICES) if name in asked}
    return RunFilters(**given, min_attempts=int(least) if least else None)  # type: ignore[arg-type]


def _json(view: object) -> Response:
    return JSONResponse(views.jsonable(view))
