"""The three panels of the overview: runs, operations and attempts, each with its denominator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.backend.views import Amplification, Overview, Rate
from flowmark_otel.dashboard import charts, words
from flowmark_otel.dashboard.marks import Shape
from flowmark_otel.dashboard.pages.links import EVIDENCE, RUNS, query

UNDECIDED: Final = "undecided"


class Part(NamedTuple):
    """One state of a panel: its hatch, its word, how many, and their share of what has an end."""

    key: tuple[Shape, ...]
    word: str
    href: str | None
    number: str
    share: str


class Rated(NamedTuple):
    """A figure below a panel; ``least``: it reads "at least"; ``of``: its fraction."""

    name: str
    value: str
    of: str | None = None
    least: bool = False


class Panel(NamedTuple):
    """How many there are, of what they are made, and the rates of them; nothing is added up."""

    title: str
    figure: str
    note: str
    of: str
    shapes: tuple[Shape, ...]
    parts: tuple[Part, ...]
    rates: tuple[Rated, ...]


Carried = Callable[..., dict[str, str]]
"""The parameters of a link within the range of the page, those given added."""


def panels(view: Overview, carried: Carried) -> tuple[Panel, Panel, Panel]:
    """Runs, operations, attempts."""
    return _runs(view, carried), _operations(view, carried), _attempts(view, carried)


def rate_of(rate: Rate) -> str:
    """``133/1,399, 5 undecided``."""
    said = f"{rate.numerator:,}/{rate.denominator:,}"
    return f"{said}, {rate.undecided:,} undecided" if rate.undecided else said


def lost_at_least(amplification: Amplification, attempts: Rate, operations: Rate) -> bool:
    """Whether time lost is more than what is known: a gap or something without an end."""
    undecided = attempts.undecided or (amplification.denominator and operations.undecided)
    return bool(amplification.at_least or undecided)


def _runs(view: Overview, carried: Carried) -> Panel:
    statuses = view.statuses
    ended = statuses.completed + statuses.failed
    counts = (
        ("ok", names.STATUS_COMPLETED, statuses.completed, True),
        ("fail", names.STATUS_FAILED, statuses.failed, True),
        ("open", names.STATUS_OPEN, statuses.open, False),
        ("gap", names.STATUS_UNKNOWN, statuses.unknown, False),
    )
    return Panel(
        "Runs",
        f"{view.runs:,}",
        f"{ended:,} with an end",
        f"of {ended:,}",
        charts.stack([(key, count) for key, _, count, _ in counts]),
        tuple(
            _part(
                key,
                words.RUN_STATUSES[status],
                query(RUNS, carried(status=status)),
                count,
                ended if decided else None,
            )
            for key, status, count, decided in counts
        ),
        (),
    )


def _operations(view: Overview, carried: Carried) -> Panel:
    figures = view.figures
    verdicts, rate = figures.verdicts, figures.operation_errors
    counts = (
        ("ok", names.VERDICT_FIRST_TRY, verdicts.first_try, True),
        ("after", names.VERDICT_AFTER_RETRY, verdicts.after_retry, True),
        ("fail", names.VERDICT_FAILED, verdicts.failed, True),
        ("open", names.VERDICT_OPEN, verdicts.open, False),
        ("undet", names.VERDICT_UNDETERMINED, verdicts.undetermined, False),
    )
    singles = figures.operations - figures.groups
    return Panel(
        "Operations",
        f"{figures.operations:,}",
        f"{words.several(figures.groups, 'group')}, {words.several(singles, 'single occurrence')}",
        f"of {rate.denominator:,}",
        charts.stack([(key, count) for key, _, count, _ in counts]),
        tuple(
            _part(
                key,
                _VERDICTS.get(verdict, words.VERDICTS[verdict]),
                query(RUNS, carried(verdict=verdict)),
                count,
                rate.denominator if decided else None,
            )
            for key, verdict, count, decided in counts
        ),
        (
            Rated(
                "Operation error rate",
                words.percent(rate.numerator, rate.denominator),
                rate_of(rate),
            ),
        ),
    )


_VERDICTS: Final = {names.VERDICT_UNDETERMINED: "undetermined: conflict"}


def _attempts(view: Overview, carried: Carried) -> Panel:
    figures = view.figures
    rate, amplification = figures.attempt_errors, figures.amplification
    least = amplification.at_least
    counts: Sequence[tuple[str, str, int, str | None, bool]] = (
        ("ok", "completed", rate.denominator - rate.numerator, None, True),
        ("fail", "failed", rate.numerator, None, True),
        (
            "open",
            words.VERDICTS[names.VERDICT_OPEN],
            rate.undecided,
            query(EVIDENCE, carried(kind="open")),
            False,
        ),
    )
    return Panel(
        "Attempts",
        f"{figures.attempts:,}",
        f"known{', at least' if least else ''}; in {words.several(figures.groups, 'group')}",
        f"of {rate.denominator:,}",
        charts.stack([(key, count) for key, _, count, _, _ in counts]),
        tuple(
            _part(key, word, href, count, rate.denominator if decided else None)
            for key, word, count, href, decided in counts
        ),
        (
            Rated(
                "Attempt error rate",
                words.percent(rate.numerator, rate.denominator),
                rate_of(rate),
            ),
            Rated(
                "Amplification",
                words.ratio(amplification.numerator, amplification.denominator),
                f"{amplification.numerator:,}/{amplification.denominator:,}",
                least and bool(amplification.denominator),
            ),
            Rated(
                "Time lost to retries",
                words.lasted(figures.time_lost_ns),
                least=lost_at_least(amplification, rate, figures.operation_errors),
            ),
        ),
    )


def _part(key: str, word: str, href: str | None, count: int, of: int | None) -> Part:
    return Part(
        charts.key(key),
        word,
        href if count else None,
        f"{count:,}",
        UNDECIDED if of is None else words.percent(count, of),
    )
