"""The lists: runs, and what is not known of them; each as a page, as JSON and as CSV."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from flowmark_otel import names
from flowmark_otel.backend import views
from flowmark_otel.backend.api.parameters import EVIDENCE_FILTERS, PAGING, RUN_FILTERS
from flowmark_otel.backend.read import MAX_LIMIT, EvidenceFilters, Reader, RunFilters
from flowmark_otel.clock import Clock
from flowmark_otel.dashboard import asking
from flowmark_otel.dashboard.asking import Asked
from flowmark_otel.dashboard.guard import Guard, html
from flowmark_otel.dashboard.pages import evidence
from flowmark_otel.dashboard.pages.evidence import EvidencePage, Looked, Told
from flowmark_otel.dashboard.pages.links import EVIDENCE, RUNS, query
from flowmark_otel.dashboard.pages.news import of_evidence, of_list
from flowmark_otel.dashboard.pages.runs import GROUPS, Listed, runs_page, select_choices
from flowmark_otel.dashboard.pages.ways import carry, last_choices, range_ways
from flowmark_otel.dashboard.tables import csv_answer, every
from flowmark_otel.model import Principal

_RUNS: Final = 20
_ITEMS: Final = 50
_LOOKED_AT: Final = 100
"""Items of each kind that the page of all kinds counts by service."""

_CURSOR: Final = PAGING[1]


class Lists:
    """One method for each address; all read for the principal that the guard let through."""

    def __init__(self, reader: Reader, guard: Guard, clock: Clock) -> None:
        self._reader = reader
        self._guard = guard
        self._clock = clock

    # -- runs -------------------------------------------------------------------------------------

    def runs(self, request: Request, principal: Principal) -> Response:
        """The list of runs, newest arrival first."""
        asked = self._asked_runs(request)
        found = self._runs(asked, principal)
        frame = self._guard.frame(
            principal,
            "Runs",
            json=query(f"{RUNS}.json", asked.texts),
            current="page",
            carry=carry(asked.range),
            asks=of_list(found, asked.filters, asked.cursor),
        )
        operation = asked.values.get("operation")
        listed = [self.listed(principal, run, operation) for run in found.items]
        page = runs_page(frame, listed, following=found.next, asked=asked.texts, range_=asked.range)
        return html(page)

    def runs_json(self, request: Request, principal: Principal) -> Response:
        """The same page of runs, as the API answers."""
        asked = self._asked_runs(request)
        return _json(_pinned(asked, self._runs(asked, principal)))

    def runs_csv(self, request: Request, principal: Principal) -> Response:
        """All runs of the same filters, page after page."""
        asked = self._asked_runs(request)
        filters = _run_filters(asked)

        def page(cursor: str | None) -> views.Page[views.RunView]:
            return self._reader.runs(principal.project_id, filters, MAX_LIMIT, cursor)

        return csv_answer("runs", views.RunView, every(page))

    def listed(
        self, principal: Principal, run: views.RunView, operation: str | None = None
    ) -> Listed:
        """A run and the first of its groups, of those of an operation where one is asked for."""
        if not run.counts.groups:
            return run, views.Page((), None)
        groups = self._reader.attempts(
            principal.project_id, run.key, GROUPS, others=False, operation=operation
        )
        return run, groups

    def _asked_runs(self, request: Request) -> Asked:
        return asking.read(request, (*RUN_FILTERS, _CURSOR), self._clock.now_ns())

    def _runs(self, asked: Asked, principal: Principal) -> views.Page[views.RunView]:
        return self._reader.runs(principal.project_id, _run_filters(asked), _RUNS, asked.cursor)

    # -- evidence ---------------------------------------------------------------------------------

    def evidence(self, request: Request, principal: Principal) -> Response:
        """All kinds with the first of each; one kind page by page."""
        now = self._clock.now_ns()
        asked = self._asked_evidence(request)
        mark = self._reader.received(principal.project_id)
        kind: names.Problem | None = asked.values.get("kind")
        told = Told(now, self._reader.open_after_ns, asked.filters)
        if kind is None:
            found = [
                Looked(each, self._evidence(asked, principal, each, _LOOKED_AT))
                for each in evidence.KINDS
            ]
            shown, following = evidence.SHOWN, None
        else:
            page = self._evidence(asked, principal, kind, _ITEMS)
            found = [Looked(kind, page)]
            shown, following = _ITEMS, page.next
        frame = self._guard.frame(
            principal,
            "Evidence",
            json=query(f"{EVIDENCE}.json", asked.texts),
            current="page",
            tab="evidence",
            carry=carry(asked.range),
            asks=None
            if asked.cursor or asked.range.ended
            else of_evidence(mark, now, asked.filters),
        )
        whole = kind is not None
        return html(
            EvidencePage(
                frame=frame,
                ranges=range_ways(EVIDENCE, asked.range, asked.filters, anytime=True),
                filters=_evidence_filters(asked, told),
                filtered=bool(asked.filters),
                matrix=None if whole else evidence.matrix(found, told),
                sections=tuple(
                    evidence.section(each, told, shown=shown, whole=whole) for each in found
                ),
                csv=query(f"{EVIDENCE}.csv", asked.filters),
                newest=query(EVIDENCE, asked.filters) if asked.cursor else None,
                older=query(EVIDENCE, {**asked.range.paged(asked.filters), "cursor": following})
                if following
                else None,
            )
        )

    def evidence_json(self, request: Request, principal: Principal) -> Response:
        """A page of the list, as the API answers."""
        asked = self._asked_evidence(request)
        found = self._evidence(asked, principal, asked.values.get("kind"), _ITEMS)
        return _json(_pinned(asked, found))

    def evidence_csv(self, request: Request, principal: Principal) -> Response:
        """The whole list of the same filters, page after page."""
        asked = self._asked_evidence(request)
        filters = EvidenceFilters(**_timed(asked))

        def page(cursor: str | None) -> views.Page[views.EvidenceItem]:
            return self._reader.evidence(principal.project_id, filters, MAX_LIMIT, cursor)

        return csv_answer("evidence", views.EvidenceItem, every(page))

    def _asked_evidence(self, request: Request) -> Asked:
        return asking.read(request, (*EVIDENCE_FILTERS, _CURSOR), self._clock.now_ns())

    def _evidence(
        self, asked: Asked, principal: Principal, kind: names.Problem | None, limit: int
    ) -> views.Page[views.EvidenceItem]:
        filters = EvidenceFilters(**{**_timed(asked), "kind": kind})
        return self._reader.evidence(principal.project_id, filters, limit, asked.cursor)


def _evidence_filters(asked: Asked, told: Told) -> evidence.Filters:
    kinds: dict[str, str] = {
        kind: evidence.title_of(kind, told.open_after).lower() for kind in evidence.KINDS
    }
    texts = asked.texts
    return evidence.Filters(
        select_choices(kinds, texts.get("kind", "")),
        texts.get("workflow", ""),
        texts.get("service", ""),
        last_choices(asked.range),
        texts.get("since", ""),
        texts.get("until", ""),
    )


def _run_filters(asked: Asked) -> RunFilters:
    return RunFilters(**_timed(asked))


def _timed(asked: Asked) -> dict[str, Any]:
    return {**asked.values, "since": asked.range.since, "until": asked.range.until}


def _pinned(asked: Asked, page: views.Page[Any]) -> views.Page[Any]:
    """A page whose cursor goes on in the same time, under the very address that it came from."""
    return replace(page, next=asked.range.pinned(page.next))


def _json(view: object) -> Response:
    return JSONResponse(views.jsonable(view))
