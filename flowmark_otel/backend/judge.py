"""Pure: what is known and what arrives → verdicts and the rows to write (contract, section 4).

The caller owns ``Known`` for one transaction: it loads what the arrivals may meet, and the judge
lays over it what it decides, so that later events are judged against earlier ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

import orjson

from flowmark_otel import names
from flowmark_otel.backend.batch import Claim, Prepared, Refusal, Verdict
from flowmark_otel.backend.holding import Holding
from flowmark_otel.backend.known import EventKey, Known, KnownEvent, Occurrence, Place, Run
from flowmark_otel.backend.measured import Measured
from flowmark_otel.backend.times import unwrap_time
from flowmark_otel.fold import digest
from flowmark_otel.model import Rejection

Row: TypeAlias = tuple[object, ...]

_RUN_ENDS: Final = {
    names.RUN_COMPLETED: names.STATUS_COMPLETED,
    names.RUN_FAILED: names.STATUS_FAILED,
}
_OPERATION_ENDS: Final = {
    names.OPERATION_COMPLETED: names.STATUS_COMPLETED,
    names.OPERATION_FAILED: names.STATUS_FAILED,
}


class Rejected(NamedTuple):
    """A rejected event as it is kept; ``row`` are the columns of ``rejections`` without id."""

    project_id: int
    origin: str
    event_id: str
    digest: bytes
    row: Row


class Fault(NamedTuple):
    """Why an event that is valid is rejected."""

    code: str
    message: str


@dataclass(slots=True)
class Judge:
    """Judges the requests of one transaction, one after the other.

    ``received_at`` is the arrival of all of them, in epoch nanoseconds. After the last request
    ``events``, ``rejected`` and the changed runs and occurrences of ``known`` are to be written;
    ``events`` holds the columns of the new rows, row after row in one list. ``contradicted`` are
    the ``runs.id`` that a rejected event changes the reading of.
    """

    known: Known
    received_at: int
    events: list[object] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    contradicted: set[int] = field(default_factory=set)
    # Of the request in hand: what its project holds, and what it adds to metrics.
    holding: Holding = field(default_factory=Holding)
    measured: Measured | None = None

    def judge(self, prepared: Prepared, senders: Sequence[int]) -> Verdict:
        """Judge one request; ``senders`` are the ids of its senders, in its order."""
        signalled = prepared.signalled
        self.measured = prepared.measured
        if self.measured is not None:
            self.measured.clear()
        if not signalled:
            return self._judge(prepared, senders)
        told = [Verdict(0, 0, [], 0)]
        quiet = told.copy()
        for apart, events in groupby(prepared.events, lambda event: event.item in signalled):
            part = prepared._replace(events=list(events))
            (quiet if apart else told).append(self._judge(part, senders))
        return _sum(told + quiet)._replace(told=_sum(told))

    def _judge(self, prepared: Prepared, senders: Sequence[int]) -> Verdict:
        """Judge events that are all told to their sender, or none.

        Runs, occurrences and places are judged in the order of the request; the first row of the
        table that applies decides.
        """
        stored = duplicate = expired = 0
        rejections: list[Rejection] = []
        items: set[int] = set()
        project_id, origin = prepared.project_id, prepared.origin
        known_events, tombstones = self.known.events, self.known.tombstones
        holding = self.holding = self.known.holding(project_id)
        limited = not holding.has_room(len(prepared.events), len(prepared.names))
        for event in prepared.events:
            if isinstance(event, Refusal):
                self._refuse(prepared, event, senders[event.sender])
                position = -1 if event.event_id else event.item
                rejections.append(Rejection(event.event_id, event.code, event.message, position))
                items.add(event.item)
                continue
            if event.run_key in tombstones:
                duplicate += 1
                expired += 1
                continue
            envelope = event.envelope
            _, trace_id, span_id, part, _, _, _, _ = envelope
            key = (project_id, origin, trace_id, span_id, part)
            first = known_events.get(key)
            code = names.CONFLICT
            if first is None:
                run = self.known.runs.get(event.run_key)
                found = None
                if run is not None and event.operation_id is not None:
                    found = self.known.occurrences.get((run.id, event.operation_id))
                fault = None if run is None else self._fault(event, run, found)
                if fault is None:
                    fault = self._over(holding, event, run, found) if limited else None
                    if fault is None:
                        if run is None or run.claimed:
                            run = self._run(prepared, event)
                        self._store(key, event, senders[event.sender], run, found)
                        stored += 1
                        holding.events += 1
                        continue
                    code = names.LIMIT
            elif _same(first, event):
                duplicate += 1
                continue
            else:
                fault = "event id was accepted with another payload; the first stays"
            self._reject(prepared, event, senders[event.sender], Fault(code, fault), first)
            rejections.append(Rejection(envelope.event_id, code, fault))
            items.add(event.item)
        holding.new_events += stored
        return Verdict(stored, duplicate, rejections, len(items), expired)

    def _over(
        self, holding: Holding, claim: Claim, run: Run | None, found: Occurrence | None
    ) -> str | None:
        """The quota that a new event is over, if there is one."""
        accepted = found is not None and (found.fields is not None or claim.group_id is None)
        known = None if run is None or run.claimed else run.id
        return holding.refuses(claim, known, self.known.groups, accepted=accepted)

    def _fault(self, claim: Claim, run: Run, found: Occurrence | None) -> str | None:
        """The conflict of a new event with its operation, if there is one (A6)."""
        if found is not None:
            if found.operation != claim.operation:
                return f"operation id was accepted with the operation name {found.operation!r}"
            if claim.fields is None:
                return None
            if found.fields is not None:
                if found.fields != claim.fields:
                    return _difference(found.fields, claim.fields)
                if found.end_event is not None and claim.envelope.event in _OPERATION_ENDS:
                    return "operation was ended by another span"
                return None
        if claim.group_id is not None and _place(run, claim) in self.known.places:
            return f"attempt {claim.number} of this group was accepted with another operation id"
        return None

    def _store(
        self, key: EventKey, claim: Claim, sender: int, run: Run, found: Occurrence | None
    ) -> None:
        known = self.known
        envelope = claim.envelope
        event, sent_at, attributes = envelope.event, claim.sent_at, claim.attributes
        run.last_received_at = max(run.last_received_at, self.received_at)
        run.changed = True
        event_id = next(known.event_ids)
        self.events += (
            event_id,
            *key,
            run.id,
            event,
            sent_at,
            self.received_at,
            sender,
            envelope.dropped_attributes_count,
            envelope.characters_replaced,
            attributes,
        )
        known.events[key] = (run.id, event, sent_at, attributes)
        if self.measured is not None:
            self.measured.stored(claim)
        if claim.operation is None:
            self._advance_run(run, claim, event_id)
        else:
            self._advance_operation(run, claim, event_id, found)

    def _run(self, prepared: Prepared, claim: Claim) -> Run:
        """The run an event names, made where it is new."""
        run = self.known.runs.get(claim.run_key)
        new = run is not None and run.claimed
        if run is None:
            run = Run(
                next(self.known.run_ids),
                claim.run_key,
                prepared.project_id,
                prepared.origin,
                *claim.run,
                self.received_at,
                self.received_at,
            )
            self.known.runs[claim.run_key] = run
            new = True
        if new:
            self.holding.note((run.workflow, ""))
        run.claimed = False
        return run

    def _advance_run(self, run: Run, claim: Claim, event_id: int) -> None:
        """A14: start fields are the first accepted start's, the first end's while there is none.

        Several ends: the latest by sent time is the run's, ties by event id, the greater wins.
        """
        envelope = claim.envelope
        ended = _RUN_ENDS.get(envelope.event)
        if ended is None:
            if run.start_event is None:
                run.start_event = event_id
                run.take_fields(envelope.attributes, event_id)
            if run.end_event is None:
                run.status = names.STATUS_OPEN
            return
        if run.fields_from is None:
            run.take_fields(envelope.attributes, event_id)
        order = (unwrap_time(claim.sent_at), envelope.trace_id + envelope.span_id)
        if run.end_order is None or order > run.end_order:
            run.end_order = order
            run.end_event = event_id
            run.status = ended

    def _advance_operation(
        self, run: Run, claim: Claim, event_id: int, found: Occurrence | None
    ) -> None:
        """The first start stays; a further one from another span adds nothing."""
        if found is None:
            found = Occurrence(
                run.id,
                claim.operation_id or "",
                claim.operation or "",
                project_id=run.project_id,
            )
            self.known.occurrences[found.run, found.operation_id] = found
            self.holding.note((run.workflow, found.operation))
        if claim.fields is None:
            return
        if found.fields is None:
            found.fields = claim.fields
            found.group_id = claim.group_id
            found.number = claim.number
            if claim.group_id is not None:
                self.known.places.add(_place(run, claim))
                self._join(run, found, claim.group_id)
        ended = _OPERATION_ENDS.get(claim.envelope.event)
        if ended is not None:
            found.end(ended, event_id, claim)
            self._measure_end(run, found, claim)
        elif found.start_event is None:
            found.start_event = event_id
            found.started_at = claim.sent_at
            if self.measured is not None and found.group_id is not None:
                group = (run.id, found.operation, found.group_id)
                self.measured.started(run, found, self.known.before.get(group))
        found.changed = True

    def _join(self, run: Run, found: Occurrence, group_id: str) -> None:
        """An attempt of a group that is known from now on, and perhaps its highest."""
        groups, group = self.known.groups, (run.id, found.operation, group_id)
        highest = groups.get(group)
        if highest is None:
            groups[group] = found
            self.holding.add_group()
        elif (found.number or 0) > (highest.number or 0):
            groups[group], self.known.before[group] = found, highest
            found.decided = highest.decided
            if self.measured is not None:
                self.measured.overtook(run, found, highest)

    def _measure_end(self, run: Run, found: Occurrence, claim: Claim) -> None:
        if self.measured is None:
            return
        highest = None
        if found.group_id is not None:
            highest = self.known.groups.get((run.id, found.operation, found.group_id))
        limit = claim.envelope.attributes.get(names.ATTEMPT_LIMIT)
        self.measured.ended(run, found, limit, highest)

    def _reject(
        self, prepared: Prepared, claim: Claim, sender: int, fault: Fault, first: KnownEvent | None
    ) -> None:
        """Keep a rejected event as evidence; of a conflict with the places it names.

        Where the event accepted under its id is of another run, that run is named too: the places
        of both are in conflict (section 5). What is over a quota makes no run.
        """
        if fault.code == names.CONFLICT:
            run: Run | None = self._run(prepared, claim)
        else:
            run = self.known.runs.get(claim.run_key)
        run_id = None if run is None or run.claimed else run.id
        accepted = None if first is None or first[0] == run_id else first[0]
        envelope = claim.envelope
        self.contradicted |= {each for each in (run_id, accepted) if each is not None}
        row = (
            prepared.project_id,
            prepared.origin,
            envelope.event_id,
            digest(envelope),
            fault.code,
            fault.message,
            self.received_at,
            sender,
            run_id,
            accepted,
            envelope.event,
            envelope.trace_id,
            envelope.span_id,
            envelope.part,
            claim.sent_at,
            claim.operation,
            claim.operation_id,
            claim.group_id,
            claim.number,
            claim.attributes,
        )
        self.rejected.append(
            Rejected(prepared.project_id, prepared.origin, envelope.event_id, row[3], row)
        )

    def _refuse(self, prepared: Prepared, refusal: Refusal, sender: int) -> None:
        row = (
            prepared.project_id,
            prepared.origin,
            refusal.event_id,
            refusal.digest,
            refusal.code,
            refusal.message,
            self.received_at,
            sender,
            *_NO_RUN,
            refusal.attributes,
        )
        self.rejected.append(
            Rejected(prepared.project_id, prepared.origin, refusal.event_id, refusal.digest, row)
        )


_NO_RUN: Final = (None,) * 11


def _sum(verdicts: Sequence[Verdict]) -> Verdict:
    """Verdicts on different items as one."""
    return Verdict(
        sum(each.stored for each in verdicts),
        sum(each.duplicate for each in verdicts),
        [rejection for each in verdicts for rejection in each.rejections],
        sum(each.rejected_items for each in verdicts),
        sum(each.expired for each in verdicts),
    )


def _same(first: KnownEvent, claim: Claim) -> bool:
    """Whether two payloads of one event id have one digest; digests only where bytes differ."""
    envelope = claim.envelope
    _, event, sent_at, attributes = first
    if event != envelope.event or sent_at != claim.sent_at:
        return False
    if attributes == claim.attributes:
        return True
    stored = envelope._replace(attributes=orjson.loads(attributes))
    return digest(stored) == digest(envelope)


def _place(run: Run, claim: Claim) -> Place:
    return run.id, claim.operation or "", claim.group_id or "", claim.number or 0


def _difference(accepted: str, named: str) -> str:
    """Which start field of an operation differs from the accepted one's."""
    first, second = orjson.loads(accepted), orjson.loads(named)
    for key in sorted(first.keys() | second.keys()):
        one, other = first.get(key), second.get(key)
        if one != other:
            return (
                f"operation id was accepted with another {key}: {_shown(one)}, not {_shown(other)}"
            )
    return "operation id was accepted with other attempt fields"


def _shown(value: object) -> str:
    return "none" if value is None else repr(value)
