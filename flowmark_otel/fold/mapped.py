"""Spans that a convention of others names a try → envelopes of an observed attempt (section 8)."""

from __future__ import annotations

from flowmark_otel import names
from flowmark_otel.fold.envelopes import fold_span
from flowmark_otel.model import Envelope, Refused, Span
from flowmark_otel.signals import Signals, attempt_of
from flowmark_otel.validate import ids_fault


def fold_signals(span: Span, signals: Signals) -> list[Envelope | Refused]:
    """The events of the attempt that an enabled convention names; none if there is none.

    Only for a finished span of which ``fold_span`` makes nothing: a record of a span's own keys is
    all that is made of it. Identity and error keys that the span carries count as on any other.
    Where nothing says how the try ended there is no end, so it reads as open.
    """
    found = attempt_of(span, signals)
    if found is None or ids_fault(span.trace_id, span.span_id):
        return []
    own = {
        key: value
        for key, value in span.attributes.items()
        if key.startswith(names.PREFIX) or key == names.ERROR_TYPE
    }
    own.update(found.attributes())
    events = fold_span(span._replace(attributes=own, failed=bool(found.failed)))
    return events if found.failed is not None else events[:-1]
