"""The spool: appending, durability and the bound; the shelf has the rest (E1; fault rows 4, 5).

The open segment belongs to the holder of the appending lock, which is held for one write and
never while the disk syncs.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from flowmark_otel.clock import Clock
from flowmark_otel.deliver import forks
from flowmark_otel.deliver.spool import folder
from flowmark_otel.deliver.spool.framing import frame
from flowmark_otel.deliver.spool.quarantine import sync
from flowmark_otel.deliver.spool.segment import Segment
from flowmark_otel.deliver.spool.shelf import Report, Shelf

MAX_BYTES: Final = 256 << 20

_SEGMENT_BYTES: Final = 4 << 20
_LEAST_SEGMENT_BYTES: Final = 4096
_PATIENCE_S: Final = 1.0


class SpoolFull(Exception):
    """The spool holds its bytes: the newest records are refused."""


class Mark(NamedTuple):
    """Where an append ended; ``Spool.is_synced`` says whether the disk has all up to it."""

    segment: Segment
    end: int


class Spool:
    """Records in one folder, which several processes may share; any thread may call.

    ``max_bytes``: of all segments in the folder. What other processes hold of it is known from
    ``shelf.adopt``, so several may pass it by what they write between two looks. ``on_append`` is
    called at the first append after a ``sync``. Raises ConfigurationError for a folder that
    cannot be used.
    """

    def __init__(
        self,
        directory: Path,
        *,
        clock: Clock,
        report: Report,
        on_append: Callable[[], object] = lambda: None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        folder.prepare(directory)
        self.directory = directory
        self.max_bytes = max_bytes
        self.segment_bytes = min(_SEGMENT_BYTES, max(max_bytes // 8, _LEAST_SEGMENT_BYTES))
        self._clock = clock
        self._report = report
        self._on_append = on_append
        self._begin_anew()
        forks.register(self)

    def _begin_anew(self) -> None:
        self.process = os.getpid()
        self.shelf = Shelf(self.directory, self._clock, self._report, self.max_bytes)
        # Owned by the appending lock.
        self._appending = threading.Lock()
        self._holder = 0
        self._open: Segment | None = None
        self._closed = False
        self.appended = 0
        # Set by appends, cleared by whoever holds the syncing lock.
        self._syncing = threading.Lock()
        self._dirty = False
        self._names_dirty = False

    # -- appending ------------------------------------------------------------------------------
    def append(self, payloads: Sequence[bytes]) -> Mark:
        """Write records with one write; the operating system has them when this returns.

        All or nothing: raises SpoolFull, OSError as the disk gave it, or ValueError for a payload
        that is too large. ``appended`` counts the records.
        """
        now = self._clock.now_ns()
        data = b"".join([frame(payload, now) for payload in payloads])
        self._acquire()
        try:
            segment = self._segment_for(len(data))
            segment.append(data)
            self.appended += len(payloads)
            mark = Mark(segment, segment.written)
        finally:
            self._holder = 0
            self._appending.release()
        if not self._dirty:
            self._dirty = True
            self._on_append()
        return mark

    def _acquire(self) -> None:
        """Wait for other threads; OSError for a signal handler that interrupted an append."""
        if not self._appending.acquire(blocking=False):
            if self._holder == threading.get_ident():
                raise OSError(errno.EDEADLK, "an append was interrupted by this one")
            self._appending.acquire()
        self._holder = threading.get_ident()

    def _segment_for(self, size: int) -> Segment:
        if self._closed:
            raise OSError(errno.EBADF, "the spool is closed", str(self.directory))
        if self.size() + size > self.max_bytes:
            raise SpoolFull
        segment = self._open
        if segment is not None and segment.takes(size, self.segment_bytes):
            return segment
        self._seal()
        stem, descriptor = folder.create(self.directory, self._clock.now_ns())
        segment = self._open = Segment(self.directory, stem, descriptor, adopted=False)
        self._names_dirty = True
        self.shelf.add(segment)
        return segment

    def _seal(self) -> None:
        if self._open is not None:
            self._open.sealed = True
            self._open = None
            self.shelf.count()

    # -- durability -----------------------------------------------------------------------------
    def sync(self) -> None:
        """Make all that was appended before survive a power cut; OSError where it cannot.

        A segment whose sync failed is appended to no more, and nothing in it counts as synced
        later: the operating system may have forgotten what it could not write.
        """
        with self._syncing:
            self._dirty = False  # before looking: an append from here on calls for another sync
            with self.shelf.unsynced() as due:
                self._sync_names()
                failed = [error for each in due if (error := _sync(*each)) is not None]
        if failed:
            raise failed[0]

    def _sync_names(self) -> None:
        if self._names_dirty:
            self._names_dirty = False
            try:
                folder.sync_names(self.directory)
            except OSError:
                self._names_dirty = True
                raise

    @staticmethod
    def is_synced(mark: Mark) -> bool:
        """Whether the disk has what was appended up to there."""
        return mark.segment.synced >= mark.end

    def sync_or_report(self) -> None:
        """``sync`` for a background thread."""
        try:
            self.sync()
        except OSError as error:
            self.shelf.fell_ill("sync", f"not synced to disk: {error}")
        else:
            self.shelf.well("sync")

    # -- state and ends -------------------------------------------------------------------------
    def size(self) -> int:
        """Bytes of all segments in the folder as far as known, without what is set aside."""
        segment = self._open
        return self.shelf.sealed_bytes + (segment.written if segment is not None else 0)

    def close(self) -> None:
        """Sync, let go of all files; what is not settled stays for the next process.

        The open segment stays open if an append does not end within a second: a signal handler
        that ends the program may have interrupted it.
        """
        if self._appending.acquire(timeout=_PATIENCE_S):
            self._closed = True
            self._seal()
            self._appending.release()
        self.sync_or_report()
        self.shelf.close()

    def after_fork(self) -> None:
        """In a child: begin anew, with none of the parent's records and files; can be repeated."""
        if self.process != os.getpid():
            self.shelf.forget()
            self._begin_anew()


def _sync(segment: Segment, written: int) -> OSError | None:
    try:
        sync(segment.descriptor)
        links = os.fstat(segment.descriptor).st_nlink
    except OSError as error:
        segment.unsyncable = True
        return error
    if links == 0 and not segment.finished():
        segment.unsyncable = True
        return OSError(errno.ENOENT, "somebody removed it", str(segment.name))
    segment.synced = written
    return None
