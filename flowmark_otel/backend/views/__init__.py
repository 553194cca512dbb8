"""What reading answers: one frozen record for every JSON object of the contract, section 5.

Field names are the JSON fields. ``Time`` is epoch nanoseconds here and RFC 3339 in JSON; unknown
is None here and ``null`` there. Durations are integers in nanoseconds on both sides.
"""

from flowmark_otel.backend.views.cells import cell, csv_line
from flowmark_otel.backend.views.evidence import EvidenceItem, RunRefView
from flowmark_otel.backend.views.figures import (
    Amplification,
    Bucket,
    ErrorCount,
    Figures,
    OperationRow,
    Overview,
    OverviewOperation,
    Rate,
    RunProblems,
    RunStatuses,
    Verdicts,
)
from flowmark_otel.backend.views.ingest import Arrival, EventCount, Ingest, SenderStats
from flowmark_otel.backend.views.json import Time, jsonable, rfc3339
from flowmark_otel.backend.views.runs import (
    AttemptFields,
    AttemptView,
    ErrorView,
    EventView,
    EvidenceRefs,
    GroupView,
    ObservedTry,
    OccurrenceView,
    Page,
    RejectedRecord,
    RetryOf,
    RunCounts,
    RunEnd,
    RunLink,
    RunView,
    SenderView,
)

__all__ = [
    "Amplification",
    "Arrival",
    "AttemptFields",
    "AttemptView",
    "Bucket",
    "ErrorCount",
    "ErrorView",
    "EventCount",
    "EventView",
    "EvidenceItem",
    "EvidenceRefs",
    "Figures",
    "GroupView",
    "Ingest",
    "ObservedTry",
    "OccurrenceView",
    "OperationRow",
    "Overview",
    "OverviewOperation",
    "Page",
    "Rate",
    "RejectedRecord",
    "RetryOf",
    "RunCounts",
    "RunEnd",
    "RunLink",
    "RunProblems",
    "RunRefView",
    "RunStatuses",
    "RunView",
    "SenderStats",
    "SenderView",
    "Time",
    "Verdicts",
    "cell",
    "csv_line",
    "jsonable",
    "rfc3339",
]
