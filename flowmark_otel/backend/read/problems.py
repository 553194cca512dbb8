"""The list of what is not known and what was refused, kind after kind (contract, section 5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, get_args

from sqlalchemy import Connection

from flowmark_otel import names
from flowmark_otel.backend.read import cursor, finding, refused, unknown
from flowmark_otel.backend.read.filters import RunFilters
from flowmark_otel.backend.views import EvidenceItem, Page

KINDS: Final[tuple[names.Problem, ...]] = get_args(names.Problem)
_OF_RUNS: Final = ("gap", "open", "unresolved")
_MOST_RUNS: Final = 500
"""Runs that one page opens; it is short where these hold not enough of what is wanted."""

_MOST_REFUSED: Final = 20_000
_AT_ONCE: Final = 50
_LARGEST: Final = 2000
_Place: TypeAlias = tuple[str, int, int, str]
"""Kind, arrival, id of run or rejection, and the key of the item within its run; empty: done."""


@dataclass(frozen=True, slots=True)
class EvidenceFilters:
    """Which items; all given conditions hold. Without ``kind`` all kinds, one after the other.

    Times as in ``RunFilters``: of the run's first arrival; of what was refused, its own.
    """

    kind: names.Problem | None = None
    workflow: str | None = None
    service: str | None = None
    since: int | None = None
    until: int | None = None


class _Asked(NamedTuple):
    """One question on one snapshot."""

    connection: Connection
    project_id: int
    wanted: EvidenceFilters
    open_before: int
    limit: int


def evidence_page(
    connection: Connection,
    project_id: int,
    wanted: EvidenceFilters,
    open_before: int,
    limit: int,
    after: str | None,
) -> Page[EvidenceItem]:
    """Items, of each kind the latest run first; a page may be short and yet not the last.

    Open is what was received at ``open_before`` or earlier and has no end.
    """
    name = cursor.name_of("evidence", wanted)
    position = cursor.decode(name, after, (str, int, int, str))
    kinds = KINDS if wanted.kind is None else (wanted.kind,)
    at: _Place | None = None
    if position is not None:
        at = (str(position[0]), int(position[1]), int(position[2]), str(position[3]))
        kinds = kinds[kinds.index(at[0]) :] if at[0] in kinds else ()
    asked = _Asked(connection, project_id, wanted, open_before, limit)
    items: list[EvidenceItem] = []
    last: _Place = ("", 0, 0, "")
    for kind in kinds:
        start = at if at is not None and at[0] == kind else None
        walk = _unknown if kind in _OF_RUNS else _refused
        for item, place in walk(asked, kind, start):
            if item is None:
                return Page(tuple(items), cursor.encode(name, place))
            items.append(item)
            if len(items) == limit + 1:
                return Page(tuple(items[:limit]), cursor.encode(name, last))
            last = place
    return Page(tuple(items), None)


_Walked: TypeAlias = Iterator[tuple[EvidenceItem | None, _Place]]
"""Items with their places; None: so far it was looked, and there may be more."""


def _unknown(asked: _Asked, kind: names.Problem, start: _Place | None) -> _Walked:
    connection, project_id, wanted, open_before, limit = asked
    until = wanted.until
    if kind == "open":
        until = open_before + 1 if until is None else min(until, open_before + 1)
    filters = RunFilters(workflow=wanted.workflow, problem=kind, since=wanted.since, until=until)
    position: finding.Position | None = None
    begun: tuple[int, str] | None = None
    if start is not None:
        _, arrival, run, key = start
        # The run itself once more, if items of it are still to come.
        position = (arrival, run + 1 if key else run)
        begun = (run, key) if key else None
    opened = 0
    while True:
        found = finding.find(connection, project_id, filters, position, min(limit + 1, _AT_ONCE))
        items = unknown.items_of(connection, project_id, kind, found.rows)
        for row in found.rows:
            for item in items[row.id]:
                if begun is not None and row.id == begun[0] and item.key <= begun[1]:
                    continue  # on a page before
                view = item.view
                if wanted.service is not None and view.service != wanted.service:
                    continue  # not asked for
                if kind == "open" and view.first_received_at > open_before:
                    continue  # its end may be on its way
                yield view, (kind, row.first_received_at, row.id, item.key)
        if found.end is None:
            return
        position = found.end
        opened += len(found.rows)
        if opened >= _MOST_RUNS or not found.rows:
            yield None, (kind, *position, "")


def _refused(asked: _Asked, kind: names.Problem, start: _Place | None) -> _Walked:
    connection, project_id, wanted, _, limit = asked
    position = None if start is None else (start[1], start[2])
    size, looked_at = limit + 1, 0
    while True:
        places = connection.execute(
            refused.places(project_id, wanted.since, wanted.until, position, size)
        ).all()
        arrivals = {row.id: row.received_at for row in places}
        for number, item in refused.items_of(
            connection,
            project_id,
            list(arrivals),
            conflicts=kind == "conflict",
            workflow=wanted.workflow,
            service=wanted.service,
        ):
            yield item, (kind, arrivals[number], number, "")
        if len(places) < size:
            return
        position = (places[-1].received_at, places[-1].id)
        looked_at += size
        size = min(size * 4, _LARGEST)
        if looked_at >= _MOST_REFUSED:
            yield None, (kind, *position, "")
