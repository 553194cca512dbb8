"""Pure: charts as SVG shapes. Positions across are per cent, heights pixels, colours classes.

Every chart stands beside a table of the same numbers; it says how they compare and no more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from flowmark_otel.dashboard.marks import Shape

_TOP: Final = 14.0
_BASE: Final = 146.0
_LABELS: Final = 162
_LEFT: Final = 3.2  # per cent kept for the numbers of the axis
_BAR: Final = 0.72  # of a bucket's width
_MOST_TICKS: Final = 5
_SHORT: Final = 5  # characters of a bar's name that fit below it
_MOST_LABELS: Final = 8
_SPARK_WIDTH: Final = 96
_SPARK_BASE: Final = 17.0
_SPARK_TOP: Final = 3.0


class Bar(NamedTuple):
    """``value`` is None where there is nothing to be known; ``partial``: a bucket cut short."""

    label: str
    value: float | None
    partial: bool = False


def bars(found: Sequence[Bar], reference: tuple[float, str] | None = None) -> tuple[Shape, ...]:
    """Bars from nought; ``reference`` is a level to compare with, and its name.

    The highest bar and the latest one carry their value.
    """
    highest = max((bar.value or 0.0 for bar in found), default=0.0)
    step, ticks = _ticks(max(highest, reference[0] if reference else 0.0))
    top = step * ticks
    shapes = [_line(0, 100, _BASE, "s-rule w1")]
    for tick in range(1, ticks + 1):
        y = _y(step * tick, top)
        shapes += [_line(0, 100, y, "s-line w1"), _text("0", y - 4, "t", f"{step * tick:g}")]
    width = (100 - _LEFT) / max(len(found), 1)
    every = max(math.ceil(len(found) / _MOST_LABELS), 1)
    for index, bar in enumerate(found):
        middle = _LEFT + width * (index + 0.5)
        if bar.value:
            shapes.append(_bar(middle, width, _y(bar.value, top), partial=bar.partial))
        back = len(found) - 1 - index  # the latest is always named
        if back % every == 0:
            further = " wide" if back // every % 2 else ""
            # A long name of the latest would stand out of the chart if it stood in the middle.
            at_end = back == 0 and len(bar.label) > _SHORT
            x = _percent(middle + width * _BAR / 2 if at_end else middle)
            anchor = "end-a" if at_end else "mid-a"
            shapes.append(_text(x, _LABELS, f"t {anchor}{further}", bar.label))
    if reference is not None:
        shapes += _reference(*reference, top, _beside(found, highest))
    shapes += _values(found, width, top, highest)
    return tuple(shapes)


def spark(values: Sequence[float | None]) -> tuple[Shape, ...]:
    """A line of 96 by 20 pixels, broken where there is nothing to be known; a dot at its top."""
    highest = max((value or 0.0 for value in values), default=0.0)
    across = (_SPARK_WIDTH - 4) / max(len(values) - 1, 1)
    path, joined, top = "", False, None
    for index, value in enumerate(values):
        if value is None:
            joined = False
            continue
        share = value / highest if highest else 0.0
        x, y = 2 + across * index, _SPARK_BASE - share * (_SPARK_BASE - _SPARK_TOP)
        path += f"{'L' if joined else 'M'}{x:.1f} {y:.1f}"
        joined = True
        if highest and value == highest:
            top = (x, y)
    shapes = [
        Shape("path", (("d", f"M0 17.5h{_SPARK_WIDTH}"), ("class", "s-line w1"))),
        Shape("path", (("d", path), ("class", "n s-series w13"))),
    ]
    if top is not None:
        across_, down = (f"{at:.1f}" for at in top)
        shapes.append(
            Shape("circle", (("cx", across_), ("cy", down), ("r", "2"), ("class", "f-ink")))
        )
    return tuple(shapes)


_FILLS: Final = {
    "ok": "f-ok",
    "after": "p-after",
    "fail": "p-fail",
    "undet": "p-undet",
    "open": "f-bg s-open w15",
    "gap": "n s-gap w13",
}
PARTS: Final = tuple(_FILLS)
"""What a bar of parts is made of, each by its hatch as well as its colour."""

_OUTLINED: Final = frozenset({"open", "gap"})


def stack(parts: Sequence[tuple[str, int]]) -> tuple[Shape, ...]:
    """One bar of 14 pixels, cut into parts by their numbers; the parts are named in ``PARTS``."""
    total = sum(number for _, number in parts)
    shapes: list[Shape] = []
    begin = 0.0
    for name, number in parts:
        if not number:
            continue
        share = 100 * number / total
        shapes.append(_part(name, begin, share))
        if begin:
            edge = (("x1", _percent(begin)), ("x2", _percent(begin)), ("y1", "0"), ("y2", "14"))
            shapes.append(Shape("line", (*edge, ("class", "s-bg w1"))))
        begin += share
    return tuple(shapes) or (_part("gap", 0.0, 100.0),)


def key(part: str) -> tuple[Shape, ...]:
    """The 12 pixel square that stands for a part beside its word."""
    if part == "fail":
        size = (("width", "16"), ("height", "16"))
        return (Shape("use", (("href", "#m-failed"), ("x", "-2"), ("y", "-2"), *size)),)
    if part in _OUTLINED:
        box = (("x", "1"), ("y", "1"), ("width", "10"), ("height", "10"))
        return (Shape("rect", (*box, ("class", _FILLS[part]), *_dashes(part))),)
    return (Shape("rect", (("width", "12"), ("height", "12"), ("class", _FILLS[part]))),)


def _part(name: str, begin: float, share: float) -> Shape:
    y, height = ("1", "12") if name in _OUTLINED else ("0", "14")
    box = (("x", _percent(begin)), ("y", y), ("width", _percent(share)), ("height", height))
    return Shape("rect", (*box, ("class", _FILLS[name]), *_dashes(name)))


def _dashes(name: str) -> tuple[tuple[str, str], ...]:
    return (("stroke-dasharray", "2 1.7"),) if name == "gap" else ()


def _ticks(highest: float) -> tuple[float, int]:
    """A round step and how many of them reach over ``highest``."""
    if highest <= 0:
        return 1.0, 1
    power = 10.0 ** math.floor(math.log10(highest))
    for size in (0.2, 0.5, 1.0, 2.0, 5.0, 10.0):
        ticks = math.ceil(highest / (size * power) - 1e-9)
        if ticks <= _MOST_TICKS:
            return size * power, max(ticks, 1)
    return 10 * power, 1


def _y(value: float, top: float) -> float:
    return _BASE - (_BASE - _TOP) * value / top


def _bar(middle: float, width: float, y: float, *, partial: bool) -> Shape:
    classes = "p-sofar s-series w1" if partial else "f-series"
    return Shape(
        "rect",
        (
            ("x", _percent(middle - width * _BAR / 2)),
            ("width", _percent(width * _BAR)),
            ("y", f"{y:.1f}"),
            ("height", f"{_BASE - y:.1f}"),
            ("class", classes),
        ),
    )


def _values(found: Sequence[Bar], width: float, top: float, highest: float) -> list[Shape]:
    """The values of the highest bar and of the latest, unless they would meet."""
    if not highest:
        return []
    at = max(range(len(found)), key=lambda index: found[index].value or 0.0)
    last = len(found) - 1
    named = [at] if last - at <= 1 else [at, last]
    shapes = []
    for index in named:
        value = found[index].value
        if value is None:
            continue
        ends = index == last
        right = _LEFT + width * (index + (0.5 + _BAR / 2 if ends else 0.5))
        anchor = "end-a" if ends else "mid-a"
        shapes.append(
            _text(_percent(right), _y(value, top) - 4, f"t t-ink halo {anchor}", f"{value:,.1f}")
        )
    return shapes


def _beside(found: Sequence[Bar], highest: float) -> str:
    """Where the reference's name stands: away from the highest bar, which carries its value."""
    at = next((index for index, bar in enumerate(found) if bar.value == highest), 0)
    return "62%" if 0.15 < at / max(len(found), 1) < 0.6 else "32%"  # noqa: PLR2004


def _reference(level: float, name: str, top: float, x: str) -> list[Shape]:
    y = _y(level, top)
    dashes = ("stroke-dasharray", "4 3")
    line = _line(_LEFT, 100, y, "s-ink w1")
    return [
        Shape(line.tag, (*line.attributes, dashes)),
        _text(x, max(y - 8, 10.0), "t halo", name),
    ]


def _line(begin: float, end: float, y: float, classes: str) -> Shape:
    across = (("x1", _percent(begin)), ("x2", _percent(end)))
    return Shape("line", (*across, ("y1", f"{y:.1f}"), ("y2", f"{y:.1f}"), ("class", classes)))


def _text(x: str, y: float, classes: str, text: str) -> Shape:
    return Shape("text", (("x", x), ("y", f"{y:g}"), ("class", classes)), text=text)


def _percent(value: float) -> str:
    return f"{value:.3f}%"
