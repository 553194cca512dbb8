"""The overview: is retrying getting worse, and where (E4, A16)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from flowmark_otel.backend.views import (
    Amplification,
    ErrorCount,
    Figures,
    Overview,
    OverviewOperation,
    RunProblems,
    rfc3339,
)
from flowmark_otel.dashboard import charts, words
from flowmark_otel.dashboard.marks import Kind, Shape
from flowmark_otel.dashboard.pages.figures import Share
from flowmark_otel.dashboard.pages.frame import Frame, Moment, Piece, Way
from flowmark_otel.dashboard.pages.links import EVIDENCE, HOME, OVERVIEW, RUNS, query
from flowmark_otel.dashboard.pages.panels import Carried, Panel, lost_at_least, panels, rate_of
from flowmark_otel.dashboard.pages.trend import Trend, peak, sentence, step_word, trend
from flowmark_otel.dashboard.pages.ways import range_ways
from flowmark_otel.dashboard.ranges import Range, choices


class Problem(NamedTuple):
    """A line of evidence problems; ``kind`` is None where there is no mark for it."""

    kind: Kind | None
    word: str
    href: str
    note: str
    runs: str


class Row(NamedTuple):
    """One operation name; ``spark`` is None where it has no attempts."""

    operation: str
    workflow: str
    href: str
    operations: str
    spark: tuple[Shape, ...] | None
    peak: str
    spread: str
    attempt_errors: Share
    operation_errors: Share
    amplification: Share
    time_lost: str
    least: bool
    top_error: str | None
    top_href: str | None
    top_note: str | None


class Ways(NamedTuple):
    """The same numbers elsewhere."""

    operations_csv: str
    buckets_csv: str


@dataclass(frozen=True, slots=True)
class OverviewPage:
    """The overview of a time. ``nowhere``: nothing arrived in it, and where something did.

    ``asked``: its begin and its end, where the address names them.
    """

    template: ClassVar[str] = "overview.html"
    frame: Frame
    ranges: tuple[Way, ...]
    asked: tuple[Moment, Moment] | None
    sentence: tuple[Piece, ...]
    nowhere: tuple[Way, ...]
    panels: tuple[Panel, Panel, Panel]
    trend: Trend
    step: str
    problems: tuple[Problem, ...]
    rows: tuple[Row, ...]
    total: Row
    ways: Ways
    notes: tuple[str, ...]


def overview_page(
    frame: Frame, view: Overview, before: Amplification | None, range_: Range
) -> OverviewPage:
    """The context, from the API's answer; ``before``: extra attempts in the time before."""

    def carried(**more: str) -> dict[str, str]:
        return {**more, **(range_.asked or {"last": range_.last or ""})}

    bounds = _bounds(view)
    return OverviewPage(
        frame=frame,
        ranges=range_ways(HOME, range_, {}, anytime=False),
        asked=_asked(view) if range_.last is None else None,
        sentence=sentence(view, before, range_),
        nowhere=_nowhere(view, range_),
        panels=panels(view, carried),
        trend=trend(view, before, range_),
        step=step_word(view.step_ns),
        problems=_problems(view.problems, carried),
        rows=tuple(_row(view, each, carried) for each in view.operations),
        total=_total(view.figures),
        ways=Ways(
            query(f"{OVERVIEW}.csv", {"table": "operations", **bounds}),
            query(f"{OVERVIEW}.csv", {"table": "buckets", **bounds}),
        ),
        notes=tuple(_notes(view)),
    )


def json_way(view: Overview, buckets: int) -> str:
    """Where the very answer that a page shows is, as JSON."""
    return query(f"{OVERVIEW}.json", {**_bounds(view), "buckets": str(buckets)})


def _bounds(view: Overview) -> dict[str, str]:
    return {"since": rfc3339(view.since), "until": rfc3339(view.until)}


def _asked(view: Overview) -> tuple[Moment, Moment]:
    return _moment(view.since), _moment(view.until)


def _moment(time: int) -> Moment:
    return Moment(words.moment(time), rfc3339(time))


def _nowhere(view: Overview, range_: Range) -> tuple[Way, ...]:
    if view.runs:
        return ()
    wider = [each for each in choices(range_, anytime=False) if not each.chosen][-1]
    return (
        Way(f"the last {wider.text}", query(HOME, {"last": wider.value}), chosen=False),
        Way("all runs", RUNS, chosen=False),
    )


_PROBLEMS: Final[tuple[tuple[str, Kind | None, str, str], ...]] = (
    ("gap", Kind.NONE, "Gaps", "runs with a number implied, not known"),
    ("open", Kind.OPEN, "Open: no end received", "runs with a start that has no end yet"),
    ("unresolved", Kind.UNRESOLVED, "Unresolved references", "runs that retry one not stored"),
    ("conflict", Kind.CONFLICT, "Conflicts", "runs with two records for one place"),
    ("rejected", None, "Rejected events", "runs that a refused event names"),
)


def _problems(problems: RunProblems, carried: Carried) -> tuple[Problem, ...]:
    return tuple(
        Problem(
            mark,
            word,
            query(EVIDENCE, carried(kind=kind)),
            note,
            f"{getattr(problems, kind):,}",
        )
        for kind, mark, word, note in _PROBLEMS
    )


def _row(view: Overview, each: OverviewOperation, carried: Carried) -> Row:
    figures = each.figures
    named = {"workflow": each.workflow, "operation": each.operation}
    retries = {"has_retries": "true"} if figures.extra_attempts.numerator else {}
    at, values = peak(view, each)
    top = each.top_error
    return Row(
        operation=each.operation,
        workflow=each.workflow,
        href=query(RUNS, carried(**named, **retries)),
        spark=charts.spark(values) if figures.groups else None,
        peak=at,
        spread=_spread(each),
        top_error=top.code if top else None,
        top_href=query(RUNS, carried(**named, error_code=top.code)) if top else None,
        top_note=_top_note(figures, top),
        **_rates(figures),
    )


def _total(figures: Figures) -> Row:
    return Row(
        "All",
        "",
        "",
        spark=None,
        peak="",
        spread="",
        top_error=None,
        top_href=None,
        top_note=None,
        **_rates(figures),
    )


def _rates(figures: Figures) -> dict[str, Any]:
    attempts, operations = figures.attempt_errors, figures.operation_errors
    amplification = figures.amplification
    least = "at least " if amplification.at_least else ""
    return {
        "operations": f"{figures.operations:,}",
        "attempt_errors": _share(attempts.numerator, attempts.denominator, rate_of(attempts))
        if figures.groups
        else Share(words.NOTHING, ""),
        "operation_errors": _share(
            operations.numerator, operations.denominator, rate_of(operations)
        ),
        "amplification": Share(
            words.ratio(amplification.numerator, amplification.denominator),
            f"{least}{amplification.numerator:,}/{amplification.denominator:,}",
        )
        if figures.groups
        else Share(words.NOTHING, ""),
        "time_lost": words.lasted(figures.time_lost_ns) if figures.groups else words.NOTHING,
        "least": bool(figures.groups) and lost_at_least(amplification, attempts, operations),
    }


def _share(numerator: int, denominator: int, of: str) -> Share:
    return Share(words.percent(numerator, denominator), of)


def _top_note(figures: Figures, top: ErrorCount | None) -> str | None:
    """How much of what failed the top error is; what to say where no failure named one."""
    if top is None:
        either = figures.attempt_errors.numerator or figures.operation_errors.numerator
        return "no code given" if either else None
    failed = _failed(figures)
    if not failed:
        return words.several(top.count, "failure")
    return f"{top.count:,} of {words.several(failed, 'failure')}"


def _failed(figures: Figures) -> int:
    """Failed occurrences, where groups and single ones can be told apart; else 0."""
    if figures.groups == figures.operations:
        return figures.attempt_errors.numerator
    return 0 if figures.groups else figures.operation_errors.numerator


def _spread(each: OverviewOperation) -> str:
    found = (each.attempts_p50, each.attempts_p95, each.attempts_max)
    return words.NOTHING if None in found else " / ".join(f"{number:,}" for number in found)


def _notes(view: Overview) -> list[str]:
    notes = []
    if view.operation_names > len(view.operations):
        notes.append(
            f"The {len(view.operations)} names with most time lost, of {view.operation_names:,};"
            " the API's /api/v1/operations lists all."
        )
    if view.not_included:
        notes.append(
            f"{words.several(view.not_included, 'run')} changed lately and"
            f" {'is' if view.not_included == 1 else 'are'} not in these figures yet."
        )
    return notes
