"""How much is taken in at once: bytes in flight of all transports, and how long judging may lag.

What does not fit is refused with a time to wait, before its body is read where that can be known:
a request that is taken is one that can be answered before its sender gives up (fault row 25).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

from typing_extensions import Self

from flowmark_otel.errors import Unavailable

MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes in flight, as they came and decompressed, beside one request that may be of any size."""
SMALL: Final = 1024 * 1024
"""Requests up to this size have a quarter of the bytes to themselves."""
LARGE: Final = 8 * 1024 * 1024
MAX_LAG: Final = 3.0
"""Seconds that a request may have to wait for its answer, by how fast others got theirs; and that
the oldest small one may have waited already."""
_KEPT: Final = 0.95  # of what was known, at each answer: about the last twenty count
MAX_RETRY: Final = 10.0
"""The longest time to wait that is told, in seconds."""


class Admission:
    """The bytes in flight of one process. Owns the count; threads that decompress add to it.

    ``after_large`` is called when a request of more than ``LARGE`` bytes has ended.
    """

    def __init__(
        self,
        max_bytes: int = MAX_BYTES,
        max_lag: float = MAX_LAG,
        now: Callable[[], float] = time.monotonic,
        after_large: Callable[[], None] = lambda: None,
    ) -> None:
        self.max_bytes = max_bytes
        self._max_lag = max_lag
        self._now = now
        self._after_large = after_large
        self._lock = threading.Lock()
        self._held = 0
        self._chief: Ticket | None = None
        self._judged: dict[Ticket, float] = {}
        self._pace = Pace()

    @property
    def held(self) -> int:
        """The bytes in flight."""
        return self._held

    def enter(self, announced: int = 0) -> Ticket:
        """Take in one request, whose body announces a size or 0; leave it by its ``with`` block.

        Raises Unavailable where it would not fit, or judging lags too far behind.
        """
        with self._lock:
            lag = self._lag()
            if lag > self._max_lag:
                msg = f"judging lags {lag:.1f} seconds behind"
                raise Unavailable(msg, retry_after=min(max(lag, 1.0), MAX_RETRY))
            ticket = Ticket(self, announced)
            if not self._fits(ticket, announced):
                raise overloaded()
            return ticket

    def grow(self, ticket: Ticket, count: int) -> None:
        """Add bytes to what a request holds. Raises Unavailable where they do not fit."""
        with self._lock:
            if not self._fits(ticket, count):
                raise overloaded()
            ticket.held += count
            self._held += count
            if self._chief is None and max(ticket.announced, ticket.held) > SMALL:
                self._chief = ticket

    def judge(self, ticket: Ticket) -> None:
        """Note that the judgement of a request begins."""
        with self._lock:
            if ticket.held <= SMALL:
                self._judged[ticket] = self._now()

    def leave(self, ticket: Ticket) -> None:
        """Give back all that a request held."""
        large = ticket.held > LARGE
        with self._lock:
            self._held -= ticket.held
            since = self._judged.pop(ticket, None)
            if since is not None:
                self._pace.done(ticket.held, since, self._now())
            ticket.held = 0
            if self._chief is ticket:
                self._chief = None
        if large:
            self._after_large()

    def _lag(self) -> float:
        """How long a request would wait, or the oldest has; a large one is no reason to."""
        oldest = next(iter(self._judged.values()), None)
        if oldest is None:
            return 0.0
        return max(self._now() - oldest, self._pace.seconds(self._shared()))

    def _shared(self) -> int:
        return self._held - (0 if self._chief is None else self._chief.held)

    def _fits(self, ticket: Ticket, count: int) -> bool:
        """Whether a request may hold so much more.

        One large request at a time is outside of the budget, so that the small ones never shut the
        large ones out; it is the first that asks while there is none.
        """
        large = max(ticket.announced, ticket.held + count) > SMALL
        if large and (self._chief is None or self._chief is ticket):
            return True
        return self._shared() + count <= (self.max_bytes * 3 // 4 if large else self.max_bytes)


class Pace:
    """How fast requests are answered while any waits: seconds a byte, the latest counting most."""

    __slots__ = ("_bytes", "_last", "_seconds")

    def __init__(self) -> None:
        self._bytes = 0.0
        self._seconds = 0.0
        self._last = 0.0

    def done(self, count: int, since: float, now: float) -> None:
        """Note that a request of ``count`` bytes, waiting since then, was answered now.

        Only the time since the answer before it is its own: several committed together share it.
        """
        self._bytes = self._bytes * _KEPT + count
        self._seconds = self._seconds * _KEPT + now - max(since, self._last)
        self._last = now

    def seconds(self, count: int) -> float:
        """How long so many bytes will take; 0 while nothing is known."""
        return count * self._seconds / self._bytes if self._bytes else 0.0


class Ticket:
    """One request in flight, and the bytes it holds."""

    __slots__ = ("_admission", "announced", "held")

    def __init__(self, admission: Admission, announced: int) -> None:
        self._admission = admission
        self.announced = announced
        self.held = 0

    def grow(self, count: int) -> None:
        """Hold so many bytes more, from any thread. Raises Unavailable where they do not fit."""
        self._admission.grow(self, count)

    def judge(self) -> None:
        """Say that judgement begins."""
        self._admission.judge(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._admission.leave(self)


def overloaded() -> Unavailable:
    """The error for what does not fit now."""
    return Unavailable("too much is in flight")
