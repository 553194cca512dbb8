"""One segment file: what is in it, what of that is handed out, what is done with.

A segment belongs to the process that holds its lock. A writer appends to it until it seals it;
all else about it is guarded by the spool's lock for reading. Positions are bytes of the file.
"""

from __future__ import annotations

import bisect
import errno
import os
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from flowmark_otel.deliver.spool import acks, folder
from flowmark_otel.deliver.spool.acks import AckFile, Range
from flowmark_otel.deliver.spool.framing import HEADER, Damage, Found, walk

_NO_SPACE: Final = frozenset((errno.ENOSPC, errno.EDQUOT))


class Record(NamedTuple):
    """A record that is handed out: its payload, and where it stands."""

    payload: bytes
    time_unix_nano: int
    segment: Segment
    start: int
    end: int

    @property
    def adopted(self) -> bool:
        """Whether another process, or an earlier one, appended it."""
        return self.segment.adopted


class Segment:
    """A file of records and its acknowledgements; the descriptor holds the file's lock."""

    def __init__(self, path: Path, stem: str, descriptor: int, *, adopted: bool) -> None:
        self.name = folder.named(path, stem, folder.SEGMENT)
        self.stem = stem
        self.descriptor = descriptor
        self.adopted = adopted
        # Owned by the writer. The rest reads them, `sealed` before `written`.
        self.written = os.fstat(descriptor).st_size if adopted else 0
        self.sealed = adopted
        # Owned by whoever syncs.
        self.synced = 0
        self.unsyncable = False
        # Owned by the reading side.
        self._acks = AckFile(folder.named(path, stem, folder.ACKS))
        acknowledged = self._acks.load() if adopted else []
        self._gaps = acks.gaps(acknowledged, self.written)
        self._unread = self.written
        self._out: dict[int, int] = {}
        self._unreadable = False
        self._pins = 0
        self._closed = False

    # -- writing --------------------------------------------------------------------------------
    def takes(self, size: int, most: int) -> bool:
        """Whether that many bytes may be appended to it."""
        return not (self.sealed or self.unsyncable or 0 < self.written > most - size)

    def append(self, data: bytes) -> None:
        """Add records with one write; OSError where nothing was added.

        What a failed write left behind is cut off; where that fails too, or the fault is not
        want of space, the segment is sealed, so that the next append begins another.
        """
        try:
            self._write(data)
        except OSError as error:
            self.sealed = self.written > 0 and error.errno not in _NO_SPACE
            try:
                os.ftruncate(self.descriptor, self.written)
            except OSError:
                self.sealed = True
            raise
        self.written += len(data)

    def _write(self, data: bytes) -> None:
        count = os.pwrite(self.descriptor, data, self.written)
        while count < len(data):  # the rest goes too, or says why it cannot
            count += os.pwrite(self.descriptor, data[count:], self.written + count)

    # -- handing out ----------------------------------------------------------------------------
    def take(
        self, limit: int, accept: Callable[[bytes], bool]
    ) -> tuple[list[Record], list[Damage], bool]:
        """The oldest records that wait, at most ``limit`` and as long as they are accepted.

        With them the damage that was met on the way, handed out as well, and whether it stopped
        at a record that was not accepted. OSError where the file cannot be read; it is not read
        again then.
        """
        records: list[Record] = []
        damaged: list[Damage] = []
        if self._closed or self._unreadable:
            return records, damaged, False
        while len(records) < limit:
            start, end = self._next_range()
            if start == end:
                break
            if self._take_range(start, end, limit, accept, (records, damaged)):
                return records, damaged, True
        return records, damaged, False

    def _take_range(
        self,
        start: int,
        end: int,
        limit: int,
        accept: Callable[[bytes], bool],
        found: tuple[list[Record], list[Damage]],
    ) -> bool:
        records, damaged = found
        at = start
        stopped = False
        try:
            for item in walk(self._read_at, start, end):
                if isinstance(item, Damage):
                    damaged.append(item)
                elif accept(item.payload):
                    record = Record(item.payload, item.time_unix_nano, self, item.start, item.end)
                    records.append(record)
                else:
                    stopped = True
                    break
                self._out[item.start] = item.end
                at = item.end
                if len(records) >= limit:
                    break
        except OSError:
            self._unreadable = True
            raise
        finally:
            self._set_read(at)
        return stopped

    def _next_range(self) -> Range:
        return self._gaps[0] if self._gaps else (self._unread, self.written)

    def _set_read(self, at: int) -> None:
        if not self._gaps:
            self._unread = at
        elif self._gaps[0][1] == at:
            del self._gaps[0]
        else:
            self._gaps[0] = (at, self._gaps[0][1])

    def _read_at(self, size: int, offset: int) -> bytes:
        return os.pread(self.descriptor, size, offset)

    def give_back(self, ranges: Iterable[Range]) -> None:
        """Let ranges that are out wait again, in their place; others are passed over."""
        for start, end in acks.merge(self._take_in(ranges)):
            bisect.insort(self._gaps, (start, end))
        self._gaps = acks.merge(self._gaps)

    def settle(self, ranges: Iterable[Range]) -> None:
        """Be done with ranges that are out, for good; others are passed over.

        OSError where it could not be noted on disk: then a restart sends them again.
        """
        settled = self._take_in(ranges)
        if settled and not self._closed and not self.finished():
            self._acks.add(settled)

    def _take_in(self, ranges: Iterable[Range]) -> list[Range]:
        return [(start, end) for start, end in ranges if self._out.pop(start, None) == end]

    # -- state ----------------------------------------------------------------------------------
    def waiting(self) -> int:
        """Bytes that wait to be handed out."""
        if self._unreadable or self._closed:
            return 0
        return self.written - self._unread + sum(end - start for start, end in self._gaps)

    def finished(self) -> bool:
        """Whether it can go: nothing more is appended and all is done with."""
        sealed = self.sealed
        return sealed and not self._out and not self._gaps and self._unread == self.written

    def needs_sync(self) -> bool:
        """Whether something of it is not known to be on disk, and may still get there."""
        return self.synced < self.written and not self.unsyncable and not self._closed

    def peek(self, limit: int) -> list[bytes]:
        """The oldest payloads that are not done, at most ``limit``, without handing them out."""
        found: list[bytes] = []
        ranges = sorted([*self._out.items(), *self._gaps, (self._unread, self.written)])
        for start, end in ranges:
            if self._closed or self._unreadable or len(found) >= limit:
                break
            items = walk(self._read_at, start, end)
            whole = (item.payload for item in items if isinstance(item, Found))
            found += islice(whole, limit - len(found))
        return found

    def oldest(self) -> int | None:
        """When the oldest record that is not done was appended, epoch ns; None if none is."""
        starts = [*self._out, self._next_range()[0]]
        at = min(starts)
        if at >= self.written or self._closed:
            return None
        header = os.pread(self.descriptor, HEADER.size, at)
        if len(header) < HEADER.size:
            return None
        return int(HEADER.unpack(header)[2])

    # -- end ------------------------------------------------------------------------------------
    def pin(self) -> None:
        """Keep the descriptor open until ``unpin``, whatever happens to the segment meanwhile."""
        self._pins += 1

    def unpin(self) -> None:
        """Close the descriptor if that was put off."""
        self._pins -= 1
        if self._closed and self._pins == 0:
            os.close(self.descriptor)

    def remove(self) -> None:
        """Delete the file, then its acknowledgements: the other order would send all again."""
        self.name.unlink(missing_ok=True)
        self.close()
        self._acks.remove()

    def close(self) -> None:
        """Let go of file and lock; what is out stays unacknowledged."""
        if self._closed:
            return
        self._closed = True
        self._acks.close()
        if self._pins == 0:
            os.close(self.descriptor)

    def forget(self) -> None:
        """In a child: close the copies of the parent's descriptors, pinned by nobody here."""
        if self._closed and self._pins:
            os.close(self.descriptor)
        self._pins = 0
        self.close()
