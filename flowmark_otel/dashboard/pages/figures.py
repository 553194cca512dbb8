"""Rates per operation name, each with its fraction and what is undecided (E4, A16)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from flowmark_otel.backend.views import OperationRow, Rate
from flowmark_otel.dashboard import words


class Share(NamedTuple):
    """A rate in words: ``81.0%`` of ``17/21, 1 undecided``; the first is a dash without any."""

    text: str
    of: str


class Figures(NamedTuple):
    """One operation name: its counts, both error rates, amplification and time lost."""

    operation: str
    occurrences: str
    attempts: str
    groups: str
    operations: str
    attempt_errors: Share
    operation_errors: Share
    amplification: Share
    time_lost: str


def figures(rows: Iterable[OperationRow]) -> tuple[Figures, ...]:
    """The rows as they are shown; "at least" where a gap or something undecided is."""
    return tuple(_row(row) for row in rows)


def _row(row: OperationRow) -> Figures:
    amplification = row.amplification
    least = "at least " if amplification.at_least else ""
    undecided = amplification.at_least or row.attempt_errors.undecided
    undecided = undecided or row.operation_errors.undecided
    lost = words.lasted(row.time_lost_ns)
    return Figures(
        row.operation,
        f"{row.occurrences:,}",
        f"{least}{row.attempts:,}",
        f"{row.groups:,}",
        f"{row.operations:,}",
        _share(row.attempt_errors) if row.groups else _NONE,
        _share(row.operation_errors),
        Share(
            f"{least}{words.ratio(amplification.numerator, amplification.denominator)}",
            f"{amplification.numerator:,}/{amplification.denominator:,}",
        )
        if amplification.denominator
        else _NONE,
        (f"at least {lost}" if undecided else lost) if row.groups else words.NOTHING,
    )


def _share(rate: Rate) -> Share:
    of = f"{rate.numerator:,}/{rate.denominator:,}"
    if rate.undecided:
        of += f", {rate.undecided:,} undecided"
    return Share(words.percent(rate.numerator, rate.denominator), of)


_NONE: Final = Share(words.NOTHING, "")
"""Where there are no attempts."""
