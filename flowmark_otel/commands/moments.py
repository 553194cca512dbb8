"""Points in time as people type them: a date, RFC 3339, or how long ago."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Final

import click

from flowmark_otel.clock import SystemClock
from flowmark_otel.config import seconds

_NANO: Final = 1_000_000_000
_MICRO: Final = 1_000
_LATEST: Final = 2**63 - 1  # in April 2262
_SAYS: Final = "a date from 1970 to 2261 such as 2027-01-31, or a time as 2027-01-31T12:00:00Z"


def moment(text: str) -> int:
    """A date (midnight UTC) or an RFC 3339 time, in epoch nanoseconds, for an option's type."""
    try:
        return _read(text)
    except ValueError as error:
        msg = f"must be {_SAYS}, found {text!r}"
        raise click.BadParameter(msg) from error


def since(text: str) -> int:
    """As ``moment``, or a length of time before now (``90d``, ``12h``, ``30m``)."""
    try:
        return SystemClock().now_ns() - seconds(text.strip()) * _NANO
    except ValueError:
        pass
    try:
        return _read(text)
    except ValueError as error:
        msg = f"must be {_SAYS}, or a length of time such as 90d, 12h or 30m; found {text!r}"
        raise click.BadParameter(msg) from error


def _read(text: str) -> int:
    text = text.strip()
    # Python 3.10 reads no Z.
    found = datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)
    if found.tzinfo is None:
        found = found.replace(tzinfo=timezone.utc)
    whole = int(found.replace(microsecond=0).timestamp())
    nanoseconds = whole * _NANO + found.microsecond * _MICRO
    if not 0 <= nanoseconds <= _LATEST:
        msg = "no time between 1970 and 2262"
        raise ValueError(msg)
    return nanoseconds
