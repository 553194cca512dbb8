"""All evidence of a run in order of arrival, stored and rejected, with its raw attributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from flowmark_otel.backend import views
from flowmark_otel.dashboard import words
from flowmark_otel.dashboard.marks import Kind
from flowmark_otel.dashboard.pages.evidence_of import notes_of, sender_of, typed
from flowmark_otel.dashboard.pages.facts import value
from flowmark_otel.dashboard.pages.frame import Frame, State
from flowmark_otel.dashboard.pages.links import query, run_path, trace_path, workflow_path
from flowmark_otel.dashboard.pages.viewer import Viewer, no_viewer
from flowmark_otel.names import STATE_REJECTED


class EventRow(NamedTuple):
    """One event. ``later_by``: arrival after its own time, in seconds, as the clocks had it.

    The titles are the full times for the tooltip.
    """

    state: State | None
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
    trace: str
    trace_id: str
    span_id: str
    viewer: str | None
    sender: str
    notes: tuple[str, ...]
    attributes: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class EventsPage:
    """A page of a run's evidence (A9)."""

    template: ClassVar[str] = "events.html"
    frame: Frame
    workflow: str
    workflow_href: str
    run_id: str
    run: str
    rows: tuple[EventRow, ...]
    from_start: str | None
    more: str | None


def events_page(
    frame: Frame,
    run: views.RunView,
    events: views.Page[views.EventView],
    cursor: str | None,
    viewer: Viewer = no_viewer,
) -> EventsPage:
    """The context of a page of events."""
    here = f"{run_path(run.key)}/events"
    return EventsPage(
        frame=frame,
        workflow=run.workflow,
        workflow_href=workflow_path(run.workflow),
        run_id=run.run_id,
        run=run_path(run.key),
        rows=tuple(_row(event, viewer) for event in events.items),
        from_start=here if cursor else None,
        more=query(here, {"cursor": events.next}) if events.next else None,
    )


def _row(event: views.EventView, viewer: Viewer) -> EventRow:
    rejected = event.state == STATE_REJECTED
    decision = f"rejected: {event.code}" if rejected else "stored"
    return EventRow(
        State(Kind.CONFLICT, decision) if rejected and event.code == "conflict" else None,
        decision,
        event.message,
        event.event,
        event.event_id,
        words.TIME_UNKNOWN if event.sent_at is None else words.moment(event.sent_at),
        None if event.sent_at is None else views.rfc3339(event.sent_at),
        words.moment(event.received_at),
        views.rfc3339(event.received_at),
        words.UNKNOWN
        if event.sent_at is None
        else words.seconds(event.received_at - event.sent_at, 3),
        event.digest,
        trace_path(event.trace_id),
        event.trace_id,
        event.span_id,
        viewer(event.trace_id, event.span_id),
        sender_of(event),
        notes_of(event),
        tuple((key, typed(item), value(item)) for key, item in sorted(event.attributes.items())),
    )
