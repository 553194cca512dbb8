"""Stale runs → what is kept of them: terms, tallies and words (contract, section 5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

import orjson
from sqlalchemy import Connection, or_, select

from flowmark_otel import names
from flowmark_otel.backend.evidence import DbRow, belongs, chunks
from flowmark_otel.backend.store import schema
from flowmark_otel.backend.summary import words
from flowmark_otel.backend.tries import RunTries, run_tries
from flowmark_otel.fold.rates import Tally

Term: TypeAlias = tuple[str, str]
"""Kind and value of what a run can be filtered by."""

WORKFLOW: Final = "workflow"
ORIGIN: Final = "origin"
STATUS: Final = "status"
VERDICT: Final = "verdict"
PROBLEM: Final = "problem"
OPERATION: Final = "operation"
ERROR_CODE: Final = "error_code"
RETRIES: Final = "retries"
ATTEMPTS: Final = "attempts"

DENSE: Final = 64
"""Up to so many attempts each number is a term; beyond it each power of two."""

_runs = schema.runs.c
_rejections = schema.rejections.c


class Summary(NamedTuple):
    """One run as it is kept; ``tallies`` by operation name, ``body`` the words it is found by."""

    terms: frozenset[Term]
    tallies: dict[str, Tally]
    most_attempts: int
    body: str

    @property
    def values(self) -> frozenset[Term]:
        """The terms that are counted over all runs: status and problems."""
        return frozenset(term for term in self.terms if term[0] in (STATUS, PROBLEM))


class _Said(NamedTuple):
    """What a run's own events say that is looked for."""

    outcome: str | None
    error_code: str | None


def summarise(connection: Connection, project_id: int, runs: Sequence[DbRow]) -> dict[int, Summary]:
    """Fold runs of one project, given as rows of ``runs``; by ``runs.id``."""
    ids = [run.id for run in runs]
    tries = run_tries(connection, project_id, ids)
    said = _said(connection, project_id, runs)
    problems = _problems(connection, project_id, runs)
    return {run.id: _summary(run, tries[run.id], said[run.id], problems[run.id]) for run in runs}


def attempts_term(number: int) -> Term:
    """The term of all runs that may have a group of at least so many known attempts."""
    return ATTEMPTS, str(number if number <= DENSE else 1 << (number.bit_length() - 1))


def _attempts_terms(most: int) -> Iterable[Term]:
    for number in range(1, min(most, DENSE) + 1):
        yield ATTEMPTS, str(number)
    power = 2 * DENSE
    while power <= most:
        yield ATTEMPTS, str(power)
        power *= 2


def _summary(run: DbRow, tries: RunTries, said: _Said, problems: set[names.Problem]) -> Summary:
    known = [(name, one) for (name, _), group in tries.groups.items() for one in group.known]
    most = max((len(group.known) for group in tries.groups.values()), default=0)
    operations = {name for name, _ in known} | {name for name, _, _ in tries.ordinary}
    statuses = {one.status for _, one in known} | {status for _, status, _ in tries.ordinary}
    codes = {said.error_code, *(one.error_code for _, one in known)}
    codes |= {code for _, _, code in tries.ordinary}
    if tries.has_gap():
        problems.add("gap")
    if "open" in {run.status, *statuses}:
        problems.add("open")
    retried = any(one.number > 1 for _, one in known)
    named = sorted(filter(None, codes))
    found: set[Term] = {
        (WORKFLOW, run.workflow),
        (ORIGIN, run.origin),
        (STATUS, run.status),
        (RETRIES, "true" if retried else "false"),
        *((VERDICT, verdict) for verdict in tries.verdicts()),
        *((PROBLEM, problem) for problem in problems),
        *((OPERATION, name) for name in operations),
        *((ERROR_CODE, code) for code in named),
        *_attempts_terms(most),
    }
    of_groups = sorted({name for name, _ in tries.groups} | operations)
    group_ids = sorted({group_id for _, group_id in tries.groups})
    texts = [run.workflow, run.run_id, run.correlation_id or "", said.outcome or "", *named]
    body = words.body_of([*texts, *of_groups, *group_ids])
    return Summary(frozenset(found), tries.tallies(), most, body)


def _said(connection: Connection, project_id: int, runs: Sequence[DbRow]) -> dict[int, _Said]:
    events = schema.events.c
    by_event = {run.end_event: run.id for run in runs if run.end_event is not None}
    found = {run.id: _Said(None, None) for run in runs}
    for some in chunks(by_event):
        statement = select(events.id, events.attributes).where(
            events.id.in_(some), belongs(events.project_id, project_id)
        )
        for event, attributes in connection.execute(statement):
            given = orjson.loads(attributes)
            found[by_event[event]] = _Said(
                given.get(names.RUN_OUTCOME), given.get(names.ERROR_CODE)
            )
    return found


def _problems(
    connection: Connection, project_id: int, runs: Sequence[DbRow]
) -> dict[int, set[names.Problem]]:
    """Problems that other rows than the run's own occurrences tell."""
    found: dict[int, set[names.Problem]] = {run.id: set() for run in runs}
    for some in chunks(found):
        statement = select(_rejections.run, _rejections.accepted_run, _rejections.code).where(
            belongs(_rejections.project_id, project_id),
            or_(_rejections.run.in_(some), _rejections.accepted_run.in_(some)),
        )
        for run, accepted_run, code in connection.execute(statement):
            if run in found:
                found[run].add("rejected")
            if code == names.CONFLICT:
                for named in {run, accepted_run} & found.keys():
                    found[named].add("conflict")
    wanted = {run.retry_of_key for run in runs if run.retry_of_key is not None}
    resolved: set[bytes] = set()
    for keys in chunks(wanted):
        resolved.update(connection.execute(select(_runs.key).where(_runs.key.in_(keys))).scalars())
    for run in runs:
        if run.retry_of_key is not None and run.retry_of_key not in resolved:
            found[run.id].add("unresolved")
    return found
