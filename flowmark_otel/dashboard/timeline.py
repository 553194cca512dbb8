"""The timeline of one group: where bars, idle lines, gap boxes and ticks stand (A10, A11).

Times are epoch nanoseconds and are drawn as sent: nothing is reordered, clipped or corrected.
Horizontal positions are per cent of the column, vertical ones pixels, so the drawing is fluid and
needs no script and no inline style. One scale serves all rows of a group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from flowmark_otel.dashboard.marks import Shape

SECOND: Final = 1_000_000_000

_LEFT: Final = 0.6  # per cent kept free so that a stroke at zero is not cut
_WIDTH: Final = 94.67  # per cent for the evidence; the rest holds the cross after the last bar
_THINNEST: Final = 0.5
_IDLE_LABEL: Final = 10.0  # per cent from which a label fits
_GAP_LABEL: Final = 22.0
_MOST_TICKS: Final = 6
_CROSS: Final = "M5 1l6 6M11 1l-6 6"


class Form(Enum):
    """How a bar is drawn; the shape repeats what the mark says."""

    COMPLETED = "bar-ok"
    SUPERSEDED = "bar-fail"
    LAST = "bar-last"
    OPEN = "open"


class Bar(NamedTuple):
    """One record; ``start`` and ``end`` are None where they are not known."""

    form: Form
    start: int | None
    end: int | None


class Row(NamedTuple):
    """One row of a group.

    ``bars``: one; the accepted and a rejected one in a conflict; several if ``folded``.
    ``idle_from``: the end of the attempt before, where idle time is known. ``gap``: nothing is
    known; then ``before`` and ``after`` are the nearest times that are.
    """

    bars: tuple[Bar, ...] = ()
    folded: bool = False
    idle_from: int | None = None
    gap: bool = False
    before: int | None = None
    after: int | None = None


class Timeline(NamedTuple):
    """What is drawn: the ticks' labels, and the shapes of each row in the order given.

    ``zero`` is the time at 0 s, None where no time at all is known; ``extent`` is in nanoseconds.
    ``grid``: the lines below the ticks, which are the same behind every row.
    """

    zero: int | None
    extent: int
    head: tuple[Shape, ...]
    grid: tuple[Shape, ...]
    rows: tuple[tuple[Shape, ...], ...]


def draw(rows: Sequence[Row]) -> Timeline:
    """Draw the rows of one group on one scale."""
    times = [time for row in rows for time in _times(row)]
    if not times:
        return Timeline(None, 0, (), (), tuple(() for _ in rows))
    zero = min(times)
    extent = max(times) - zero
    scale = _Scale(zero, max(extent, 1))
    ticks = tuple(_ticks(extent))
    grid = tuple(
        _line(scale.at(zero + tick), scale.at(zero + tick), "0", "100%", "grid") for tick in ticks
    )
    return Timeline(
        zero,
        extent,
        tuple(_tick_label(scale, index, tick) for index, tick in enumerate(ticks)),
        grid,
        tuple(tuple(scale.row(row)) for row in rows),
    )


def _times(row: Row) -> Iterable[int]:
    for bar in row.bars:
        yield from (time for time in (bar.start, bar.end) if time is not None)


def _ticks(extent: int) -> Iterable[int]:
    """Zero and the multiples of a 1-2-5 step within the extent: at most six."""
    power = 1
    while True:
        for step in (power, 2 * power, 5 * power):
            if extent < _MOST_TICKS * step:
                return range(0, extent + 1, step)
        power *= 10


def _tick_label(scale: _Scale, index: int, tick: int) -> Shape:
    seconds = f"{tick / SECOND:.9f}".rstrip("0").rstrip(".")
    if index == 0:
        return _label(0.0, 16, "0 s", "t")
    return _label(
        scale.at(scale.zero + tick), 16, seconds, "t mid-a wide" if index % 2 else "t mid-a"
    )


class _Scale(NamedTuple):
    zero: int
    extent: int

    def at(self, time: int) -> float:
        """The position of a time, in per cent; what lies outside stops at the edge."""
        share = (time - self.zero) / self.extent
        return _LEFT + _WIDTH * min(max(share, 0.0), 1.0)

    def row(self, row: Row) -> Iterable[Shape]:
        """All shapes of one row, idle line first."""
        if row.gap:
            yield from self._gap(row)
            return
        two = len(row.bars) > 1 and not row.folded
        top = 10 if two else 9
        if row.idle_from is not None and row.bars and row.bars[0].start is not None:
            yield from self._idle(row.idle_from, row.bars[0].start, top + 5)
        if row.folded:
            yield from self._folded(row.bars, top)
            return
        for index, bar in enumerate(row.bars):
            yield from self._bar(bar, top + 18 * index, thin=False)

    def _folded(self, bars: Sequence[Bar], top: int) -> Iterable[Shape]:
        # Where bars are too close to be told apart one stands for them: there may be thousands.
        seen: set[tuple[Form, tuple[int, ...]]] = set()
        for bar in bars:
            known = (time for time in (bar.start, bar.end) if time is not None)
            place = (bar.form, tuple(round(self.at(time) / _THINNEST) for time in known))
            if place not in seen:
                seen.add(place)
                yield from self._bar(bar, top, thin=True)

    def _bar(self, bar: Bar, top: int, *, thin: bool) -> Iterable[Shape]:
        failed = bar.form in (Form.SUPERSEDED, Form.LAST)
        if bar.form is Form.OPEN:
            if bar.start is not None:
                yield from _open(self.at(bar.start), top)
            return
        known = [time for time in (bar.start, bar.end) if time is not None]
        if bar.start is not None and bar.end is not None and bar.start <= bar.end:
            left = self.at(bar.start)
            width = max(self.at(bar.end) - left, _THINNEST)
            classes = f"{bar.form.value} w1" if thin and failed else bar.form.value
            yield _rect(left, width, top, classes, rounded=not failed)
            right = left + width
        elif known:
            # One end is missing, or the end lies before the start: a stroke at each known time.
            stroke = "s-fail w18" if failed else "s-ok w18"
            places = [self.at(time) for time in known]
            for place in places:
                yield _line(place, place, str(top), str(top + 10), stroke)
            right = max(places)
        else:
            return
        if failed and not thin:
            yield _glyph(right, top + 1, 14, 8, _CROSS, "n s-fail w15")

    def _idle(self, start: int, end: int, middle: int) -> Iterable[Shape]:
        left, right = self.at(start), self.at(end)
        if end <= start:
            return
        yield _line(left, right, str(middle), str(middle), "idle")
        yield _line(left, left, str(middle - 3), str(middle + 3), "idle")
        if right - left >= _IDLE_LABEL:
            yield _label((left + right) / 2, middle + 4, "idle", "t mid-a halo")

    def _gap(self, row: Row) -> Iterable[Shape]:
        left = _LEFT if row.before is None else self.at(row.before)
        right = _LEFT + _WIDTH if row.after is None else self.at(row.after)
        if right - left < _THINNEST * 4:
            # No room between its neighbours: the box still says that something is missing there.
            right = left + _THINNEST * 4
        left, right = left + _LEFT, right - _LEFT
        yield Shape(
            "rect",
            (
                ("x", _percent(left)),
                ("width", _percent(right - left)),
                ("y", "7"),
                ("height", "14"),
                ("class", "gapbox"),
            ),
        )
        if right - left >= _GAP_LABEL:
            yield _label((left + right) / 2, 18, "no evidence", "t mid-a halo")


def _percent(value: float) -> str:
    return f"{value:.2f}%"


def _line(x1: float, x2: float, y1: str, y2: str, classes: str) -> Shape:
    ends = (("x1", _percent(x1)), ("x2", _percent(x2)), ("y1", y1), ("y2", y2))
    return Shape("line", (*ends, ("class", classes)))


def _rect(x: float, width: float, y: int, classes: str, *, rounded: bool) -> Shape:
    place = (("x", _percent(x)), ("width", _percent(width)), ("y", str(y)), ("height", "10"))
    corner = (("rx", "5"),) if rounded else ()
    return Shape("rect", (*place, *corner, ("class", classes)))


def _label(x: float, y: int, text: str, classes: str) -> Shape:
    return Shape("text", (("x", _percent(x)), ("y", str(y)), ("class", classes)), text=text)


def _glyph(x: float, y: int, width: int, height: int, path: str, classes: str) -> Shape:
    """A drawing of fixed size at a fluid place."""
    frame = (("x", _percent(x)), ("y", str(y)), ("width", str(width)), ("height", str(height)))
    inner = Shape("path", (("d", path), ("class", classes)))
    return Shape("svg", (*frame, ("class", "over")), (inner,))


def _open(x: float, top: int) -> Iterable[Shape]:
    """A stroke at the start and a dotted tail of fixed length: it never grows (A11)."""
    yield _line(x, x, str(top - 1), str(top + 11), "s-open w18")
    tail = Shape("path", (("d", "M1 5h27"), ("class", "n s-open w18"), ("stroke-dasharray", "2 3")))
    frame = (("x", _percent(x)), ("y", str(top)), ("width", "40"), ("height", "10"))
    yield Shape("svg", (*frame, ("class", "over")), (tail,))
