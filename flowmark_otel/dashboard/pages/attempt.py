"""The evidence of one attempt, or of one ordinary occurrence: events, records, comparison (A9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.backend import views
from flowmark_otel.dashboard import words
from flowmark_otel.dashboard.marks import Kind, word
from flowmark_otel.dashboard.pages.compare import Comparison, of_attempts, of_claims
from flowmark_otel.dashboard.pages.evidence_of import Received, Span, Try, received, spans, tries
from flowmark_otel.dashboard.pages.frame import Frame, Link, Piece
from flowmark_otel.dashboard.pages.group import Step
from flowmark_otel.dashboard.pages.links import attempt_path, group_path, run_path, workflow_path
from flowmark_otel.dashboard.pages.sides import Side, accepted, sides
from flowmark_otel.dashboard.pages.viewer import Viewer, no_viewer
from flowmark_otel.dashboard.places import Folded, Place, error_word, fold, places

MOST_CLAIMS: Final = 4
"""Refused records that are set beside the accepted one; of all of them the events are listed."""

_STATES: Final = {
    names.STATUS_COMPLETED: (Kind.COMPLETED, "Completed."),
    names.STATUS_FAILED: (Kind.FAILED, "Failed."),
    names.STATUS_OPEN: (Kind.OPEN, "Open: no end received."),
}
_CONFLICT: Final = (
    "The first accepted record stays and is the one counted. What was rejected is kept as evidence,"
    " and adds no attempt, duration or rate."
)

_ORDINARY: Final = "It was recorded without an attempt number, so it counts as no attempt."


class Selected(NamedTuple):
    """Which attempt of a group, and which other it is compared with (None: the one before)."""

    operation: str
    group_id: str
    number: int
    other: int | None = None


class Evidence(NamedTuple):
    """A place and the events behind it."""

    place: Place
    events: Sequence[views.EventView]


class Choosing(NamedTuple):
    """The form that compares with another attempt: where it leads, and which it is compared to.

    ``of`` is the query of this page in one field: a browser rewrites line ends of a form's fields.
    """

    path: str
    of: str
    number: str


class Where(NamedTuple):
    """Run, operation and group that a page is about, and the ways to them.

    ``events``: all evidence of the run. ``group`` is None for an ordinary occurrence.
    """

    workflow: Link
    run: Link
    operation: str
    group: Link | None
    events: str


class Behind(NamedTuple):
    """What stands behind a record: events and spans, tries inside it, remarks on its metadata."""

    spans: tuple[Span, ...]
    received: tuple[Received, ...]
    tries: tuple[Try, ...]
    defaulted: tuple[str, ...]
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AttemptPage:
    """One attempt or one ordinary occurrence, which has no group and so nothing beside it.

    ``claims``: the accepted record beside each refused one. ``steps``: the attempts of its group,
    ``around`` the neighbours. ``compared``: this attempt beside another. ``missing``: what to say
    where there is nothing to compare with.
    """

    template: ClassVar[str] = "attempt.html"
    frame: Frame
    where: Where
    behind: Behind
    heading: str
    kind: Kind
    lead: str
    pieces: tuple[Piece, ...]
    sub: str
    claims: tuple[Comparison, ...]
    more_claims: int
    steps: tuple[Step, ...] = ()
    around: tuple[Link, ...] = ()
    compared: Comparison | None = None
    missing: str | None = None
    choosing: Choosing | None = None


def event_ids(place: Place) -> tuple[str, ...]:
    """The ids of the events behind a place, accepted and refused."""
    found = list(_accepted_ids(place.attempt)) if place.attempt else []
    found += [event.event_id for claim in place.claims for event in claim.events]
    return tuple(dict.fromkeys(found))


def occurrence_event_ids(of: views.OccurrenceView) -> tuple[str, ...]:
    """The ids of the events behind an occurrence, accepted and refused."""
    found = (*_accepted_ids(of), *(record.event_id for record in of.rejected))
    return tuple(dict.fromkeys(found))


def place_of(group: views.GroupView, number: int) -> Place | None:
    """The place that a number is in, None where the group implies no such number."""
    for place in places(group):
        if place.first <= number <= place.last:
            return place
    return None


def compared_with(group: views.GroupView, selected: Selected) -> Place | None:
    """The place to compare with: the one asked for, else the last one before with a record."""
    if selected.other is not None:
        return place_of(group, selected.other)
    before = [place for place in places(group) if place.last < selected.number and place.attempt]
    return before[-1] if before else None


def attempt_page(
    frame: Frame,
    run: views.RunView,
    group: views.GroupView,
    selected: Selected,
    found: Evidence,
    other: Evidence | None = None,
    *,
    viewer: Viewer = no_viewer,
) -> AttemptPage:
    """The page of an attempt; ``found``: it, ``other``: what it is compared with."""
    place, events = found
    every = places(group)
    records = sides(events)
    highest = every[-1].last
    mine = accepted(records, place.attempt.operation_id) if place.attempt else None
    claims = _claims(place, mine, records, highest)
    compared, missing = _compared(place, mine, other, highest)
    known = [one for one in every if one.attempt and one.first != place.first]
    path = attempt_path(run.key, selected.operation, selected.group_id)
    attempt = place.attempt
    return AttemptPage(
        frame=frame,
        where=_where(run, group.operation, group.group_id),
        behind=_behind(attempt, events, viewer),
        heading=f"{'Attempt' if place.first == place.last else 'Attempts'} {place.label}",
        kind=place.kind,
        lead=_lead(place),
        pieces=_pieces(place, records),
        sub=_sub(place),
        steps=tuple(_step(item, path, place) for item in fold(every)),
        around=_around(every, place, path),
        claims=claims[:MOST_CLAIMS],
        more_claims=len(claims[MOST_CLAIMS:]),
        compared=compared,
        missing=missing,
        choosing=_choosing(run.key, selected, other) if known and attempt else None,
    )


def occurrence_page(
    frame: Frame,
    run: views.RunView,
    of: views.OccurrenceView,
    events: Sequence[views.EventView],
    viewer: Viewer = no_viewer,
) -> AttemptPage:
    """The page of an ordinary occurrence (A4)."""
    records = sides(events)
    mine = accepted(records, of.operation_id)
    refused = [side for side in records if side is not mine]
    kind, lead = (Kind.CONFLICT, "Conflict.") if of.conflict else _STATES[of.status]
    code = error_word(of.error)
    said: tuple[Piece, ...] = (Piece(of.operation, data=True), Piece(", an ordinary occurrence"))
    if code:
        said = (*said, Piece(", with "), Piece(code, data=True, code=True))
    claims = [
        of_claims((mine, side), ("Accepted record", "Rejected record"), highest=True)
        for side in refused
        if mine is not None
    ]
    return AttemptPage(
        frame=frame,
        where=_where(run, of.operation),
        behind=_behind(of, events, viewer),
        heading=f"Occurrence {of.operation_id}",
        kind=kind,
        lead=lead,
        pieces=(*said, Piece(".")),
        sub=_CONFLICT if of.conflict else _ORDINARY,
        claims=tuple(claims[:MOST_CLAIMS]),
        more_claims=len(claims[MOST_CLAIMS:]),
    )


def _where(run: views.RunView, operation: str, group_id: str | None = None) -> Where:
    return Where(
        Link(run.workflow, workflow_path(run.workflow)),
        Link(run.run_id, run_path(run.key)),
        operation,
        None if group_id is None else Link(group_id, group_path(run.key, operation, group_id)),
        f"{run_path(run.key)}/events",
    )


def _behind(
    of: views.AttemptView | views.OccurrenceView | None,
    events: Sequence[views.EventView],
    viewer: Viewer,
) -> Behind:
    return Behind(
        spans(events, viewer),
        received(events),
        tries(of),
        of.defaulted if of else (),
        tuple(words.FLAGS[flag] for flag in of.flags) if of else (),
    )


def _accepted_ids(of: views.AttemptView | views.OccurrenceView) -> tuple[str, ...]:
    evidence = of.evidence
    known = (evidence.start_event_id, evidence.end_event_id)
    return (*(one for one in known if one), *(tried.event_id for tried in of.observed))


def _lead(place: Place) -> str:
    if place.kind is Kind.FAILED:
        return "Failed, highest known."
    if place.kind is Kind.SUPERSEDED:
        return "Failed; a later attempt is known."
    return f"{words.capital(word(place.kind))}."


def _pieces(place: Place, records: Sequence[Side]) -> tuple[Piece, ...]:
    attempt = place.attempt
    if place.kind is Kind.NONE:
        what, them = (
            ("this number", "it") if place.first == place.last else ("these numbers", "them")
        )
        said = f"Nothing was received of {what}; attempt {place.last + 1:,} implies {them}."
        return (Piece(said),)
    if place.kind is Kind.CONFLICT:
        ids = {side.operation_id for side in records}
        if attempt is None:
            said = "Only rejected records claim this place; none of them was accepted."
        elif len(ids) > 1:
            said = f"{_counted(len(ids))} operation ids claim attempt {place.label} of this group."
        else:
            said = f"Records that differ claim attempt {place.label} of this group."
        return (Piece(said),)
    code = error_word(attempt.error) if attempt else None
    took = attempt.duration_ns if attempt else None
    said_pieces: list[Piece] = []
    if code:
        said_pieces += [Piece("With "), Piece(code, data=True, code=True)]
    if took is not None:
        said_pieces.append(Piece(f"{', after' if code else 'It took'} {words.took(took)}"))
    return (*said_pieces, Piece(".")) if said_pieces else ()


def _counted(number: int) -> str:
    return "Two" if number == 2 else f"{number:,}"  # noqa: PLR2004 (a pair is two)


def _sub(place: Place) -> str:
    if place.kind is Kind.CONFLICT:
        return _CONFLICT
    if place.kind is Kind.OPEN:
        return "Open is no proof that work goes on: only a start was received, and nothing since."
    if place.kind is Kind.NONE:
        return "Attempts count from 1, so a higher number says that these were made, or skipped."
    attempt = place.attempt
    parts = []
    if attempt and attempt.limit is not None:
        parts.append(f"Attempt {attempt.number:,} of {attempt.limit:,} allowed.")
    if place.idle_ns is not None and place.idle_ns >= 0:
        parts.append(f"Idle before: {words.took(place.idle_ns)}.")
    elif place.idle_ns is not None:
        parts.append(f"It began {words.took(-place.idle_ns)} before the attempt before it ended.")
    return " ".join(parts)


def _step(item: Place | Folded, path: str, here: Place) -> Step:
    if isinstance(item, Folded):
        more = f"{len(item.places):,} more"
        href = f"{path}&number={item.places[0].first}"
        return Step(item.label, None, more, href, current=here in item.places)
    href = f"{path}&number={item.first}"
    return Step(item.label, item.kind, word(item.kind), href, current=item.first == here.first)


def _around(every: Sequence[Place], place: Place, path: str) -> tuple[Link, ...]:
    at = [one.first for one in every].index(place.first)
    found = []
    for neighbour in (*every[max(at - 1, 0) : at], *every[at + 1 : at + 2]):
        said = word(neighbour.kind) if neighbour.kind is Kind.NONE else _short(neighbour)
        href = None if neighbour.kind is Kind.NONE else f"{path}&number={neighbour.first}"
        numbered = f"Attempt {neighbour.label}" if href else neighbour.label
        found.append(Link(f"{numbered}: {said}", href))
    return tuple(found)


def _short(place: Place) -> str:
    if place.kind is Kind.CONFLICT or place.attempt is None:
        return "conflict"
    return place.attempt.status


def _claims(
    place: Place, mine: Side | None, records: Sequence[Side], highest: int
) -> tuple[Comparison, ...]:
    if place.kind is not Kind.CONFLICT:
        return ()
    refused = [side for side in records if side is not mine]
    if mine is not None:
        first, title = mine, "Accepted record"
    elif refused:
        first, title = refused.pop(0), "Rejected record"
    else:
        return ()
    last = place.last == highest
    return tuple(
        of_claims((first, side), (title, "Rejected record"), highest=last) for side in refused
    )


def _compared(
    place: Place,
    mine: Side | None,
    other: Evidence | None,
    highest: int,
) -> tuple[Comparison | None, str | None]:
    if mine is None:
        return None, None
    if other is None:
        return None, None if place.first == 1 else "No attempt before it is known."
    there, events = other
    theirs = accepted(sides(events), there.attempt.operation_id) if there.attempt else None
    if theirs is None:
        return None, f"Of attempt {there.label} no record was accepted."
    titles = (f"Attempt {there.label}", f"Attempt {place.label}")
    last = (there.last == highest, place.last == highest)
    idles = (there.idle_ns, place.idle_ns)
    return of_attempts((theirs, mine), titles, last, idles), None


def _choosing(key: str, selected: Selected, other: Evidence | None) -> Choosing:
    path = attempt_path(key, selected.operation, selected.group_id, selected.number)
    _, _, of = path.partition("?")
    return Choosing(f"{run_path(key)}/attempt", of, str(other[0].first) if other else "")
