"""The time range of an address: ``last=24h``, or ``since`` and ``until``; it goes by arrival.

A range that ends now begins with a whole bucket, so that its chart has as many bars as it says
and the last of them is the one that is still growing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from flowmark_otel.backend.api.parameters import read_time
from flowmark_otel.backend.read import DEFAULT_BUCKETS, BadParameter
from flowmark_otel.backend.views import rfc3339
from flowmark_otel.dashboard.pages.frame import Choice

NAMES: Final = ("last", "since", "until")
_MINUTE: Final = 60 * 1_000_000_000
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_LONGEST: Final = 30 * _DAY
_LATEST: Final = 2**63 - 1
_PINNED: Final = re.compile(r"([0-9]{1,19})-([0-9]{1,19})-(.+)")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_LOCAL: Final = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d)?", re.ASCII)


class _Last(NamedTuple):
    length: int
    buckets: int
    text: str
    words: str


LAST: Final[Mapping[str, _Last]] = {
    "1h": _Last(_HOUR, 12, "1 h", "hour"),
    "6h": _Last(6 * _HOUR, 24, "6 h", "6 hours"),
    "24h": _Last(_DAY, 24, "24 h", "24 hours"),
    "7d": _Last(7 * _DAY, 28, "7 d", "7 days"),
    "30d": _Last(30 * _DAY, 30, "30 d", "30 days"),
}


@dataclass(frozen=True, slots=True)
class Range:
    """A time range as an address gives it; times are epoch nanoseconds, ``until`` is outside.

    ``last`` is the name of a range that ends now. ``asked`` is what carries the range to other
    addresses. All are empty where any time is meant.
    """

    since: int | None
    until: int | None
    last: str | None
    asked: Mapping[str, str]
    buckets: int = DEFAULT_BUCKETS

    @property
    def words(self) -> str:
        """``the last 24 hours``, ``the time asked for``, ``any time``."""
        if self.last is not None:
            return f"the last {LAST[self.last].words}"
        return "the time asked for" if self.asked else "any time"

    @property
    def before(self) -> str:
        """How the time of the same length before it is called: ``the 24 hours before``."""
        return f"the {LAST[self.last].words} before" if self.last else "the same time before"

    @property
    def ended(self) -> bool:
        """Whether it has an end that does not move on with the clock."""
        return self.last is None and self.until is not None

    def paged(self, filters: Mapping[str, str]) -> dict[str, str]:
        """What a further page of a list is asked with: the same time, whatever the clock says.

        A cursor belongs to the time it was given for, and the last day is another one by then.
        """
        if self.last is None or self.since is None or self.until is None:
            return dict(filters)
        kept = {name: text for name, text in filters.items() if name not in NAMES}
        return {**kept, "since": rfc3339(self.since), "until": rfc3339(self.until)}

    def pinned(self, cursor: str | None) -> str | None:
        """The same for an address that stays as it is: a cursor that brings its time along."""
        if cursor is None or self.last is None:
            return cursor
        return f"{self.since}-{self.until}-{cursor}"

    def bounds(self, now: int) -> tuple[int, int]:
        """Both ends; 30 days where the beginning is open."""
        until = now + 1 if self.until is None else self.until
        since = max(until - _LONGEST, 0) if self.since is None else self.since
        if since >= until:
            msg = "since: is not before until; set an earlier time, or a later until"
            raise BadParameter(msg)
        return since, until

    def earlier(self, now: int) -> tuple[int, int]:
        """Both ends of the time of the same length before; may be empty at the epoch."""
        since, until = self.bounds(now)
        length = LAST[self.last].length if self.last else until - since
        return max(since - length, 0), since


def read(asked: Mapping[str, str], now: int, default: str | None = None) -> Range:
    """The range that an address names, ``default`` if it names none.

    ``since`` and ``until`` are RFC 3339 or shorter, ``2026-03-11 13:00`` or a date, in UTC; they go
    before ``last``, which a form sends along. Raises BadParameter.
    """
    given = {name: asked[name] for name in ("since", "until") if name in asked}
    if given:
        since, until = (_time(name, given.get(name)) for name in ("since", "until"))
        return Range(since, until, None, given)
    last = asked.get("last", default)
    if last is None:
        return Range(None, None, None, {})
    if last not in LAST:
        msg = f"last: found {last[:40]!r}; set one of {', '.join(LAST)}, or since and until"
        raise BadParameter(msg)
    length, buckets, _, _ = LAST[last]
    step = length // buckets
    since = max((now // step - buckets + 1) * step, 0)
    carried = {"last": last} if "last" in asked else {}
    return Range(since, now + 1, last, carried, buckets)


def pinned(range_: Range, cursor: str) -> tuple[Range, str]:
    """The range and the list's own cursor that a pinned one stands for; others are left alone."""
    found = _PINNED.fullmatch(cursor)
    if range_.last is None or found is None:
        return range_, cursor
    since, until = (min(int(time), _LATEST) for time in found.group(1, 2))
    return replace(range_, since=since, until=until), found[3]


def choices(range_: Range, *, anytime: bool) -> tuple[Choice, ...]:
    """The ranges to choose from; ``anytime``: whether the page can do without."""
    found = [Choice(name, each.text, name == range_.last) for name, each in LAST.items()]
    if anytime:
        found.append(Choice("", "any", not range_.last and not range_.asked))
    return tuple(found)


def _time(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    written = text.strip()
    if _DATE.fullmatch(written):
        written = f"{written}T00:00:00Z"
    elif match := _LOCAL.fullmatch(written):
        written = f"{match[1]}T{match[2]}{match[3] or ':00'}Z"
    try:
        return read_time(written)
    except ValueError as error:
        msg = (
            f"{name}: found {text[:40]!r}; set a time in UTC such as 2026-11-30 13:24 or"
            " 2026-11-30T13:24:55Z, with + written as %2B in a URL"
        )
        raise BadParameter(msg) from error
