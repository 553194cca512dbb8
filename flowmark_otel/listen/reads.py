"""How many messages are received at once where their size is not to be known before.

gRPC holds a message three times while it is received, and tells its size only afterwards. So the
number of those that may be large is what is bounded (fault rows 15 and 25).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from flowmark_otel.errors import Unavailable
from flowmark_otel.listen.admission import overloaded

PROMPT_READS: Final = 2
SLOW_READS: Final = 4
PROMPT_SECONDS: Final = 1.0
MAX_WAITING_READS: Final = 64

_Found = TypeVar("_Found")


class Reads:
    """The places of one process, on its loop.

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
            raise overloaded()
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
