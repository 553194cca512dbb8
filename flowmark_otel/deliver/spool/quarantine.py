"""What is kept for an operator instead of being delivered, in the spool's ``quarantine`` folder.

``<stem>.v1.<reason>`` holds whole records, in the layout of a segment (``framing``), that were
answered without receipt (``unacknowledged``) or that this version cannot read (``unreadable``);
whoever replays them reads them as a segment, and a file whose lock is free is complete.
``<stem>.v1.spool.<offset>.torn`` holds the raw bytes of a segment of that stem that are no record.
The folder has a bound of its own; it takes no room from the spool.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from flowmark_otel.clock import Clock
from flowmark_otel.deliver.spool import folder
from flowmark_otel.deliver.spool.framing import Damage, frame
from flowmark_otel.deliver.spool.segment import Record, Segment

UNREADABLE: Final = "unreadable"

_CHUNK: Final = 1 << 20


class QuarantineFull(OSError):
    """There is no room left aside; what was to be kept there is lost or stays where it is."""


class Quarantine:
    """Files for the operator; whoever holds the spool's lock for reading uses it."""

    def __init__(self, path: Path, clock: Clock, max_bytes: int) -> None:
        self.path = path / folder.QUARANTINE
        self._clock = clock
        self._max_bytes = max_bytes
        self._files: dict[str, int] = {}

    def keep(self, reason: str, records: Sequence[Record]) -> None:
        """Write records aside, synced; OSError where it cannot."""
        data = b"".join(frame(record.payload, record.time_unix_nano) for record in records)
        self._make_room(len(data))
        descriptor = self._files.get(reason)
        if descriptor is None:
            _, descriptor = folder.create(self.path, self._clock.now_ns(), reason)
            self._files[reason] = descriptor
            folder.sync_names(self.path)
        size = os.fstat(descriptor).st_size
        try:
            _write_all(descriptor, data, size)
            sync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)
            raise

    def keep_torn(self, segment: Segment, damage: Damage) -> None:
        """Copy bytes that are no record aside, synced; OSError where it cannot.

        The name follows from the place, so that a process killed in the midst is repeated by the
        next without leaving two.
        """
        self._make_room(damage.end - damage.start)
        name = self.path / f"{segment.name.name}.{damage.start}.torn"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(name, flags, 0o600)
        try:
            for at in range(damage.start, damage.end, _CHUNK):
                size = min(_CHUNK, damage.end - at)
                data = os.pread(segment.descriptor, size, at)
                _write_all(descriptor, data, at - damage.start)
            sync(descriptor)
        finally:
            os.close(descriptor)
        folder.sync_names(self.path)

    def size(self) -> int:
        """Bytes kept aside, by all processes."""
        try:
            with os.scandir(self.path) as entries:
                return sum(entry.stat().st_size for entry in entries)
        except FileNotFoundError:
            return 0

    def close(self) -> None:
        """Let go of the files; they stay."""
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def _make_room(self, size: int) -> None:
        self.path.mkdir(mode=0o700, exist_ok=True)
        if self.size() + size > self._max_bytes:
            msg = f"the quarantine folder holds its {self._max_bytes} bytes"
            raise QuarantineFull(msg)


def sync(descriptor: int) -> None:
    """Make what was written survive a power cut."""
    getattr(os, "fdatasync", os.fsync)(descriptor)  # there is none on macOS


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    while data:
        count = os.pwrite(descriptor, data, offset)
        data, offset = data[count:], offset + count
