"""How much is taken in at once: bytes in flight of all transports, and how long judging may lag.

What does not fit is refused with a time to wait, before its body is read where that can be known:
a request that is taken is one that can be answered before its sender gives up (fault row 25).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, TypeVar

from typing_extensions import Self

from flowmark_otel.errors import Unavailable

MAX_BYTES: Final = 64 * 1024 * 1024
"""Bytes in flight, as they came and decompressed, beside one request that may be of any size."""
SMALL: Final = 1024 * 1024
"""Requests up to this size have a quarter of the bytes to themselves."""
LARGE: Final = 8 * 1024 * 1024
MAX_LAG: Final = 3.0
"""Seconds that the oldest small request may have been judged before further ones are refused."""

PROMPT_READS: Final = 2
SLOW_READS: Final = 4
PROMPT_SECONDS: Final = 1.0
MAX_WAITING_READS: Final = 64

_Found = TypeVar("_Found")


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

    @property
    def held(self) -> int:
        """The bytes in flight."""
        return self._held

    def enter(self, announced: int = 0) -> Ticket:
        """Take in one request, whose body announces a size or 0; leave it by its ``with`` block.

        Raises Unavailable where it would not fit, or judging lags too far behind.
        """
        with self._lock:
            oldest = next(iter(self._judged.values()), None)
            lag = 0.0 if oldest is None else self._now() - oldest
            if lag > self._max_lag:
                msg = f"judging lags {lag:.1f} seconds behind"
                raise Unavailable(msg, retry_after=min(max(lag, 1.0), 10.0))
            ticket = Ticket(self, announced)
            if not self._fits(ticket, announced):
                raise _overloaded()
            return ticket

    def grow(self, ticket: Ticket, count: int) -> None:
        """Add bytes to what a request holds. Raises Unavailable where they do not fit."""
        with self._lock:
            if not self._fits(ticket, count):
                raise _overloaded()
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
            ticket.held = 0
            self._judged.pop(ticket, None)
            if self._chief is ticket:
                self._chief = None
        if large:
            self._after_large()

    def _fits(self, ticket: Ticket, count: int) -> bool:
        """Whether a request may hold so much more.

        One large request at a time is outside of the budget, so that the small ones never shut the
        large ones out; it is the first that asks while there is none.
        """
        large = max(ticket.announced, ticket.held + count) > SMALL
        if large and (self._chief is None or self._chief is ticket):
            return True
        held = self._held - (0 if self._chief is None else self._chief.held)
        return held + count <= (self.max_bytes * 3 // 4 if large else self.max_bytes)


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


class Reads:
    """How many messages are received at once where their size is not to be known, as in gRPC.

    A read begins in one of ``PROMPT_READS`` places, for what has arrived already or does so at
    once. One that takes longer gives its place up and goes on in one of ``SLOW_READS``, or ends if
    these are taken: whoever stalls delays others by no more than ``PROMPT_SECONDS``.
    """

    def __init__(self, prompt_seconds: float = PROMPT_SECONDS) -> None:
        self._seconds = prompt_seconds
        self._prompt = asyncio.Semaphore(PROMPT_READS)
        self._slow = asyncio.Semaphore(SLOW_READS)
        self._waiting = 0

    async def read(self, reading: Callable[[], Awaitable[_Found]]) -> _Found:
        """What is read, in its turn. Raises Unavailable where there is no place for it."""
        await self._turn()
        try:
            task = asyncio.ensure_future(reading())
            try:
                done, _ = await asyncio.wait({task}, timeout=self._seconds)
            except asyncio.CancelledError:
                task.cancel()
                raise
        finally:
            self._prompt.release()
        return task.result() if done else await self._go_on(task)

    async def _turn(self) -> None:
        if self._waiting >= MAX_WAITING_READS:
            raise _overloaded()
        self._waiting += 1
        try:
            await self._prompt.acquire()
        finally:
            self._waiting -= 1

    async def _go_on(self, task: asyncio.Future[_Found]) -> _Found:
        try:
            if self._slow.locked():
                msg = "too many slow requests at once"
                raise Unavailable(msg)
            async with self._slow:
                return await task
        finally:
            task.cancel()


def _overloaded() -> Unavailable:
    return Unavailable("too much is in flight")
