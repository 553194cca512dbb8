"""What reading answers about many runs at once (contract, section 5)."""

from __future__ import annotations

from dataclasses import dataclass

from flowmark_otel.backend.views.json import Time


@dataclass(frozen=True, slots=True)
class Rate:
    """``numerator`` of ``denominator``; ``undecided`` more may belong to either."""

    numerator: int
    denominator: int
    undecided: int


@dataclass(frozen=True, slots=True)
class Amplification:
    """Known attempts per group; with ``undecided`` groups, that have a gap, it is ``at_least``."""

    numerator: int
    denominator: int
    undecided: int
    at_least: bool


@dataclass(frozen=True, slots=True)
class OperationRow:
    """One operation name of one workflow over many runs (E4); ``time_lost_ns`` is a sum.

    ``not_included`` as in the overview: runs that changed lately and are too many to be read.
    """

    workflow: str
    operation: str
    occurrences: int
    attempts: int
    groups: int
    operations: int
    attempt_errors: Rate
    operation_errors: Rate
    amplification: Amplification
    time_lost_ns: int
    not_included: int = 0


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Operations by verdict; groups, and occurrences without attempt."""

    first_try: int
    after_retry: int
    failed: int
    open: int
    undetermined: int


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts and rates of operations, whatever their names.

    ``extra_attempts`` counts known attempts with a number above 1 against operations; it and
    ``amplification`` are ``at_least`` where ``undecided`` groups have a gap.
    """

    occurrences: int
    attempts: int
    groups: int
    operations: int
    verdicts: Verdicts
    attempt_errors: Rate
    operation_errors: Rate
    amplification: Amplification
    extra_attempts: Amplification
    time_lost_ns: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """The runs first received within a part of the time; ``until`` is not within it."""

    since: Time
    until: Time
    figures: Figures


@dataclass(frozen=True, slots=True)
class ErrorCount:
    """How many failed occurrences ended with a code."""

    code: str
    count: int


@dataclass(frozen=True, slots=True)
class OverviewOperation:
    """One operation name of one workflow; ``attempts_*`` by nearest rank over groups with attempts.

    ``extra_attempts_by_bucket`` has one entry for each of the overview's ``buckets``.
    """

    workflow: str
    operation: str
    figures: Figures
    attempts_p50: int | None
    attempts_p95: int | None
    attempts_max: int | None
    top_error: ErrorCount | None
    extra_attempts_by_bucket: tuple[Amplification, ...]


@dataclass(frozen=True, slots=True)
class RunStatuses:
    """Runs by what they read as; ``unknown``: no run was recorded."""

    completed: int
    failed: int
    open: int
    unknown: int


@dataclass(frozen=True, slots=True)
class RunProblems:
    """Runs of which something is not known or was refused; one run may count several times."""

    gap: int
    open: int
    unresolved: int
    conflict: int
    rejected: int


@dataclass(frozen=True, slots=True)
class Overview:
    """Whether retrying gets worse, and where.

    ``buckets`` are of one round length, ``step_ns``; the first and the last end with the time
    asked for. ``operations`` are those of the most time lost; ``operation_names`` counts all.
    ``not_included`` runs changed lately and are in no figure yet, or with an earlier state; it is
    0 unless very many did.
    """

    since: Time
    until: Time
    step_ns: int
    runs: int
    statuses: RunStatuses
    problems: RunProblems
    figures: Figures
    buckets: tuple[Bucket, ...]
    operations: tuple[OverviewOperation, ...]
    operation_names: int
    not_included: int
