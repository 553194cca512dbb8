"""The rows of an attempt table: what is known of each place, in words and numbers."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.backend.views import AttemptView, OccurrenceView, rfc3339
from flowmark_otel.dashboard import words
from flowmark_otel.dashboard.marks import Kind, Shape
from flowmark_otel.dashboard.pages.frame import Link, State
from flowmark_otel.dashboard.places import Claim, Folded, Place, error_word

_UNIT: Final = " s"
_NOT_RECEIVED: Final = "not received"
_FOLDED_WORDS: Final = {
    Kind.COMPLETED: "completed",
    Kind.SUPERSEDED: "failed",
    Kind.FAILED: "failed",
    Kind.OPEN: "open",
}


class Cell(NamedTuple):
    """A cell of numbers or words; ``unit`` is written on small screens, where the head is away.

    ``none``: there is nothing to read, and a small screen leaves it out. ``title``: the full time.
    """

    text: str
    sub: str | None = None
    unit: str | None = None
    muted: bool = False
    none: bool = False
    label: str | None = None
    title: str | None = None


class Row(NamedTuple):
    """One row with its part of the timeline; ``two``: two records, two bars.

    ``evidence`` leads to the page of the attempt, or out of the fold.
    """

    anchor: str
    label: str
    state: State
    shapes: tuple[Shape, ...]
    start: Cell
    took: Cell
    idle: Cell
    error: str | None
    error_sub: str | None
    evidence: Link
    two: bool = False
    error_note: str | None = None


class Numbers(NamedTuple):
    """How times of one group are written: seconds after ``zero``, with ``digits`` decimals."""

    zero: int | None
    digits: int

    def offset(self, time: int) -> str:
        """``+1.05``."""
        return f"+{words.seconds(time - (self.zero or 0), self.digits)}"

    def seconds(self, duration: int) -> str:
        """``0.60``."""
        return words.seconds(duration, self.digits)


def place_row(
    place: Place, anchor: str, shapes: tuple[Shape, ...], numbers: Numbers, path: str
) -> Row:
    """The row of one place. ``path``: what the addresses of its group's attempts begin with."""
    identity = f"{anchor}-{place.slug}"
    if place.kind is Kind.NONE:
        unknown = Cell(words.UNKNOWN, muted=True, none=True)
        return Row(
            identity,
            place.label,
            State(Kind.NONE, "No evidence"),
            shapes,
            unknown,
            unknown,
            unknown,
            None,
            None,
            Link(f"none; implied by {place.last + 1}"),
        )
    attempt = place.attempt
    claim = place.claims[0] if place.claims else None
    error = error_word(attempt.error) if attempt else None
    return Row(
        identity,
        place.label,
        _state(place),
        shapes,
        _start(attempt, claim, numbers),
        _took(attempt, claim, numbers),
        _idle(place, numbers),
        error,
        _claimed(claim, error),
        _evidence(place, path),
        two=claim is not None and attempt is not None,
    )


def folded_row(
    item: Folded, anchor: str, shapes: tuple[Shape, ...], numbers: Numbers, way: Link
) -> Row:
    """The row of several folded places; its numbers are sums of what is known."""
    kinds = Counter(_FOLDED_WORDS[kind] for kind, count in item.kinds for _ in range(count))
    many = len(item.places)
    parts = [f"{count:,} {said}" for said, count in kinds.most_common()]
    said = f"{many:,} more {next(iter(kinds))}" if len(kinds) == 1 else f"{many:,} more"
    attempts = [place.attempt for place in item.places if place.attempt]
    starts = [attempt.started_at for attempt in attempts if attempt.started_at is not None]
    durations = [attempt.duration_ns for attempt in attempts if attempt.duration_ns is not None]
    idles = [place.idle_ns for place in item.places if place.idle_ns is not None]
    errors = Counter(error_word(attempt.error) for attempt in attempts if attempt.error)
    top, times = errors.most_common(1)[0] if errors else (None, 0)
    kind = item.kinds[0][0]
    return Row(
        f"{anchor}-{item.slug}",
        item.label,
        State(kind, said, words.listed(parts) if len(kinds) > 1 else None),
        shapes,
        Cell(numbers.offset(starts[0]), unit=_UNIT) if starts else _unknown(),
        Cell(f"{numbers.seconds(sum(durations))} in all") if durations else _unknown(),
        Cell(f"{numbers.seconds(sum(idles))} in all") if idles else _unknown(),
        top,
        None,
        way,
        error_note=f"{times:,} of {many:,}" if top and times < many else None,
    )


def _unknown() -> Cell:
    return Cell(words.UNKNOWN, muted=True)


def _state(place: Place) -> State:
    attempt = place.attempt
    if place.kind is Kind.CONFLICT:
        refused = [f"rejected: {_said(claim.status)}" for claim in place.claims[:1]]
        if len(place.claims) > 1:
            refused.append(f"and {len(place.claims) - 1:,} more")
        if attempt is None:
            return State(Kind.CONFLICT, "Conflict: none accepted", ", ".join(refused) or None)
        return State(
            Kind.CONFLICT, f"Conflict: {_said(attempt.status)}", ", ".join(refused) or None
        )
    said = {
        Kind.COMPLETED: "Completed",
        Kind.SUPERSEDED: "Failed",
        Kind.FAILED: "Failed, highest known",
        Kind.OPEN: "Open: no end received",
    }[place.kind]
    flags = attempt.flags if attempt else ()
    notes = [words.FLAGS[flag] for flag in flags]
    if attempt and attempt.kind == names.KIND_OBSERVED:
        notes.insert(0, "observed")
    return State(place.kind, said, ", ".join(notes) or None)


def _said(status: str) -> str:
    return {"open": "open, no end"}.get(status, status)


def _start(attempt: AttemptView | None, claim: Claim | None, numbers: Numbers) -> Cell:
    sub = None
    if claim:
        sub = words.UNKNOWN if claim.started_at is None else numbers.offset(claim.started_at)
    if attempt is None:
        return Cell(words.NOTHING, sub, muted=True)
    if attempt.started_at is not None:
        title = rfc3339(attempt.started_at)
        unit = None if sub else _UNIT
        return Cell(numbers.offset(attempt.started_at), sub, unit=unit, title=title)
    known = attempt.evidence.start_event_id is not None
    return Cell(words.TIME_UNKNOWN if known else _NOT_RECEIVED, sub, muted=True)


def _took(attempt: AttemptView | None, claim: Claim | None, numbers: Numbers) -> Cell:
    sub = None
    if claim:
        sub = words.UNKNOWN
        if claim.started_at is not None and claim.ended_at is not None:
            sub = numbers.seconds(claim.ended_at - claim.started_at)
    if attempt is None:
        return Cell(words.NOTHING, sub, muted=True)
    if attempt.duration_ns is not None:
        return Cell(numbers.seconds(attempt.duration_ns), sub, unit=None if sub else _UNIT)
    start, end = attempt.started_at, attempt.ended_at
    if start is not None and end is not None and end < start:
        return Cell(f"end {numbers.seconds(start - end)} before start", sub)
    return Cell(words.UNKNOWN, sub, muted=True)


def _idle(place: Place, numbers: Numbers) -> Cell:
    if place.first == 1:
        return Cell(words.NOTHING, muted=True, none=True)
    if place.idle_ns is None:
        return Cell(words.UNKNOWN, muted=True)
    if place.idle_ns < 0:
        overlap = f"overlap {numbers.seconds(-place.idle_ns)}"
        return Cell(overlap, unit=_UNIT, label="No idle,")
    return Cell(numbers.seconds(place.idle_ns), unit=_UNIT)


def _claimed(claim: Claim | None, accepted: str | None) -> str | None:
    """The error of a refused record below that of the accepted one, in its line."""
    if claim is None or not (claim.error or accepted):
        return None
    return claim.error or words.NOTHING


def _evidence(place: Place, path: str) -> Link:
    attempt = place.attempt
    refused = sum(len(claim.events) for claim in place.claims)
    note = f"{refused:,} rejected" if refused else None
    href = f"{path}&number={place.first}"
    if attempt is None:
        return Link("none accepted", href, note)
    return Link(events_word(attempt), href, note)


def events_word(attempt: AttemptView | OccurrenceView) -> str:
    """How many accepted events stand behind an occurrence, and which where there is one."""
    start = attempt.evidence.start_event_id is not None
    end = attempt.evidence.end_event_id is not None
    if start and end:
        return "2 events"
    return "1 event: start" if start else "1 event: end"
