"""What the sums do not hold yet: stale runs, folded from their evidence as they are now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, func, select, text

from flowmark_otel.backend.evidence import DbRow, belongs, chunks
from flowmark_otel.backend.store import derived, schema
from flowmark_otel.backend.summary.folding import Term, summarise
from flowmark_otel.backend.summary.stored import KEPT, Kept, kept, read
from flowmark_otel.fold.rates import Tally

MOST_RUNS: Final = 1000
MOST_OCCURRENCES: Final = 20_000
"""So much is folded for one answer."""

_MOST_COUNTED: Final = 100_000
_AT_ONCE: Final = 250
_runs = schema.runs.c
_summaries = derived.summaries.c
_STALE: Final = text("runs.stale = 1")


class Part(NamedTuple):
    """One run counted, or with ``times`` -1 no longer."""

    first_received_at: int
    workflow: str
    tallies: Mapping[str, Tally]
    values: frozenset[Term]
    times: int = 1


class Live(NamedTuple):
    """``not_included``: runs that changed, but are too many to be folded for one answer."""

    parts: list[Part]
    not_included: int


def live(
    connection: Connection,
    project_id: int,
    since: int,
    until: int,
    workflow: str | None = None,
) -> Live:
    """What has to be added to the sums of the runs first received in a time."""
    where = [_runs.project_id == project_id, *_within(since, until)]
    if workflow is not None:
        where.append(_runs.workflow == workflow)
    stale = connection.execute(
        select(schema.runs)
        .where(_STALE, *where)
        .order_by(_runs.first_received_at.desc(), _runs.id.desc())
        .limit(MOST_RUNS)
    ).all()
    affordable, spent = _affordable(connection, stale)
    parts: list[Part] = []
    resolving: list[bytes] = []
    for some in chunks(affordable, _AT_ONCE):
        known = kept(connection, [row.id for row in some])
        resolving += [row.key for row in some if row.id not in known]
        parts += _parts(connection, project_id, some, known)
    for keys in chunks(resolving):
        # They wait for a run that is not summarised yet, and no longer read unresolved.
        waiting = connection.execute(
            select(schema.runs)
            .where(
                _runs.retry_of_key.in_(keys),
                _runs.retry_of_key.is_not(None),
                belongs(_runs.project_id, project_id),
                _runs.stale == 0,
                *_within(since, until),
            )
            .limit(MOST_RUNS)
        ).all()
        if workflow is None:
            parts += _parts(
                connection, project_id, waiting, kept(connection, [row.id for row in waiting])
            )
    missing = len(stale) - spent
    if len(stale) == MOST_RUNS:
        counted = select(_runs.id).where(_STALE, *where).limit(_MOST_COUNTED).subquery("counted")
        total = connection.execute(select(func.count()).select_from(counted)).scalar_one()
        missing += total - MOST_RUNS
    return Live(parts, missing)


def rest(
    connection: Connection, project_id: int, since: int, until: int, workflow: str | None = None
) -> Iterator[Part]:
    """What is kept of the runs first received in a short time, less than a cell."""
    statement = select(*KEPT).where(
        _summaries.project_id == project_id,
        _summaries.first_received_at >= since,
        _summaries.first_received_at < until,
    )
    if workflow is not None:
        statement = statement.where(_summaries.workflow == workflow)
    for row in connection.execute(statement):
        yield _part(read(row))


def _within(since: int, until: int) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return _runs.first_received_at >= since, _runs.first_received_at < until


def _parts(
    connection: Connection, project_id: int, rows: Sequence[DbRow], known: Mapping[int, Kept]
) -> Iterator[Part]:
    found = summarise(connection, project_id, rows)
    for row in rows:
        summary, before = found[row.id], known.get(row.id)
        yield Part(row.first_received_at, row.workflow, summary.tallies, summary.values)
        if before is not None:
            yield _part(before, -1)


def _part(run: Kept, times: int = 1) -> Part:
    return Part(run.first_received_at, run.workflow, run.tallies, run.values, times)


def _affordable(connection: Connection, stale: Sequence[DbRow]) -> tuple[list[DbRow], int]:
    """Those that have not too many occurrences together, the latest first; and how many."""
    columns = schema.occurrences.c
    sizes: dict[int, int] = {}
    for some in chunks(stale):
        sizes.update(
            connection.execute(
                select(columns.run, func.count())
                .where(columns.run.in_([row.id for row in some]))
                .group_by(columns.run)
            ).all()
        )
    found = []
    room = MOST_OCCURRENCES
    for row in stale:
        room -= sizes.get(row.id, 0)
        if room >= 0:
            found.append(row)
        else:
            room += sizes.get(row.id, 0)
    return found, len(found)
