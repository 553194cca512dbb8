"""The time ranges of a page: as links above it, and as a choice in its form."""

from __future__ import annotations

from collections.abc import Mapping

from flowmark_otel.dashboard import ranges
from flowmark_otel.dashboard.pages.frame import Choice, Way
from flowmark_otel.dashboard.pages.links import query
from flowmark_otel.dashboard.ranges import Range


def range_ways(
    path: str, time: Range, filters: Mapping[str, str], *, anytime: bool
) -> tuple[Way, ...]:
    """Links to the other ranges that keep the page's filters."""
    kept = {name: text for name, text in filters.items() if name not in ranges.NAMES}
    return tuple(
        Way(each.text, query(path, {**kept, "last": each.value}), each.chosen)
        for each in ranges.choices(time, anytime=anytime)
    )


def last_choices(time: Range) -> tuple[Choice, ...]:
    """The same for a form, any time first."""
    *found, anytime = ranges.choices(time, anytime=True)
    any_ = anytime._replace(text="any time", chosen=not time.last)
    return (any_, *(each._replace(text=f"last {each.text}") for each in found))


def carry(time: Range) -> str:
    """The query that takes the range along, with its ``?``; empty where none was asked for."""
    return query("", dict(time.asked))
