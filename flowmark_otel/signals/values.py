"""Values as other instrumentations write them: numbers as strings, lists and doubles, too."""

from __future__ import annotations

import re
from typing import Final

from flowmark_otel.validate import BrokenRule
from flowmark_otel.validate.rules import found

_DECIMAL: Final = re.compile(r"[0-9]{1,16}")
_EXACT: Final = 2**53  # from here on doubles skip integers


def number_of(value: object) -> int:
    """A count, 0 or more; raises BrokenRule, which says what was found instead.

    An integer, a double without a fraction, a decimal string, or a list of one of these.
    """
    one = _one(value)
    if isinstance(one, str) and _DECIMAL.fullmatch(one):
        return int(one)
    if isinstance(one, float) and one.is_integer() and 0 <= one < _EXACT:
        return int(one)
    if isinstance(one, int) and not isinstance(one, bool) and one >= 0:
        return one
    msg = f"{found(one)}; it has to be a count, as an integer or in decimal digits"
    raise BrokenRule(msg)


def text_of(value: object) -> str:
    """A text that is not blank, or a list of one; raises BrokenRule as ``number_of``."""
    one = _one(value)
    if isinstance(one, str) and one and not one.isspace():
        return one
    msg = f"{found(one)}; it has to be a text"
    raise BrokenRule(msg)


def is_true(value: object) -> bool:
    """Whether a value is true, or spells it."""
    one = _one(value)
    return one is True or one in {"1", "true", "True"}


def _one(value: object) -> object:
    """The one item of a list; of several nobody says which of them counts."""
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value
