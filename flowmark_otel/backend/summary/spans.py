"""Pure: spans of time as whole days, hours and minutes, and the rest of them.

Times are epoch nanoseconds; the end of a span is not within it.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, NamedTuple

SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
LEVELS: Final = (MINUTE, HOUR, DAY)
"""Lengths of the cells that sums are kept of; each is a multiple of the one before."""

_STEPS: Final = (
    *(minutes * MINUTE for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * HOUR for hours in (1, 2, 3, 6, 12)),
    *(days * DAY for days in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000, 100_000)),
)


class Span(NamedTuple):
    """``level`` is an index of ``LEVELS`` if the span is of whole cells, None if it is not."""

    level: int | None
    since: int
    until: int


def pieces(since: int, until: int, level: int = len(LEVELS) - 1) -> list[Span]:
    """Cut a span into whole cells, the largest there are room for, and at most two rests."""
    if since >= until:
        return []
    if level < 0:
        return [Span(None, since, until)]
    length = LEVELS[level]
    begin, end = -(-since // length) * length, until // length * length
    if begin >= end:
        return pieces(since, until, level - 1)
    return [
        *pieces(since, begin, level - 1),
        Span(level, begin, end),
        *pieces(end, until, level - 1),
    ]


def step_of(since: int, until: int, buckets: int) -> int:
    """The shortest round length of a bucket with which a span touches at most so many."""
    for step in _STEPS:
        if (until - 1) // step - since // step < buckets:
            return step
    return _STEPS[-1]


def edges_of(since: int, until: int, step: int) -> list[int]:
    """The bounds of the buckets of a span: multiples of ``step``, and the span's own two ends."""
    return [since, *range((since // step + 1) * step, until, step), until]


def level_of(step: int) -> int:
    """The largest cells that a bucket of a round length is made of."""
    return max(level for level, length in enumerate(LEVELS) if step % length == 0)


def bucket_of(edges: list[int], time: int) -> int:
    """The index of the bucket that a time within the span falls into."""
    return bisect_left(edges, time + 1) - 1
