"""The filters of ``GET /runs`` as conditions; names come from this table, values are bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Select, and_, exists, func, literal, or_, select

from flowmark_otel import names
from flowmark_otel.backend.evidence import belongs
from flowmark_otel.backend.read.bytes import Contains
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.tries import RunTries

_runs = schema.runs.c
_occurrences = schema.occurrences.c
_rejections = schema.rejections.c
_mine = _occurrences.run == _runs.id
_GROUP = (_occurrences.operation, _occurrences.group_id)

Exact = Callable[[RunTries], bool]


@dataclass(frozen=True, slots=True)
class RunFilters:
    """Which runs; all given conditions hold. None is no condition.

    ``since`` and ``until`` (exclusive) are epoch nanoseconds of the first arrival; ``trace_id``
    is 16 bytes; ``q`` is looked for in names, ids, error codes and outcome (``words``).
    """

    workflow: str | None = None
    run_id: str | None = None
    status: names.RunStatus | None = None
    verdict: names.Verdict | None = None
    operation: str | None = None
    group_id: str | None = None
    trace_id: bytes | None = None
    error_code: str | None = None
    problem: names.Problem | None = None
    has_retries: bool | None = None
    min_attempts: int | None = None
    origin: names.Origin | None = None
    since: int | None = None
    until: int | None = None
    q: str | None = None


def storable(*texts: str) -> bool:
    """Whether a store can hold these texts: NUL would end one early in SQL, or be refused."""
    return not any("\0" in text for text in texts)


def conditions(project_id: int, filters: RunFilters) -> Iterator[ColumnElement[bool]]:
    """The conditions on ``runs`` but for ``named``, ``q`` and the time: answered from evidence.

    Those of verdict and gap decide about every run without a conflict; ``exact`` about the others.
    """
    yield belongs(_runs.project_id, project_id)
    for column, value in (
        (_runs.workflow, filters.workflow),
        (_runs.status, filters.status),
        (_runs.origin, filters.origin),
    ):
        if value is not None:
            yield column == value
    yield from _of_occurrences(filters)
    if filters.verdict is not None:
        yield _verdict(filters.verdict)
    if filters.problem is not None:
        yield _problem(filters.problem)


def within(filters: RunFilters) -> Iterator[ColumnElement[bool]]:
    """The conditions on the time of arrival."""
    if filters.since is not None:
        yield _runs.first_received_at >= filters.since
    if filters.until is not None:
        yield _runs.first_received_at < filters.until


def exact(filters: RunFilters) -> Exact | None:
    """What decides about a run with a conflict; None where the conditions alone do."""
    verdict, gap = filters.verdict, filters.problem == "gap"
    if verdict is None and not gap:
        return None
    return lambda tries: (
        (verdict is None or verdict in tries.verdicts()) and (not gap or tries.has_gap())
    )


def contradicted() -> ColumnElement[bool]:
    """Whether an event that was rejected as a conflict matters to the run."""
    conflict = _rejections.code == names.CONFLICT
    return or_(
        exists().where(_rejections.run == _runs.id, conflict),
        exists().where(_rejections.accepted_run == _runs.id, conflict),
    )


def unresolved() -> ColumnElement[bool]:
    """Whether the run says it retries one that is not stored."""
    target = schema.runs.alias("target")
    return and_(
        _runs.retry_of_key.is_not(None), ~exists().where(target.c.key == _runs.retry_of_key)
    )


def named(project_id: int, filters: RunFilters) -> list[Select[Any]]:
    """What is looked up by an index of its own: each gives the ``runs.id`` of one filter."""
    found: list[Select[Any]] = []
    if filters.trace_id is not None:
        events = schema.events.c
        found.append(
            select(events.run).where(
                events.project_id == project_id, events.trace_id == filters.trace_id
            )
        )
    if filters.run_id is not None:
        runs = schema.runs.alias("named").c
        found.append(
            select(runs.id).where(runs.project_id == project_id, runs.run_id == filters.run_id)
        )
    if filters.group_id is not None:
        with_group = select(_occurrences.run).where(
            _occurrences.project_id == project_id,
            _occurrences.group_id == filters.group_id,
            _occurrences.group_id.is_not(None),
        )
        if filters.operation is not None:
            with_group = with_group.where(_occurrences.operation == filters.operation)
        found.append(with_group)
    return found


def named_one_by_one(filters: RunFilters) -> Iterator[ColumnElement[bool]]:
    """The same as conditions on single runs, where an index would give too many."""
    if filters.trace_id is not None:
        events = schema.events.c
        # Not by the index of traces, which would give all that there are again.
        yield exists().where(
            events.run == _runs.id, func.coalesce(events.trace_id, b"") == filters.trace_id
        )
    if filters.run_id is not None:
        yield _runs.run_id == filters.run_id
    if filters.group_id is not None:
        group = [_mine, func.coalesce(_occurrences.group_id, "") == filters.group_id]
        if filters.operation is not None:
            group.append(_occurrences.operation == filters.operation)
        yield exists().where(*group)


def _of_occurrences(filters: RunFilters) -> Iterator[ColumnElement[bool]]:
    if filters.operation is not None and filters.group_id is None:
        yield exists().where(
            _mine,
            _occurrences.fields.is_not(None),
            _occurrences.operation == filters.operation,
        )
    if filters.error_code is not None:
        yield or_(
            exists().where(_mine, _occurrences.error_code == filters.error_code),
            _own_error_code(filters.error_code),
        )
    if filters.has_retries is not None:
        retries = exists().where(_mine, _occurrences.number > 1)
        yield retries if filters.has_retries else ~retries
    if filters.min_attempts is not None:
        yield _groups(func.count() >= filters.min_attempts)


def _own_error_code(code: str) -> ColumnElement[bool]:
    # Stored JSON is compact and every quote inside a text is escaped, so this member occurs in it
    # only as a member.
    member = orjson.dumps({names.ERROR_CODE: code})[1:-1]
    events = schema.events.c
    return exists().where(
        events.id == _runs.end_event, Contains(events.attributes, literal(member))
    )


def _groups(having: ColumnElement[bool]) -> ColumnElement[bool]:
    return (
        select(literal(1))
        .select_from(schema.occurrences)
        .where(_mine, _occurrences.group_id.is_not(None))
        .group_by(*_GROUP)
        .having(having)
        .correlate(schema.runs)
        .exists()
    )


def _verdict(verdict: names.Verdict) -> ColumnElement[bool]:
    if verdict == "undetermined":
        return contradicted()
    higher = schema.occurrences.alias("higher")
    highest = ~exists().where(
        higher.c.run == _occurrences.run,
        higher.c.operation == _occurrences.operation,
        higher.c.group_id == _occurrences.group_id,
        higher.c.number > _occurrences.number,
    )
    status = "completed" if verdict in ("first_try", "after_retry") else verdict
    of_group = [_occurrences.group_id.is_not(None), highest]
    if verdict == "first_try":
        of_group.append(_occurrences.number == 1)
    elif verdict == "after_retry":
        of_group.append(_occurrences.number > 1)
    ordinary = and_(_occurrences.group_id.is_(None), _occurrences.fields.is_not(None))
    judged = and_(*of_group) if verdict == "after_retry" else or_(and_(*of_group), ordinary)
    return exists().where(_mine, _occurrences.status == status, judged)


def _problem(problem: names.Problem) -> ColumnElement[bool]:
    if problem == "gap":
        return or_(_groups(func.max(_occurrences.number) > func.count()), contradicted())
    if problem == "open":
        open_operation = exists().where(
            _mine, _occurrences.status == "open", _occurrences.fields.is_not(None)
        )
        return or_(_runs.status == "open", open_operation)
    if problem == "unresolved":
        return unresolved()
    if problem == "conflict":
        return contradicted()
    return exists().where(_rejections.run == _runs.id)
