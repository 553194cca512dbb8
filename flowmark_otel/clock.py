"""Where time comes from. Time is an argument: nothing pure reads a clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall clock in epoch nanoseconds, and a monotonic one in seconds."""

    def now_ns(self) -> int:
        """Epoch nanoseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...


class SystemClock:
    """The machine's clocks, read without a frame between."""

    now_ns = staticmethod(time.time_ns)
    monotonic = staticmethod(time.monotonic)
