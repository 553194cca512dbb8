"""A cap on the time of an attempt, where the function can be stopped: in a task of asyncio (B5).

It works as ``asyncio.timeout`` does, on every supported Python and by the clock of the client: at
the cap the task is cancelled, and where that cancellation leaves the block it becomes
``AttemptTimeoutError``. A cancellation of anybody else's passes through, also one that comes at the
same time.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol

from flowmark_otel.annotate.alarm import Alarm
from flowmark_otel.annotate.signal import AttemptSignal
from flowmark_otel.clock import Clock
from flowmark_otel.errors import AttemptTimeoutError

if TYPE_CHECKING:
    import asyncio

    from typing_extensions import Self


def _is_cancellation(error: BaseException | None) -> bool:
    import asyncio  # noqa: PLC0415  a quarter of what importing this package takes

    return isinstance(error, asyncio.CancelledError)


class _Stop(Protocol):
    """The cancellation of a task by us, told apart from those of others."""

    def cancel(self) -> None:
        """Cancel the task."""
        ...

    def ours(self, error: BaseException | None) -> bool:
        """Whether ``error``, which leaves the block, is that cancellation and nobody else's.

        Asked once, whatever leaves the block, and only after ``cancel``.
        """
        ...


if sys.version_info >= (3, 11):

    class _TaskStop:
        """Counted by the task: as many are taken back as were asked for by us."""

        def __init__(self, task: asyncio.Task[object], loop: asyncio.AbstractEventLoop) -> None:
            del loop
            self._task = task
            self._before = task.cancelling()

        def cancel(self) -> None:
            self._task.cancel()

        def ours(self, error: BaseException | None) -> bool:
            asked = self._task.uncancel()
            return asked <= self._before and _is_cancellation(error)

else:

    class _TaskStop:
        """Python 3.10 counts nothing: ours carries a mark that nobody else has.

        A task that waits for something that is cancelled or done already remembers that it is to be
        cancelled, and one of two cancellations is lost. So it is asked before ours, and once more
        just before it runs. Anything in doubt counts as theirs: no task goes on that was to end.
        """

        def __init__(self, task: asyncio.Task[object], loop: asyncio.AbstractEventLoop) -> None:
            self._task = task
            self._loop = loop
            self._mark = _Mark()
            self._theirs = False

        def cancel(self) -> None:
            self._look()
            self._loop.call_soon(self._look)  # its turn is before what this cancellation wakes
            self._task.cancel(self._mark)

        def ours(self, error: BaseException | None) -> bool:
            if error is None or not _is_cancellation(error) or self._theirs:
                return False
            return bool(error.args) and error.args[0] is self._mark

        def _look(self) -> None:
            if getattr(self._task, "_must_cancel", False):
                by = getattr(self._task, "_cancel_message", None)
                self._theirs |= not isinstance(by, _Mark)

    class _Mark:
        """Says whose cancellation it is, also to whoever reads a traceback."""

        def __repr__(self) -> str:
            return "the attempt reached its cap"


class Cap:
    """A block that is stopped at the cap of an attempt, for ``async with``; it can be used once.

    ``what`` names the attempt in the error. Outside of a task of asyncio it does nothing: there
    only the signal tells.
    """

    __slots__ = ("_alarm", "_clock", "_signal", "_stop", "_what")

    def __init__(self, signal: AttemptSignal, clock: Clock, what: str) -> None:
        self._signal = signal
        self._clock = clock
        self._what = what
        self._alarm: Alarm | None = None
        self._stop: _Stop | None = None

    def enter(self) -> Self:
        """Begin; the time counts from where the signal's does."""
        import asyncio  # noqa: PLC0415  as above

        try:
            task, loop = asyncio.current_task(), asyncio.get_running_loop()
        except RuntimeError:  # no loop of asyncio
            return self
        if task is not None:
            stop = _TaskStop(task, loop)
            self._alarm = Alarm(loop, self._clock, self._signal.cap_left, lambda: self._ring(stop))
        return self

    def leave(self, error: BaseException | None) -> AttemptTimeoutError | None:
        """End; gives the error that takes the place of ``error``, None if it stays as it is."""
        if self._alarm is not None:
            self._alarm.stop()
            self._alarm = None
        stop, self._stop = self._stop, None
        if stop is None or not stop.ours(error):
            return None
        return AttemptTimeoutError(f"{self._what} was stopped at its cap")

    async def __aenter__(self) -> Self:
        return self.enter()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        late = self.leave(error)
        if late is not None:
            raise late from error

    def _ring(self, stop: _Stop) -> None:
        self._stop = stop
        # What runs on elsewhere for this attempt reads why before the task is told.
        self._signal.is_set()
        stop.cancel()


class Uncapped:
    """As ``Cap``, for an attempt that has none."""

    __slots__ = ()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing was begun."""

    def enter(self) -> Self:
        """Nothing begins."""
        return self

    def leave(self, error: BaseException | None) -> None:
        """What leaves stays as it is."""


UNCAPPED: Final = Uncapped()
