"""Charts, ranges and words: pure, from numbers to what is written and drawn."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from flowmark_otel.backend.read import BadParameter
from flowmark_otel.backend.views import Amplification
from flowmark_otel.dashboard import charts, ranges, words
from flowmark_otel.dashboard.pages.trend import sentence, trend
from tests.support import project_views as views

SECOND = 1_000_000_000
HOUR = 3_600 * SECOND
NOW = 1_773_235_497_000_000_000  # 2026-03-11 13:24:57Z


def _said(extra: int, before: tuple[int, int] | None) -> str:
    view = views.overview(extra=extra)
    asked = ranges.read({"last": "24h"}, NOW)
    earlier = None if before is None else Amplification(*before, 0, at_least=False)
    return "".join(piece.text for piece in sentence(view, earlier, asked))


@pytest.mark.parametrize(
    ("extra", "before", "change"),
    [
        (60, (27, 1000), "Retrying got worse: 6.0 "),
        (27, (60, 1000), "Retrying got better: 2.7 "),
        (28, (27, 1000), "Retrying is about as before: 2.8 "),
        (2, (0, 1000), "Retrying is about as before: 0.2 "),
        (0, (0, 1000), "Retrying is about as before: 0.0 "),
    ],
)
def test_the_sentence_says_whether_and_where(
    extra: int, before: tuple[int, int], change: str
) -> None:
    """E4: worse or better only where the rate moved by a quarter and more than a few attempts."""
    said = _said(extra, before)
    assert said.startswith(change)
    assert f"{100 * before[0] / before[1]:.1f} in the 24 hours before." in said
    assert (f"push-to-crm made {extra} of the {extra}." in said) is bool(extra)


def test_the_sentence_compares_with_nothing_where_nothing_arrived() -> None:
    """A10, E4: no rate is made up for a time without operations."""
    assert _said(60, None).startswith("6.0 extra attempts per 100 operations; nothing arrived in")
    empty = views.overview(operations=0, extra=0)
    asked = ranges.read({"last": "1h"}, NOW)
    pieces = sentence(empty, None, asked)
    assert [piece.text for piece in pieces] == ["No operation arrived in the last hour."]


def test_the_sentence_names_an_operation_only_if_it_stands_out() -> None:
    """E4: of two with as many extra attempts none is named; of two with one name, its workflow."""
    view = views.overview(extra=60, rows=2)
    first, second = view.operations
    asked = ranges.read({"last": "24h"}, NOW)
    tied = replace(view, operations=(first, replace(second, figures=first.figures)))
    assert [piece.text for piece in sentence(tied, None, asked) if piece.code] == []
    alike = replace(view, operations=(first, replace(second, operation=first.operation)))
    said = "".join(piece.text for piece in sentence(alike, None, asked))
    assert "push-to-crm of crm.sync made 60 of the 60." in said


def test_a_gap_makes_the_sentence_say_at_least() -> None:
    """A10: "at least" whenever a gap is among what is counted."""
    view = views.overview(extra=60, gaps=1)
    asked = ranges.read({"last": "24h"}, NOW)
    said = "".join(piece.text for piece in sentence(view, None, asked))
    assert said.startswith("At least 6.0 extra")


def test_chart_and_table_have_the_same_numbers() -> None:
    """E4: each bar is as high as its line of the table says, and the running bucket is hatched."""
    view = views.overview(extra=60)
    asked = ranges.read({"last": "24h"}, NOW)
    found = trend(view, Amplification(27, 1000, 0, at_least=False), asked)
    bars = [dict(one.attributes) for one in found.shapes if one.tag == "rect"]
    rates = [float(line.rate) for line in found.lines if line.rate not in ("0.0", words.NOTHING)]
    heights = [float(bar["height"]) for bar in bars]
    assert len(heights) == len(rates) > 1
    scale = heights[0] / rates[0]
    assert heights == pytest.approx([rate * scale for rate in rates], abs=0.2)
    assert [("p-sofar" in bar["class"]) for bar in bars] == [False] * (len(bars) - 1) + [True]
    assert found.lines[-1].partial
    assert "24 hours before: 2.7" in [one.text for one in found.shapes if one.tag == "text"]


@pytest.mark.parametrize("highest", [0.004, 0.3, 1.0, 7.0, 46.3, 99.9, 850.0, 123_456.0])
def test_the_axis_is_round_and_reaches_over_the_highest_bar(highest: float) -> None:
    """E4: no bar leaves the chart, and the ticks are round numbers."""
    shapes = charts.bars([charts.Bar("a", highest), charts.Bar("b", None)])
    (bar,) = [dict(one.attributes) for one in shapes if one.tag == "rect"]
    assert 14 <= float(bar["y"]) < 80
    ticks = [one.text for one in shapes if one.tag == "text" and dict(one.attributes)["x"] == "0"]
    assert 1 <= len(ticks) <= 5
    assert all(re.fullmatch(r"[0-9.e+-]+", tick) for tick in ticks)


@pytest.mark.parametrize(("count", "label"), [(24, "13"), (30, "03-11"), (28, "03-11 12h")])
def test_the_latest_bar_is_always_named_and_its_name_stays_in_the_chart(
    count: int, label: str
) -> None:
    """E4: a reader looks at now first; a long name ends with its bar, a short one is centred."""
    named = [charts.Bar(f"{number:0{len(label)}}", 1.0) for number in range(count - 1)]
    shapes = charts.bars([*named, charts.Bar(label, 2.0)])
    texts = {one.text: dict(one.attributes) for one in shapes if one.tag == "text"}
    assert 4 <= sum(text["y"] == "162" for text in texts.values()) <= 8
    bar = dict([one for one in shapes if one.tag == "rect"][-1].attributes)
    left, width = (float(bar[name].rstrip("%")) for name in ("x", "width"))
    x = float(texts[label]["x"].rstrip("%"))
    anchor, place = ("end-a", left + width) if len(label) > 5 else ("mid-a", left + width / 2)
    assert anchor in texts[label]["class"]
    assert x == pytest.approx(place, abs=0.01)


def test_parts_fill_the_bar_and_are_told_apart_by_more_than_colour() -> None:
    """A11: each part has a hatch or an outline of its own; together they are the whole."""
    parts = [(name, number) for number, name in enumerate(charts.PARTS, 1)]
    rects = [dict(one.attributes) for one in charts.stack(parts) if one.tag == "rect"]
    assert sum(float(rect["width"].rstrip("%")) for rect in rects) == pytest.approx(100, abs=0.01)
    looks = {(rect["class"], rect.get("stroke-dasharray"), rect["height"]) for rect in rects}
    assert len(looks) == len(charts.PARTS)
    assert [one.tag for one in charts.stack([("ok", 0)])] == ["rect"]


def test_a_sparkline_is_broken_where_nothing_is_known() -> None:
    """A10: a bucket without operations is no nought."""
    line = dict(charts.spark([1.0, None, 2.0, 2.0])[1].attributes)["d"]
    assert line.count("M") == 2
    assert line.count("L") == 1
    assert [one.tag for one in charts.spark([None, 0.0])] == ["path", "path"]


@pytest.mark.parametrize("last", list(ranges.LAST))
def test_a_range_that_ends_now_has_as_many_bars_as_it_says(last: str) -> None:
    """D5: it begins with a whole bucket, and the latest is the one that still grows."""
    asked = ranges.read({"last": last}, NOW)
    length, buckets, _, _ = ranges.LAST[last]
    step = length // buckets
    assert asked.since is not None
    assert asked.since % step == 0
    assert asked.until == NOW + 1
    assert (NOW - asked.since) // step == buckets - 1
    assert asked.earlier(NOW) == (asked.since - length, asked.since)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("2026-03-11", NOW - 13 * HOUR - 24 * 60 * SECOND - 57 * SECOND),
        ("2026-03-11 13:24", NOW - 57 * SECOND),
        ("2026-03-11T13:24:57", NOW),
        ("2026-03-11T13:24:57Z", NOW),
        ("2026-03-11T14:24:57+01:00", NOW),
    ],
)
def test_times_are_read_as_utc_in_every_form_people_write(text: str, nanoseconds: int) -> None:
    """D5: a form's time without a zone is UTC; the API's form is read as the API reads it."""
    assert ranges.read({"since": text, "last": "1h"}, NOW).since == nanoseconds


@pytest.mark.parametrize(
    "asked",
    [{"last": "2h"}, {"since": "yesterday"}, {"until": "2026-13-01"}, {"since": "١٣"}],
)
def test_a_range_that_cannot_be_read_is_refused_with_its_mend(asked: dict[str, str]) -> None:
    """D5: the refusal names the parameter, what was found and what to set."""
    with pytest.raises(BadParameter, match=f"{next(iter(asked))}: found .*; set "):
        ranges.read(asked, NOW)


def test_numbers_are_rounded_to_nothing_and_to_all_only_where_they_are() -> None:
    """E4: a rate of one in ten thousand is no 0 %, one that is short of all no 100 %."""
    assert [words.percent(*pair) for pair in ((0, 9), (9, 9), (1, 9999), (9998, 9999), (1, 8))] == [
        "0%",
        "100%",
        "<0.1%",
        ">99.9%",
        "12.5%",
    ]
    assert words.percent(0, 0) == words.per_hundred(0, 0) == words.ratio(0, 0) == "–"


def test_durations_and_sizes_read_as_people_say_them() -> None:
    """D5: two units at most, none of them lost."""
    durations = (0, 41_400_000_000, 238 * SECOND, 10_440 * SECOND, 90_000 * SECOND)
    said = [words.lasted(duration) for duration in durations]
    assert said == ["0 s", "41.4 s", "3 min 58 s", "2 h 54 min", "1 d 1 h"]
    assert [words.ago(one) for one in (-5, SECOND * 19 + 7, 60 * SECOND)] == [
        "0 s",
        "19 s",
        "1 min 00 s",
    ]
    assert [words.size(count) for count in (718, 22_400_000, 5 * 10**12)] == [
        "718 bytes",
        "22.4 MB",
        "5.0 TB",
    ]
