"""An asyncio loop in a thread of its own, so that blocking clients meet servers in one process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

_Found = TypeVar("_Found")

DEADLINE = 30.0


class LoopThread:
    """Runs coroutines on its loop and waits for what they return, at most ``DEADLINE`` seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, _Found]) -> _Found:
        """Run on the loop, from any other thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE)


@contextmanager
def loop_thread() -> Iterator[LoopThread]:
    """A running loop; it is stopped, and its thread joined, on exit."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="test-loop", daemon=True)
    thread.start()
    try:
        yield LoopThread(loop)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(DEADLINE)
        loop.close()
