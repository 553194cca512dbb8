"""The evidence behind the attempts of a group: events, trace, span, both sides of a conflict."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from flowmark_otel.backend.views import AttemptView
from flowmark_otel.dashboard.marks import Kind
from flowmark_otel.dashboard.pages.links import trace_path
from flowmark_otel.dashboard.places import Claim, Place

Viewer: TypeAlias = Callable[[str, str], str | None]
"""The address of a span in the configured trace viewer, from trace and span id in hex."""


class Record(NamedTuple):
    """The events behind one record of a place (A9); ``viewer`` is the span's address elsewhere."""

    anchor: str | None
    label: str
    decision: str
    conflict: bool
    operation_id: str | None
    events: tuple[str, ...]
    trace: str | None
    trace_id: str | None
    span_id: str | None
    viewer: str | None
    notes: tuple[str, ...]


def no_viewer(_trace_id: str, _span_id: str) -> None:
    """No trace viewer is configured."""


def records(place: Place, anchor: str, viewer: Viewer = no_viewer) -> tuple[Record, ...]:
    """The accepted record of a place, then the refused ones; nothing for a gap."""
    if place.kind is Kind.NONE:
        return ()
    identity = f"e-{anchor}-{place.slug}"
    found: list[Record] = []
    if place.attempt:
        found.append(_accepted(place.attempt, place.label, identity, viewer))
    for claim in place.claims:
        found.append(_refused(claim, place.label, None if found else identity))
    return tuple(found)


def _accepted(attempt: AttemptView, label: str, identity: str, viewer: Viewer) -> Record:
    evidence = attempt.evidence
    events = (evidence.start_event_id, evidence.end_event_id)
    notes = [
        f"try {tried.number:,} reported inside: {tried.outcome}"
        + (f", {tried.system}" if tried.system else "")
        for tried in attempt.observed
    ]
    if attempt.defaulted:
        notes.append(f"by default: {', '.join(attempt.defaulted)}")
    return Record(
        identity,
        label,
        "accepted",
        attempt.conflict,
        attempt.operation_id,
        tuple(event for event in events if event),
        trace_path(evidence.trace_id),
        evidence.trace_id,
        evidence.span_id,
        viewer(evidence.trace_id, evidence.span_id),
        tuple(notes),
    )


def _refused(claim: Claim, label: str, identity: str | None) -> Record:
    return Record(
        identity,
        label,
        f"rejected: {claim.events[0].code}",
        True,  # noqa: FBT003 (a field of a record)
        claim.operation_id,
        tuple(event.event_id for event in claim.events),
        None,
        None,
        None,
        None,
        tuple(dict.fromkeys(event.message for event in claim.events)),
    )
