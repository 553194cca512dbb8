"""Views of one run that shows every mark, as the reader would answer them; times in seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from flowmark_otel import names
from flowmark_otel.backend.views import (
    Amplification,
    AttemptView,
    ErrorView,
    EventView,
    EvidenceRefs,
    GroupView,
    ObservedTry,
    OccurrenceView,
    OperationRow,
    Rate,
    RejectedRecord,
    RetryOf,
    RunCounts,
    RunEnd,
    RunLink,
    RunView,
    SenderView,
    Time,
)

ZERO: Final = 1_773_234_004_740_000_000
TRACE: Final = "431e01231eaed4dfa34059061720d1cc"
KEY: Final = "0123456789abcdef0123456789abcdef"


def at(seconds: float) -> Time:
    """A time, so many seconds after the first attempt of the main group."""
    return Time(ZERO + round(seconds * 1_000_000_000))


def error(code: str | None) -> ErrorView | None:
    """An error with a code."""
    return ErrorView(code, None, None) if code else None


def attempt(
    number: int,
    start: float | None,
    end: float | None,
    code: str | None = None,
    *,
    limit: int | None = 8,
    conflict: bool = False,
) -> AttemptView:
    """One attempt: open without an end, failed with a code, else completed."""
    status: names.Status = "completed"
    if end is None:
        status = "open"
    elif code:
        status = "failed"
    span = f"{number:016x}"
    return AttemptView(
        number=number,
        limit=limit,
        kind="reported",
        operation_id=span,
        status=status,
        started_at=None if start is None else at(start),
        ended_at=None if end is None else at(end),
        duration_ns=None if start is None or end is None else round((end - start) * 1e9),
        error=error(code),
        evidence=EvidenceRefs(
            None if start is None else f"op-{TRACE}-{span}-start",
            None if end is None else f"op-{TRACE}-{span}-end",
            TRACE,
            span,
        ),
        observed=(),
        flags=(),
        defaulted=(),
        conflict=conflict,
    )


def rejected(number: int, event: str, seconds: float) -> RejectedRecord:
    """An event refused at a number, of another operation id."""
    part = "start" if event == names.OPERATION_STARTED else "end"
    return RejectedRecord(
        event_id=f"op-{TRACE}-8c6d0b2ca316186f-{part}",
        event=event,
        code=names.CONFLICT,
        message=f"attempt {number} is operation {number:016x} already",
        operation="push-to-crm",
        operation_id="8c6d0b2ca316186f",
        group_id="customer-batch-42",
        number=number,
        sent_at=at(seconds),
        received_at=at(seconds + 0.2),
        digest="ab" * 32,
        attributes={names.ATTEMPT_NUMBER: number},
    )


def group(
    attempts: tuple[AttemptView, ...], verdict: names.Verdict, group_id: str = "customer-batch-43"
) -> GroupView:
    """A group without gaps and conflicts."""
    return GroupView("push-to-crm", group_id, attempts, (), verdict, (), 0, False, (), ())


def every_mark() -> GroupView:
    """Failed, conflict, gap of two, open, completed, and failed as the highest known."""
    return GroupView(
        operation="push-to-crm",
        group_id="customer-batch-42",
        attempts=(
            attempt(1, 0.0, 0.6, "CRM_UNAVAILABLE"),
            attempt(2, 1.05, 1.79, "CRM_TIMEOUT", conflict=True),
            attempt(5, 5.31, None),
            attempt(6, 8.40, 9.24),
            attempt(7, 9.90, 10.21, "CRM_DUPLICATE_BATCH"),
        ),
        gaps=((3, 3), (4, 4)),
        verdict="failed",
        elsewhere=("fedcba98765432100123456789abcdef",),
        elsewhere_count=1,
        elsewhere_at_least=False,
        conflicts=(2,),
        rejected=(
            rejected(2, names.OPERATION_STARTED, 1.06),
            rejected(2, names.OPERATION_COMPLETED, 1.66),
        ),
    )


def flood(count: int = 14) -> GroupView:
    """Many failed attempts, the last completed; the ninth begins before the eighth ends."""
    attempts = [
        attempt(number, number * 2.0, number * 2.0 + 0.22, "CRM_RATE_LIMITED")
        for number in range(1, count)
    ]
    if count > 9:
        attempts[8] = attempt(9, 16.17, 18.0, "CRM_RATE_LIMITED")
    attempts.append(attempt(count, count * 2.0, count * 2.0 + 0.73))
    return group(tuple(attempts), "after_retry", "customer-batch-44")


def run(status: names.RunStatus = "failed", **changed: object) -> RunView:
    """A run that failed, names an unresolved predecessor and is retried by another."""
    shown = RunView(
        workflow="crm.sync",
        run_id="sync-0311-1300",
        origin="server",
        key=KEY,
        status=status,
        outcome="partial",
        result={"imported": 75, "failed": 25, "source": "erp-nightly"},
        started_at=at(-2.74),
        ended_at=at(38.672),
        duration_ns=41_412_000_000,
        error=error("BATCH_FAILED"),
        ends=(
            RunEnd(
                "failed",
                at(38.672),
                "partial",
                error("BATCH_FAILED"),
                f"run-{TRACE}-{1:016x}-end",
                at(39.0),
            ),
        ),
        retry_of=RetryOf("crm.sync", "sync-0310-2300", resolved=False, key=None),
        retried_by=(RunLink("crm.sync", "sync-0311-1300-r1", "ab" * 16),),
        parents=(),
        parent_run_id=None,
        correlation_id="nightly-0311",
        first_received_at=at(0.1),
        counts=RunCounts(27, 22, 4, 9, 17),
        flags=(),
        defaulted=(),
    )
    return replace(shown, **changed)  # type: ignore[arg-type]


def occurrence(operation: str = "load-batch", **changed: object) -> OccurrenceView:
    """An ordinary occurrence that completed."""
    shown = OccurrenceView(
        operation=operation,
        operation_id=f"{40:016x}",
        attempt=None,
        number=None,
        limit=None,
        kind="reported",
        status="completed",
        started_at=at(-0.82),
        ended_at=at(-0.74),
        duration_ns=80_000_000,
        error=None,
        evidence=EvidenceRefs(
            f"op-{TRACE}-{40:016x}-start", f"op-{TRACE}-{40:016x}-end", TRACE, f"{40:016x}"
        ),
        observed=(),
        flags=(),
        defaulted=(),
        verdict="first_try",
        conflict=False,
        rejected=(),
    )
    return replace(shown, **changed)  # type: ignore[arg-type]


def statistics() -> OperationRow:
    """The figures of the operation that was tried again."""
    return OperationRow(
        workflow="crm.sync",
        operation="push-to-crm",
        occurrences=22,
        attempts=22,
        groups=4,
        operations=4,
        attempt_errors=Rate(17, 21, 1),
        operation_errors=Rate(1, 4, 0),
        amplification=Amplification(22, 4, 1, at_least=True),
        time_lost_ns=29_000_000_000,
    )


def event(**changed: object) -> EventView:
    """A stored end of an attempt."""
    shown = EventView(
        event_id=f"op-{TRACE}-{1:016x}-end",
        event=names.OPERATION_FAILED,
        state="stored",
        code=None,
        message=None,
        origin="server",
        trace_id=TRACE,
        span_id=f"{1:016x}",
        sent_at=at(0.6),
        received_at=at(0.7),
        digest="cd" * 32,
        attributes={names.ATTEMPT_NUMBER: 1, names.ERROR_RETRYABLE: True},
        dropped_attributes=0,
        characters_replaced=False,
        sender=SenderView("stock exporter", "crm-worker", "2.14.1", "crm-worker-7c9f-2"),
    )
    return replace(shown, **changed)  # type: ignore[arg-type]


def tried(**changed: object) -> ObservedTry:
    """A try that an outside system made inside an attempt."""
    shown = ObservedTry(
        number=1,
        outcome="failed",
        ended_at=at(0.3),
        duration_ns=100_000_000,
        series="client",
        system="crm.example.com",
        error=error("503"),
        event_id=f"op-{TRACE}-{1:016x}-observed-1-client-1",
    )
    return replace(shown, **changed)  # type: ignore[arg-type]
