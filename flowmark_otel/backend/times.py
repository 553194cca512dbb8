"""Sent times are uint64 and kept in signed columns by wrapping."""

from __future__ import annotations

_WRAP = 1 << 64
_HALF = 1 << 63


def wrap_time(sent: int) -> int:
    """A uint64 as the signed 64-bit number of the same bits."""
    return sent if sent < _HALF else sent - _WRAP


def unwrap_time(stored: int) -> int:
    """The uint64 that ``wrap_time`` made ``stored`` from."""
    return stored if stored >= 0 else stored + _WRAP
