"""An item of an OTLP request → its events, for every party that takes requests."""

from __future__ import annotations

from collections.abc import Sequence

from flowmark_otel.fold.envelopes import fold_span
from flowmark_otel.fold.mapped import fold_signals
from flowmark_otel.fold.records import fold_log
from flowmark_otel.model import Envelope, LogRecord, Refused, Span
from flowmark_otel.signals import Signals


def events_of(
    record: Span | LogRecord | Refused, signals: Signals
) -> tuple[Sequence[Envelope | Refused], bool]:
    """The events of an item, and whether signals made them, not its own keys."""
    if isinstance(record, Span):
        own = fold_span(record)
        return (own, False) if own else (fold_signals(record, signals), True)
    folded = fold_log(record) if isinstance(record, LogRecord) else record
    return () if folded is None else (folded,), False
