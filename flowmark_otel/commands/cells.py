"""Events as CSV (RFC 4180), safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

COLUMNS: Final = (
    *("state", "code", "message", "event_id", "event", "digest", "project", "origin", "workflow"),
    *("run_id", "run_key", "received_at", "user_agent", "service_name", "service_version"),
    *("service_instance_id", "trace_id", "span_id", "sent_at", "attributes"),
    *("dropped_attributes", "characters_replaced"),
)
"""The columns, in order; what is said of the sender stands among them."""

_END: Final = "\r\n"
# The last four are the wide forms, which a spreadsheet may read as the others.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def csv_lines(documents: Iterable[Mapping[str, object]]) -> Iterator[str]:
    """A line of names, then one of each document, without line ends."""
    yield _line(COLUMNS)
    for document in documents:
        sender = document.get("sender")
        flat = {**document, **(sender if isinstance(sender, dict) else {})}
        yield _line([cell(flat.get(name)) for name in COLUMNS])


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


def _line(cells: Iterable[str]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator=_END).writerow(cells)  # it quotes what ends a line here
    return out.getvalue().removesuffix(_END)
