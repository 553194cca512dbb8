"""A clock that stands still until it is moved, and ids that come in order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Protocol

from opentelemetry.sdk.trace.id_generator import IdGenerator

START_NS: Final = 1_800_000_000_000_000_000
"""Where a fake clock starts: 2027-01-15T08:00:00Z."""

_NANO: Final = 1_000_000_000


class Waitable(Protocol):
    """What can be set and waited for, such as ``threading.Event``."""

    def is_set(self) -> bool:
        """Whether it is set."""
        ...

    def wait(self, timeout: float | None) -> bool:
        """Wait until it is set, at most ``timeout`` seconds; whether it is."""
        ...


class FakeClock:
    """Implements ``clock.Clock``; any thread may read and move it.

    ``start_ns``: epoch nanoseconds. The monotonic clock starts at 0.
    """

    def __init__(self, start_ns: int = START_NS) -> None:
        self._lock = threading.Lock()
        self._wall_ns = start_ns
        self._elapsed_ns = 0
        self._heard_by: list[Callable[[], object]] = []

    def now_ns(self) -> int:
        """Epoch nanoseconds."""
        return self._wall_ns

    def monotonic(self) -> float:
        """Seconds since this clock was made; they never go back."""
        return self._elapsed_ns / _NANO

    def advance(self, seconds: float) -> None:
        """Let both clocks go on; raises ValueError for a step back."""
        if seconds < 0:
            msg = f"a clock advances by 0 seconds or more, found {seconds}; use set_wall"
            raise ValueError(msg)
        with self._lock:
            step = round(seconds * _NANO)
            self._wall_ns += step
            self._elapsed_ns += step
        self._tell()

    def set_wall(self, epoch_ns: int) -> None:
        """Put the wall clock to another time, earlier or later, as an operator does."""
        with self._lock:
            self._wall_ns = epoch_ns
        self._tell()

    def on_move(self, act: Callable[[], object]) -> Callable[[], None]:
        """Call ``act`` after each move, on the thread that moves; what this gives ends that."""
        with self._lock:
            self._heard_by.append(act)

        def forget() -> None:
            with self._lock:
                if act in self._heard_by:
                    self._heard_by.remove(act)

        return forget

    def wait(self, flag: Waitable, seconds: float | None) -> bool:
        """As waiting for the flag itself, but a wait that would end by itself moves the clock."""
        if seconds is None:
            return flag.wait(None)
        if not flag.is_set():
            self.advance(max(seconds, 0.0))
        return flag.is_set()

    def _tell(self) -> None:
        with self._lock:
            heard_by = tuple(self._heard_by)
        for act in heard_by:
            act()


class IdSequence(IdGenerator):
    """Trace and span ids 1, 2, 3, …: ``TracerProvider(id_generator=IdSequence())``.

    ``first`` sets two sequences apart.
    """

    def __init__(self, first: int = 1) -> None:
        if first < 1:
            msg = f"ids are from 1, found {first}"
            raise ValueError(msg)
        self._lock = threading.Lock()
        self._trace = first - 1
        self._span = first - 1

    def generate_trace_id(self) -> int:
        """The next trace id."""
        with self._lock:
            self._trace += 1
            return self._trace

    def generate_span_id(self) -> int:
        """The next span id."""
        with self._lock:
            self._span += 1
            return self._span
