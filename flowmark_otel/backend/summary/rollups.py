"""Sums over spans of time, from the cells they are kept in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection, and_, func, select

from flowmark_otel.backend.evidence import chunks
from flowmark_otel.backend.store import derived
from flowmark_otel.backend.summary.folding import Term
from flowmark_otel.backend.summary.spans import SECOND, Span
from flowmark_otel.backend.summary.sums import ERROR, SIZE
from flowmark_otel.fold.rates import Tally

Name: TypeAlias = tuple[str, str]
"""Workflow and operation name; of all runs of a project both are empty."""

ALL: Final[Name] = ("", "")
_series = derived.series.c
_rollups = derived.rollups.c
_values = derived.rollup_values.c
_ORIGINS: Final = ("server", "browser")


def names_of(
    connection: Connection, project_id: int, workflow: str | None = None
) -> dict[int, Name]:
    """The series of a project, or of one workflow of it, by id."""
    statement = select(_series.id, _series.workflow, _series.operation).where(
        _series.project_id == project_id
    )
    if workflow is not None:
        statement = statement.where(_series.origin.in_(_ORIGINS), _series.workflow == workflow)
    return {row.id: (row.workflow, row.operation) for row in connection.execute(statement)}


def sums(
    connection: Connection, project_id: int, spans: Iterable[Span], workflow: str | None = None
) -> dict[int, Tally]:
    """What is counted in whole cells, by series; without what has a spread."""
    found: dict[int, Tally] = {}
    of_project = [_series.project_id == project_id]
    if workflow is not None:
        of_project += [_series.origin.in_(_ORIGINS), _series.workflow == workflow]
    for span in spans:
        if span.level is None:
            continue
        statement = (
            select(_rollups.series, *_sums())
            .select_from(derived.series.join(derived.rollups, _in(span)))
            .where(*of_project)
            .group_by(_rollups.series)
        )
        for row in connection.execute(statement):
            found.setdefault(row[0], Tally()).add(_tally(row[1:]))
    return found


def sums_by_step(
    connection: Connection, series: Sequence[int], span: Span, step: int
) -> dict[tuple[int, int], Tally]:
    """The same for some series, by series and begin of each ``step`` of whole cells."""
    found: dict[tuple[int, int], Tally] = {}
    # Not compiled as a division of decimals: cells begin at whole numbers of steps from zero.
    begin = (_rollups.start - _rollups.start % step).label("begin")
    for some in chunks(series):
        statement = (
            select(_rollups.series, begin, *_sums())
            .where(_rollups.series.in_(some), _within(span))
            .group_by(_rollups.series, begin)
        )
        for row in connection.execute(statement):
            found.setdefault((row[0], row[1]), Tally()).add(_tally(row[2:]))
    return found


def spread(
    connection: Connection, series: Sequence[int], spans: Iterable[Span]
) -> dict[int, dict[Term, int]]:
    """Values and their number in whole cells, by series."""
    found: dict[int, dict[Term, int]] = {}
    for span in spans:
        if span.level is None:
            continue
        for some in chunks(series):
            statement = (
                select(_values.series, _values.kind, _values.value, func.sum(_values.number))
                .where(
                    _values.series.in_(some),
                    _values.level == span.level,
                    _values.start >= span.since,
                    _values.start < span.until,
                )
                .group_by(_values.series, _values.kind, _values.value)
            )
            for one, kind, value, number in connection.execute(statement):
                counted = found.setdefault(one, {})
                counted[kind, value] = counted.get((kind, value), 0) + int(number)
    return found


def add_spread(tally: Tally, counted: dict[Term, int]) -> None:
    """Add sizes of groups and error codes to a tally."""
    sizes = {int(value): number for (kind, value), number in counted.items() if kind == SIZE}
    errors = {value: number for (kind, value), number in counted.items() if kind == ERROR}
    tally.add(Tally({}, sizes, errors))


def _sums() -> list[Any]:
    return [func.sum(_rollups[name]) for name in derived.SUMS]


def _in(span: Span) -> Any:  # noqa: ANN401  a condition
    return and_(_rollups.series == _series.id, _within(span))


def _within(span: Span) -> Any:  # noqa: ANN401  a condition
    return and_(
        _rollups.level == span.level, _rollups.start >= span.since, _rollups.start < span.until
    )


def _tally(sums_: Sequence[Any]) -> Tally:
    counts = {name: int(number) for name, number in zip(derived.SUMS, sums_, strict=True) if number}
    lost = counts.pop("lost_s", 0) * SECOND + counts.pop("lost_rest_ns", 0)
    return Tally({**counts, "lost_ns": lost} if lost else counts)
