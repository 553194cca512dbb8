"""The places of a group in number order: what strip, table, timeline and sentence are made from.

A place is a number (or a run of numbers without evidence) and what is known there; long lists are
folded here and nowhere else, so the four can never differ (A9–A11).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.backend.views import AttemptView, ErrorView, GroupView, RejectedRecord
from flowmark_otel.dashboard.marks import BY_KIND, Kind

DRAWN: Final = 12
"""Places up to which none is folded."""

_FIRST: Final = 2
_LAST: Final = 6


class Claim(NamedTuple):
    """A refused record of a place in conflict: its events, and what they say.

    ``error``: the code of its failure, or the type where no code is known.
    """

    operation_id: str | None
    status: str
    error: str | None
    started_at: int | None
    ended_at: int | None
    events: tuple[RejectedRecord, ...]


class Place(NamedTuple):
    """Numbers ``first`` to ``last`` of a group, and what is known of them.

    ``attempt`` is the accepted record, None in a gap and where only refused records are known.
    ``idle_ns``: time between the end of the attempt before and this start; negative where they
    overlap; None where it is not known, which for number 1 means that nothing is to be known.
    """

    first: int
    last: int
    kind: Kind
    attempt: AttemptView | None = None
    claims: tuple[Claim, ...] = ()
    idle_ns: int | None = None

    @property
    def label(self) -> str:
        """``3`` or ``3–7``."""
        return span(self.first, self.last)

    @property
    def slug(self) -> str:
        """``3`` or ``3-7``: the end of its row's id."""
        return _slug(self.first, self.last)


class Folded(NamedTuple):
    """Consecutive places shown as one, none of them a conflict or a gap."""

    places: tuple[Place, ...]

    @property
    def label(self) -> str:
        """``3–8``."""
        return span(self.places[0].first, self.places[-1].last)

    @property
    def slug(self) -> str:
        """``3-8``."""
        return _slug(self.places[0].first, self.places[-1].last)

    @property
    def kinds(self) -> tuple[tuple[Kind, int], ...]:
        """How many there are of each kind, most first."""
        return tuple(Counter(place.kind for place in self.places).most_common())


def span(first: int, last: int) -> str:
    """A number, or the first and the last of several: ``3``, ``3–7``, ``3–1,000``."""
    return f"{first:,}" if first == last else f"{first:,}–{last:,}"


def _slug(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def places(group: GroupView) -> tuple[Place, ...]:
    """All places of a group in number order; consecutive gaps are one place."""
    accepted = {attempt.number: attempt for attempt in group.attempts}
    claimed = set(group.conflicts)
    numbers = sorted(accepted.keys() | claimed)
    highest = numbers[-1] if numbers else 0
    claims = _claims(group.rejected)
    found = [
        Place(
            number,
            number,
            _kind(accepted.get(number), number, highest, conflict=number in claimed),
            accepted.get(number),
            claims.get(number, ()) if number in claimed else (),
            _idle(accepted.get(number - 1), accepted.get(number)),
        )
        for number in numbers
    ]
    found += [Place(first, last, Kind.NONE) for first, last in _merged(group.gaps)]
    return tuple(sorted(found, key=lambda place: place.first))


def fold(found: Sequence[Place]) -> tuple[Place | Folded, ...]:
    """What a strip draws: up to twelve places, else the first two, "n more" and the last six.

    A conflict or a gap is never folded away, so "n more" can stand several times.
    """
    if len(found) <= DRAWN:
        return tuple(found)
    drawn: list[Place | Folded] = list(found[:_FIRST])
    for folds, some in groupby(found[_FIRST:-_LAST], key=lambda place: BY_KIND[place.kind].folds):
        middle = tuple(some)
        if folds and len(middle) > 1:
            drawn.append(Folded(middle))
        else:
            drawn.extend(middle)
    drawn.extend(found[-_LAST:])
    return tuple(drawn)


def uncertain(found: Iterable[Place]) -> bool:
    """Whether numbers of this group must be read as "at least"."""
    return any(place.kind in (Kind.NONE, Kind.OPEN, Kind.CONFLICT) for place in found)


def lost_ns(found: Sequence[Place]) -> int:
    """Time lost to retries, in nanoseconds (contract, section 5).

    Durations of failed attempts that have a higher known number, plus positive idle times.
    """
    known = [place for place in found if place.kind is not Kind.NONE]
    failed = sum(
        place.attempt.duration_ns or 0
        for place in known[:-1]
        if place.attempt and place.attempt.status == names.STATUS_FAILED
    )
    return failed + sum(max(place.idle_ns or 0, 0) for place in known)


def error_word(error: ErrorView | None) -> str | None:
    """The code of an error, or its type where no code is known."""
    return None if error is None else (error.code or error.type)


def _kind(attempt: AttemptView | None, number: int, highest: int, *, conflict: bool) -> Kind:
    if conflict or attempt is None or attempt.conflict:
        return Kind.CONFLICT
    if attempt.status == names.STATUS_COMPLETED:
        return Kind.COMPLETED
    if attempt.status == names.STATUS_OPEN:
        return Kind.OPEN
    return Kind.FAILED if number == highest else Kind.SUPERSEDED


def _idle(before: AttemptView | None, attempt: AttemptView | None) -> int | None:
    if before is None or attempt is None:
        return None
    if before.ended_at is None or attempt.started_at is None:
        return None
    return attempt.started_at - before.ended_at


def _merged(gaps: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(gaps):
        if merged and first == merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    return merged


def _claims(rejected: Iterable[RejectedRecord]) -> dict[int, tuple[Claim, ...]]:
    """The refused records of each number, the events of one span together."""
    records: dict[int, dict[tuple[str | None, str], list[RejectedRecord]]] = {}
    for record in rejected:
        if record.number is not None:
            of_span = (record.operation_id, record.event_id.rpartition("-")[0])
            records.setdefault(record.number, {}).setdefault(of_span, []).append(record)
    return {
        number: tuple(_claim(operation_id, events) for (operation_id, _), events in spans.items())
        for number, spans in records.items()
    }


def _claim(operation_id: str | None, events: Sequence[RejectedRecord]) -> Claim:
    start = end = error = None
    status = names.STATUS_OPEN
    for event in events:
        if event.event == names.OPERATION_STARTED:
            start = event.sent_at
        elif event.event in _ENDS:
            end = event.sent_at
            status = _ENDS[event.event]
            code = event.attributes.get(names.ERROR_CODE) or event.attributes.get(names.ERROR_TYPE)
            error = None if code is None else str(code)
    return Claim(operation_id, status, error, start, end, tuple(events))


_ENDS: Final = {
    names.OPERATION_COMPLETED: names.STATUS_COMPLETED,
    names.OPERATION_FAILED: names.STATUS_FAILED,
}
