"""The tables of one run as CSV, and as JSON where the API has no list of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from flowmark_otel.backend import views
from flowmark_otel.backend.read import MAX_LIMIT, Reader
from flowmark_otel.dashboard.marks import word
from flowmark_otel.dashboard.places import Place, places
from flowmark_otel.dashboard.proof import Proof
from flowmark_otel.dashboard.tables import csv_answer, every
from flowmark_otel.model import Principal
from flowmark_otel.names import Verdict


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """A row of a group's table: one attempt, or the numbers of a gap from ``first`` to ``last``.

    ``state`` is the word of its mark; ``rejected``: events refused at this place. ``attempt`` is
    null where no record was accepted.
    """

    operation: str
    group_id: str
    verdict: Verdict
    first: int
    last: int
    state: str
    idle_before_ns: int | None
    rejected: int
    attempt: views.AttemptView | None


class RunTables:
    """One method for each address; all read for the principal that the guard let through."""

    def __init__(self, reader: Reader, proof: Proof) -> None:
        self._reader = reader
        self._proof = proof

    def run(self, request: Request, principal: Principal) -> Response:
        """The run itself, one row."""
        run = self._reader.run(principal.project_id, _key(request))
        return csv_answer("run", views.RunView, [run])

    def attempts(self, request: Request, principal: Principal) -> Response:
        """All attempts of all groups, gaps among them, as the tables of the page show them."""
        found = self._all(self._reader.attempts, request, principal, MAX_LIMIT // 10)
        return csv_answer("attempts", AttemptRow, _rows(found))

    def group(self, request: Request, principal: Principal) -> Response:
        """The same of one group."""
        return csv_answer("group", AttemptRow, _rows([self._proof.group_of(request, principal)]))

    def operations(self, request: Request, principal: Principal) -> Response:
        """All occurrences, those with an attempt and the ordinary ones."""
        found = self._all(self._reader.operations, request, principal)
        return csv_answer("operations", views.OccurrenceView, found)

    def events(self, request: Request, principal: Principal) -> Response:
        """All evidence, accepted and refused, in order of arrival."""
        found = self._all(self._reader.events, request, principal)
        return csv_answer("events", views.EventView, found)

    def attempt(self, request: Request, principal: Principal) -> Response:
        """The events behind an attempt."""
        return csv_answer(
            "attempt", views.EventView, self._proof.events_of_attempt(request, principal)
        )

    def occurrence(self, request: Request, principal: Principal) -> Response:
        """The events behind an ordinary occurrence."""
        return csv_answer(
            "occurrence", views.EventView, self._proof.events_of_occurrence(request, principal)
        )

    def rates(self, request: Request, principal: Principal) -> Response:
        """The rates by operation name."""
        found = self._reader.run_statistics(principal.project_id, _key(request))
        return csv_answer("rates", views.OperationRow, found)

    def rates_json(self, request: Request, principal: Principal) -> Response:
        """The same, in the rows of the API's list of operation names."""
        found = self._reader.run_statistics(principal.project_id, _key(request))
        return JSONResponse(views.jsonable(views.Page(found, None)))

    @staticmethod
    def _all(
        read: Callable[[int, str, int, str | None], views.Page[Any]],
        request: Request,
        principal: Principal,
        limit: int = MAX_LIMIT,
    ) -> Iterator[Any]:
        """A whole list of the run. The first page is read at once: there may be no such run."""
        key = _key(request)
        first = read(principal.project_id, key, limit, None)
        return every(
            lambda cursor: read(principal.project_id, key, limit, cursor) if cursor else first
        )


def _key(request: Request) -> str:
    return str(request.path_params["key"])


def _rows(groups: Iterable[views.GroupView]) -> Iterator[AttemptRow]:
    for group in groups:
        for place in places(group):
            yield _row(group, place)


def _row(group: views.GroupView, place: Place) -> AttemptRow:
    return AttemptRow(
        group.operation,
        group.group_id,
        group.verdict,
        place.first,
        place.last,
        word(place.kind),
        place.idle_ns,
        sum(len(claim.events) for claim in place.claims),
        place.attempt,
    )
