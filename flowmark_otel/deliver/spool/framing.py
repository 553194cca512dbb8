"""How a record stands in a segment file, and how records are found again, damage or not.

A record is a header (little-endian: magic, payload length uint32, time uint64 in epoch
nanoseconds, CRC-32 of the two numbers and the payload) and the payload, opaque here. The first
byte of the magic occurs in no UTF-8 text, its last byte is the version of this layout.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

MAGIC: Final = b"\xf5FM\x01"
HEADER: Final = struct.Struct("<4sIQI")
MAX_PAYLOAD: Final = 16 << 20

_COVERED: Final = struct.Struct("<IQ")
_CHUNK: Final = 256 << 10
_MAX_FALSE_STARTS: Final = 64

ReadAt: TypeAlias = Callable[[int, int], bytes]
"""Size and offset, as ``os.pread`` has them after its descriptor."""


class Found(NamedTuple):
    """A whole record: where it begins and ends in bytes, when it was appended, what it holds."""

    start: int
    end: int
    time_unix_nano: int
    payload: bytes


class Damage(NamedTuple):
    """Bytes between records that are no record: a torn tail, or a corrupt stretch."""

    start: int
    end: int


def frame(payload: bytes, time_unix_nano: int) -> bytes:
    """The bytes of one record; ValueError over ``MAX_PAYLOAD`` bytes."""
    if len(payload) > MAX_PAYLOAD:
        msg = f"a record has at most {MAX_PAYLOAD} bytes, found {len(payload)}"
        raise ValueError(msg)
    checksum = _checksum(payload, time_unix_nano)
    return HEADER.pack(MAGIC, len(payload), time_unix_nano, checksum) + payload


def walk(read_at: ReadAt, start: int, end: int) -> Iterator[Found | Damage]:
    """Everything from ``start`` to ``end``, in order and without a hole.

    After damage it goes on at the next record that is whole. The search gives up after
    64 false starts, and the rest is damage, so that no content makes it slow.
    """
    window = _Window(read_at, end)
    while start < end:
        item = _record_at(window, start) or Damage(start, _next_record(window, start))
        yield item
        start = item.end


class _Window:
    """Reads ahead, so that small records cost no system call each."""

    def __init__(self, read_at: ReadAt, end: int) -> None:
        self.end = end
        self._read_at = read_at
        self._base = 0
        self._held = b""

    def bytes_at(self, offset: int, size: int) -> bytes:
        """``size`` bytes, fewer where the file ends earlier."""
        at = offset - self._base
        if at < 0 or at + size > len(self._held):
            wanted = min(max(size, _CHUNK), self.end - offset)
            self._base, self._held, at = offset, self._read_at(wanted, offset), 0
        return self._held[at : at + size]

    def find(self, offset: int) -> int:
        """Where the magic next begins at or after ``offset``; the end where it does not."""
        while self.end - offset >= HEADER.size:
            held = self.bytes_at(offset, min(_CHUNK, self.end - offset))
            at = held.find(MAGIC)
            if at >= 0:
                return offset + at
            if len(held) < len(MAGIC):
                break
            offset += len(held) - len(MAGIC) + 1
        return self.end


def _record_at(window: _Window, start: int) -> Found | None:
    header = window.bytes_at(start, HEADER.size) if window.end - start >= HEADER.size else b""
    if len(header) < HEADER.size:
        return None
    magic, length, time_unix_nano, checksum = HEADER.unpack(header)
    end = start + HEADER.size + length
    if magic != MAGIC or length > MAX_PAYLOAD or end > window.end:
        return None
    payload = window.bytes_at(start + HEADER.size, length)
    if len(payload) < length or _checksum(payload, time_unix_nano) != checksum:
        return None
    return Found(start, end, time_unix_nano, payload)


def _next_record(window: _Window, start: int) -> int:
    at = start
    for _ in range(_MAX_FALSE_STARTS):
        at = window.find(at + 1)
        if at == window.end or _record_at(window, at) is not None:
            return at
    return window.end


def _checksum(payload: bytes, time_unix_nano: int) -> int:
    return zlib.crc32(payload, zlib.crc32(_COVERED.pack(len(payload), time_unix_nano)))
