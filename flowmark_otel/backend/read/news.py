"""What arrived after a page was made: counted up to a bound, so that asking often costs little."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection, Select, func, or_, select

from flowmark_otel.backend.evidence import belongs
from flowmark_otel.backend.read import finding
from flowmark_otel.backend.read.filters import RunFilters
from flowmark_otel.backend.read.problems import KINDS, EvidenceFilters, evidence_page
from flowmark_otel.backend.read.runs import RunRow
from flowmark_otel.backend.store import schema

MOST: Final = 100
"""So many are counted; more are not told from them."""

_events = schema.events.c
_rejections = schema.rejections.c


def newer_runs(connection: Connection, project_id: int, wanted: RunFilters, after: int) -> int:
    """How many runs that the filters let through arrived first after a time, at most MOST."""
    since = max(after + 1, wanted.since or 0)
    found = finding.find(connection, project_id, replace(wanted, since=since), None, MOST)
    return len(found.rows)


def newer_items(
    connection: Connection,
    project_id: int,
    wanted: EvidenceFilters,
    times: tuple[int, int, int],
) -> int:
    """How many of the first MOST items of each kind were not there at a time; at most MOST.

    ``times``: that time, now, and how long after its arrival what is open is listed.
    """
    after, now, open_after_ns = times
    count = 0
    for kind in KINDS if wanted.kind is None else (wanted.kind,):
        of_kind = replace(wanted, kind=kind)
        page = evidence_page(connection, project_id, of_kind, now - open_after_ns, MOST, None)
        since = after - open_after_ns if kind == "open" else after
        count += sum(item.first_received_at > since for item in page.items)
    return min(count, MOST)


def mark(connection: Connection, project_id: int, run: RunRow) -> tuple[int, int]:
    """How far the evidence of a run reaches: the latest of its stored and of its refused events."""
    return (
        _latest(connection, select(func.max(_events.id)).where(_events.run == run.id)),
        _latest(connection, select(func.max(_rejections.id)).where(*_refused(project_id, run))),
    )


def newer_events(
    connection: Connection, project_id: int, run: RunRow, after: tuple[int, int]
) -> int:
    """How many events of a run, stored and refused, came after a mark, at most MOST."""
    stored, refused = after
    return min(
        _count(connection, select(_events.id).where(_events.run == run.id, _events.id > stored))
        + _count(
            connection,
            select(_rejections.id).where(*_refused(project_id, run), _rejections.id > refused),
        ),
        MOST,
    )


def _refused(project_id: int, run: RunRow) -> tuple[Any, ...]:
    of_run = or_(_rejections.run == run.id, _rejections.accepted_run == run.id)
    return of_run, belongs(_rejections.project_id, project_id)


def _latest(connection: Connection, statement: Select[Any]) -> int:
    return int(connection.execute(statement).scalar() or 0)


def _count(connection: Connection, statement: Select[Any]) -> int:
    counted = statement.limit(MOST).subquery()
    return int(connection.execute(select(func.count()).select_from(counted)).scalar_one())
