"""One transaction of a writer: load what arrivals may meet, judge them, write what changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, select

from flowmark_otel import names
from flowmark_otel.backend.batch import Claim, Prepared, Verdict
from flowmark_otel.backend.holding import Group
from flowmark_otel.backend.judge import Judge
from flowmark_otel.backend.known import Known, Occurrence, Run
from flowmark_otel.backend.store import counters, rejections, schema
from flowmark_otel.backend.store.database import Database, Driver, Row, driver_of
from flowmark_otel.backend.store.holdings import Holdings
from flowmark_otel.backend.store.senders import Senders
from flowmark_otel.backend.store.tables import Statements
from flowmark_otel.backend.times import unwrap_time

_RUN_COLUMNS: Final = 18


class Transactions:
    """Runs them on one store for one writer thread; remembers senders and holdings between them.

    Everything that is judged within a run is guarded by the claim on it, so the order is: claim
    the runs, sorted; learn the senders, sorted; read; judge; write runs, events sorted by their
    ids, occurrences, rejections. Two transactions that claimed different runs can still meet at a
    sender or an event id: then one waits for the other there, finds the row taken and runs again,
    this time claiming also the runs of the event ids that it met.
    """

    def __init__(self, database: Database, statements: Statements, holdings: Holdings) -> None:
        self._database = database
        self._statements = statements
        self._senders = Senders()
        self._holdings = holdings

    def judge_and_write(
        self,
        connection: Connection,
        requests: Sequence[Prepared],
        received_at: int,
        *,
        again: bool = False,
    ) -> list[Verdict]:
        """Judge the requests one after the other and write the outcome; the caller commits.

        ``received_at`` is epoch nanoseconds; ``again``: an earlier run met what others wrote.
        """
        known = self._load(connection, requests, received_at, again=again)
        self._holdings.load(connection, known, requests, received_at)
        judge = Judge(known, received_at)
        verdicts = [
            judge.judge(request, self._senders.ids(request.project_id, request.senders))
            for request in requests
        ]
        accepting = {(each.project_id, each.origin) for each in requests if judge.events}
        self._write(connection, known, judge, accepting)
        counters.add(connection, requests, verdicts)
        self._holdings.write(connection, known, received_at)
        return verdicts

    def forget(self) -> None:
        """Follow a rollback."""
        self._senders.forget()
        self._holdings.forget()

    def recount(self) -> None:
        """Follow work that may have removed some of what is counted."""
        self._holdings.forget()

    def _load(
        self,
        connection: Connection,
        requests: Sequence[Prepared],
        received_at: int,
        *,
        again: bool,
    ) -> Known:
        """What is stored of all that the events of the requests name; mostly nothing."""
        claims: dict[tuple[int, str], list[Claim]] = {}
        for request in requests:
            claims.setdefault((request.project_id, request.origin), []).extend(
                event for event in request.events if isinstance(event, Claim)
            )
        named: dict[bytes, Row] = {
            claim.run_key: (claim.run_key, *scope, *claim.run)
            for scope, ours in claims.items()
            for claim in ours
        }
        driver = driver_of(connection)
        also = self._met(connection, claims) if again else ()
        made = self._database.claim(connection, list(named.values()), received_at, also=also)
        self._senders.load(
            connection,
            {(request.project_id, one) for request in requests for one in request.senders},
            received_at,
        )
        known = Known(
            self._database.event_ids(connection, sum(map(len, claims.values()))),
            self._database.run_ids(connection),
        )
        keys = [(key,) for key in named]
        for row in self._statements.runs.run(driver, keys):
            run = _run(row)
            run.claimed = run.key in made
            known.runs[run.key] = run
        # What has a tombstone has no row that was there before.
        new = [(key,) for key in named if key in made or key not in known.runs]
        known.tombstones.update(row[0] for row in self._statements.tombstones.run(driver, new))
        for scope, ours in claims.items():
            # Of a run that is new nothing is stored, and its event ids hardly ever belong to
            # another run: then the insert fails, and the next run of the transaction looks.
            older = [claim for claim in ours if claim.run_key not in made] if made else ours
            self._load_events(driver, known, scope, ours if again else older)
            self._load_operations(driver, known, older)
        # What is refused for an event id of another run is a contradiction in that run as well.
        claimed = {run.id for run in known.runs.values()}
        foreign = {event[0] for event in known.events.values()} - claimed
        if foreign:
            self._database.hold(connection, sorted(foreign))
        return known

    def _met(
        self, connection: Connection, claims: Mapping[tuple[int, str], list[Claim]]
    ) -> list[bytes]:
        """The keys of the runs that have an event id of what arrives, as far as they are known."""
        known = Known()
        for scope, ours in claims.items():
            self._load_events(driver_of(connection), known, scope, ours)
        ids = {event[0] for event in known.events.values()}
        columns = schema.runs.c
        found = connection.execute(select(columns.key).where(columns.id.in_(ids)))
        return list(found.scalars())

    def _load_events(
        self, driver: Driver, known: Known, scope: tuple[int, str], claims: list[Claim]
    ) -> None:
        keys = [claim.envelope[1:4] for claim in claims]  # trace id, span id, part
        for row in self._statements.events.run(driver, keys, scope):
            key = (scope[0], scope[1], row[0], row[1], row[2])
            known.events[key] = (row[3], row[4], row[5], row[6])

    def _load_operations(self, driver: Driver, known: Known, claims: list[Claim]) -> None:
        named: set[tuple[int, str]] = set()
        places: set[tuple[int, str, str, int]] = set()
        grouped: set[tuple[tuple[int, str], str, Group]] = set()
        for claim in claims:
            run = known.runs.get(claim.run_key)
            if run is None or claim.operation is None or claim.operation_id is None:
                continue
            key = (run.id, claim.operation_id)
            named.add(key)
            if claim.group_id is not None and claim.number is not None:
                places.add((run.id, claim.operation, claim.group_id, claim.number))
                grouped.add((key, claim.envelope.event, (run.id, claim.operation, claim.group_id)))
        for row in self._statements.occurrences.run(driver, list(named)):
            found = _occurrence(row)
            known.occurrences[found.run, found.operation_id] = found
        for run_id, operation, group_id, number in self._statements.places.run(
            driver, list(places)
        ):
            known.places.add((run_id, operation, group_id, number))
        # Which is the highest of a group is a question only where an attempt is new, or ends.
        groups = {
            group
            for key, event, group in grouped
            if key not in known.occurrences or event != names.OPERATION_STARTED
        }
        for row in self._statements.groups.run(driver, list(groups)):
            highest = _occurrence(row)
            key = (highest.run, highest.operation_id)
            highest = known.occurrences.setdefault(key, highest)
            known.groups[highest.run, highest.operation, highest.group_id or ""] = highest

    def _write(
        self, connection: Connection, known: Known, judge: Judge, accepting: set[tuple[int, str]]
    ) -> None:
        """Write all that the judge decided; ``accepting``: where any event is accepted."""
        driver, statements = driver_of(connection), self._statements
        unneeded = [run.key for run in known.runs.values() if run.claimed]
        if unneeded:
            self._database.unclaim(connection, unneeded)
        runs = [run for run in known.runs.values() if run.changed]
        found = [each for each in known.occurrences.values() if each.changed]
        stored = [each for each in found if each.stored]
        statements.insert_runs.run(driver, [run.row() for run in runs if not run.stored])
        statements.update_runs.run(driver, [run.update() for run in runs if run.stored])
        statements.insert_events.run_flat(driver, judge.events)
        statements.insert_occurrences.run(driver, [each.row() for each in found if not each.stored])
        statements.update_occurrences.run(
            driver, [each.update() for each in stored if not each.claimed]
        )
        statements.bind_occurrences.run(driver, [each.update() for each in stored if each.claimed])
        refusing = rejections.scopes(judge.rejected)
        # Of one event id one payload may be accepted here and another refused in a transaction
        # beside this one: whichever comes second meets what the first wrote.
        self._database.await_rejections(connection, sorted(accepting.difference(refusing)))
        if judge.rejected:
            self._database.lock_rejections(connection, refusing)
            self._meet(driver, known, judge)
            rejections.keep(connection, statements, judge.rejected)
            marked = [(run, 1) for run in sorted(judge.contradicted)]
            statements.mark_runs.run(driver, marked)
        rejections.link(connection, statements, judge.events)

    def _meet(self, driver: Driver, known: Known, judge: Judge) -> None:
        """Have it run again if an event id that is refused here was accepted meanwhile."""
        for scope in rejections.scopes(judge.rejected):
            named = rejections.named(judge.rejected, scope)
            for row in self._statements.events.run(driver, named, scope):
                if (*scope, row[0], row[1], row[2]) not in known.events:
                    raise self._database.overtaken()


def _occurrence(row: Row) -> Occurrence:
    found = Occurrence(*row)
    found.stored, found.changed, found.claimed = True, False, found.fields is None
    return found


def _run(row: Any) -> Run:  # noqa: ANN401  a row of the driver
    sent_at, trace_id, span_id = row[_RUN_COLUMNS:]
    order = None if sent_at is None else (unwrap_time(sent_at), trace_id + span_id)
    run = Run(*row[:_RUN_COLUMNS])
    run.end_order, run.stored, run.changed = order, True, False
    return run
