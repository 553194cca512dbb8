"""Answers to a page that asks whether there is new evidence; asked every few seconds by htmx.

204 while there is none, so that the page stays as it is; else the words that announce it. Nothing
is kept between two questions, so any server process of the store may answer.
"""

from __future__ import annotations

import re
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from flowmark_otel.backend.api.parameters import EVIDENCE_FILTERS, RUN_FILTERS
from flowmark_otel.backend.read import MOST_NEWS, BadParameter, EvidenceFilters, Reader, RunFilters
from flowmark_otel.clock import Clock
from flowmark_otel.dashboard import asking
from flowmark_otel.dashboard.pages.news import NewsPage
from flowmark_otel.dashboard.render import fragment
from flowmark_otel.model import Principal

_TIME: Final = re.compile(r"[0-9]{1,19}")
_LATEST: Final = 2**63 - 2
_POINT: Final = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")
_MARK: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")
_AFTER: Final = "after"


class News:
    """One method for each address."""

    def __init__(self, reader: Reader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock

    def runs(self, request: Request, principal: Principal) -> Response:
        """Runs of the same filters that arrived after the newest one shown."""
        after = _after(request, _TIME)[0]
        asked = asking.read(request, RUN_FILTERS, self._clock.now_ns(), further=(_AFTER,))
        timed = {**asked.values, "since": asked.range.since, "until": asked.range.until}
        count = self._reader.newer_runs(
            principal.project_id, RunFilters(**timed), min(int(after), _LATEST)
        )
        return _said(count, "")

    def events(self, request: Request, principal: Principal) -> Response:
        """Events of the project that came after those a view was made of, whatever became of them.

        A view with a filter of time asks alike: what arrives now is in every time that still runs.
        """
        after = int(_after(request, _TIME)[0])
        return _events(self._reader.received(principal.project_id) - after, None)

    def items(self, request: Request, principal: Principal) -> Response:
        """Problems of the same filters that were not there when the page was made."""
        _, received, at = _after(request, _POINT)
        now = self._clock.now_ns()
        asked = asking.read(request, EVIDENCE_FILTERS, now, further=(_AFTER,))
        timed = {**asked.values, "since": asked.range.since, "until": asked.range.until}
        wanted = EvidenceFilters(**timed)
        if self._reader.received(principal.project_id) == int(received):
            # Time alone makes nothing new but what stayed open for long enough.
            if wanted.kind not in (None, "open"):
                return _said(0, "")
            wanted = replace(wanted, kind="open")
        count = self._reader.newer_items(principal.project_id, wanted, min(int(at), _LATEST))
        return _said(count, "")

    def run(self, request: Request, principal: Principal) -> Response:
        """Events of a run that came after those its page was made of."""
        _, stored, refused = _after(request, _MARK)
        mark = (int(stored), int(refused))
        key = request.path_params["key"]
        count = self._reader.newer_events(principal.project_id, key, mark)
        return _events(count, MOST_NEWS)


def _events(count: int, most: int | None) -> Response:
    return _said(count, "event" if count == 1 else "events", most)


def _said(count: int, what: str, most: int | None = MOST_NEWS) -> Response:
    if count <= 0:
        return Response(status_code=HTTPStatus.NO_CONTENT)
    return HTMLResponse(fragment(NewsPage(count, most, what)))


def _after(request: Request, shape: re.Pattern[str]) -> tuple[str, ...]:
    given = request.query_params.get(_AFTER, "")
    found = shape.fullmatch(given)
    if found is None:
        msg = f"{_AFTER}: is none that a page gave; open the page again"
        raise BadParameter(msg)
    return (found.group(), *found.groups())
