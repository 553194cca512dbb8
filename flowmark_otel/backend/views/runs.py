"""What reading answers about runs: one frozen record for every JSON object (contract, section 5).

Field names are the JSON fields. ``Time`` is epoch nanoseconds here and RFC 3339 in JSON; unknown
is None here and ``null`` there. Durations are integers in nanoseconds on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from flowmark_otel.backend.views.json import Time
from flowmark_otel.model import Value
from flowmark_otel.names import (
    Ended,
    EvidenceState,
    Flag,
    Kind,
    Origin,
    RunStatus,
    Status,
    Verdict,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ErrorView:
    """How something failed, as its end says; a null part was not reported."""

    code: str | None
    type: str | None
    retryable: bool | None


@dataclass(frozen=True, slots=True)
class RunLink:
    """Another run of the same project and origin."""

    workflow: str
    run_id: str
    key: str


@dataclass(frozen=True, slots=True)
class RetryOf:
    """The run that this one says it retries (A17); ``key`` is null while it is not stored."""

    workflow: str
    run_id: str
    resolved: bool
    key: str | None


@dataclass(frozen=True, slots=True)
class RunEnd:
    """One end of a run; a continued run has several (A14)."""

    status: Ended
    ended_at: Time | None
    outcome: str | None
    error: ErrorView | None
    event_id: str
    received_at: Time


@dataclass(frozen=True, slots=True)
class RunCounts:
    """What is known of a run, each number on its own (A16).

    ``groups`` and ``operations`` count what the lists show, groups known only from rejected
    evidence included; ``occurrences`` and ``attempts`` count accepted records only.
    """

    occurrences: int
    attempts: int
    groups: int
    operations: int
    failed_attempts: int


@dataclass(frozen=True, slots=True)
class RunView:
    """One run, in lists and by itself.

    ``flags`` and ``defaulted`` speak of the run's own events; ``status`` is ``unknown`` where no
    run was recorded. ``parents`` lists every run that an unqualified parent id matches (A19).
    """

    workflow: str
    run_id: str
    origin: Origin
    key: str
    status: RunStatus
    outcome: str | None
    result: Mapping[str, Value]
    started_at: Time | None
    ended_at: Time | None
    duration_ns: int | None
    error: ErrorView | None
    ends: tuple[RunEnd, ...]
    retry_of: RetryOf | None
    retried_by: tuple[RunLink, ...]
    parents: tuple[RunLink, ...]
    parent_run_id: str | None
    correlation_id: str | None
    first_received_at: Time
    counts: RunCounts
    flags: tuple[Flag, ...]
    defaulted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EvidenceRefs:
    """The accepted events behind an occurrence (A9).

    Trace and span are those of its first start, of its end while there is no start.
    """

    start_event_id: str | None
    end_event_id: str | None
    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True)
class ObservedTry:
    """A try that an outside system made inside an operation (B8); in no count or rate."""

    number: int
    outcome: Ended
    ended_at: Time | None
    duration_ns: int | None
    series: str | None
    system: str | None
    error: ErrorView | None
    event_id: str


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """An event refused as a conflict: what it named, and what it carried."""

    event_id: str
    event: str
    code: str
    message: str
    operation: str | None
    operation_id: str | None
    group_id: str | None
    number: int | None
    sent_at: Time | None
    received_at: Time
    digest: str
    attributes: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One try of a group, numbered from 1. ``limit``: attempts allowed in total, if said.

    ``conflict``: two records claim this place, the accepted one is shown.
    """

    number: int
    limit: int | None
    kind: Kind
    operation_id: str
    status: Status
    started_at: Time | None
    ended_at: Time | None
    duration_ns: int | None
    error: ErrorView | None
    evidence: EvidenceRefs
    observed: tuple[ObservedTry, ...]
    flags: tuple[Flag, ...]
    defaulted: tuple[str, ...]
    conflict: bool


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group: its attempts by number, gaps as ``[from, to]`` with both ends, its verdict.

    ``elsewhere``: keys of runs in which this operation name and group id occur as well, at most
    20, the latest; ``elsewhere_count``: how many such runs there are. Of one group at most 10,000
    runs are looked at; where there may be more, ``elsewhere_at_least`` is true.
    ``conflicts``: the numbers that two records claim; ``rejected``: the records refused there.
    """

    operation: str
    group_id: str
    attempts: tuple[AttemptView, ...]
    gaps: tuple[tuple[int, int], ...]
    verdict: Verdict
    elsewhere: tuple[str, ...]
    elsewhere_count: int
    elsewhere_at_least: bool
    conflicts: tuple[int, ...]
    rejected: tuple[RejectedRecord, ...]


@dataclass(frozen=True, slots=True)
class AttemptFields:
    """The attempt metadata of an occurrence, as sent; times in milliseconds."""

    group_id: str
    number: int
    limit: int | None
    kind: Kind
    series: str | None
    system: str | None
    timeout_ms: int | None
    deadline_ms: int | None
    idempotency_key: str | None


@dataclass(frozen=True, slots=True)
class OccurrenceView:
    """One operation id; ``attempt`` and ``number`` are null for an ordinary occurrence (A4).

    ``verdict`` is null where there is an attempt: there its group has one.
    """

    operation: str
    operation_id: str
    attempt: AttemptFields | None
    number: int | None
    limit: int | None
    kind: Kind
    status: Status
    started_at: Time | None
    ended_at: Time | None
    duration_ns: int | None
    error: ErrorView | None
    evidence: EvidenceRefs
    observed: tuple[ObservedTry, ...]
    flags: tuple[Flag, ...]
    defaulted: tuple[str, ...]
    verdict: Verdict | None
    conflict: bool
    rejected: tuple[RejectedRecord, ...]


@dataclass(frozen=True, slots=True)
class SenderView:
    """Who sent an event, as far as is known."""

    user_agent: str | None
    service_name: str | None
    service_version: str | None
    service_instance_id: str | None


@dataclass(frozen=True, slots=True)
class EventView:
    """One piece of evidence; ``code`` and ``message`` say why a rejected one was refused."""

    event_id: str
    event: str
    state: EvidenceState
    code: str | None
    message: str | None
    origin: Origin
    trace_id: str
    span_id: str
    sent_at: Time | None
    received_at: Time
    digest: str
    attributes: Mapping[str, Value]
    dropped_attributes: int
    characters_replaced: bool
    sender: SenderView


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list; ``next`` is the cursor of the page after it, null on the last.

    A page can be short, even empty, and not the last: then few of what was looked at was wanted.
    """

    items: tuple[T, ...]
    next: str | None
