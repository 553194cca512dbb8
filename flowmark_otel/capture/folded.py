"""An SDK span → its events by the plain path, which can take any; the fast one learns from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from opentelemetry.sdk.trace import ReadableSpan, Span

from flowmark_otel import names
from flowmark_otel.capture.freeze import NOTHING, named, restore, settle
from flowmark_otel.capture.journal import Opened
from flowmark_otel.capture.reading import (
    ResourceView,
    attributes_of,
    held_by,
    read_signals,
    read_span,
)
from flowmark_otel.capture.whole import UNLIMITED, limits_of, mend
from flowmark_otel.fast import learn, learn_start
from flowmark_otel.fold import fold_rest, fold_signals, fold_starts
from flowmark_otel.model import Envelope, Refused, event_id
from flowmark_otel.signals import Signals


class Finished(NamedTuple):
    """What is left to send of a finished span, and what is to be told of it.

    ``recorded``: whether anything was, now or at its start. ``changed``: keys that changed after
    the start was sent, by which ``event`` differs. ``doubtful``: start fields that a limit of so
    many characters, ``limit``, may have cut.
    """

    events: list[Envelope | Refused]
    recorded: bool
    changed: list[str]
    event: str
    doubtful: list[str]
    limit: int | None


def fold_start(
    span: Span, attributes: dict[str, object], kept: dict[str, object], view: ResourceView
) -> tuple[list[Envelope | Refused], Opened]:
    """The starts of a span that are sent early, and what is to be kept of it.

    ``attributes``: as folding reads them; ``kept``: the start fields among them.
    """
    keys = tuple(held_by(span) or ())
    record = read_span(span, attributes, view.service_name)
    starts = fold_starts(record)
    settled = settle(starts)
    if settled.name is not None:
        # Spans are renamed: what the early start calls the operation, the span has to carry.
        written = {names.OPERATION_NAME: settled.name}
        write(span, written)
        kept.update(written)
        record = record._replace(attributes={**attributes, **kept})
        starts = named(starts, settled.name) or fold_starts(record)
    learn_start(keys, record, starts)
    return starts, Opened(kept, settled.frozen, settled.sent)


def fold_end(
    span: ReadableSpan, opened: Opened | None, view: ResourceView, signals: Signals
) -> Finished:
    """The events of a finished span but the starts that were sent.

    Of one that has no record of its own, those of the attempt that a signal names.
    """
    limits = limits_of(span)
    doubtful: list[str] = []
    sent = opened.sent if opened else NOTHING
    attributes = attributes_of(span)
    if limits != UNLIMITED:
        doubtful = mend(attributes, opened.given() if opened else {}, limits)
    changed = restore(attributes, opened.kept, opened.frozen) if opened else []
    record = read_span(span, attributes, view.service_name)
    events, same = fold_rest(record, sent)
    learn(tuple(held_by(span) or ()), record, events)
    if not events and not sent:
        found = read_signals(span, signals)
        if found:
            events = fold_signals(record._replace(attributes={**attributes, **found}), signals)
    if not same:
        changed.append(names.RECORD_TYPE)
    event = ""
    if changed:
        part = min(sent).replace("start", "end")
        event = event_id(record.trace_id, record.span_id, part)
    recorded = bool(events or (sent and same))
    return Finished(events, recorded, changed, event, doubtful, limits[0])


def write(span: Span, values: Mapping[str, str]) -> None:
    """Write on a span."""
    for key, value in values.items():
        span.set_attribute(key, value)  # costs a third of setting them together
