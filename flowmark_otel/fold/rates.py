"""Both error rates at once, amplification and time lost (E4; contract, section 5).

Attempts and operations have a denominator each, and what is undecided is counted beside them,
never in them (A16).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar, get_args

from flowmark_otel import names
from flowmark_otel.fold.groups import gaps, lone_verdict, verdict

Key = TypeVar("Key")

MOST_NANOSECONDS = 2**63 - 1
"""A sum of times ends here: clocks of senders may be off by centuries (fault row 14)."""


class Try(NamedTuple):
    """One known attempt as far as figures need it; times in nanoseconds, 0 if unknown."""

    number: int
    status: names.Status
    started_at: int = 0
    ended_at: int = 0
    duration_ns: int | None = None
    error_code: str | None = None


class Tries(NamedTuple):
    """One group: its known attempts, and its numbers in conflict."""

    known: Sequence[Try]
    conflicts: Collection[int] = ()


class Share(NamedTuple):
    """``numerator`` of ``denominator``; ``undecided`` more may come to count."""

    numerator: int
    denominator: int
    undecided: int


@dataclass(frozen=True, slots=True)
class Figures:
    """The counts and rates of some groups and of some occurrences without attempt.

    ``operations`` are groups and occurrences without attempt; a group known only from rejected
    evidence counts among them, undecided, and in no error rate. ``amplification``: known attempts
    over all ``groups``; undecided are the groups with a gap, then it is "at least". So is
    ``extra_attempts``: known attempts with a number above 1, over ``operations``. ``verdicts``
    count operations. ``top_error``: the code most failed occurrences ended with, and their number.
    """

    occurrences: int
    attempts: int
    failed_attempts: int
    groups: int
    operations: int
    attempt_errors: Share
    operation_errors: Share
    amplification: Share
    extra_attempts: Share
    verdicts: Mapping[names.Verdict, int]
    time_lost_ns: int
    attempts_p50: int | None
    attempts_p95: int | None
    attempts_max: int | None
    top_error: tuple[str, int] | None


COUNTS: Final = (
    *("groups", "ordinary", "with_gap", "extra", "lost_ns"),
    *(f"attempts_{status}" for status in get_args(names.Status)),
    *(f"verdict_{verdict}" for verdict in get_args(names.Verdict)),
)
"""What a tally counts once for all, beside the spreads ``sizes`` and ``errors``."""


class Tally:
    """Counts groups and occurrences one after the other; ``figures`` at any time, no state lost.

    ``counts`` by the names of ``COUNTS``; ``sizes``: groups by their number of known attempts;
    ``errors``: failed occurrences by error code. All are sums: what is counted apart can be added
    and taken away again with ``add``.
    """

    __slots__ = ("counts", "errors", "sizes")

    def __init__(
        self,
        counts: Mapping[str, int] | None = None,
        sizes: Mapping[int, int] | None = None,
        errors: Mapping[str, int] | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter(counts)
        self.sizes: Counter[int] = Counter(sizes)
        self.errors: Counter[str] = Counter(errors)

    def add_group(self, group: Tries) -> None:
        """Count one group."""
        counts = self.counts
        known = {one.number: one.status for one in group.known}
        counts["groups"] += 1
        for status in known.values():
            counts[f"attempts_{status}"] += 1
        counts[f"verdict_{verdict(known, group.conflicts)}"] += 1
        counts["with_gap"] += bool(gaps((*known, *group.conflicts)))
        counts["extra"] += sum(number > 1 for number in known)
        counts["lost_ns"] += time_lost(group)
        if known:
            self.sizes[len(known)] += 1
        self.errors.update(
            one.error_code for one in group.known if one.status == "failed" and one.error_code
        )

    def add_ordinary(self, status: names.Status, error_code: str | None = None) -> None:
        """Count one occurrence without attempt, which is an operation of its own."""
        self.counts["ordinary"] += 1
        self.counts[f"verdict_{lone_verdict(status)}"] += 1
        if status == "failed" and error_code:
            self.errors[error_code] += 1

    def add(self, other: Tally, times: int = 1) -> None:
        """Count all that another tally counted, or with ``times`` -1 no longer."""
        _add(self.counts, other.counts, times)
        _add(self.sizes, other.sizes, times)
        _add(self.errors, other.errors, times)

    def figures(self) -> Figures:
        """What was counted so far."""
        counts = self.counts
        verdicts: dict[names.Verdict, int] = {
            name: counts[f"verdict_{name}"] for name in get_args(names.Verdict)
        }
        groups, ordinary = counts["groups"], counts["ordinary"]
        failed, undecided = counts["attempts_failed"], counts["attempts_open"]
        ended = failed + counts["attempts_completed"]
        attempts = ended + undecided
        return Figures(
            occurrences=attempts + ordinary,
            attempts=attempts,
            failed_attempts=failed,
            groups=groups,
            operations=groups + ordinary,
            attempt_errors=Share(failed, ended, undecided),
            operation_errors=Share(
                verdicts["failed"],
                verdicts["failed"] + verdicts["first_try"] + verdicts["after_retry"],
                verdicts["open"] + verdicts["undetermined"],
            ),
            amplification=Share(attempts, groups, counts["with_gap"]),
            extra_attempts=Share(counts["extra"], groups + ordinary, counts["with_gap"]),
            verdicts=verdicts,
            time_lost_ns=min(counts["lost_ns"], MOST_NANOSECONDS),
            attempts_p50=nearest_rank(self.sizes, 50),
            attempts_p95=nearest_rank(self.sizes, 95),
            attempts_max=max(self.sizes, default=None),
            top_error=min(self.errors.items(), key=lambda one: (-one[1], one[0]), default=None),
        )


def _add(mine: Counter[Key], others: Mapping[Key, int], times: int) -> None:
    for key, number in others.items():
        mine[key] += times * number
        if not mine[key]:
            del mine[key]


def time_lost(group: Tries) -> int:
    """Nanoseconds lost to retries in one group.

    Durations of failed attempts that have a higher known number, and positive idle time between
    consecutive numbers. What is not known adds nothing.
    """
    tries = sorted(group.known)
    highest = max((*(one.number for one in tries), *group.conflicts), default=0)
    failed = sum(
        one.duration_ns or 0 for one in tries if one.status == "failed" and one.number < highest
    )
    return failed + sum(max(idle(one, after) or 0, 0) for one, after in pairwise(tries))


def idle(before: Try, after: Try) -> int | None:
    """Nanoseconds from the end of one attempt to the start of the next number.

    Negative if they overlap; None unless the numbers are consecutive and both times are known.
    """
    if after.number != before.number + 1 or not before.ended_at or not after.started_at:
        return None
    return after.started_at - before.ended_at


def nearest_rank(values: Mapping[int, int], percent: int) -> int | None:
    """The percentile by nearest rank of values given with their number, None of nothing."""
    rank = -(-percent * sum(values.values()) // 100)
    for value in sorted(values):
        rank -= values[value]
        if rank <= 0:
            return value
    return None
