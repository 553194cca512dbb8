"""One run: the sentence, its own facts and references, its groups, its ordinary occurrences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from flowmark_otel import names
from flowmark_otel.backend import views
from flowmark_otel.dashboard import words
from flowmark_otel.dashboard.marks import Kind
from flowmark_otel.dashboard.pages import facts
from flowmark_otel.dashboard.pages.elsewhere import Elsewhere, elsewhere
from flowmark_otel.dashboard.pages.figures import Figures, figures
from flowmark_otel.dashboard.pages.frame import Fact, Frame, State
from flowmark_otel.dashboard.pages.group import GroupSection, group_section
from flowmark_otel.dashboard.pages.links import (
    attempt_path,
    occurrence_path,
    query,
    run_path,
    workflow_path,
)
from flowmark_otel.dashboard.pages.rows import events_word
from flowmark_otel.dashboard.pages.sentence import Sentence, sentence
from flowmark_otel.dashboard.places import error_word, places, uncertain


class Line(NamedTuple):
    """A group completed at first try, or an ordinary occurrence: one line."""

    name: str
    group_id: str | None
    state: State
    start: str
    start_title: str | None
    took: str
    error: str | None
    evidence: str
    href: str
    elsewhere: Elsewhere | None = None


class Asked(NamedTuple):
    """What of a run was asked for, as its address says it.

    ``groups`` and ``occurrences`` are cursors.
    """

    groups: str | None = None
    occurrences: str | None = None

    def path(self, key: str, **changed: str | None) -> str:
        """The address of the run with something changed."""
        return query(run_path(key), {**self._asdict(), **changed})


@dataclass(frozen=True, slots=True)
class RunPage:
    """The page of one run (A9–A11, A15–A19)."""

    template: ClassVar[str] = "run.html"
    frame: Frame
    workflow: str
    workflow_href: str
    run_id: str
    run: str
    sentence: Sentence
    own: tuple[Fact, ...]
    references: facts.References
    result: tuple[Fact, ...]
    ends: tuple[facts.End, ...]
    counts: tuple[tuple[str, str], ...]
    figures: tuple[Figures, ...]
    groups: tuple[GroupSection, ...]
    first_try: tuple[Line, ...]
    occurrences: tuple[Line, ...]
    groups_from_start: str | None
    more_groups: str | None
    occurrences_from_start: str | None
    more_occurrences: str | None
    events: str


class Answered(NamedTuple):
    """What the reader answered: the run, a page of groups, one of ordinary occurrences, rates."""

    run: views.RunView
    groups: views.Page[views.GroupView]
    ordinary: views.Page[views.OccurrenceView] = views.Page((), None)
    operations: Sequence[views.OperationRow] = ()


def run_page(frame: Frame, answered: Answered, asked: Asked | None = None) -> RunPage:
    """The context of a run page, from the answers of the API."""
    run, groups, ordinary, operations = answered
    asked = asked or Asked()
    paged = groups.next is not None or asked.groups is not None
    quiet = [group for group in groups.items if _at_first_try(group)]
    told = [group for group in groups.items if not _at_first_try(group)]
    references = facts.references(run)
    return RunPage(
        frame=frame,
        workflow=run.workflow,
        workflow_href=workflow_path(run.workflow),
        run_id=run.run_id,
        run=run_path(run.key),
        sentence=sentence(run, groups.items, paged=paged),
        own=facts.own_facts(run),
        references=references,
        result=facts.result(run.result.items()),
        ends=facts.ends(run),
        counts=_counts(run, groups.items, paged=paged),
        figures=figures(operations),
        groups=tuple(
            group_section(
                group,
                f"g{index}",
                run=run.key,
                reference=index == 1 and references.unresolved is not None,
            )
            for index, group in enumerate(told, 1)
        ),
        first_try=tuple(_group_line(run.key, group) for group in quiet),
        occurrences=tuple(_line(run.key, occurrence) for occurrence in ordinary.items),
        groups_from_start=asked.path(run.key, groups=None) if asked.groups else None,
        more_groups=asked.path(run.key, groups=groups.next) if groups.next else None,
        occurrences_from_start=(
            asked.path(run.key, occurrences=None) if asked.occurrences else None
        ),
        more_occurrences=(
            asked.path(run.key, occurrences=ordinary.next) if ordinary.next else None
        ),
        events=f"{run_path(run.key)}/events",
    )


def _at_first_try(group: views.GroupView) -> bool:
    return group.verdict == names.VERDICT_FIRST_TRY and len(places(group)) == 1


def _counts(
    run: views.RunView, groups: Sequence[views.GroupView], *, paged: bool
) -> tuple[tuple[str, str], ...]:
    """Each number on its own (A16); "at least" where the evidence has a doubt (section 5)."""
    counts = run.counts
    doubt = any(uncertain(places(group)) for group in groups)
    least = "at least " if doubt and not paged else ""
    return (
        ("Occurrences", f"{counts.occurrences:,}"),
        ("Attempts", f"{least}{counts.attempts:,}"),
        ("Failed attempts", f"{counts.failed_attempts:,} of {counts.attempts:,}"),
        ("Groups", f"{counts.groups:,}"),
        ("Operations", f"{counts.operations:,}"),
    )


def _group_line(key: str, group: views.GroupView) -> Line:
    attempt = group.attempts[0]
    return Line(
        group.operation,
        group.group_id,
        State(Kind.COMPLETED, "Completed"),
        *_start(attempt),
        _took(attempt),
        None,
        events_word(attempt),
        attempt_path(key, group.operation, group.group_id, attempt.number),
        elsewhere(group),
    )


_STATES = {
    names.STATUS_COMPLETED: State(Kind.COMPLETED, "Completed"),
    names.STATUS_FAILED: State(Kind.FAILED, "Failed"),
    names.STATUS_OPEN: State(Kind.OPEN, "Open: no end received"),
}


def _line(key: str, occurrence: views.OccurrenceView) -> Line:
    state = _STATES[occurrence.status]
    if occurrence.conflict:
        refused = words.several(len(occurrence.rejected), "event")
        state = State(Kind.CONFLICT, f"Conflict: {occurrence.status}", f"{refused} rejected")
    return Line(
        occurrence.operation,
        None,
        state,
        *_start(occurrence),
        _took(occurrence),
        error_word(occurrence.error),
        events_word(occurrence),
        occurrence_path(key, occurrence.operation_id),
    )


def _start(timed: views.AttemptView | views.OccurrenceView) -> tuple[str, str | None]:
    if timed.started_at is not None:
        return words.clock(timed.started_at), views.rfc3339(timed.started_at)
    received = timed.evidence.start_event_id is not None
    return (words.TIME_UNKNOWN if received else "not received"), None


def _took(timed: views.AttemptView | views.OccurrenceView) -> str:
    return words.UNKNOWN if timed.duration_ns is None else words.seconds(timed.duration_ns)
