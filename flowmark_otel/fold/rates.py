"""Both error rates at once, amplification and time lost (E4; contract, section 5).

Attempts and operations have a denominator each, and what is undecided is counted beside them,
never in them (A16).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from flowmark_otel import names
from flowmark_otel.fold.groups import gaps, lone_verdict, verdict

MOST_NANOSECONDS = 2**63 - 1
"""A sum of times ends here: clocks of senders may be off by centuries (fault row 14)."""


class Try(NamedTuple):
    """One known attempt as far as figures need it; times in nanoseconds, 0 if unknown."""

    number: int
    status: names.Status
    started_at: int = 0
    ended_at: int = 0
    duration_ns: int | None = None


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
    over all ``groups``; undecided are the groups with a gap, then it is "at least".
    """

    occurrences: int
    attempts: int
    failed_attempts: int
    groups: int
    operations: int
    attempt_errors: Share
    operation_errors: Share
    amplification: Share
    time_lost_ns: int
    attempts_p50: int | None
    attempts_p95: int | None
    attempts_max: int | None


class Tally:
    """Counts groups and occurrences one after the other; ``figures`` at any time, no state lost."""

    __slots__ = ("_lost", "_sizes", "_statuses", "_verdicts", "_with_gap", "groups", "ordinary")

    def __init__(self) -> None:
        self.groups = 0
        self.ordinary = 0
        self._statuses: Counter[names.Status] = Counter()
        self._verdicts: Counter[names.Verdict] = Counter()
        self._sizes: Counter[int] = Counter()
        self._with_gap = 0
        self._lost = 0

    def add_group(self, group: Tries) -> None:
        """Count one group."""
        known = {one.number: one.status for one in group.known}
        self.groups += 1
        self._statuses.update(known.values())
        self._verdicts[verdict(known, group.conflicts)] += 1
        self._with_gap += bool(gaps((*known, *group.conflicts)))
        self._lost += time_lost(group)
        if known:
            self._sizes[len(known)] += 1

    def add_ordinary(self, status: names.Status) -> None:
        """Count one occurrence without attempt, which is an operation of its own."""
        self.ordinary += 1
        self._verdicts[lone_verdict(status)] += 1

    def figures(self) -> Figures:
        """What was counted so far."""
        statuses, verdicts = self._statuses, self._verdicts
        attempts = statuses.total()
        failed = verdicts["failed"]
        return Figures(
            occurrences=attempts + self.ordinary,
            attempts=attempts,
            failed_attempts=statuses["failed"],
            groups=self.groups,
            operations=self.groups + self.ordinary,
            attempt_errors=Share(statuses["failed"], attempts - statuses["open"], statuses["open"]),
            operation_errors=Share(
                failed,
                failed + verdicts["first_try"] + verdicts["after_retry"],
                verdicts["open"] + verdicts["undetermined"],
            ),
            amplification=Share(attempts, self.groups, self._with_gap),
            time_lost_ns=min(self._lost, MOST_NANOSECONDS),
            attempts_p50=nearest_rank(self._sizes, 50),
            attempts_p95=nearest_rank(self._sizes, 95),
            attempts_max=max(self._sizes, default=None),
        )


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
