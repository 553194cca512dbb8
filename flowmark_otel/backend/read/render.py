"""State → views: names the JSON fields and nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flowmark_otel import names
from flowmark_otel.backend import views
from flowmark_otel.backend.views import Time
from flowmark_otel.fold import rates, rows
from flowmark_otel.fold.groups import Group, lone_verdict
from flowmark_otel.fold.rows import Accepted, Conflicting, integer, text
from flowmark_otel.fold.state import Occurrence


def sent_time(sent_at: int | None) -> Time | None:
    """A sent time; zero means unknown."""
    return Time(sent_at) if sent_at else None


def error(event: Accepted | None) -> views.ErrorView | None:
    """What an event says of a failure."""
    said = rows.error_of(event) if event else None
    return views.ErrorView(said.code, said.type, said.retryable) if said else None


def run_end(end: Accepted) -> views.RunEnd:
    """One end of a run."""
    return views.RunEnd(
        status=rows.ended(end),
        ended_at=sent_time(end.sent_at),
        outcome=text(end.attributes, names.RUN_OUTCOME),
        error=error(end),
        event_id=end.event_id,
        received_at=Time(end.received_at),
    )


def observed(event: Accepted) -> views.ObservedTry:
    """One try observed inside an operation (B8)."""
    attributes = event.attributes
    return views.ObservedTry(
        number=integer(attributes, names.OBSERVED_NUMBER) or 0,
        outcome="failed" if attributes.get(names.OBSERVED_OUTCOME) == "failed" else "completed",
        ended_at=sent_time(event.sent_at),
        duration_ns=integer(attributes, names.OBSERVED_DURATION_NS),
        series=text(attributes, names.OBSERVED_SERIES),
        system=text(attributes, names.OBSERVED_SYSTEM),
        error=error(event),
        event_id=event.event_id,
    )


def rejected(record: Conflicting) -> views.RejectedRecord:
    """One event refused as a conflict."""
    return views.RejectedRecord(
        event_id=record.event_id,
        event=record.event,
        code=names.CONFLICT,
        message=record.message,
        operation=record.operation,
        operation_id=record.operation_id,
        group_id=record.group_id,
        number=record.number,
        sent_at=sent_time(record.sent_at),
        received_at=Time(record.received_at),
        digest=record.digest.hex(),
        attributes=record.attributes,
    )


def attempt(one: Occurrence) -> views.AttemptView:
    """One attempt of a group."""
    return views.AttemptView(
        number=one.number or 0,
        limit=integer(one.fields, names.ATTEMPT_LIMIT),
        kind=_kind(one),
        operation_id=one.operation_id,
        status=one.status,
        started_at=_started_at(one),
        ended_at=_ended_at(one),
        duration_ns=_duration(one),
        error=error(one.end),
        evidence=_evidence(one),
        observed=tuple(map(observed, one.observed)),
        flags=one.flags,
        defaulted=one.defaulted,
        conflict=one.conflict,
    )


def occurrence(one: Occurrence) -> views.OccurrenceView:
    """One occurrence, with its attempt if it is one."""
    return views.OccurrenceView(
        operation=one.operation,
        operation_id=one.operation_id,
        attempt=_attempt_fields(one),
        number=one.number,
        limit=integer(one.fields, names.ATTEMPT_LIMIT),
        kind=_kind(one),
        status=one.status,
        started_at=_started_at(one),
        ended_at=_ended_at(one),
        duration_ns=_duration(one),
        error=error(one.end),
        evidence=_evidence(one),
        observed=tuple(map(observed, one.observed)),
        flags=one.flags,
        defaulted=one.defaulted,
        verdict=lone_verdict(one.status) if one.group_id is None else None,
        conflict=one.conflict,
        rejected=tuple(map(rejected, one.rejected)),
    )


class Elsewhere(NamedTuple):
    """Other runs that name the same group: keys of the latest, and their number."""

    keys: Sequence[bytes] = ()
    number: int = 0
    at_least: bool = False


def group(found: Group, elsewhere: Elsewhere) -> views.GroupView:
    """One group."""
    return views.GroupView(
        operation=found.operation,
        group_id=found.group_id,
        attempts=tuple(map(attempt, found.attempts)),
        gaps=found.gaps,
        verdict=found.verdict,
        elsewhere=tuple(key.hex() for key in elsewhere.keys),
        elsewhere_count=elsewhere.number,
        elsewhere_at_least=elsewhere.at_least,
        conflicts=found.conflicts,
        rejected=tuple(map(rejected, found.rejected)),
    )


def operation_row(
    workflow: str, operation: str, found: rates.Figures, not_included: int = 0
) -> views.OperationRow:
    """The figures of one operation name."""
    return views.OperationRow(
        workflow=workflow,
        operation=operation,
        occurrences=found.occurrences,
        attempts=found.attempts,
        groups=found.groups,
        operations=found.operations,
        attempt_errors=views.Rate(*found.attempt_errors),
        operation_errors=views.Rate(*found.operation_errors),
        amplification=at_least(found.amplification),
        time_lost_ns=found.time_lost_ns,
        not_included=not_included,
    )


def figures(found: rates.Figures) -> views.Figures:
    """The figures of whatever was counted."""
    return views.Figures(
        occurrences=found.occurrences,
        attempts=found.attempts,
        groups=found.groups,
        operations=found.operations,
        verdicts=views.Verdicts(**{str(name): count for name, count in found.verdicts.items()}),
        attempt_errors=views.Rate(*found.attempt_errors),
        operation_errors=views.Rate(*found.operation_errors),
        amplification=at_least(found.amplification),
        extra_attempts=at_least(found.extra_attempts),
        time_lost_ns=found.time_lost_ns,
    )


def at_least(share: rates.Share) -> views.Amplification:
    """A share that is "at least" where something is undecided."""
    return views.Amplification(*share, at_least=bool(share.undecided))


def _kind(one: Occurrence) -> names.Kind:
    return "observed" if one.fields.get(names.ATTEMPT_KIND) == "observed" else "reported"


def _started_at(one: Occurrence) -> Time | None:
    return sent_time(one.start.sent_at) if one.start else None


def _ended_at(one: Occurrence) -> Time | None:
    return sent_time(one.end.sent_at) if one.end else None


def _duration(one: Occurrence) -> int | None:
    return rows.duration_of(one.end) if one.end else None


def _attempt_fields(one: Occurrence) -> views.AttemptFields | None:
    if one.group_id is None or one.number is None:
        return None
    return views.AttemptFields(
        group_id=one.group_id,
        number=one.number,
        limit=integer(one.fields, names.ATTEMPT_LIMIT),
        kind=_kind(one),
        series=text(one.fields, names.ATTEMPT_SERIES_NAME),
        system=text(one.fields, names.ATTEMPT_SYSTEM_NAME),
        timeout_ms=integer(one.fields, names.ATTEMPT_TIMEOUT_MS),
        deadline_ms=integer(one.fields, names.ATTEMPT_DEADLINE_MS),
        idempotency_key=text(one.fields, names.ATTEMPT_IDEMPOTENCY_KEY),
    )


def _evidence(one: Occurrence) -> views.EvidenceRefs:
    speaks = one.start or one.end
    return views.EvidenceRefs(
        start_event_id=one.start.event_id if one.start else None,
        end_event_id=one.end.event_id if one.end else None,
        trace_id=speaks.trace_id.hex() if speaks else "",
        span_id=speaks.span_id.hex() if speaks else "",
    )
