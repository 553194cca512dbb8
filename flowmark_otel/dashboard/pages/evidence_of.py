"""The events of an attempt as a table, and what each of them carried."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from flowmark_otel import names
from flowmark_otel.backend.views import AttemptView, EventView, ObservedTry, OccurrenceView, rfc3339
from flowmark_otel.dashboard import words
from flowmark_otel.dashboard.pages.facts import error, value
from flowmark_otel.dashboard.pages.links import trace_path
from flowmark_otel.dashboard.pages.viewer import Viewer
from flowmark_otel.model import Value


class Received(NamedTuple):
    """One event: ``later_by`` is arrival after its own time, in seconds, as the clocks had it.

    ``anchor``: the id of its raw attributes on the page. ``shown``: they stand open.
    """

    anchor: str
    conflict: bool
    decision: str
    message: str | None
    event: str
    event_id: str
    sent: str
    sent_title: str | None
    received: str
    received_title: str
    later_by: str
    digest: str
    sender: str
    notes: tuple[str, ...]
    attributes: tuple[tuple[str, str, str], ...]
    shown: bool


class Span(NamedTuple):
    """A span that events came from; ``viewer`` is its address in the configured trace viewer."""

    trace_id: str
    span_id: str
    trace: str
    viewer: str | None


class Try(NamedTuple):
    """A try that was reported inside the attempt (B8); ``ended_title``: its full time."""

    number: str
    outcome: str
    ended: str
    ended_title: str | None
    took: str
    system: str
    error: str | None
    event_id: str


def received(events: Iterable[EventView]) -> tuple[Received, ...]:
    """The events in order of arrival; the accepted end stands open, else its start."""
    found = list(events)
    accepted = [event for event in found if event.state != names.STATE_REJECTED]
    told = [event for event in accepted if event.event != names.ATTEMPT_OBSERVED]
    shown = told[-1] if told else (found[-1] if found else None)
    return tuple(
        _received(event, f"e{number}", shown=event is shown)
        for number, event in enumerate(found, 1)
    )


def spans(events: Iterable[EventView], viewer: Viewer) -> tuple[Span, ...]:
    """The spans of the events, each once, in order of arrival."""
    seen = dict.fromkeys((event.trace_id, event.span_id) for event in events)
    return tuple(Span(trace, span, trace_path(trace), viewer(trace, span)) for trace, span in seen)


def tries(of: AttemptView | OccurrenceView | None) -> tuple[Try, ...]:
    """The tries observed inside an operation."""
    return tuple(map(_try, of.observed)) if of else ()


def sender_of(event: EventView) -> str:
    """Who sent an event, in words."""
    sender = event.sender
    service = " ".join(part for part in (sender.service_name, sender.service_version) if part)
    parts = (service, sender.service_instance_id, sender.user_agent)
    return ", ".join(part for part in parts if part) or words.UNKNOWN


def typed(item: Value) -> str:
    """The type of an attribute's value, as OTLP names it."""
    return {bool: "bool", int: "int", float: "double"}.get(type(item), "string")


def notes_of(event: EventView) -> tuple[str, ...]:
    """What makes an event less certain."""
    notes = []
    if event.dropped_attributes:
        dropped = words.several(event.dropped_attributes, "attribute")
        notes.append(f"{dropped} dropped by the sender")
    if event.characters_replaced:
        notes.append("characters were replaced")
    return tuple(notes)


def _received(event: EventView, anchor: str, *, shown: bool) -> Received:
    rejected = event.state == names.STATE_REJECTED
    sent = event.sent_at
    return Received(
        anchor,
        rejected and event.code == names.CONFLICT,
        f"rejected: {event.code}" if rejected else names.STORED,
        event.message,
        event.event,
        event.event_id,
        words.TIME_UNKNOWN if sent is None else words.clock(sent),
        None if sent is None else rfc3339(sent),
        words.clock(event.received_at),
        rfc3339(event.received_at),
        words.UNKNOWN if sent is None else words.seconds(event.received_at - sent, 3),
        event.digest,
        sender_of(event),
        notes_of(event),
        tuple((key, typed(item), value(item)) for key, item in sorted(event.attributes.items())),
        shown,
    )


def _try(tried: ObservedTry) -> Try:
    where = (tried.series, tried.system)
    return Try(
        f"{tried.number:,}",
        tried.outcome,
        words.TIME_UNKNOWN if tried.ended_at is None else words.moment(tried.ended_at),
        None if tried.ended_at is None else rfc3339(tried.ended_at),
        words.UNKNOWN if tried.duration_ns is None else words.took(tried.duration_ns),
        ", ".join(part for part in where if part) or words.NOTHING,
        error(tried.error),
        tried.event_id,
    )
