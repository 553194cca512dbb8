"""Keeps what is derived of runs: folds those that are stale, and writes what differs.

Each function runs inside a transaction of its caller's. Runs are folded by one transaction at a
time, so sums of the same cell are never added to by two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import orjson
from sqlalchemy import (
    Connection,
    Select,
    bindparam,
    delete,
    func,
    insert,
    select,
    text,
    tuple_,
    update,
)

from flowmark_otel.backend.evidence import DbRow, chunks
from flowmark_otel.backend.store import derived, schema
from flowmark_otel.backend.summary import search
from flowmark_otel.backend.summary.folding import Summary, summarise
from flowmark_otel.backend.summary.ids import Ids, note_removal, remove_unused
from flowmark_otel.backend.summary.stored import Kept, kept, pack
from flowmark_otel.backend.summary.sums import Sums

AT_ONCE: Final = 100  # runs; ingest waits for a transaction of so many
OCCURRENCES_AT_ONCE: Final = 2500
_ONLY_ONE: Final = 0x666C6F77  # the key of an advisory lock: "flow"
_runs = schema.runs.c
_STALE: Final = text("runs.stale = 1")

Place: TypeAlias = tuple[int, int, int]
"""Project, first arrival and ``runs.id`` of a stale run."""


class Folded(NamedTuple):
    """How many runs were folded, and the place of the last; none: there is no stale run after it.

    None, too, where another process is at it.
    """

    runs: int
    last: Place | None


def fold_stale(connection: Connection, ids: Ids, after: Place | None = None) -> Folded:
    """Fold some stale runs: the first after a place, so that each project has its turn."""
    if not _alone(connection):
        return Folded(0, None)
    ids.begin(connection)
    stale = connection.execute(stale_runs(after).with_for_update(skip_locked=True)).all()
    rows = _affordable(connection, stale)
    by_project: dict[int, list[DbRow]] = {}
    for row in rows:
        by_project.setdefault(row.project_id, []).append(row)
    for project_id, some in by_project.items():
        _fold(connection, ids, project_id, some)
    if not rows:
        return Folded(0, None)
    return Folded(len(rows), (rows[-1].project_id, rows[-1].first_received_at, rows[-1].id))


def stale_runs(after: Place | None) -> Select[Any]:
    """Stale runs in the order of their index, whose columns these are."""
    order = (_runs.project_id, _runs.first_received_at, _runs.id)
    statement = select(schema.runs).where(_STALE).order_by(*order).limit(AT_ONCE)
    if after is not None:
        statement = statement.where(tuple_(*order) > tuple_(*after))
    return statement


def forget(connection: Connection, runs: Sequence[int]) -> None:
    """Take away all that is kept of runs, given by ``runs.id``, before their rows are removed.

    Runs that refer to them will no longer find them, and are stale from now on. Take
    ``lock_folding`` first.
    """
    ids = Ids()
    for some in chunks(runs):
        rows = connection.execute(select(schema.runs).where(_runs.id.in_(some))).all()
        by_project: dict[int, list[DbRow]] = {}
        for row in rows:
            by_project.setdefault(row.project_id, []).append(row)
        for project_id, of_project in by_project.items():
            sums = Sums(project_id)
            known = kept(connection, [row.id for row in of_project])
            _take_away(connection, project_id, sums, known.values())
            sums.write(connection, ids)
            connection.execute(
                delete(derived.summaries).where(derived.summaries.c.run.in_(list(known)))
            )
            terms = {term for one in known.values() for term in one.terms}
            remove_unused(connection, terms, sums.series(connection, ids))
        _mark_referrers(connection, [row.key for row in rows])


def start_over(connection: Connection) -> None:
    """Forget all that is kept, of every project; all runs are stale from then on."""
    search.clear(connection)
    for table in (
        derived.summaries,
        derived.postings,
        derived.terms,
        derived.rollups,
        derived.rollup_values,
        derived.series,
    ):
        connection.execute(delete(table))
    note_removal(connection)
    connection.execute(update(schema.runs).values(stale=1))


def _alone(connection: Connection) -> bool:
    """Whether no other process folds; where transactions that write come one by one, none does."""
    if connection.dialect.name != "postgresql":
        return True
    return bool(connection.execute(select(func.pg_try_advisory_xact_lock(_ONLY_ONE))).scalar())


def lock_folding(connection: Connection) -> None:
    """Keep others from folding until the transaction ends; wait until none does."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_ONLY_ONE)))


def _affordable(connection: Connection, stale: Sequence[DbRow]) -> Sequence[DbRow]:
    """As many of the runs as have not too many occurrences together, at least one."""
    columns = schema.occurrences.c
    counted = connection.execute(
        select(columns.run, func.count().label("number"))
        .where(columns.run.in_([row.id for row in stale]))
        .group_by(columns.run)
    )
    sizes: dict[int, int] = {row.run: row.number for row in counted}
    total = 0
    for index, row in enumerate(stale):
        total += sizes.get(row.id, 0)
        if total > OCCURRENCES_AT_ONCE and index:
            return stale[:index]
    return stale


def _fold(connection: Connection, ids: Ids, project_id: int, rows: Sequence[DbRow]) -> None:
    found = summarise(connection, project_id, rows)
    known = kept(connection, list(found))
    sums = Sums(project_id)
    bodies: list[tuple[int, str]] = []
    outdated: list[tuple[int, str]] = []
    added: list[dict[str, int]] = []
    removed: list[dict[str, int]] = []
    written: list[dict[str, object]] = []
    for row in rows:
        summary, before = found[row.id], known.get(row.id)
        terms = {ids.term(connection, project_id, term) for term in summary.terms}
        held = set(before.terms) if before else set()
        at = {"first_received_at": row.first_received_at, "run": row.id}
        added += [{"term": term, **at} for term in terms - held]
        removed += [{"term": term, **at} for term in held - terms]
        if before is None or before.body != summary.body:
            bodies.append((row.id, summary.body))
            if before is not None:
                outdated.append((row.id, before.body))
        sums.add(row.first_received_at, row.origin, row.workflow, summary.tallies, summary.values)
        if before is not None:
            sums.take(before)
        written.append(_row(row, summary, terms))
    _write(connection, removed, added)
    remove_unused(connection, {one["term"] for one in removed})
    search.remove(connection, project_id, outdated)
    search.add(connection, project_id, bodies)
    sums.write(connection, ids)
    _replace(connection, written, known)
    _mark_referrers(connection, [row.key for row in rows if row.id not in known])
    for some in chunks(found):
        connection.execute(update(schema.runs).where(_runs.id.in_(some)).values(stale=0))


def _row(row: DbRow, summary: Summary, terms: Iterable[int]) -> dict[str, object]:
    return {
        "run": row.id,
        "project_id": row.project_id,
        "origin": row.origin,
        "workflow": row.workflow,
        "first_received_at": row.first_received_at,
        "most_attempts": summary.most_attempts,
        "terms": orjson.dumps(sorted(terms)),
        "tallies": pack(summary.tallies, summary.values),
        "body": summary.body,
    }


def _replace(
    connection: Connection, rows: Sequence[Mapping[str, object]], known: Mapping[int, Kept]
) -> None:
    new = [row for row in rows if row["run"] not in known]
    changed = [{**row, "of": row["run"]} for row in rows if row["run"] in known]
    if new:
        connection.execute(insert(derived.summaries), new)
    if changed:
        connection.execute(_CHANGE, changed)


def _write(
    connection: Connection,
    removed: Sequence[Mapping[str, int]],
    added: Sequence[Mapping[str, int]],
) -> None:
    if removed:
        connection.execute(
            _REMOVE_POSTING, [{f"a_{k}": v for k, v in one.items()} for one in removed]
        )
    if added:
        # In the order of the key, so that neighbours are written together.
        ordered = sorted(added, key=lambda one: (one["term"], one["first_received_at"]))
        connection.execute(insert(derived.postings), ordered)


def _take_away(connection: Connection, project_id: int, sums: Sums, found: Iterable[Kept]) -> None:
    removed = []
    bodies = []
    for one in found:
        sums.take(one)
        bodies.append((one.run, one.body))
        removed += [
            {"term": term, "first_received_at": one.first_received_at, "run": one.run}
            for term in one.terms
        ]
    _write(connection, removed, [])
    search.remove(connection, project_id, bodies)


def _mark_referrers(connection: Connection, keys: Sequence[bytes]) -> None:
    """Whether a reference is resolved changes with the run that it names."""
    for some in chunks(keys):
        connection.execute(
            update(schema.runs)
            .where(_runs.retry_of_key.in_(some), _runs.retry_of_key.is_not(None))
            .values(stale=1)
        )


_CHANGE: Final = (
    update(derived.summaries)
    .where(derived.summaries.c.run == bindparam("of"))
    .values({name: bindparam(name) for name in ("most_attempts", "terms", "tallies", "body")})
)
_REMOVE_POSTING: Final[Any] = delete(derived.postings).where(
    *(
        derived.postings.c[name] == bindparam(f"a_{name}")
        for name in ("term", "first_received_at", "run")
    )
)
