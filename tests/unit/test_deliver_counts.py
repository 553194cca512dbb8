"""The ledger: every recorded event in exactly one counted state, at every moment."""

from __future__ import annotations

import threading
from collections import Counter

from hypothesis import settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from flowmark_otel import names
from flowmark_otel.deliver.counts import MAX_NAMED, Ledger
from flowmark_otel.deliver.truth import truth_of
from flowmark_otel.model import Unacknowledged
from tests.support.envelopes import started

EVENTS = [started(number, ("g", number)) for number in range(1, 9)]
SOME = st.integers(1, 8)


def failing(number: int, state: str = names.CONFLICT) -> list[Unacknowledged]:
    """Failures of the first events."""
    return [Unacknowledged(each.event_id, state, "rejected") for each in EVENTS[:number]]


class Recording(RuleBasedStateMachine):
    """Anything that can happen to events, in any order; a model keeps the books beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(names.QUEUED)
        self.expected: Counter[tuple[str, str]] = Counter()
        self.pending = 0
        self.ended = False
        self.since = 0

    @rule(number=SOME)
    def enter(self, number: int) -> None:
        """Events enter the backlog."""
        assert self.ledger.enter(number)
        self.pending += number

    @precondition(lambda self: self.pending)
    @rule(number=SOME)
    def overflow(self, number: int) -> None:
        """Some found no room."""
        number = min(number, self.pending)
        self.ledger.overflow(EVENTS[:number], names.DROPPED, names.REASON_QUEUE_FULL)
        self.expected[names.DROPPED, names.REASON_QUEUE_FULL] += number
        self.pending -= number
        self.since += number

    @rule(number=SOME)
    def refuse(self, number: int) -> None:
        """Some never enter."""
        told = [(each.event_id, "no") for each in EVENTS[:number]]
        self.ledger.refuse(told, names.INVALID, names.REASON_NOT_SENT)
        self.expected[names.INVALID, names.REASON_NOT_SENT] += number
        self.since += number

    @precondition(lambda self: self.pending)
    @rule(taken=SOME, lost=SOME, adopted=st.integers(0, 3))
    def settle(self, taken: int, lost: int, adopted: int) -> None:
        """A batch is judged, and one of a dead process, which no flush tells of."""
        own = min(taken + lost, self.pending)
        lost = min(lost, own)
        taken = own - lost
        self.ledger.settle({names.STORED: taken}, failing(lost))
        self.ledger.inherit({names.STORED: adopted}, failing(adopted))
        if not self.ended:
            self.expected[names.STORED, ""] += taken + adopted
            self.expected[names.CONFLICT, "rejected"] += lost + adopted
            self.pending -= own
            self.since += taken + lost

    @precondition(lambda self: self.pending)
    @rule(tried=st.integers(0, 9))
    def give_up(self, tried: int) -> None:
        """The process ends; answers come too late from now on."""
        tried = min(tried, self.pending)
        self.ledger.give_up(self.pending, tried, "timeout", [e.event_id for e in EVENTS])
        self.expected[names.UNACKNOWLEDGED, "timeout"] += tried
        self.expected[names.DROPPED, names.REASON_SHUTDOWN] += self.pending - tried
        self.since += self.pending
        self.pending = 0
        self.ended = True

    @rule()
    def flush(self) -> None:
        """A window closes: it tells what was settled since the one before, by name."""
        window = self.ledger.take_window()
        assert window.settled == self.since
        assert len(window.named) <= min(sum(window.failed.values()), MAX_NAMED)
        named = Counter((each.state, each.reason) for each in window.named)
        assert all(number <= window.failed[key] for key, number in named.items())
        self.since = 0

    @invariant()
    def it_adds_up(self) -> None:
        """The counts are what the model says, and their sum is what was recorded."""
        recorded, counts = self.ledger.snapshot()
        expected = self.expected + Counter({(names.QUEUED, ""): self.pending})
        assert counts == dict(expected)
        assert sum(counts.values()) == recorded


def test_counts_add_up_whatever_happens() -> None:
    """A22: every recorded event is in exactly one counted state, and the counts add up."""
    run_state_machine_as_test(
        Recording, settings=settings(max_examples=60, stateful_step_count=30, deadline=None)
    )


def test_the_sum_holds_while_threads_record() -> None:
    """A22: seen from another thread at any moment, the counts add up to what was recorded."""
    ledger = Ledger(names.QUEUED)
    ended = threading.Event()
    seen: list[tuple[int, int]] = []

    def look() -> None:
        while not ended.is_set():
            recorded, counts = ledger.snapshot()
            seen.append((recorded, sum(counts.values())))

    def record() -> None:
        for _ in range(2000):
            ledger.enter(2)
            ledger.settle({names.STORED: 1}, failing(1))

    looking = threading.Thread(target=look)
    recording = [threading.Thread(target=record) for _ in range(3)]
    for each in (looking, *recording):
        each.start()
    for each in recording:
        each.join()
    ended.set()
    looking.join()
    assert all(recorded == total for recorded, total in seen)
    assert ledger.snapshot() == (
        12_000,
        {(names.STORED, ""): 6000, (names.CONFLICT, "rejected"): 6000},
    )


def test_a_hundred_are_named_and_all_are_counted() -> None:
    """A22: a flush names at most 100 events and counts every one, in a line that people read."""
    ledger = Ledger(names.QUEUED)
    ledger.enter(400)
    many = [Unacknowledged(f"op-{n}", names.CONFLICT, "rejected", "differs") for n in range(150)]
    ledger.settle({names.STORED: 100}, many)
    ledger.settle({}, [Unacknowledged("op-x", "unacknowledged", "timeout", "late")])
    window = ledger.take_window()
    assert len(window.named) == MAX_NAMED
    found = truth_of(window, (names.QUEUED, "unavailable", 149), ["op-y"])
    assert sum(found.failed.values()) == 300
    assert found.message == (
        "300 of 400 events were not acknowledged: 150 conflict (op-0: differs), "
        "1 unacknowledged, timeout, 149 queued, unavailable"
    )
    assert truth_of(ledger.take_window(), (names.QUEUED, "", 0), ()).failed == {}


def test_nothing_enters_once_it_is_shut() -> None:
    """A22: what comes after the end is not counted as waiting for ever."""
    ledger = Ledger(names.SPOOLED)
    assert ledger.enter(1)
    assert ledger.shut()
    assert not ledger.shut()
    assert not ledger.enter(1)
    assert ledger.snapshot() == (1, {(names.SPOOLED, ""): 1})
    assert ledger.snapshot(in_memory=5) == (1, {(names.QUEUED, ""): 1})
