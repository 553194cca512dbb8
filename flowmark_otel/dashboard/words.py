"""Numbers and times as a page writes them. Times are UTC and as sent; nothing is corrected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowmark_otel import names
from flowmark_otel.backend.views import rfc3339

SECOND: Final = 1_000_000_000
UNKNOWN: Final = "unknown"
TIME_UNKNOWN: Final = "time unknown"
NOTHING: Final = "–"
FROM_BROWSER: Final = "sent by a browser: anybody could have sent it"

VERDICTS: Final = {
    names.VERDICT_FIRST_TRY: "completed at first try",
    names.VERDICT_AFTER_RETRY: "completed after retry",
    names.VERDICT_FAILED: "failed in the end",
    names.VERDICT_OPEN: "open: no end received",
    names.VERDICT_UNDETERMINED: "undetermined",
}

RUN_STATUSES: Final = {
    names.STATUS_COMPLETED: "completed",
    names.STATUS_FAILED: "failed",
    names.STATUS_OPEN: "open: no end received",
    names.STATUS_UNKNOWN: "no run recorded",
}

FLAGS: Final = {
    names.FLAG_BEYOND_LIMIT: "beyond its limit",
    names.FLAG_METADATA_DIFFERS: "a later event differs in its metadata",
    names.FLAG_METADATA_INCOMPLETE: "metadata may be incomplete: attributes were dropped",
    names.FLAG_CHARACTERS_REPLACED: "characters were replaced",
}

_DECIMALS: Final = 2
_HOUR: Final = 3_600
_DAY: Final = 86_400
_THOUSAND: Final = 1_000
_MOST_DECIMALS: Final = 9


def moment(time: int) -> str:
    """``2026-03-11 13:00:02.000Z``; digits below the millisecond are in the tooltip and in JSON."""
    text = rfc3339(time)
    return f"{text[:10]} {text[11:23]}Z"


def clock(time: int) -> str:
    """``13:00:02.000``."""
    return rfc3339(time)[11:23]


def day(time: int) -> str:
    """``2026-03-11``."""
    return rfc3339(time)[:10]


def decimals(extent: int) -> int:
    """Decimals of seconds with which an extent in nanoseconds shows three digits: at least two."""
    digits = _DECIMALS
    while digits < _MOST_DECIMALS and 0 < extent < SECOND:
        extent *= 10
        digits += 1
    return digits


def seconds(duration: int, digits: int = _DECIMALS) -> str:
    """Nanoseconds as seconds; more digits where fewer would make a nought of something."""
    while duration and digits < _MOST_DECIMALS and abs(duration) * 10**digits < SECOND:
        digits += 1
    return f"{duration / SECOND:,.{digits}f}"


def took(duration: int) -> str:
    """A duration in nanoseconds with its unit: ``41.4 s``, ``8.40 ms``."""
    for size, unit in ((SECOND, "s"), (1_000_000, "ms"), (1_000, "µs")):
        if duration >= size:
            value = duration / size
            return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"  # noqa: PLR2004
    return f"{duration} ns" if duration else "0 s"


def lasted(duration: int) -> str:
    """A duration of any length: ``41.4 s``, ``3 min 58 s``, ``2 h 54 min``, ``3 d 4 h``."""
    if duration < 60 * SECOND:
        return took(duration)
    whole = duration // SECOND
    if whole < _HOUR:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // 60:02d} min"
    return f"{whole // _DAY:,} d {whole % _DAY // _HOUR} h"


def ago(duration: int) -> str:
    """The same in whole seconds: ``0 s``, ``19 s``."""
    whole = max(duration, 0) // SECOND
    return f"{whole} s" if whole < 60 else lasted(whole * SECOND)  # noqa: PLR2004


def percent(numerator: int, denominator: int) -> str:
    """``9.5%``; nothing but nought reads ``0%``, and nothing but all ``100%``."""
    if not denominator:
        return NOTHING
    if numerator in (0, denominator):
        return "100%" if numerator else "0%"
    share = f"{100 * numerator / denominator:.1f}"
    return {"0.0": "<0.1%", "100.0": ">99.9%"}.get(share, f"{share}%")


def per_hundred(numerator: int, denominator: int) -> str:
    """``6.0``, of each hundred."""
    return f"{100 * numerator / denominator:,.1f}" if denominator else NOTHING


def ratio(numerator: int, denominator: int) -> str:
    """``1.10``."""
    return f"{numerator / denominator:,.2f}" if denominator else NOTHING


def size(count: int) -> str:
    """Bytes as people say them, in powers of a thousand: ``718 bytes``, ``22.4 MB``."""
    if count < _THOUSAND:
        return f"{count:,} bytes"
    value = count / _THOUSAND
    for unit in ("kB", "MB", "GB"):
        if value < _THOUSAND:
            return f"{value:,.1f} {unit}"
        value /= _THOUSAND
    return f"{value:,.1f} TB"


def several(count: int, one: str, many: str | None = None) -> str:
    """``1 group``, ``2 groups``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def other_runs(count: int, shown: int, *, at_least: bool) -> str:
    """``1 other run``, ``4,999 other runs, the latest 20``, ``10,000 or more other runs, …``."""
    said = f"{count:,} or more other runs" if at_least else several(count, "other run")
    return f"{said}, the latest {shown}" if at_least or count > shown else said


def listed(parts: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    if len(parts) < 2:  # noqa: PLR2004 (a pair is two)
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def capital(text: str) -> str:
    """With its first letter upper case, the rest untouched."""
    return text[:1].upper() + text[1:]
