"""What a backend adds to its metrics of attempts and operations (contract, section 10; E7)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing

import pytest
from prometheus_client import CollectorRegistry

from flowmark_otel import names
from flowmark_otel.backend.measured import Measured
from flowmark_otel.backend.read import Reader
from flowmark_otel.backend.settling import Settler, Waiting
from flowmark_otel.backend.store import open_store
from flowmark_otel.model import Envelope
from flowmark_otel.server.attempts import MAX_BROWSER_NAMES, MAX_NAMES, Attempts
from tests.support.envelopes import (
    NOW,
    OPERATION,
    WAIT,
    WORKFLOW,
    batch,
    completed,
    failed,
    observed,
    started,
)

NAMED = (WORKFLOW, OPERATION)
SECOND = 1_000_000_000
MINUTE = 60.0


class Counting:
    """Workers on one store, and the sum of what they count."""

    def __init__(self, url: str) -> None:
        self.stores = [open_store(url) for _ in range(2)]
        self.total = Measured(names.ORIGIN_SERVER)
        self.waits = [Waiting(MINUTE) for _ in self.stores]

    def put(self, *events: Envelope, worker: int = 0) -> None:
        """One request, judged by a worker."""
        measured = Measured(names.ORIGIN_SERVER)
        asked = batch(events)._replace(measured=measured)
        self.stores[worker].submit(asked).result(WAIT)
        self.waits[worker].see(measured, 0.0)
        self.count(measured)

    def settle(self, now: float = MINUTE) -> None:
        """What is due at a time is asked of the store, by each worker."""
        for store, waiting in zip(self.stores, self.waits, strict=True):
            Settler(store, waiting, self.count).settle(waiting.due(now))

    def count(self, measured: Measured) -> None:
        """Add what is durable."""
        total = self.total
        total.attempts += measured.attempts
        total.operations += measured.operations
        total.lost_ns += measured.lost_ns
        total.diagnostics += measured.diagnostics

    def statuses(self) -> list[str]:
        """The statuses of attempts, in order."""
        return [status for _, status, _ in self.total.attempts]

    def verdicts(self) -> dict[str, int]:
        """Operations by verdict."""
        return {verdict: number for (_, verdict), number in self.total.operations.items()}


@pytest.fixture
def counting(store_url: str) -> Iterator[Counting]:
    """Two workers on an empty store of each kind."""
    made = Counting(store_url)
    with closing(made.stores[0]), closing(made.stores[1]):
        yield made


def test_a_retried_operation_counts_once_and_its_loss_with_it(counting: Counting) -> None:
    """E7: each try once, the operation once, time lost as section 5 has it; duplicates nothing."""
    first = (
        started(1, ("g", 1), at=NOW),
        failed(1, ("g", 1), at=NOW + 2 * SECOND, duration=2 * SECOND),
    )
    second = (
        started(2, ("g", 2), at=NOW + 5 * SECOND),
        completed(2, ("g", 2), at=NOW + 6 * SECOND, duration=SECOND),
    )
    for _ in range(2):
        counting.put(*first)
        counting.put(*second, worker=1)
        counting.put(*second, *first)
    assert counting.total.attempts == [
        (NAMED, "failed", 2 * SECOND),
        (NAMED, "completed", SECOND),
    ]
    assert counting.verdicts() == {"after_retry": 1}
    assert counting.total.lost_ns == {NAMED: 5 * SECOND}
    counting.settle()
    assert counting.verdicts() == {"after_retry": 1}


def test_an_early_start_counts_nothing_but_the_wait_before_it(counting: Counting) -> None:
    """E1, E7: starts that come before their ends, and ends in any order, add up to the same."""
    counting.put(started(1, ("g", 1), at=NOW))
    counting.put(started(2, ("g", 2), at=NOW + 5 * SECOND), worker=1)
    assert (counting.statuses(), counting.verdicts()) == ([], {})
    counting.put(completed(2, ("g", 2), at=NOW + 6 * SECOND), worker=1)
    counting.put(failed(1, ("g", 1), at=NOW + 2 * SECOND, duration=2 * SECOND))
    assert counting.statuses() == ["completed", "failed"]
    assert counting.verdicts() == {"after_retry": 1}
    assert counting.total.lost_ns == {NAMED: 5 * SECOND}


def test_an_operation_fails_in_the_end_at_its_limit(counting: Counting) -> None:
    """E7: the failure of the last attempt that is allowed is counted at once."""
    for number in (1, 2, 3):
        counting.put(started(number, ("g", number), limit=3), worker=number % 2)
        counting.put(failed(number, ("g", number), limit=3))
        assert counting.verdicts() == ({"failed": 1} if number == 3 else {})
    counting.put(started(4, ("g", 4), limit=3), completed(4, ("g", 4), limit=3))
    counting.settle()
    assert counting.verdicts() == {"failed": 1}
    assert counting.total.diagnostics == {names.FLAG_BEYOND_LIMIT: 1}


def test_occurrences_without_attempt_are_operations_and_no_attempts(counting: Counting) -> None:
    """A4: an ordinary occurrence counts by its end; an observed try counts nowhere."""
    counting.put(started(1), completed(1), started(2), failed(2), observed(3, 1))
    assert (counting.statuses(), counting.verdicts()) == ([], {"first_try": 1, "failed": 1})


def test_a_failure_without_limit_is_decided_when_no_retry_came(counting: Counting) -> None:
    """E7: then it counts as failed, once, and a retry that comes later does not count again."""
    counting.put(started(1, ("g", 1)), failed(1, ("g", 1)))
    counting.settle(MINUTE - 1)
    assert counting.verdicts() == {}
    counting.settle()
    assert counting.verdicts() == {"failed": 1}
    counting.put(started(2, ("g", 2)), completed(2, ("g", 2)), worker=1)
    counting.put(started(3, ("g", 3)), failed(3, ("g", 3)))
    counting.settle()
    assert counting.verdicts() == {"failed": 1}
    assert counting.statuses() == ["failed", "completed", "failed"]


def test_a_retry_elsewhere_keeps_a_failure_from_being_counted(counting: Counting) -> None:
    """E7: what one worker waits for, another may have stored: the store knows."""
    counting.put(started(1, ("g", 1)), failed(1, ("g", 1)))
    counting.put(started(2, ("g", 2)), worker=1)
    counting.settle()
    assert counting.verdicts() == {}
    counting.put(failed(2, ("g", 2)), worker=1)
    counting.settle()
    assert counting.verdicts() == {"failed": 1}


def test_too_many_that_wait_are_decided_early(counting: Counting) -> None:
    """Fault row 17: what waits is bounded; the oldest is asked about before its time."""
    counting.waits[0] = Waiting(MINUTE, most=2)
    for number in (1, 2, 3):
        counting.put(started(number, (f"g{number}", 1)), failed(number, (f"g{number}", 1)))
    counting.settle(0.0)
    assert counting.verdicts() == {"failed": 1}


@pytest.mark.parametrize("seed", range(3))
def test_the_sum_over_workers_is_what_readers_say(counting: Counting, seed: int) -> None:
    """A16, E7: of any history in order, duplicates and workers at random, sums equal `/operations`.

    Retries and duplicates count once, each with its own denominator.
    """
    chance = random.Random(seed)
    serial = 0
    for group in range(12):
        for number in range(1, chance.randint(1, 4) + 1):
            serial += 1
            place = (f"g{group}", number)
            at = NOW + serial * 10 * SECOND
            ended = at + chance.randint(1, 9) * SECOND
            end = chance.choice((completed, failed))
            events = [
                started(serial, place, at=at),
                end(serial, place, at=ended, duration=ended - at),
            ]
            worker = chance.randrange(2)
            if chance.random() < 0.5:
                counting.put(*events, worker=worker)
            else:
                counting.put(events[0], worker=worker)
                counting.put(events[1], worker=1 - worker)
            counting.put(*events, worker=1 - worker)
            if end is completed:
                break
    counting.settle()
    [row] = Reader(counting.stores[0]).operation_statistics(1).items
    statuses, verdicts = counting.statuses(), counting.verdicts()
    errors = (row.attempt_errors.numerator, row.attempt_errors.denominator)
    assert (statuses.count("failed"), len(statuses)) == errors
    errors = (row.operation_errors.numerator, row.operation_errors.denominator)
    assert (verdicts.get("failed", 0), sum(verdicts.values())) == errors
    assert counting.total.lost_ns[NAMED] == row.time_lost_ns


@pytest.mark.parametrize(
    ("origin", "most"),
    [(names.ORIGIN_SERVER, MAX_NAMES), (names.ORIGIN_BROWSER, MAX_BROWSER_NAMES)],
)
def test_names_beyond_a_bound_are_counted_together(origin: str, most: int) -> None:
    """Section 10: beyond a limit names become `_other`, those of browser keys by one of their own.

    Nothing is left out of the sum.
    """
    registry = CollectorRegistry()
    counted = Attempts(registry)
    for number in range(most + 30):
        measured = Measured(origin)
        measured.attempts.append((("w", f"o{number}"), "failed", SECOND))
        measured.operations[("w", f"o{number}"), "failed"] += 1
        counted.add(measured)
    [family] = [each for each in registry.collect() if each.name == "flowmark_attempts"]
    found = {
        each.labels["flowmark_operation_name"]: each.value
        for each in family.samples
        if each.name == "flowmark_attempts_total"
    }
    assert len(found) == most + 1
    assert (found[names.OTHER_NAMES], sum(found.values())) == (30, most + 30)
