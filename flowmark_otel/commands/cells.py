"""Events as CSV (RFC 4180), safe to open in a spreadsheet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from flowmark_otel.backend.views import csv_line

COLUMNS: Final = (
    *("state", "code", "message", "event_id", "event", "digest", "project", "origin", "workflow"),
    *("run_id", "run_key", "received_at", "user_agent", "service_name", "service_version"),
    *("service_instance_id", "trace_id", "span_id", "sent_at", "attributes"),
    *("dropped_attributes", "characters_replaced"),
)
"""The columns, in order; what is said of the sender stands among them."""


def csv_lines(documents: Iterable[Mapping[str, object]]) -> Iterator[str]:
    """A line of names, then one of each document, without line ends."""
    yield csv_line(COLUMNS)
    for document in documents:
        sender = document.get("sender")
        flat = {**document, **(sender if isinstance(sender, dict) else {})}
        yield csv_line(flat.get(name) for name in COLUMNS)
