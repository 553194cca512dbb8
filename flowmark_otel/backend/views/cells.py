"""Rows of CSV (RFC 4180), safe to open in a spreadsheet: the one place that knows what is safe."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from typing import Final

_END: Final = "\r\n"
# The last four are the wide forms, which a spreadsheet may read as the others.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def csv_line(values: Iterable[object]) -> str:
    """Values as one line of CSV, without its end."""
    out = io.StringIO()
    csv.writer(out, lineterminator=_END).writerow(map(cell, values))  # it quotes a line's end
    return out.getvalue().removesuffix(_END)


def cell(value: object) -> str:
    """A value as a cell: empty for none, JSON for what has parts.

    What came from outside may begin like a formula, which a spreadsheet would run; such a cell gets
    an apostrophe in front.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        return json.dumps(value, separators=(",", ":"), sort_keys=True)
    return f"'{value}" if value.startswith(_FORMULA) else value
