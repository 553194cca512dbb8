"""The list of runs: status, strips of what was tried, outcome, start, retry reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.backend import views
from flowmark_otel.dashboard import words
from flowmark_otel.dashboard.marks import Kind, word
from flowmark_otel.dashboard.pages import facts
from flowmark_otel.dashboard.pages.frame import Choice, Frame, Link, State, Way
from flowmark_otel.dashboard.pages.links import RUNS, attempt_path, query, run_path
from flowmark_otel.dashboard.pages.sentence import RUN_MARKS
from flowmark_otel.dashboard.pages.ways import last_choices, range_ways
from flowmark_otel.dashboard.places import Folded, Place, error_word, fold, places
from flowmark_otel.dashboard.ranges import Range

GROUPS: Final = 4
"""Groups of a run whose strips a list draws; the rest is a number."""

_RESULTS: Final = 3

_TEXTS: Final = (
    ("operation", "Operation"),
    ("group_id", "Group id"),
    ("run_id", "Run id"),
    ("trace_id", "Trace id"),
)
_SELECTS: Final = (
    ("has_retries", "Retries", {"true": "an attempt above 1 is known", "false": "none known"}),
    ("origin", "Sent by", {"server": "servers", "browser": "browsers"}),
)

_PROBLEMS: Final = {
    "gap": "gap",
    "open": "open",
    "unresolved": "unresolved reference",
    "conflict": "conflict",
    "rejected": "rejected",
}


class Strip(NamedTuple):
    """A group in one line: its operation, its marks (None: folded), and all of it as words.

    ``way`` leads to the evidence of the attempt that tells most, named by its number and error.
    """

    operation: str
    marks: tuple[tuple[Kind | None, str], ...]
    spoken: str
    way: Link


class RunRow(NamedTuple):
    """One run of the list; ``notes`` are about groups that are not drawn."""

    state: State
    href: str
    run_id: str
    workflow: str
    strips: tuple[Strip, ...]
    notes: tuple[str, ...]
    outcome: str | None
    result: str | None
    started: str | None
    started_day: str | None
    started_title: str | None
    took: str | None
    retry_of: Link | None
    unresolved: str | None
    retried_by: tuple[Link, ...]


class Text(NamedTuple):
    """A filter that takes a text."""

    name: str
    label: str
    value: str
    placeholder: str = ""


class Select(NamedTuple):
    """A filter with a closed set of values."""

    name: str
    label: str
    choices: tuple[Choice, ...]


class Filters(NamedTuple):
    """The filters as the form shows them: what the address says, nothing else.

    ``further`` are those few need, folded away unless one of them is set (``unfolded``).
    """

    workflow: str
    status: tuple[Choice, ...]
    verdict: tuple[Choice, ...]
    problem: tuple[Choice, ...]
    min_attempts: str
    error_code: str
    q: str
    last: tuple[Choice, ...]
    since: str
    until: str
    texts: tuple[Text, ...]
    selects: tuple[Select, ...]
    unfolded: bool


@dataclass(frozen=True, slots=True)
class RunsPage:
    """A page of the list, newest arrival first. ``trace_id``: only the runs of that trace."""

    template: ClassVar[str] = "runs.html"
    frame: Frame
    rows: tuple[RunRow, ...]
    filters: Filters | None
    filtered: bool
    newest: str | None
    older: str | None
    ranges: tuple[Way, ...] = ()
    csv: str | None = None
    trace_id: str | None = None


Listed = tuple[views.RunView, views.Page[views.GroupView]]
"""A run, and the first of its groups."""


def runs_page(
    frame: Frame,
    listed: Sequence[Listed],
    *,
    following: str | None,
    asked: Mapping[str, str],
    range_: Range | None = None,
) -> RunsPage:
    """The context of the list, from the answers of the API. ``asked``: the query as given."""
    filters = {name: value for name, value in asked.items() if name != "cursor"}
    time = range_ or Range(None, None, None, {})
    code = asked.get("error_code")
    return RunsPage(
        frame=frame,
        rows=tuple(_row(run, groups, code) for run, groups in listed),
        filters=_filters(asked, time),
        filtered=any(filters.values()),
        newest=query(RUNS, filters) if asked.get("cursor") else None,
        older=query(RUNS, {**time.paged(filters), "cursor": following}) if following else None,
        ranges=range_ways(RUNS, time, filters, anytime=True),
        csv=query(f"{RUNS}.csv", filters) if listed else None,
    )


def trace_page(frame: Frame, listed: Sequence[Listed], trace_id: str) -> RunsPage:
    """The runs that have evidence from one trace."""
    rows = tuple(_row(run, groups) for run, groups in listed)
    return RunsPage(frame, rows, None, filtered=True, newest=None, older=None, trace_id=trace_id)


def _filters(asked: Mapping[str, str], time: Range) -> Filters:
    texts = tuple(Text(name, label, asked.get(name, "")) for name, label in _TEXTS)
    selects = tuple(
        Select(name, label, select_choices(values, asked.get(name, "")))
        for name, label, values in _SELECTS
    )
    further = [*(name for name, _ in _TEXTS), *(name for name, _, _ in _SELECTS)]
    return Filters(
        asked.get("workflow", ""),
        select_choices(words.RUN_STATUSES, asked.get("status", "")),
        select_choices(words.VERDICTS, asked.get("verdict", "")),
        select_choices(_PROBLEMS, asked.get("problem", "")),
        asked.get("min_attempts", ""),
        asked.get("error_code", ""),
        asked.get("q", ""),
        last_choices(time),
        asked.get("since", ""),
        asked.get("until", ""),
        texts,
        selects,
        any(name in asked for name in (*further, "since", "until")),
    )


def select_choices(values: Mapping[str, str], chosen: str) -> tuple[Choice, ...]:
    """The choices of a filter, "any" first."""
    return (
        Choice("", "any", not chosen),
        *(Choice(value, text, value == chosen) for value, text in values.items()),
    )


def _row(
    run: views.RunView, groups: views.Page[views.GroupView], code: str | None = None
) -> RunRow:
    quiet = [group for group in groups.items if _quiet(group)]
    told = [group for group in groups.items if not _quiet(group)]
    notes = []
    if quiet:
        notes.append(f"{words.several(len(quiet), 'group')} completed at first try")
    if groups.next:
        rest = run.counts.groups - len(groups.items)
        notes.append(f"{words.several(rest, 'more group')}")
    if not groups.items and run.counts.occurrences:
        notes.append(words.several(run.counts.occurrences, "ordinary occurrence"))
    if run.origin == names.ORIGIN_BROWSER:
        notes.append(words.FROM_BROWSER)
    references = facts.references(run)
    results = facts.result(list(run.result.items())[:_RESULTS])
    return RunRow(
        state=State(RUN_MARKS[run.status], words.capital(words.RUN_STATUSES[run.status])),
        href=run_path(run.key),
        run_id=run.run_id,
        workflow=run.workflow,
        strips=tuple(_strip(run.key, group, code) for group in told),
        notes=tuple(notes),
        outcome=run.outcome,
        result=", ".join(f"{fact.name} {fact.value}" for fact in results) or None,
        started=None if run.started_at is None else words.clock(run.started_at)[:8],
        started_day=None if run.started_at is None else words.day(run.started_at),
        started_title=None if run.started_at is None else views.rfc3339(run.started_at),
        took=None if run.duration_ns is None else words.lasted(run.duration_ns),
        retry_of=_short(references.retry_of, run.retry_of.run_id if run.retry_of else ""),
        unresolved=run.retry_of.run_id if run.retry_of and references.unresolved else None,
        retried_by=tuple(
            Link(link.run_id, run_path(link.key)) for link in run.retried_by[:_RESULTS]
        ),
    )


def _short(link: Link | None, run_id: str) -> Link | None:
    return None if link is None else Link(run_id, link.href)


def _quiet(group: views.GroupView) -> bool:
    return group.verdict == names.VERDICT_FIRST_TRY and len(places(group)) == 1


def _strip(key: str, group: views.GroupView, code: str | None) -> Strip:
    every = places(group)
    drawn = fold(every)
    telling = _telling(every, code)
    return Strip(
        group.operation,
        tuple(
            (None, f"{len(item.places):,} more")
            if isinstance(item, Folded)
            else (item.kind, word(item.kind))
            for item in drawn
        ),
        ", ".join(
            f"{len(item.places):,} more"
            if isinstance(item, Folded)
            else f"{item.label} {word(item.kind)}"
            for item in drawn
        ),
        Link(
            f"attempt {telling.label}{'' if _code(telling) else f': {_state(telling)}'}",
            attempt_path(key, group.operation, group.group_id, telling.first),
            _code(telling),
        ),
    )


def _telling(every: Sequence[Place], code: str | None) -> Place:
    """The attempt that whoever finds this group wants to see first.

    The last that failed with the code asked for; else the highest known, if it did not complete;
    else the last that is in the way of a clean story: why there was another attempt.
    """
    asked = [place for place in every if code and _code(place) == code]
    known = [place for place in every if place.kind is not Kind.NONE]
    troubled = [place for place in known if place.kind is not Kind.COMPLETED]
    return (asked or troubled[-1:] or known)[-1]


def _code(place: Place) -> str | None:
    return error_word(place.attempt.error) if place.attempt else None


def _state(place: Place) -> str:
    """Short for ``word``; the mark beside it says the rest."""
    return names.STATUS_FAILED if place.kind is Kind.SUPERSEDED else str(place.kind.value)
