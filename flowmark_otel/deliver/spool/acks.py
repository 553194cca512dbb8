"""Which parts of a segment are done with, kept beside it so that a restart need not resend them.

The file is a row of entries: start and end as uint64, CRC-32 of both as uint32, little-endian. It
is never synced: an entry that a power cut takes costs a repeat, which the backend answers with
duplicate.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeAlias

Range: TypeAlias = tuple[int, int]
"""From the first byte to the one after the last."""

_BODY: Final = struct.Struct("<QQ")
_ENTRY: Final = struct.Struct("<QQI")


class AckFile:
    """The acknowledgements of one segment; whoever holds the segment's lock writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        self._size = 0

    def load(self) -> list[Range]:
        """What was acknowledged, merged, in order; nothing after an entry that is damaged."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        found: list[Range] = []
        for at in range(0, len(content) - _ENTRY.size + 1, _ENTRY.size):
            start, end, checksum = _ENTRY.unpack_from(content, at)
            if checksum != zlib.crc32(_BODY.pack(start, end)):
                break
            found.append((start, end))
            self._size = at + _ENTRY.size
        return merge(found)

    def add(self, ranges: Iterable[Range]) -> None:
        """Note ranges with one write; OSError where it cannot, and nothing was noted."""
        entries = b"".join(
            _ENTRY.pack(start, end, zlib.crc32(_BODY.pack(start, end)))
            for start, end in merge(ranges)
        )
        if self._fd < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(self.path, flags, 0o600)
        # At the known size: what a write left half done is written over by the next.
        if os.pwrite(self._fd, entries, self._size) == len(entries):
            self._size += len(entries)

    def close(self) -> None:
        """Let go of the file; it can be closed again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def remove(self) -> None:
        """Delete the file; the segment it speaks of is gone already."""
        self.close()
        self.path.unlink(missing_ok=True)


def merge(ranges: Iterable[Range]) -> list[Range]:
    """The same bytes as few ranges as possible, in order."""
    merged: list[Range] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def gaps(ranges: Iterable[Range], size: int) -> list[Range]:
    """What merged ranges leave of ``size`` bytes."""
    found: list[Range] = []
    at = 0
    for start, end in ranges:
        if min(start, size) > at:
            found.append((at, min(start, size)))
        at = max(at, end)
    if at < size:
        found.append((at, size))
    return found
