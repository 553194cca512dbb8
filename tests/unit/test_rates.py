"""Rates, gaps and verdicts: the arithmetic of the contract, section 5."""

from __future__ import annotations

import pytest

from flowmark_otel import names
from flowmark_otel.fold.groups import gaps, lone_verdict, verdict
from flowmark_otel.fold.rates import (
    MOST_NANOSECONDS,
    Share,
    Tally,
    Tries,
    Try,
    idle,
    nearest_rank,
    time_lost,
)

SECOND = 1_000_000_000


def tried(
    number: int,
    status: names.Status,
    start: int = 0,
    end: int = 0,
    duration: int | None = None,
) -> Try:
    """A try, times in seconds."""
    return Try(
        number,
        status,
        start * SECOND,
        end * SECOND,
        None if duration is None else duration * SECOND,
    )


@pytest.mark.parametrize(
    ("known", "missing"),
    [
        ([], ()),
        ([1], ()),
        ([1, 2, 3], ()),
        ([3], ((1, 2),)),
        ([1, 3, 7], ((2, 2), (4, 6))),
        ([2**53 - 1], ((1, 2**53 - 2),)),
    ],
)
def test_gaps(known: list[int], missing: tuple[tuple[int, int], ...]) -> None:
    """A10: numbers that a higher known one implies are listed with both ends, however many."""
    assert gaps(known) == missing


@pytest.mark.parametrize(
    ("tries", "conflicts", "expected"),
    [
        ({1: "completed"}, (), "first_try"),
        ({1: "failed", 2: "completed"}, (), "after_retry"),
        ({3: "completed"}, (), "after_retry"),
        ({1: "completed", 2: "failed"}, (), "failed"),
        ({1: "failed", 2: "open"}, (), "open"),
        ({1: "failed", 2: "completed"}, (2,), "undetermined"),
        ({1: "failed", 2: "completed"}, (1,), "after_retry"),
        ({1: "completed"}, (2,), "undetermined"),
        ({}, (1,), "undetermined"),
    ],
)
def test_verdict(
    tries: dict[int, names.Status], conflicts: tuple[int, ...], expected: names.Verdict
) -> None:
    """A11: the verdict follows from the highest known number; places in conflict are known."""
    assert verdict(tries, conflicts) == expected


def test_a_lone_occurrence_reads_as_itself() -> None:
    """A4: an occurrence without attempt is open, failed or first_try, never anything else."""
    assert [lone_verdict(status) for status in ("open", "failed", "completed")] == [
        "open",
        "failed",
        "first_try",
    ]


def test_both_error_rates_at_once() -> None:
    """E4: attempts and operations have a denominator each, what is undecided stands beside it."""
    tally = Tally()
    tally.add_group(Tries([tried(1, "failed"), tried(2, "completed")]))
    tally.add_group(Tries([tried(1, "failed"), tried(2, "failed")]))
    tally.add_group(Tries([tried(1, "failed"), tried(2, "open")]))
    tally.add_group(Tries([tried(1, "completed")], conflicts=(1,)))
    for status in ("completed", "completed", "failed", "open"):
        tally.add_ordinary(status)
    found = tally.figures()
    assert found.attempt_errors == Share(4, 6, 1)
    assert found.operation_errors == Share(2, 5, 3)
    assert found.amplification == Share(7, 4, 0)
    assert (found.occurrences, found.attempts, found.failed_attempts) == (11, 7, 4)
    assert (found.groups, found.operations) == (4, 8)
    assert (found.attempts_p50, found.attempts_p95, found.attempts_max) == (2, 2, 2)


def test_amplification_is_at_least_where_a_number_is_missing() -> None:
    """E4: a group with a gap is counted as undecided beside the amplification."""
    tally = Tally()
    tally.add_group(Tries([tried(1, "failed"), tried(4, "completed")]))
    tally.add_group(Tries([tried(1, "completed")]))
    assert tally.figures().amplification == Share(3, 2, 1)


def test_rejected_evidence_enters_no_rate() -> None:
    """A16: a group known only from rejected evidence is undecided and in no error rate.

    Amplification divides by all groups, that one included, which adds no attempt to it.
    """
    tally = Tally()
    tally.add_group(Tries([], conflicts=(1,)))
    found = tally.figures()
    assert found.attempt_errors == Share(0, 0, 0)
    assert found.operation_errors == Share(0, 0, 1)
    assert found.amplification == Share(0, 1, 0)
    assert (found.groups, found.attempts) == (1, 0)


def test_nothing_counted() -> None:
    """E4: of nothing there are no percentiles, and every rate is nothing of nothing."""
    found = Tally().figures()
    assert found.attempt_errors == found.operation_errors == Share(0, 0, 0)
    assert (found.attempts_p50, found.attempts_p95, found.attempts_max) == (None, None, None)


def test_time_lost() -> None:
    """E4: failed attempts with a higher known number, and positive waits between neighbours."""
    group = Tries(
        [
            tried(1, "failed", 10, 12, 2),
            tried(2, "failed", 15, 16, 1),  # 3 s idle before
            tried(4, "failed", 30, 33, 3),  # not next to 2
            tried(5, "failed", 32, 40, 8),  # overlaps 4, and is the highest
        ]
    )
    assert time_lost(group) == (2 + 1 + 3 + 3) * SECOND


def test_time_lost_to_a_failure_below_a_place_in_conflict() -> None:
    """E4: a place in conflict is known, so the failure before it was followed by a try."""
    assert time_lost(Tries([tried(1, "failed", duration=2)], conflicts=(2,))) == 2 * SECOND


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (tried(1, "failed", 1, 2), tried(2, "open", 5), 3 * SECOND),
        (tried(1, "failed", 1, 9), tried(2, "open", 5), -4 * SECOND),
        (tried(1, "failed", 1, 0), tried(2, "open", 5), None),
        (tried(1, "failed", 1, 2), tried(2, "open", 0), None),
        (tried(1, "failed", 1, 2), tried(3, "open", 5), None),
    ],
)
def test_idle(before: Try, after: Try, expected: int | None) -> None:
    """A9: idle time is what was sent: never corrected, unknown where a time is zero."""
    assert idle(before, after) == expected


def test_sums_of_absurd_clocks_stay_numbers() -> None:
    """Fault row 14: however wrong the clocks of senders, a sum fits 64 bits."""
    tally = Tally()
    tries = [Try(1, "failed", 1, 1, 2**63 - 1), Try(2, "failed", 2**64 - 1, 1, 2**63 - 1)]
    tally.add_group(Tries([*tries, Try(3, "completed", 2**64 - 1, 0, 0)]))
    assert tally.figures().time_lost_ns == MOST_NANOSECONDS


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([1, 2, 3, 4], 50, 2),
        ([1, 2, 3, 4, 5], 50, 3),
        ([1, 2, 3, 4], 95, 4),
        (list(range(1, 101)), 95, 95),
        ([7], 50, 7),
    ],
)
def test_nearest_rank(values: list[int], percent: int, expected: int) -> None:
    """E4: percentiles are by nearest rank: always a value that occurred."""
    assert nearest_rank(dict.fromkeys(values, 1), percent) == expected
