"""Pure: evidence → envelopes, and envelopes → operation state."""

from flowmark_otel.fold.digest import digest
from flowmark_otel.fold.envelopes import fold_rest, fold_span, fold_starts
from flowmark_otel.fold.items import events_of
from flowmark_otel.fold.mapped import fold_signals
from flowmark_otel.fold.records import fold_log

__all__ = [
    "digest",
    "events_of",
    "fold_log",
    "fold_rest",
    "fold_signals",
    "fold_span",
    "fold_starts",
]
