"""The overview: figures over time and per operation name (contract, section 5)."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from sqlalchemy import Connection

from flowmark_otel.backend import views
from flowmark_otel.backend.read import render
from flowmark_otel.backend.read.gathering import Gathered
from flowmark_otel.backend.summary.folding import PROBLEM, STATUS
from flowmark_otel.backend.summary.rollups import ALL, Name
from flowmark_otel.backend.summary.spans import step_of
from flowmark_otel.backend.views import Time
from flowmark_otel.fold.rates import Tally

MOST_OPERATIONS: Final = 50
"""So many operation names are shown; ``/operations`` lists all."""


def overview(
    connection: Connection, project_id: int, since: int, until: int, buckets: int
) -> views.Overview:
    """What happened in a time, in at most so many buckets; ``since`` must be before ``until``."""
    found = Gathered(connection, project_id, since, until)
    names = [name for name in found.tallies if name != ALL]
    names.sort(key=lambda name: (-found.tallies[name].counts["lost_ns"], name))
    shown = names[:MOST_OPERATIONS]
    step = step_of(since, until, buckets)
    edges, by_bucket = found.buckets([ALL, *shown], step)
    spread = found.spread(shown)
    values = found.values()
    statuses = {value: number for (kind, value), number in values.items() if kind == STATUS}
    problems = {value: number for (kind, value), number in values.items() if kind == PROBLEM}
    return views.Overview(
        since=Time(since),
        until=Time(until),
        step_ns=step,
        runs=sum(statuses.values()),
        statuses=views.RunStatuses(
            *(statuses.get(one, 0) for one in ("completed", "failed", "open", "unknown"))
        ),
        problems=views.RunProblems(
            *(problems.get(one, 0) for one in ("gap", "open", "unresolved", "conflict", "rejected"))
        ),
        figures=render.figures(found.tallies.get(ALL, Tally()).figures()),
        buckets=tuple(
            views.Bucket(Time(begin), Time(end), render.figures(tally.figures()))
            for (begin, end), tally in zip(pairwise(edges), by_bucket[ALL], strict=True)
        ),
        operations=tuple(_operation(name, spread[name], by_bucket[name]) for name in shown),
        operation_names=len(names),
        not_included=found.not_included,
    )


def _operation(name: Name, tally: Tally, buckets: list[Tally]) -> views.OverviewOperation:
    workflow, operation = name
    figures = tally.figures()
    top = figures.top_error
    return views.OverviewOperation(
        workflow=workflow,
        operation=operation,
        figures=render.figures(figures),
        attempts_p50=figures.attempts_p50,
        attempts_p95=figures.attempts_p95,
        attempts_max=figures.attempts_max,
        top_error=None if top is None else views.ErrorCount(*top),
        extra_attempts_by_bucket=tuple(
            render.at_least(one.figures().extra_attempts) for one in buckets
        ),
    )
