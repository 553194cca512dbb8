"""Being called in an event loop when a time has come, whoever makes the time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from flowmark_otel.clock import Clock

if TYPE_CHECKING:
    import asyncio

LONGEST: Final = 3600.0
"""Seconds that anything waits at most before the clock is asked again: clocks are set, and longer
waits overflow on some systems."""


class Alarm:
    """Calls ``ring`` once in the event loop, when ``left`` reads 0 seconds or less.

    The loop's own timer only says when to look again: what counts is the clock of the client. One
    that can be moved by hand tells of it (``on_move``, see ``testing.FakeClock``). ``stop`` before
    the loop closes, in the loop.
    """

    __slots__ = ("_left", "_loop", "_ring", "_timer", "_unheard")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        left: Callable[[], float],
        ring: Callable[[], object],
    ) -> None:
        self._loop = loop
        self._left = left
        self._ring = ring
        self._timer: asyncio.Handle | None = None
        on_move = getattr(clock, "on_move", None)
        self._unheard: Callable[[], object] = on_move(self._moved) if on_move else _nothing
        self._set(left())

    def stop(self) -> None:
        """Ring no more."""
        self._unheard()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, left: float) -> None:
        if left <= 0:
            self._timer = self._loop.call_soon(self._look)
        else:
            self._timer = self._loop.call_later(min(left, LONGEST), self._look)

    def _moved(self) -> None:
        with suppress(RuntimeError):  # the loop is closed; nobody is left to be called
            self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        left = self._left()
        if left > 0:
            self._set(left)
        else:
            self.stop()
            self._ring()


def _nothing() -> None:
    """A clock that cannot be moved by hand has nobody to forget."""
