"""Groups and ordinary occurrences of many runs at once, as rates and filters need them.

Read from the remembered decisions (``occurrences``), not from the evidence: ten times as fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sqlalchemy import Connection, select

from flowmark_otel import names
from flowmark_otel.backend.evidence import DbRow, belongs, chunks, conflicts
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.times import unwrap_time
from flowmark_otel.fold.groups import gaps, lone_verdict, place_of, verdict
from flowmark_otel.fold.rates import Tally, Tries, Try
from flowmark_otel.fold.rows import Conflicting
from flowmark_otel.fold.state import Place, contradictions

GroupKey: TypeAlias = tuple[str, str]
"""Operation name and group id."""


@dataclass(slots=True)
class RunTries:
    """One run: its groups, its ordinary occurrences as (operation name, status, error code)."""

    groups: dict[GroupKey, Tries] = field(default_factory=dict)
    ordinary: list[tuple[str, names.Status, str | None]] = field(default_factory=list)

    def verdicts(self) -> set[names.Verdict]:
        """The verdicts that occur in the run."""
        found = {lone_verdict(status) for _, status, _ in self.ordinary}
        for group in self.groups.values():
            statuses = {one.number: one.status for one in group.known}
            found.add(verdict(statuses, group.conflicts))
        return found

    def tallies(self) -> dict[str, Tally]:
        """The run counted, by operation name."""
        found: dict[str, Tally] = {}
        for (operation, _), group in self.groups.items():
            found.setdefault(operation, Tally()).add_group(group)
        for operation, status, code in self.ordinary:
            found.setdefault(operation, Tally()).add_ordinary(status, code)
        return found

    def has_gap(self) -> bool:
        """Whether a higher number implies one of which nothing is known."""
        return any(
            gaps((*(one.number for one in group.known), *group.conflicts))
            for group in self.groups.values()
        )


def run_tries(connection: Connection, project_id: int, runs: Sequence[int]) -> dict[int, RunTries]:
    """The groups and ordinary occurrences of runs, by ``runs.id``."""
    columns = schema.occurrences.c
    rows: dict[int, list[DbRow]] = {run: [] for run in runs}
    for some in chunks(runs):
        statement = (
            select(
                columns.run,
                columns.operation_id,
                columns.operation,
                columns.group_id,
                columns.number,
                columns.status,
                columns.started_at,
                columns.ended_at,
                columns.duration_ns,
                columns.error_code,
            )
            .join(schema.runs, schema.runs.c.id == columns.run)
            .where(
                columns.run.in_(some),
                # Said of both, or a planner that knows neither table goes through all runs.
                schema.runs.c.id.in_(some),
                columns.fields.is_not(None),
                belongs(schema.runs.c.project_id, project_id),
            )
        )
        for row in connection.execute(statement):
            rows[row.run].append(row)
    rejected = conflicts(connection, project_id, runs)
    return {run: _tries(rows[run], rejected[run]) for run in runs}


def _tries(rows: Sequence[DbRow], rejected: Sequence[Conflicting]) -> RunTries:
    tries = RunTries()
    numbers: dict[GroupKey, set[int]] = {}
    known: dict[GroupKey, list[Try]] = {}
    by_place: dict[Place, str] = {}
    places: dict[str, Place] = {}
    for _, operation_id, operation, group_id, number, status, started, ended, lasted, code in rows:
        if group_id is None:
            tries.ordinary.append((operation, status, code))
            continue
        times = unwrap_time(started or 0), unwrap_time(ended or 0)
        one = Try(number, status, *times, lasted, code)
        known.setdefault((operation, group_id), []).append(one)
        if rejected:
            by_place[operation, group_id, number] = operation_id
            places[operation_id] = (operation, group_id, number)
    marked = [places.get(one) for one in contradictions(rejected, by_place)]
    for place in (*marked, *map(place_of, rejected)):
        if place is not None:
            numbers.setdefault(place[:2], set()).add(place[2])
    for group in (*known, *numbers):
        tries.groups[group] = Tries(known.get(group, ()), numbers.get(group, ()))
    return tries
