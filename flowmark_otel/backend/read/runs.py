"""Runs: lists of them, one of them, and what refers to what (A12-A19)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection, Select, and_, case, func, select

from flowmark_otel import names
from flowmark_otel.backend import views
from flowmark_otel.backend.browsers import qualified
from flowmark_otel.backend.evidence import DbRow, belongs, run_events
from flowmark_otel.backend.read import cursor, filters, finding, render
from flowmark_otel.backend.read.errors import NotFound
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.views import Page, RunView, Time
from flowmark_otel.fold import rows
from flowmark_otel.fold.state import run_state

_KEY: Final = re.compile(r"[0-9a-f]{32}")  # model.run_key, in hexadecimal
_columns = schema.runs.c
_LINK: Final = (_columns.workflow, _columns.run_id, _columns.key)
_NO_COUNTS: Final = views.RunCounts(0, 0, 0, 0, 0)

RunRow: TypeAlias = DbRow
"""All columns of ``runs``."""


def find(connection: Connection, project_id: int, key: str) -> RunRow:
    """The row of a run by its opaque key; raises NotFound for unknown, foreign and malformed."""
    row = None
    if _KEY.fullmatch(key):
        raw = bytes.fromhex(key)
        row = connection.execute(
            select(schema.runs).where(_columns.key == raw, belongs(_columns.project_id, project_id))
        ).one_or_none()
    if row is None:
        msg = "no run with this key"
        raise NotFound(msg)
    return row


def page(
    connection: Connection,
    project_id: int,
    wanted: filters.RunFilters,
    limit: int,
    after: str | None,
) -> Page[RunView]:
    """Runs by first arrival, the latest first; a page may be short and yet not the last."""
    name = cursor.name_of("runs", wanted)
    position = cursor.decode(name, after, (int, int))
    at = None if position is None else (int(position[0]), int(position[1]))
    found = finding.find(connection, project_id, wanted, at, limit)
    return Page(
        views_of(connection, project_id, found.rows),
        None if found.end is None else cursor.encode(name, found.end),
    )


def views_of(
    connection: Connection, project_id: int, found: Sequence[RunRow]
) -> tuple[RunView, ...]:
    """The views of rows of ``runs``, in their order."""
    ids = [row.id for row in found]
    events = run_events(connection, project_id, ids)
    counts = _counts(connection, project_id, ids)
    targets = _by_key(
        connection, project_id, [row.retry_of_key for row in found if row.retry_of_key]
    )
    retried_by = _retried_by(connection, project_id, [row.key for row in found])
    parents = _parents(connection, project_id, found)
    shown = []
    for row in found:
        state = run_state(events[row.id])
        end = state.end
        target = state.retry_of
        key = row.retry_of_key if row.retry_of_key in targets else None
        shown.append(
            RunView(
                workflow=row.workflow,
                run_id=row.run_id,
                origin=row.origin,
                key=row.key.hex(),
                status=state.status,
                outcome=rows.text(end.attributes, names.RUN_OUTCOME) if end else None,
                result=rows.result_of(end) if end else {},
                started_at=render.sent_time(state.started_at),
                ended_at=render.sent_time(end.sent_at) if end else None,
                duration_ns=rows.duration_of(end) if end else None,
                error=render.error(end),
                ends=tuple(map(render.run_end, state.ends)),
                retry_of=views.RetryOf(
                    qualified(row.origin, target.workflow),
                    target.run_id,
                    key is not None,
                    key.hex() if key else None,
                )
                if target
                else None,
                retried_by=tuple(retried_by.get((row.origin, row.key), ())),
                parents=tuple(parents.get((row.origin, state.parent_run_id or ""), ())),
                parent_run_id=state.parent_run_id,
                correlation_id=state.correlation_id,
                first_received_at=Time(row.first_received_at),
                counts=counts.get(row.id, _NO_COUNTS),
                flags=state.flags,
                defaulted=state.defaulted,
            )
        )
    return tuple(shown)


def _counts(
    connection: Connection, project_id: int, ids: Sequence[int]
) -> dict[int, views.RunCounts]:
    columns = schema.occurrences.c
    of_project = and_(
        _columns.id == columns.run, belongs(_columns.project_id, project_id), _columns.id.in_(ids)
    )
    is_attempt = columns.group_id.is_not(None)
    totals = connection.execute(
        select(
            columns.run,
            func.count(),
            func.count(columns.group_id),
            func.count(case((and_(is_attempt, columns.status == "failed"), 1))),
        )
        .join(schema.runs, of_project)
        .where(columns.fields.is_not(None))
        .group_by(columns.run)
    ).all()
    groups = (
        select(columns.run, columns.operation, columns.group_id)
        .join(schema.runs, of_project)
        .where(is_attempt)
        .union(_rejected_groups(project_id, ids))
        .subquery()
    )
    number = func.count().label("number")
    grouped = {
        row.run: row.number
        for row in connection.execute(select(groups.c.run, number).group_by(groups.c.run))
    }
    known = {run: (total, attempts, failed) for run, total, attempts, failed in totals}
    found = {}
    for run in known.keys() | grouped.keys():
        total, attempts, failed = known.get(run, (0, 0, 0))
        listed = grouped.get(run, 0)
        found[run] = views.RunCounts(
            occurrences=total,
            attempts=attempts,
            groups=listed,
            operations=listed + total - attempts,
            failed_attempts=failed,
        )
    return found


def _rejected_groups(project_id: int, ids: Sequence[int]) -> Select[Any]:
    columns = schema.rejections.c
    return select(columns.run, columns.operation, columns.group_id).where(
        columns.run.in_(ids),
        belongs(columns.project_id, project_id),
        columns.code == names.CONFLICT,
        columns.group_id.is_not(None),
    )


def _by_key(connection: Connection, project_id: int, keys: Sequence[bytes]) -> frozenset[bytes]:
    """Which keys are those of stored runs of the project."""
    return frozenset(
        connection.execute(
            select(_columns.key).where(
                _columns.key.in_(keys), belongs(_columns.project_id, project_id)
            )
        ).scalars()
    )


def _retried_by(
    connection: Connection, project_id: int, keys: Sequence[bytes]
) -> dict[tuple[str, bytes], list[views.RunLink]]:
    """The runs that say they retry one of the keys, in order of arrival."""
    found: dict[tuple[str, bytes], list[views.RunLink]] = {}
    statement = (
        select(_columns.origin, _columns.retry_of_key, *_LINK)
        .where(
            _columns.retry_of_key.in_(keys),
            _columns.retry_of_key.is_not(None),
            belongs(_columns.project_id, project_id),
        )
        .order_by(_columns.id)
    )
    for origin, key, *link in connection.execute(statement):
        found.setdefault((origin, key), []).append(_link(*link))
    return found


def _parents(
    connection: Connection, project_id: int, found: Sequence[RunRow]
) -> dict[tuple[str, str], list[views.RunLink]]:
    """The runs that an unqualified parent id matches, whatever their workflow: all (A19)."""
    parents: dict[tuple[str, str], list[views.RunLink]] = {}
    statement = (
        select(_columns.origin, *_LINK)
        .where(
            _columns.project_id == project_id,
            _columns.run_id.in_({row.parent_run_id for row in found if row.parent_run_id}),
        )
        .order_by(_columns.id)
    )
    for origin, *link in connection.execute(statement):
        one = _link(*link)
        parents.setdefault((origin, one.run_id), []).append(one)
    return parents


def _link(workflow: str, run_id: str, key: bytes) -> views.RunLink:
    return views.RunLink(workflow, run_id, key.hex())
