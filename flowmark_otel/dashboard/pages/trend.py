"""Is retrying getting worse? The sentence, the chart and its table, from the same buckets."""

from __future__ import annotations

from typing import Final, NamedTuple

from flowmark_otel.backend.views import Amplification, Overview, OverviewOperation, rfc3339
from flowmark_otel.dashboard import charts, words
from flowmark_otel.dashboard.marks import Shape
from flowmark_otel.dashboard.pages.frame import Piece
from flowmark_otel.dashboard.ranges import Range

_WORSE: Final = 1.25
_FEW: Final = 3
"""A change is said where the rate moved by a quarter, and by more than so many attempts."""

_COLUMNS: Final = 4
_HOUR: Final = 3_600_000_000_000
_DAY: Final = 24 * _HOUR


class Line(NamedTuple):
    """A bucket in the table: its begin in UTC, as the chart has it, and whether it is cut short."""

    begin: str
    partial: bool
    extra: str
    operations: str
    rate: str
    by_operation: tuple[str, ...]


class Trend(NamedTuple):
    """The chart and the same as a table; ``finding`` is its spoken label."""

    shapes: tuple[Shape, ...]
    finding: str
    caption: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    total: Line


def sentence(view: Overview, before: Amplification | None, range_: Range) -> tuple[Piece, ...]:
    """What has changed and where, in one line; ``before``: the time of the same length before."""
    now = view.figures.extra_attempts
    if not now.denominator:
        return (Piece(f"No operation arrived in {range_.words}."),)
    least = "at least " if now.at_least else ""
    change = _change(now, before)
    said = [
        Piece(change + (least if change else words.capital(least))),
        Piece(words.per_hundred(now.numerator, now.denominator), data=True),
        Piece(" extra attempts per 100 operations"),
    ]
    if before is not None and before.denominator:
        said += [
            Piece(", "),
            Piece(words.per_hundred(before.numerator, before.denominator), data=True),
            Piece(f" in {range_.before}."),
        ]
    else:
        said.append(Piece(f"; nothing arrived in {range_.before}."))
    top = _most(view)
    if top is not None:
        said += [
            Piece(" "),
            Piece(top.operation, data=True, code=True),
            Piece(_of_workflow(top, view)),
            Piece(f" made {_extra(top):,} of the {now.numerator:,}."),
        ]
    return tuple(piece for piece in said if piece.text)


def trend(view: Overview, before: Amplification | None, range_: Range) -> Trend:
    """The chart of extra attempts per 100 operations, bucket by bucket."""
    retried = [each for each in view.operations if _extra(each)]
    columns = sorted(retried, key=lambda each: -_extra(each))[:_COLUMNS]
    bars, lines = [], []
    for index, bucket in enumerate(view.buckets):
        extra = bucket.figures.extra_attempts
        partial = bucket.until - bucket.since < view.step_ns
        bars.append(charts.Bar(_label(bucket.since, view.step_ns), _rate(extra), partial))
        lines.append(
            _line(
                _begin(bucket.since, view.step_ns),
                extra,
                tuple(_hundred(each.extra_attempts_by_bucket[index]) for each in columns),
                partial=partial,
            )
        )
    reference = None
    if before is not None and before.denominator:
        rate = _rate(before) or 0.0
        reference = (rate, f"{range_.before.removeprefix('the ')}: {rate:,.1f}")
    total = _line(
        "All",
        view.figures.extra_attempts,
        tuple(_hundred(each.figures.extra_attempts) for each in columns),
        partial=False,
    )
    return Trend(
        charts.bars(bars, reference),
        _finding(view),
        _caption(view, range_),
        tuple(each.operation for each in columns),
        tuple(lines),
        total,
    )


def peak(view: Overview, operation: OverviewOperation) -> tuple[str, tuple[float | None, ...]]:
    """Where a sparkline is highest, in words, and its values."""
    values = tuple(_rate(one) for one in operation.extra_attempts_by_bucket)
    highest = max((value or 0.0 for value in values), default=0.0)
    if not highest:
        return "none extra", values
    at = max(index for index, value in enumerate(values) if value == highest)
    begin = _label(view.buckets[at].since, view.step_ns, whole=True)
    digits = 0 if highest >= 1 else 1
    return f"max {highest:,.{digits}f} at {begin}", values


def step_word(step: int) -> str:
    """A bucket's length: ``hour``, ``15 minutes``, ``6 hours``, ``day``."""
    for size, one in ((_DAY, "day"), (_HOUR, "hour"), (_HOUR // 60, "minute")):
        if step >= size:
            number = step // size
            return one if number == 1 else f"{number} {one}s"
    return f"{step} ns"


def _change(now: Amplification, before: Amplification | None) -> str:
    if before is None or not before.denominator:
        return ""
    expected = before.numerator / before.denominator * now.denominator
    if now.numerator >= expected * _WORSE and now.numerator - expected >= _FEW:
        return "Retrying got worse: "
    if now.numerator * _WORSE <= expected and expected - now.numerator >= _FEW:
        return "Retrying got better: "
    return "Retrying is about as before: "


def _most(view: Overview) -> OverviewOperation | None:
    """The operation with more extra attempts than any other, if there is one."""
    ranked = sorted(view.operations, key=_extra, reverse=True)
    counts = [_extra(each) for each in ranked[:2]] + [0, 0]
    return ranked[0] if counts[0] > counts[1] else None


def _of_workflow(top: OverviewOperation, view: Overview) -> str:
    """Whose operation it is, where others have one of the same name."""
    same = [each for each in view.operations if each.operation == top.operation]
    return f" of {top.workflow}" if len(same) > 1 else ""


def _extra(each: OverviewOperation) -> int:
    return each.figures.extra_attempts.numerator


def _rate(one: Amplification) -> float | None:
    return 100 * one.numerator / one.denominator if one.denominator else None


def _hundred(one: Amplification) -> str:
    return words.per_hundred(one.numerator, one.denominator)


def _line(
    begin: str, extra: Amplification, by_operation: tuple[str, ...], *, partial: bool
) -> Line:
    return Line(
        begin,
        partial,
        f"{extra.numerator:,}",
        f"{extra.denominator:,}",
        _hundred(extra),
        by_operation,
    )


def _label(time: int, step: int, *, whole: bool = False) -> str:
    text = rfc3339(time)
    if step >= _DAY:
        return text[5:10]
    if whole or step < _HOUR:
        return f"{text[5:10]} {text[11:16]}" if step > _HOUR else text[11:16]
    return text[11:13] if step == _HOUR else f"{text[5:10]} {text[11:13]}h"


def _begin(time: int, step: int) -> str:
    text = rfc3339(time)
    return text[:10] if step >= _DAY else f"{text[:10]} {text[11:16]}"


def _finding(view: Overview) -> str:
    rates = [(_rate(each.figures.extra_attempts) or 0.0, each) for each in view.buckets]
    highest, at = max(rates, key=lambda each: each[0])
    said = f"Bar chart: extra attempts per 100 operations by {step_word(view.step_ns)}"
    if not highest:
        return f"{said}; none"
    return f"{said}; highest {highest:,.1f} from {_begin(at.since, view.step_ns)} UTC"


def _caption(view: Overview, range_: Range) -> str:
    first = view.buckets[0]
    said = (
        f"By {step_word(view.step_ns)} of arrival, UTC, from {_begin(first.since, view.step_ns)}."
    )
    cut = [each for each in view.buckets if each.until - each.since < view.step_ns]
    if not cut:
        return said
    operations = words.several(cut[-1].figures.operations, "operation")
    if range_.until is not None and range_.last is None:
        return f"{said} Hatched: cut short by the time asked for."
    return f"{said} Hatched: the current {step_word(view.step_ns)}, {operations} so far."
