"""From the places of a group to the rows of its timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from flowmark_otel import names
from flowmark_otel.backend.views import AttemptView
from flowmark_otel.dashboard import timeline
from flowmark_otel.dashboard.marks import Kind
from flowmark_otel.dashboard.places import Claim, Folded, Place


def plot(drawn: Sequence[Place | Folded]) -> timeline.Timeline:
    """The timeline of a group, one row for each drawn place, on one scale."""
    return timeline.draw([_row(item, index, drawn) for index, item in enumerate(drawn)])


_FORMS: Final = {
    names.STATUS_COMPLETED: timeline.Form.COMPLETED,
    names.STATUS_OPEN: timeline.Form.OPEN,
    names.STATUS_FAILED: timeline.Form.SUPERSEDED,
}


def _row(item: Place | Folded, index: int, drawn: Sequence[Place | Folded]) -> timeline.Row:
    if isinstance(item, Folded):
        return timeline.Row(_known(map(_bar, item.places)), folded=True)
    if item.kind is Kind.NONE:
        return timeline.Row(
            gap=True, before=_last_time(drawn[:index]), after=_first_time(drawn[index + 1 :])
        )
    start = item.attempt.started_at if item.attempt else None
    return timeline.Row(
        _known((_bar(item), *map(_claim_bar, item.claims[:1]))),
        idle_from=None if start is None or item.idle_ns is None else start - item.idle_ns,
    )


def _known(bars: Iterable[timeline.Bar | None]) -> tuple[timeline.Bar, ...]:
    return tuple(bar for bar in bars if bar is not None)


def _bar(place: Place) -> timeline.Bar | None:
    attempt = place.attempt
    if attempt is None:
        return None
    form = timeline.Form.LAST if place.kind is Kind.FAILED else _FORMS[attempt.status]
    return timeline.Bar(form, attempt.started_at, attempt.ended_at)


def _claim_bar(claim: Claim) -> timeline.Bar:
    return timeline.Bar(_FORMS[claim.status], claim.started_at, claim.ended_at)


def _last_time(before: Sequence[Place | Folded]) -> int | None:
    times = [time for place in _flat(before[-1:]) for time in _times(place.attempt)]
    return max(times, default=None)


def _first_time(after: Sequence[Place | Folded]) -> int | None:
    times = [time for place in _flat(after[:1]) for time in _times(place.attempt)]
    return min(times, default=None)


def _flat(items: Sequence[Place | Folded]) -> list[Place]:
    return [
        place for item in items for place in (item.places if isinstance(item, Folded) else (item,))
    ]


def _times(attempt: AttemptView | None) -> list[int]:
    known = (attempt.started_at, attempt.ended_at) if attempt else ()
    return [time for time in known if time is not None]
