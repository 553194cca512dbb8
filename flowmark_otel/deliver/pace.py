"""How fast delivery goes, and the flags by which other threads move the one that sends."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from flowmark_otel.clock import Clock
from flowmark_otel.deliver.flag import Flag
from flowmark_otel.deliver.limits import Limits


@dataclass(frozen=True, slots=True)
class Pace:
    """Sizes in events, times in seconds; the defaults are what applications get.

    ``linger`` is how long a batch gathers; with the time to encode it stays well below the 200 ms
    in which a start is handed to the transport (E1). ``jitter`` gives numbers from 0 to 1.
    ``wait`` waits for a flag, at most for some seconds, for ever if None.
    """

    limits: Limits = field(default_factory=Limits)
    queue: int = 8192
    batch: int = 512
    linger: float = 0.05
    jitter: Callable[[], float] = random.random
    wait: Callable[[Flag, float | None], object] = Flag.wait


class Progress:
    """What the sender tells other threads; it alone writes.

    ``trouble`` says why nothing can be delivered at the moment, empty if it can; ``tried`` is how
    many of the oldest undelivered events may have arrived.
    """

    def __init__(self, look: Callable[[], object]) -> None:
        self.trouble = ""
        self.tried = 0
        self._look = look
        self._refused = 0

    def refuse(self, flushes: int) -> None:
        """A try was met by a fault that waiting will hardly mend.

        ``flushes`` had begun before it: they need not wait for the next one, a later flush wants
        a try of its own.
        """
        self._refused = flushes
        self._look()

    def is_refused(self, flush: int) -> bool:
        """Whether a try that began after this flush was met by such a fault."""
        return self._refused >= flush


class Flags:
    """Set by any thread, waited for by the sender; ``flushes`` is guarded by its own lock."""

    def __init__(self, clock: Clock, pace: Pace) -> None:
        self._clock = clock
        self._pace = pace
        self._lock = threading.RLock()
        self._wake = Flag()
        self._full = Flag()
        self._flush = Flag()
        self._halt = Flag()
        self._flushes = 0
        self._begun = 0
        self._deadline: float | None = None

    # -- from other threads --------------------------------------------------------------------
    def wake(self, waiting: int) -> None:
        """So many events wait; once a batch of them does, it gathers no longer."""
        self._wake.set()
        if waiting >= self._pace.batch:
            self._full.set()

    @contextmanager
    def flush(self) -> Iterator[int]:
        """While a flush waits, nothing lingers; the flushes are numbered from 1."""
        with self._lock:
            self._flushes += 1
            self._begun = number = self._begun + 1
        self._flush.set()
        self._full.set()
        self._wake.set()
        try:
            yield number
        finally:
            with self._lock:
                self._flushes -= 1

    def halt(self) -> None:
        """No further request may begin."""
        self._halt.set()
        self._flush.set()
        self._full.set()
        self._wake.set()

    # -- from the sender -----------------------------------------------------------------------
    def until(self, deadline: float | None) -> None:
        """Bound everything by a moment of the monotonic clock."""
        self._deadline = deadline

    def halted(self) -> bool:
        """Whether no further request may begin."""
        if self._halt.is_set():
            return True
        return self._deadline is not None and self._clock.monotonic() >= self._deadline

    def begun(self) -> int:
        """The number of the flush that began last."""
        return self._begun

    def wait_no_longer(self) -> None:
        """What sends on the thread of one who waits begins nothing more."""
        if self._deadline is not None:
            self._deadline = self._clock.monotonic()

    def flushing(self) -> bool:
        """Whether anybody waits for all that was recorded."""
        return self._flushes > 0

    def within(self, seconds: float) -> float:
        """At most these seconds, and not beyond the deadline."""
        if self._deadline is None:
            return seconds
        return max(min(seconds, self._deadline - self._clock.monotonic()), 0.001)

    def gather(self, waiting: Callable[[], int], longest: float | None) -> None:
        """Wait until there is something, at most ``longest``; then until there is a batch of it."""
        if not waiting():
            self._pace.wait(self._wake, longest)
        self._wake.clear()
        if waiting() < self._pace.batch and not self.flushing() and not self._halt.is_set():
            self._pace.wait(self._full, self._pace.linger)
        self._full.clear()

    def hurry(self) -> None:
        """What waits next gathers no longer."""
        self._full.set()

    def begin(self) -> None:
        """A batch is about to be tried: flushes that began before it have nothing to shorten."""
        if not self._halt.is_set():
            self._flush.clear()

    def rest(self, seconds: float, *, told: bool) -> None:
        """Wait before another try; a flush shortens what the server did not ask for."""
        flag = self._halt if told else self._flush
        self._pace.wait(flag, self.within(seconds))
        self.begin()
