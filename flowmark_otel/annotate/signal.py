"""Whether an attempt must stop: at its cap, at its deadline, or because it was cancelled (B5).

Nothing runs for it: what is due to time is read from the clock whenever somebody asks, and whoever
waits bounds the wait by what is left.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, NoReturn, TypeAlias, cast

from flowmark_otel import names
from flowmark_otel.annotate.alarm import LONGEST, Alarm
from flowmark_otel.annotate.hook import client, tell
from flowmark_otel.annotate.seconds import time_to_wait
from flowmark_otel.clock import Clock

if TYPE_CHECKING:
    import asyncio

    from typing_extensions import Never

StopReason: TypeAlias = Literal["timeout", "deadline", "cancelled"]
"""Why an attempt must stop: its cap, its deadline, or that what ran it was cancelled."""

_NANOS: Final = 1_000_000_000
_NANOS_PER_MILLI: Final = 1_000_000


class AttemptSignal:
    """Set when the attempt must stop, and never taken back (B5); only its function can stop it.

    Reads like a ``threading.Event`` from any thread: ``is_set()`` and ``wait(timeout)``. Under
    asyncio it can be awaited. ``timeout`` counts from where the attempt's block or function began,
    ``deadline`` is a wall-clock time; both in milliseconds. After the end of the attempt it still
    tells work that is left over. Asking it is not recorded as reading time (B2).
    """

    __slots__ = ("_clock", "_deadline_ns", "_ends_ns", "_flag", "_reasons", "_timeout_ns", "_wakes")

    def __init__(
        self, clock: Clock, timeout: int | None = None, deadline: int | None = None
    ) -> None:
        self._clock = clock
        self._timeout_ns = None if timeout is None else timeout * _NANOS_PER_MILLI
        self._deadline_ns = None if deadline is None else deadline * _NANOS_PER_MILLI
        # The first reason stands. Appended to without a lock: a signal handler may ask as well.
        self._reasons: list[StopReason] = []
        self._flag = threading.Event()
        self._wakes: list[Callable[[], None]] = []
        self._ends_ns = 0
        self.begin()

    @property
    def reason(self) -> StopReason | None:
        """Why the attempt must stop: ``timeout``, ``deadline`` or ``cancelled``; None if not."""
        if not self._reasons:
            if self.cap_left() <= 0:
                self._reasons.append("timeout")
            elif self._deadline_left() <= 0:
                self._reasons.append("deadline")
        return self._reasons[0] if self._reasons else None

    def is_set(self) -> bool:
        """Whether the attempt must stop."""
        return self.reason is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the attempt must stop, at most ``timeout`` seconds; whether it must.

        Blocks the thread: in a coroutine, await the signal instead. A wrong ``timeout`` is
        reported, and not waited for.
        """
        seconds = math.inf
        if timeout is not None:
            seconds, fault = time_to_wait(timeout, 0.0, "timeout")
            if fault:
                tell(client(), names.DIAGNOSTIC_INVALID, f"{fault}, in seconds")
        while not self.is_set() and seconds > 0:
            step = min(seconds, self.left())
            if math.isinf(step):
                self._wait(None)
            elif not self._wait(min(step, LONGEST)):
                seconds -= min(step, LONGEST)
        return self.is_set()

    def __await__(self) -> Generator[object, None, bool]:
        return self._until_set().__await__()

    def begin(self) -> None:
        """The attempt's block or function begins: its cap counts from now."""
        if self._timeout_ns is not None:
            self._ends_ns = self._monotonic_ns() + self._timeout_ns

    def cancel(self) -> None:
        """What ran the attempt was cancelled: whoever waits is told."""
        self._reasons.append("cancelled")
        self._flag.set()
        for wake in tuple(self._wakes):
            wake()

    def left(self) -> float:
        """Seconds until time alone sets it, infinite if it never does; 0 or less if it has."""
        return min(self.cap_left(), self._deadline_left())

    def cap_left(self) -> float:
        """Seconds until the cap, infinite without one; 0 or less beyond it."""
        if self._timeout_ns is None:
            return math.inf
        return (self._ends_ns - self._monotonic_ns()) / _NANOS

    def __repr__(self) -> str:
        return f"<signal, {self.reason or 'not set'}>"

    def __reduce__(self) -> NoReturn:
        msg = "the signal of an attempt is bound to its process; pass on what it tells instead"
        raise TypeError(msg)

    def __copy__(self) -> Never:
        self.__reduce__()

    def __deepcopy__(self, memo: object) -> Never:
        self.__reduce__()

    def _monotonic_ns(self) -> int:
        return round(self._clock.monotonic() * _NANOS)  # whole, so that what is left can be waited

    def _deadline_left(self) -> float:
        if self._deadline_ns is None:
            return math.inf
        return (self._deadline_ns - self._clock.now_ns()) / _NANOS

    def _wait(self, seconds: float | None) -> bool:
        """Wait for the flag; a clock that can be moved by hand waits in its own way."""
        wait = getattr(self._clock, "wait", None)
        if wait is None:
            return self._flag.wait(seconds)
        return cast("bool", wait(self._flag, seconds))

    async def _until_set(self) -> bool:
        from asyncio import get_running_loop  # noqa: PLC0415  as in cap.py: it takes its time

        loop = get_running_loop()
        while not self.is_set():
            woken = loop.create_future()

            def ring(woken: asyncio.Future[None] = woken) -> None:
                if not woken.done():
                    woken.set_result(None)

            def wake(ring: Callable[[], None] = ring) -> None:
                with suppress(RuntimeError):  # that loop is closed: nobody waits in it any more
                    loop.call_soon_threadsafe(ring)

            self._wakes.append(wake)
            alarm = Alarm(loop, self._clock, self.left, ring)
            try:
                if not self.is_set():  # cancelled by another thread since it was asked
                    await woken
            finally:
                alarm.stop()
                self._wakes.remove(wake)
        return True
