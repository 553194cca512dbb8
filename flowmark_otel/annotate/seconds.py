"""A time to wait, as an application gives it."""

from __future__ import annotations

from typing import Final

from flowmark_otel.annotate.options import plain
from flowmark_otel.validate.rules import found

LONGEST: Final = 365 * 86400.0
"""What can be waited for at most, in seconds: longer ones overflow the clocks of some systems."""


def time_to_wait(value: object, default: float, field: str) -> tuple[float, str]:
    """The time to use, and what is wrong with the one given, empty if nothing is.

    What is no number reads as ``default``, a negative one as 0; an infinite one is a year.
    """
    number = plain(value)
    if isinstance(number, (int, float)) and not isinstance(number, bool):
        if number < 0:
            return 0.0, f"{field} {found(number)}; set a number from 0"
        if number >= 0:  # not a number is neither
            return float(min(number, LONGEST)), ""
    return default, f"{field} {found(value)}; set a number from 0"
