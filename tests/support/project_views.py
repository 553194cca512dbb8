"""Views of a project as the reader would answer them: overview, evidence, ingest."""

from __future__ import annotations

from typing import Final

from flowmark_otel import names
from flowmark_otel.backend.views import (
    Amplification,
    Bucket,
    ErrorCount,
    EventCount,
    EvidenceItem,
    Figures,
    Ingest,
    Overview,
    OverviewOperation,
    Rate,
    RunProblems,
    RunRefView,
    RunStatuses,
    SenderStats,
    Time,
    Verdicts,
)

SECOND: Final = 1_000_000_000
HOUR: Final = 3_600 * SECOND
NOW: Final = 1_773_235_497_000_000_000
_FIRST: Final = NOW - NOW % HOUR - 23 * HOUR


def figures(operations: int, extra: int, gaps: int = 0) -> Figures:
    """Figures of groups, some of which needed one more attempt than the others."""
    attempts = operations + extra
    more = Amplification(extra, operations, gaps, at_least=gaps > 0)
    return Figures(
        occurrences=attempts,
        attempts=attempts,
        groups=operations,
        operations=operations,
        verdicts=Verdicts(max(operations - extra, 0), min(extra, operations), 0, 0, 0),
        attempt_errors=Rate(extra, attempts, 0),
        operation_errors=Rate(0, operations, 0),
        amplification=Amplification(attempts, operations, gaps, at_least=gaps > 0),
        extra_attempts=more,
        time_lost_ns=extra * SECOND,
    )


def overview(
    operations: int = 1000, extra: int = 60, gaps: int = 0, rows: int = 1, name: str = ""
) -> Overview:
    """A day by hours: all extra attempts in the last two of them."""
    edges = [_FIRST + HOUR * index for index in range(24)]
    last = [0] * 22 + [extra - extra // 3, extra // 3]
    each = [operations // 24] * 23 + [operations - operations // 24 * 23]
    buckets = tuple(
        Bucket(Time(edge), Time(min(edge + HOUR, NOW + 1)), figures(count, more))
        for edge, count, more in zip(edges, each, last, strict=True)
    )
    shown = tuple(
        OverviewOperation(
            workflow="crm.sync",
            operation=name or ("push-to-crm" if not index else f"push-to-crm-{index}"),
            figures=figures(operations, extra if not index else 0, gaps),
            attempts_p50=1,
            attempts_p95=2,
            attempts_max=16,
            top_error=ErrorCount("CRM_RATE_LIMITED", extra),
            extra_attempts_by_bucket=tuple(one.figures.extra_attempts for one in buckets),
        )
        for index in range(rows if operations else 0)
    )
    return Overview(
        since=Time(_FIRST),
        until=Time(NOW + 1),
        step_ns=HOUR,
        runs=operations,
        statuses=RunStatuses(operations, 0, 0, 0),
        problems=RunProblems(gaps, 2, 3, 4, 5),
        figures=figures(operations, extra, gaps),
        buckets=buckets,
        operations=shown,
        operation_names=rows,
        not_included=0,
    )


def item(kind: names.Problem, **changes: object) -> EvidenceItem:
    """One item of a kind, of one run."""
    reasons: dict[names.Problem, names.EvidenceReason] = {
        "gap": "higher_number_known",
        "open": "no_end",
        "unresolved": "run_not_stored",
        "conflict": "place",
        "rejected": "invalid",
    }
    values: dict[str, object] = {
        "kind": kind,
        "reason": reasons[kind],
        "run": RunRefView("crm.sync", "run-1", "server", "ab" * 16),
        "operation": None if kind == "unresolved" else "push-to-crm",
        "group_id": "batch-1",
        "number": 3,
        "last_number": 4 if kind == "gap" else None,
        "service": "crm-worker",
        "event_ids": ("op-1", "op-2"),
        "first_received_at": Time(NOW - 24 * 60 * SECOND),
        "says": "What the backend says of it.",
    }
    return EvidenceItem(**{**values, **changes})  # type: ignore[arg-type]


def ingest() -> Ingest:
    """An intake with every state, and a sender whose clock is ahead."""
    return Ingest(
        read_at=Time(NOW),
        events=(
            EventCount("server", "stored", None, 6002),
            EventCount("browser", "stored", None, 10),
            EventCount("server", "duplicate", None, 175),
            EventCount("server", "duplicate", "expired", 12),
            EventCount("server", "rejected", "conflict", 4),
            EventCount("server", "rejected", "invalid", 6),
        ),
        senders=(
            SenderStats(
                "OTel-OTLP-Exporter-Go/1.40.0",
                "booking-api",
                "5.0.3",
                "booking-api-1",
                2093,
                Time(NOW - SECOND),
                -1_800_000_000,
                -1_100_000_000,
            ),
            SenderStats(None, None, None, None, 0, None, None, None),
        ),
        sender_count=2,
        store_bytes=22_400_000,
        bytes_per_attempt=718,
        schema="0004",
        oldest_evidence=Time(_FIRST),
        latest_evidence=Time(NOW - 2 * SECOND),
        waiting_runs=3,
    )
