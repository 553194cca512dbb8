"""A span as it was decoded → its events by the fast path, where it can be taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from flowmark_otel.fast.shapes import SHAPES, learn
from flowmark_otel.fast.unfolded import BOTH, Unfolded
from flowmark_otel.model import Envelope, Refused, Span
from flowmark_otel.validate import BrokenRule

_TRACE_ID: Final = 16
_SPAN_ID: Final = 8
_LATEST: Final = 2**63 - 1
_IS_SPAN: Final = 2**64 - 1  # the bits of both ids that are the span's


def unfolded_of(span: Span) -> Unfolded | None:
    """The events of a finished span, unfolded; None: fold it, and have them ``learned``."""
    trace_id, span_id, name, start, end, failed, attributes, service, events, dropped = span
    shape = SHAPES[failed].get(tuple(attributes))
    if shape is None or events or dropped or not 0 < start <= end <= _LATEST:
        return None
    values: tuple[Any, ...] = shape.read(attributes)
    if shape.named:
        values += (name,)
    if shape.served:
        values += (service,)
    if len(trace_id) != _TRACE_ID or len(span_id) != _SPAN_ID:
        return None
    ids = int.from_bytes(trace_id + span_id, "big")
    if not (ids & _IS_SPAN and ids > _IS_SPAN) or tuple(map(type, values)) != shape.types:
        return None
    try:
        return Unfolded(shape, values, ids, (start, end), BOTH)
    except BrokenRule:  # folding says what is the matter
        return None


def learned(span: Span, events: Sequence[Envelope | Refused]) -> None:
    """Learn from a finished span and what it was folded into."""
    learn(tuple(span.attributes), span, events)
