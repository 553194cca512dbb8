"""The memory limit of a collector: over it requests are refused, and their senders wait."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from flowmark_otel.errors import Unavailable
from flowmark_otel.listen.admission import MAX_BYTES, Admission, Ticket
from flowmark_otel.listen.memory import give_back_soon

LOOK_SECONDS: Final = 0.1
"""So old the known size of the process may be."""
RETRY_SECONDS: Final = 2.0
"""What a sender is told to wait while the process is over its limit."""

_PAGE: Final = resource.getpagesize()
_STATM: Final = Path("/proc/self/statm")
_SHARE: Final = 4  # of the limit, for bodies in flight: what is made of one takes several times it


def admission_of(
    memory_limit: int | None,
    resident: Callable[[], int] | None = None,
    now: Callable[[], float] = time.monotonic,
) -> Admission:
    """What is taken in at once, under ``service.memory_limit_mib``; bytes, None for no limit."""
    if memory_limit is None:
        return Admission(after_large=give_back_soon)
    return LimitedAdmission(memory_limit, resident or resident_bytes, now)


class LimitedAdmission(Admission):
    """Refuses with a time to wait while the process is over its limit: senders hold what they have.

    A request that is in flight is finished: what it takes is bounded by its share of the limit.
    ``resident`` gives the bytes of the process.
    """

    def __init__(
        self,
        limit: int,
        resident: Callable[[], int],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(min(MAX_BYTES, limit // _SHARE), now=now, after_large=give_back_soon)
        self._limit = limit
        self._resident = resident
        self._looked_at = float("-inf")
        self._size = 0

    def enter(self, announced: int = 0) -> Ticket:
        """Take in one request; raises Unavailable where it would not fit, or memory is short."""
        now = self._now()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            self._size = self._resident()
        if self._size + announced > self._limit:
            give_back_soon()  # what is free already may be all that is missing
            msg = f"the collector is at its memory limit of {self._limit >> 20} MiB"
            raise Unavailable(msg, retry_after=RETRY_SECONDS)
        return super().enter(announced)


def resident_bytes() -> int:
    """Bytes of memory that this process has; 0 where the system does not say (not Linux)."""
    try:
        pages = int(_STATM.read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * _PAGE
