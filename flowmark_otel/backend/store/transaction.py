"""One transaction of the writer: load what arrivals may meet, judge them, write what changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from flowmark_otel.backend.batch import Claim, Prepared, Verdict
from flowmark_otel.backend.judge import Judge
from flowmark_otel.backend.known import Known, Occurrence, Run
from flowmark_otel.backend.store import rejections, tables
from flowmark_otel.backend.store.senders import Senders
from flowmark_otel.backend.times import unwrap_time

_RUN_COLUMNS: Final = 17


def judge_and_write(
    connection: sqlite3.Connection,
    requests: Sequence[Prepared],
    senders: Senders,
    received_at: int,
) -> list[Verdict]:
    """Judge the requests one after the other and write the outcome; the caller commits.

    ``received_at`` is epoch nanoseconds. The write lock must be held: ids are taken from what is
    stored, so several processes may write by turns.
    """
    known = load(connection, requests)
    judge = Judge(known, received_at)
    verdicts = [
        judge.judge(request, senders.ids(connection, request.project_id, request.senders))
        for request in requests
    ]
    write(connection, known, judge)
    return verdicts


def load(connection: sqlite3.Connection, requests: Sequence[Prepared]) -> Known:
    """What is stored of all that the events of the requests name; mostly nothing."""
    next_event, next_run = connection.execute(
        "SELECT coalesce((SELECT max(id) FROM events), 0) + 1,"
        " coalesce((SELECT max(id) FROM runs), 0) + 1"
    ).fetchone()
    known = Known(next_event, next_run)
    claims: list[Claim] = []
    for scope in {(request.project_id, request.origin) for request in requests}:
        ours: list[Claim] = [
            event
            for request in requests
            if (request.project_id, request.origin) == scope
            for event in request.events
            if isinstance(event, Claim)
        ]
        _load_events(connection, known, scope, ours)
        claims += ours
    keys = [(key,) for key in {claim.run_key for claim in claims}]
    for row in tables.RUNS.run(connection, keys):
        run = _run(row)
        known.runs[run.key] = run
    if known.runs:
        _load_operations(connection, known, claims)
    return known


def _load_events(
    connection: sqlite3.Connection, known: Known, scope: tuple[int, str], claims: list[Claim]
) -> None:
    keys = [claim.envelope[1:4] for claim in claims]  # trace id, span id, part
    row: Any
    for row in tables.EVENTS.run(connection, keys, scope):
        key = (scope[0], scope[1], row[0], row[1], row[2])
        known.events[key] = (row[3], row[4], row[5], row[6])


def _load_operations(connection: sqlite3.Connection, known: Known, claims: list[Claim]) -> None:
    named: set[tuple[int, str]] = set()
    places: set[tuple[int, str, str, int]] = set()
    for claim in claims:
        run = known.runs.get(claim.run_key)
        if run is None or claim.operation is None or claim.operation_id is None:
            continue
        named.add((run.id, claim.operation_id))
        if claim.group_id is not None and claim.number is not None:
            places.add((run.id, claim.operation, claim.group_id, claim.number))
    row: Any
    for row in tables.OCCURRENCES.run(connection, list(named)):
        found = Occurrence(*row)
        found.stored, found.changed, found.claimed = True, False, found.fields is None
        known.occurrences[found.run, found.operation_id] = found
    for row in tables.PLACES.run(connection, list(places)):
        known.places.add(row)


def _run(row: Any) -> Run:  # noqa: ANN401  a row of the driver
    sent_at, trace_id, span_id = row[_RUN_COLUMNS:]
    order = None if sent_at is None else (unwrap_time(sent_at), trace_id + span_id)
    run = Run(*row[:_RUN_COLUMNS])
    run.end_order, run.stored, run.changed = order, True, False
    return run


def write(connection: sqlite3.Connection, known: Known, judge: Judge) -> None:
    """Write all that the judge decided."""
    runs = [run for run in known.runs.values() if run.changed]
    found = [each for each in known.occurrences.values() if each.changed]
    stored = [each for each in found if each.stored]
    tables.INSERT_RUNS.run(connection, [run.row() for run in runs if not run.stored])
    tables.UPDATE_RUNS.run(connection, [run.update() for run in runs if run.stored])
    tables.INSERT_EVENTS.run_flat(connection, judge.events)
    tables.INSERT_OCCURRENCES.run(connection, [each.row() for each in found if not each.stored])
    tables.UPDATE_OCCURRENCES.run(
        connection, [each.update() for each in stored if not each.claimed]
    )
    tables.BIND_OCCURRENCES.run(connection, [each.update() for each in stored if each.claimed])
    if judge.rejected:
        rejections.keep(connection, judge.rejected)
