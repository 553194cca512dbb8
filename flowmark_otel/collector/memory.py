"""The memory limit of a collector: over it requests are refused, and their senders wait."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from flowmark_otel.clock import Clock
from flowmark_otel.errors import Unavailable

LOOK_SECONDS: Final = 0.1
_STATM: Final = Path("/proc/self/statm")
_RESIDENT: Final = 1


class MemoryLimit:
    """Looks at most every ``LOOK_SECONDS``. ``limit`` in bytes; None is no limit."""

    def __init__(self, limit: int | None, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._looked_at: float | None = None
        self._over = False

    def admit(self) -> None:
        """Let a request in. Raises Unavailable."""
        if self._limit is None:
            return
        now = self._clock.monotonic()
        if self._looked_at is None or now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            self._over = resident() > self._limit
        if self._over:
            msg = "the collector is over its memory limit"
            raise Unavailable(msg)


def resident() -> int:
    """Bytes of this process in memory; 0 where the system does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(_STATM.read_text().split()[_RESIDENT]) * os.sysconf("SC_PAGE_SIZE")
    return 0
