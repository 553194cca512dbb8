"""The thread behind a spool: syncs soon after an append, looks for what dead processes left."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final

from flowmark_otel import names
from flowmark_otel.clock import Clock
from flowmark_otel.deliver.spool.spool import Spool

SYNC_AFTER_S: Final = 0.5
"""After the first append that is not synced; the other half second is the disk's (E1)."""

LOOK_EVERY_S: Final = 5.0

_PATIENCE_S: Final = 5.0
_APPENDED: Final = 1
_STOPPED: Final = 0


class Keeper:
    """One daemon thread, begun by ``start`` or by the first append of a forked child.

    ``on_found`` is called when something was adopted. ``pause`` waits so many seconds, or less if
    told to stop.
    """

    def __init__(
        self,
        spool: Spool,
        clock: Clock,
        on_found: Callable[[], object],
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self._spool = spool
        self._clock = clock
        self._on_found = on_found
        self._given_pause = pause
        self.forget()

    def forget(self) -> None:
        """In a child: the thread is the parent's."""
        self._stop = threading.Event()
        # Taken from by the thread alone; putting is safe in a signal handler.
        self._appends: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, if it has not."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="flowmark-spool", daemon=True)
            self._thread.start()

    def appended(self) -> None:
        """Something was appended that is not synced."""
        self._appends.put(_APPENDED)
        self.start()

    def stop(self) -> None:
        """End the thread; the last sync is the caller's."""
        self._stop.set()
        self._appends.put(_STOPPED)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_PATIENCE_S)

    def _run(self) -> None:
        stop, appends = self._stop, self._appends
        pause = self._given_pause or stop.wait
        look_at = self._clock.monotonic()
        while not stop.is_set():
            if self._clock.monotonic() >= look_at:
                look_at = self._clock.monotonic() + LOOK_EVERY_S
                self._safely(self._look)
            if _arrives(appends, max(look_at - self._clock.monotonic(), 0.0)):
                pause(SYNC_AFTER_S)
                self._safely(self._spool.sync_or_report)

    def _look(self) -> None:
        if self._spool.shelf.adopt():
            self._spool.sync_or_report()  # nobody else will sync what the dead wrote
            self._on_found()

    def _safely(self, work: Callable[[], object]) -> None:
        """A defect, ours or of who listens, must not end the syncs that follow."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - see above
            message = f"{type(error).__name__}: {error}"
            self._spool.shelf.fell_ill("keeper", message, names.DIAGNOSTIC_INTERNAL)


def _arrives(appends: queue.SimpleQueue[int], timeout: float) -> bool:
    try:
        return appends.get(timeout=timeout) == _APPENDED
    except queue.Empty:
        return False
