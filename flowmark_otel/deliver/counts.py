"""The ledger: every recorded event in exactly one counted state, at every moment (section 3)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.model import Envelope, Unacknowledged

MAX_NAMED: Final = 100

Key = tuple[str, str]
"""A state and its reason, which is empty where the state says all."""


class Window(NamedTuple):
    """What was settled since the flush before: how many, which failed, at most 100 by name."""

    settled: int
    failed: Mapping[Key, int]
    named: tuple[Unacknowledged, ...]


def joined(windows: Sequence[Window]) -> Window:
    """What all of these tell."""
    failed: Counter[Key] = Counter()
    for window in windows:
        failed.update(window.failed)
    named = [each for window in windows for each in window.named]
    return Window(sum(window.settled for window in windows), failed, tuple(named[:MAX_NAMED]))


class Ledger:
    """Counts of one process; ``pending`` is what the state of events not yet settled is called.

    An event is entered before it is in the backlog and settled after it left it, so the counts
    add up to ``recorded`` at every moment. One lock guards it all, held for moments;
    a signal handler may take it again on the thread that has it.
    """

    def __init__(self, pending: str) -> None:
        self._pending = pending
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)  # of the same lock
        self._recorded = 0
        self._settled: Counter[Key] = Counter()
        # Events that went through the backlog, which hands out in order: what was entered before a
        # moment is settled when as many are finished.
        self._entered = 0
        self._finished = 0
        self._shut = False
        self._ended = False
        self._open_window()

    def enter(self, count: int) -> bool:
        """Events are about to enter the backlog; False, and nothing counted, once it is shut."""
        with self._lock:  # as it is taken in C
            if self._shut:
                return False
            self._recorded += count
            self._entered += count
            return True

    def overflow(self, events: Sequence[Envelope], state: str, reason: str) -> None:
        """Of the events entered these found no place in the backlog."""
        with self._changed:
            self._entered -= len(events)
            self._fail(len(events), (event.event_id for event in events), state, reason, "")
            self._changed.notify_all()

    def retract(self, count: int) -> None:
        """So many of the events entered found no place, and stay with whoever offered them."""
        with self._changed:
            self._recorded -= count
            self._entered -= count
            self._changed.notify_all()

    def refuse(self, events: Iterable[tuple[str, str]], state: str, reason: str) -> None:
        """Events, given as id and message, that were recorded and never enter the backlog."""
        with self._changed:
            for event_id, message in events:
                self._recorded += 1
                self._fail(1, (event_id,), state, reason, message)

    def settle(self, states: Mapping[str, int], failures: Sequence[Unacknowledged]) -> None:
        """Events that were handed out have their final state.

        ``states`` counts those acknowledged. Nothing is settled twice: after ``give_up`` an
        answer comes too late.
        """
        with self._changed:
            if self._ended:
                return
            for state, count in states.items():
                self._settled[state, ""] += count
                self._since += count
            for failure in failures:
                self._fail(1, (failure.event_id,), failure.state, failure.reason, failure.message)
            self._finished += sum(states.values()) + len(failures)
            self._changed.notify_all()

    def inherit(self, states: Mapping[str, int], failures: Sequence[Unacknowledged]) -> None:
        """As ``settle``, for events that another process recorded and left behind.

        They enter the counts here, with their final state, and no flush judges them: none of this
        process waits for them.
        """
        with self._changed:
            if self._ended:
                return
            for state, count in states.items():
                self._settled[state, ""] += count
            for failure in failures:
                self._settled[failure.state, failure.reason] += 1
            self._recorded += sum(states.values()) + len(failures)
            self._changed.notify_all()

    def shut(self) -> bool:
        """Let nothing enter any more; False if that was so already."""
        with self._changed:
            first, self._shut = not self._shut, True
            return first

    def give_up(self, lost: int, tried: int, reason: str, ids: Sequence[str]) -> None:
        """Settle pending events that end with the process: nothing will send them any more.

        Of the ``lost`` ones ``tried`` may have arrived and are unacknowledged for this reason, the
        others were never sent; ``ids`` name the first of them.
        """
        with self._changed:
            lost = min(lost, self._entered - self._finished)
            tried = min(tried, lost)
            self._fail(tried, ids[:tried], names.UNACKNOWLEDGED, reason, "no answer came")
            left = lost - tried
            self._fail(left, ids[tried:], names.DROPPED, names.REASON_SHUTDOWN, "never sent")
            self._finished += lost
            self._ended = True
            self._changed.notify_all()

    def entered(self) -> int:
        """How many events entered the backlog so far."""
        with self._changed:
            return self._entered

    def left_of(self, entered: int) -> int:
        """How many of the first ``entered`` events are not settled."""
        with self._changed:
            return max(min(entered, self._entered) - self._finished, 0)

    def wait(
        self, entered: int, timeout: float, in_vain: Callable[[], bool] = lambda: False
    ) -> bool:
        """Wait until the first ``entered`` events are settled; False if that takes longer.

        It ends too when ``in_vain`` says so, which is asked at each change and each ``look``.
        """

        def settled() -> bool:
            return self._finished >= min(entered, self._entered)

        with self._changed:
            self._changed.wait_for(lambda: settled() or in_vain(), timeout)
            return settled()

    def look(self) -> None:
        """Have those that wait look whether it is in vain."""
        with self._changed:
            self._changed.notify_all()

    def wait_for_any(self, timeout: float) -> None:
        """Wait until anything else is settled, or for so long."""
        with self._changed:
            self._changed.wait(timeout)

    def snapshot(self, in_memory: int = 0) -> tuple[int, dict[Key, int]]:
        """What was recorded, and the counts by state and reason, which add up to it.

        ``in_memory`` of the pending events are queued, whatever the others are called.
        """
        with self._changed:
            found = Counter(self._settled)
            pending = self._entered - self._finished
            queued = min(in_memory, pending)
            found[names.QUEUED, ""] += queued
            found[self._pending, ""] += pending - queued
            return self._recorded, dict(+found)

    def take_window(self) -> Window:
        """What was settled since this was last called."""
        with self._changed:
            window = Window(self._since, dict(self._failed), tuple(self._named))
            self._open_window()
            return window

    def _open_window(self) -> None:
        self._since = 0
        self._failed: Counter[Key] = Counter()
        self._named: list[Unacknowledged] = []

    def _fail(self, count: int, ids: Iterable[str], state: str, reason: str, message: str) -> None:
        """Count settled events; ids are made only while there is room to name them."""
        if not count:
            return
        self._settled[state, reason] += count
        self._since += count
        if state in names.DELIVERED:
            return
        self._failed[state, reason] += count
        room = min(count, MAX_NAMED - len(self._named))
        for event_id, _ in zip(ids, range(room), strict=False):
            self._named.append(Unacknowledged(event_id, state, reason, message))
