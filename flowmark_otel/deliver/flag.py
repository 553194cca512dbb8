"""A flag that any thread sets and one thread waits for."""

from __future__ import annotations

import queue
import time


class Flag:
    """As ``threading.Event``, for one waiter.

    Setting it takes no lock of Python's, so that a signal handler, or a finaliser, that records
    while the same thread is in the middle of recording cannot block itself.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._tokens: queue.SimpleQueue[None] = queue.SimpleQueue()

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake the waiter."""
        if not self._is_set:
            self._is_set = True
            self._tokens.put(None)

    def clear(self) -> None:
        """Unset it; the waiter's."""
        self._is_set = False
        try:
            while True:
                self._tokens.get_nowait()
        except queue.Empty:
            return

    def wait(self, timeout: float | None) -> bool:
        """Wait until it is set, at most ``timeout`` seconds; whether it is."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._is_set:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                break
            try:
                self._tokens.get(timeout=left)
            except queue.Empty:
                break
        return self._is_set
