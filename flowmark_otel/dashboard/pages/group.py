"""One group of a run: strip, timeline, table and the evidence behind each attempt.

All four are made from the same places (``dashboard.places``), so they agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.backend.views import GroupView, RunView, rfc3339
from flowmark_otel.dashboard import words
from flowmark_otel.dashboard.marks import Kind, Shape, word
from flowmark_otel.dashboard.pages.elsewhere import Elsewhere, elsewhere
from flowmark_otel.dashboard.pages.frame import Frame, Link, State
from flowmark_otel.dashboard.pages.links import attempt_path, group_path, run_path, workflow_path
from flowmark_otel.dashboard.pages.plot import plot
from flowmark_otel.dashboard.pages.rows import Numbers, Row, folded_row, place_row
from flowmark_otel.dashboard.places import Folded, Place, fold, lost_ns, places, uncertain

VERDICT_MARKS: Final = {
    names.VERDICT_FIRST_TRY: Kind.COMPLETED,
    names.VERDICT_AFTER_RETRY: Kind.COMPLETED,
    names.VERDICT_FAILED: Kind.FAILED,
    names.VERDICT_OPEN: Kind.OPEN,
    names.VERDICT_UNDETERMINED: Kind.CONFLICT,
}


ROWS: Final = 100
"""Rows of one group that a page shows at once."""


class Step(NamedTuple):
    """One drawn place of a strip: its numbers, and what it leads to.

    ``kind`` is None where several are folded; then ``word`` says how many of what. ``current``: it
    is the one that the page is about.
    """

    label: str
    kind: Kind | None
    word: str
    anchor: str
    current: bool = False


@dataclass(frozen=True, slots=True)
class GroupSection:
    """A group as the run page shows it.

    ``reference``: the strip starts with the run's unresolved reference. ``zero``: the time at 0 s,
    None where no time is known; ``zero_title``: the same in full. ``more``: to the rows that are on
    no part of this page.
    """

    anchor: str
    operation: str
    group_id: str
    state: State
    zero: str | None
    zero_title: str | None
    facts: tuple[str, ...]
    elsewhere: Elsewhere | None
    reference: bool
    steps: tuple[Step, ...]
    head: tuple[Shape, ...]
    grid: tuple[Shape, ...]
    rows: tuple[Row, ...]
    more: Link | None


@dataclass(frozen=True, slots=True)
class GroupPage:
    """All attempts of one group, ROWS at a time."""

    template: ClassVar[str] = "group.html"
    frame: Frame
    workflow: str
    workflow_href: str
    run_id: str
    run: str
    group: GroupSection
    before: str | None


def group_page(frame: Frame, run: RunView, group: GroupView, at: int) -> GroupPage:
    """The page of a group, with the rows from the place ``at`` on, counted from 0."""
    path = group_path(run.key, group.operation, group.group_id)
    count = len(places(group))
    at = min(at, max(count - 1, 0) // ROWS * ROWS)
    before = max(at - ROWS, 0)
    return GroupPage(
        frame,
        run.workflow,
        workflow_path(run.workflow),
        run.run_id,
        run_path(run.key),
        group_section(group, "g", run=run.key, window=at),
        None if at == 0 else f"{path}&at={before}" if before else path,
    )


def group_section(
    group: GroupView,
    anchor: str,
    *,
    run: str,
    window: int | None = None,
    reference: bool = False,
) -> GroupSection:
    """The section of one group of the run with the key ``run``.

    ``window``: the place from which on all are shown; without one they are folded, and of many
    that cannot be (gaps and conflicts never are) the first are shown.
    """
    found = places(group)
    drawn: Sequence[Place | Folded] = fold(found) if window is None else found
    drawing = plot(drawn)
    path = attempt_path(run, group.operation, group.group_id)
    every = group_path(run, group.operation, group.group_id)
    numbers = Numbers(drawing.zero, words.decimals(drawing.extent))
    at = window or 0
    shown = tuple(zip(drawn, drawing.rows, strict=True))[at : at + ROWS]
    rest = len(drawn) - at - len(shown)
    further = every if window is None else f"{every}&at={at + ROWS}"
    return GroupSection(
        anchor=anchor,
        operation=group.operation,
        group_id=group.group_id,
        state=State(VERDICT_MARKS[group.verdict], words.capital(words.VERDICTS[group.verdict])),
        zero=None if drawing.zero is None else f"{words.clock(drawing.zero)}Z",
        zero_title=None if drawing.zero is None else rfc3339(drawing.zero),
        facts=tuple(_facts(group, found)),
        elsewhere=elsewhere(group),
        reference=reference,
        steps=tuple(_step(item, anchor) for item, _ in shown),
        head=drawing.head,
        grid=drawing.grid,
        rows=tuple(
            folded_row(item, anchor, shapes, numbers, Link(f"show all {len(found):,}", every))
            if isinstance(item, Folded)
            else place_row(item, anchor, shapes, numbers, path)
            for item, shapes in shown
        ),
        more=Link(f"{rest:,} more", further) if rest else None,
    )


def _facts(group: GroupView, found: Sequence[Place]) -> list[str]:
    least = "at least " if uncertain(found) else ""
    gap = sum(last - first + 1 for first, last in group.gaps)
    limits = sorted({attempt.limit for attempt in group.attempts if attempt.limit is not None})
    known = f"{least}{words.several(len(group.attempts), 'attempt')} known"
    if gap:
        known += f", {gap:,} without evidence"
    if limits:
        known += f", {' or '.join(f'{limit:,}' for limit in limits)} allowed"
    lost = lost_ns(found)
    return [known, *([f"time lost {least}{words.lasted(lost)}"] if lost else [])]


def _step(item: Place | Folded, anchor: str) -> Step:
    if isinstance(item, Folded):
        return Step(item.label, None, f"{len(item.places):,} more", f"{anchor}-{item.slug}")
    return Step(item.label, item.kind, word(item.kind), f"{anchor}-{item.slug}")
