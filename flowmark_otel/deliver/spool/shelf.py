"""The reading side of a spool: what is handed out, settled, set aside, adopted, removed.

All of that belongs to the holder of the shelf's lock, which appending never takes.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from flowmark_otel import names
from flowmark_otel.clock import Clock
from flowmark_otel.deliver.spool import folder
from flowmark_otel.deliver.spool.acks import Range
from flowmark_otel.deliver.spool.adoption import look
from flowmark_otel.deliver.spool.framing import Damage
from flowmark_otel.deliver.spool.quarantine import Quarantine, QuarantineFull
from flowmark_otel.deliver.spool.segment import Record, Segment
from flowmark_otel.model import Diagnostic

MOST_ADOPTED: Final = 64
"""Segments of others held at a time, each a descriptor; the rest are adopted as these go."""

Report: TypeAlias = Callable[[Diagnostic], object]


class Shelf:
    """The segments that this process holds.

    ``counts``: damaged stretches (``torn``) and their bytes (``torn_bytes``), records set aside by
    reason, and those for which there was no room aside (``lost``). ``report`` is told what went
    wrong, once until it is well again, and never while the lock is held.
    """

    def __init__(self, directory: Path, clock: Clock, report: Report, aside_bytes: int) -> None:
        self.counts: Counter[str] = Counter()
        self._directory = directory
        self._report = report
        self._lock = threading.RLock()  # a handler of a signal may ask what a flush is asking
        # Extended by whoever appends (one atomic step), else owned by the lock.
        self._segments: list[Segment] = []
        self._quarantine = Quarantine(directory, clock, aside_bytes)
        self._ill: set[str] = set()
        self._untold: list[Diagnostic] = []
        # Bytes of sealed segments and of those that others hold; counted anew, never adjusted.
        self._others: dict[str, int] = {}  # by stem; replaced, never changed
        self.sealed_bytes = 0

    def add(self, segment: Segment) -> None:
        """Hold a segment that was begun; takes no lock."""
        self._segments.append(segment)

    def count(self) -> None:
        """Count ``sealed_bytes`` anew; takes no lock."""
        segments = list(self._segments)
        sealed = sum(segment.written for segment in segments if segment.sealed)
        # One that was begun while others were looked for is among them, and is ours.
        mine = {segment.stem for segment in segments}
        others = sum(size for stem, size in self._others.items() if stem not in mine)
        self.sealed_bytes = others + sealed

    # -- handing out ----------------------------------------------------------------------------
    def take(
        self,
        limit: int,
        accept: Callable[[bytes], bool] = lambda _: True,
        *,
        adopted: bool | None = None,
    ) -> list[Record]:
        """The oldest records that wait, at most ``limit``, while their payloads are accepted.

        They stay until they are settled, and come again after ``again`` or in the next process.
        ``adopted``: only those that others left, or none of them.
        """
        records: list[Record] = []
        with self._telling():
            self._sweep()
            for segment in self._segments:
                if len(records) >= limit:
                    break
                if adopted is not None and segment.adopted is not adopted:
                    continue
                try:
                    found, damaged, stopped = segment.take(limit - len(records), accept)
                except OSError as error:
                    self._fell_ill(segment.stem, f"{segment.name.name} cannot be read: {error}")
                    continue
                records += found
                for damage in damaged:
                    self._set_torn_aside(segment, damage)
                if stopped:
                    break
        return records

    def settle(self, records: Iterable[Record]) -> None:
        """Be done with records that were handed out, for good."""
        with self._telling():
            self._settle_records(records)

    def again(self, records: Iterable[Record]) -> None:
        """Let records that were handed out wait again, in their place."""
        with self._lock:
            for segment, ranges in _by_segment(records):
                segment.give_back(ranges)

    def set_aside(self, records: Sequence[Record], reason: str) -> None:
        """Move records that were handed out to the quarantine folder.

        Without room there they are let go of and counted ``lost``; where the disk fails they stay
        for the next process.
        """
        if not records:
            return
        with self._telling():
            try:
                self._quarantine.keep(reason, records)
            except QuarantineFull as error:
                self.counts["lost"] += len(records)
                self._fell_ill("aside", f"{reason} records are not kept: {error}")
            except OSError as error:
                self._fell_ill("aside", f"{reason} records cannot be set aside: {error}")
                return
            else:
                self.counts[reason] += len(records)
                self._ill.discard("aside")
            self._settle_records(records)

    def _set_torn_aside(self, segment: Segment, damage: Damage) -> None:
        size = damage.end - damage.start
        where = f"{size} bytes at {damage.start} of {segment.name.name} are no record"
        try:
            self._quarantine.keep_torn(segment, damage)
        except OSError as error:
            self._fell_ill(f"torn {segment.stem}", f"{where}; they stay there: {error}")
            return
        self.counts["torn"] += 1
        self.counts["torn_bytes"] += size
        message = f"{where}; they are kept in {folder.QUARANTINE}/"
        self._tell(names.DIAGNOSTIC_SPOOL_DAMAGED, message)
        self._settle(segment, [(damage.start, damage.end)])

    def _settle_records(self, records: Iterable[Record]) -> None:
        for segment, ranges in _by_segment(records):
            self._settle(segment, ranges)
        self._sweep()

    def _settle(self, segment: Segment, ranges: Iterable[Range]) -> None:
        try:
            segment.settle(ranges)
        except OSError as error:
            self._fell_ill("acks", f"a restart would send again what was acknowledged: {error}")
        else:
            self._ill.discard("acks")

    def _sweep(self) -> None:
        for segment in [each for each in self._segments if each.finished()]:
            self._remove(segment)

    def _remove(self, segment: Segment) -> None:
        try:
            segment.remove()
        except OSError as error:
            self._fell_ill("remove", f"{segment.name.name} cannot be removed: {error}")
        else:
            self._segments.remove(segment)
            self.count()

    # -- other processes ------------------------------------------------------------------------
    def adopt(self) -> bool:
        """Take over what dead processes left; whether there was anything."""
        with self._telling():
            held = {segment.stem for segment in list(self._segments)}
            adopted = sum(segment.adopted for segment in list(self._segments))
            try:
                found = look(self._directory, held, MOST_ADOPTED - adopted)
            except OSError as error:
                self._fell_ill("look", f"the folder cannot be listed: {error}")
                return False
            for fault in found.faults:
                self._fell_ill(f"look {fault}", fault)
            for stem, descriptor in found.claimed:
                self._adopt(stem, descriptor)
            self._others = found.others
            self.count()
        return bool(found.claimed)

    def _adopt(self, stem: str, descriptor: int) -> None:
        try:
            segment = Segment(self._directory, stem, descriptor, adopted=True)
        except OSError as error:
            os.close(descriptor)
            self._fell_ill(stem, f"{stem} cannot be adopted: {error}")
        else:
            self.add(segment)

    # -- durability -----------------------------------------------------------------------------
    @contextmanager
    def unsynced(self) -> Iterator[list[tuple[Segment, int]]]:
        """Segments with something to sync, and up to where; they stay open meanwhile.

        The lock is held at the beginning and at the end, not in between.
        """
        with self._lock:
            due = [(each, each.written) for each in list(self._segments) if each.needs_sync()]
            for segment, _ in due:
                segment.pin()
        try:
            yield due
        finally:
            with self._lock:
                for segment, _ in due:
                    segment.unpin()

    # -- state ----------------------------------------------------------------------------------
    def waiting(self, *, adopted: bool) -> int:
        """Bytes that wait to be handed out, of this process or of others; takes no lock."""
        segments = [each for each in list(self._segments) if each.adopted is adopted]
        return sum(segment.waiting() for segment in segments)

    def oldest(self) -> int | None:
        """When the oldest record that is not settled was appended, epoch ns; None if none is."""
        with self._lock:
            times = [segment.oldest() for segment in list(self._segments)]
        return min((time for time in times if time is not None), default=None)

    def peek(self, limit: int) -> list[bytes]:
        """The oldest payloads of this process that are not settled, handed out ones included."""
        found: list[bytes] = []
        with self._lock:
            for segment in list(self._segments):
                if not segment.adopted and len(found) < limit:
                    found += segment.peek(limit - len(found))
        return found

    def unsettled(self) -> Iterator[bytes]:
        """All payloads that are not settled, whoever appended them, handed out ones included.

        The lock is held for one segment at a time.
        """
        for segment in list(self._segments):
            with self._lock:
                found = segment.peek(sys.maxsize)
            yield from found

    # -- ends -----------------------------------------------------------------------------------
    def close(self) -> None:
        """Let go of the sealed segments; what is not settled stays for the next process."""
        with self._telling():
            self._sweep()
            for segment in [each for each in self._segments if each.sealed]:
                segment.close()
                self._segments.remove(segment)  # it may be another process' from here on
            self._quarantine.close()

    def forget(self) -> None:
        """In a child: let go of the parent's files; what the parent handed out means nothing."""
        for segment in self._segments:
            segment.forget()
        self._quarantine.close()

    # -- telling --------------------------------------------------------------------------------
    def fell_ill(self, cause: str, message: str, code: str = names.DIAGNOSTIC_SPOOL_FAILED) -> None:
        """Report that something is the matter, once until it is ``well``."""
        with self._telling():
            self._fell_ill(cause, message, code)

    def tell(self, code: str, message: str) -> None:
        """Report something that happened."""
        with self._telling():
            self._tell(code, message)

    def well(self, cause: str) -> None:
        """It is not the matter any more."""
        self._ill.discard(cause)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            finally:
                told, self._untold = self._untold, []
        for diagnostic in told:
            self._report(diagnostic)

    def _tell(self, code: str, message: str) -> None:
        self._untold.append(Diagnostic(code, f"spool: {message}"))

    def _fell_ill(
        self, cause: str, message: str, code: str = names.DIAGNOSTIC_SPOOL_FAILED
    ) -> None:
        if cause not in self._ill:
            self._ill.add(cause)
            self._tell(code, message)


def _by_segment(records: Iterable[Record]) -> list[tuple[Segment, list[Range]]]:
    found: dict[int, tuple[Segment, list[Range]]] = {}
    for record in records:
        _, ranges = found.setdefault(id(record.segment), (record.segment, []))
        ranges.append((record.start, record.end))
    return list(found.values())
