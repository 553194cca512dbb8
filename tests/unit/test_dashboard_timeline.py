"""The geometry of the timeline."""

from __future__ import annotations

from itertools import pairwise

from flowmark_otel.dashboard.marks import Shape
from flowmark_otel.dashboard.timeline import SECOND, Bar, Form, Row, Timeline, draw


def _attributes(shape: Shape) -> dict[str, str]:
    return dict(shape.attributes)


def _of(drawing: Timeline, row: int, class_: str) -> list[dict[str, str]]:
    return [
        _attributes(shape)
        for shape in drawing.rows[row]
        if class_ in _attributes(shape).get("class", "").split()
    ]


def _seconds(value: float) -> int:
    return round(value * SECOND)


def test_bars_of_a_group_share_one_scale_from_the_first_evidence() -> None:
    """A9: positions are proportional to the times as sent, in per cent of one column."""
    drawing = draw(
        [
            Row((Bar(Form.SUPERSEDED, _seconds(100), _seconds(102)),)),
            Row((Bar(Form.COMPLETED, _seconds(106), _seconds(110)),)),
        ]
    )
    assert (drawing.zero, drawing.extent) == (_seconds(100), _seconds(10))
    first, second = _of(drawing, 0, "bar-fail")[0], _of(drawing, 1, "bar-ok")[0]
    assert (first["x"], first["width"]) == ("0.60%", "18.93%")
    assert (second["x"], second["width"]) == ("57.40%", "37.87%")
    assert "rx" in second
    assert "rx" not in first


def test_ticks_are_round_and_few() -> None:
    """A9: the scale has at most six labels at multiples of one, two or five."""
    for seconds, last in (
        (10.21, "10"),
        (26, "25"),
        (1.31, "1"),
        (0.004, "0.004"),
        (1e9, "1000000000"),
    ):
        labels = [shape.text for shape in draw([Row((Bar(Form.LAST, 0, _seconds(seconds)),))]).head]
        assert labels[0] == "0 s"
        assert labels[-1] == last
        assert len(labels) <= 6


def test_idle_time_is_a_line_between_bars_and_says_so_where_there_is_room() -> None:
    """A9: waiting is drawn as waiting; an overlap draws none."""
    drawing = draw(
        [
            Row((Bar(Form.SUPERSEDED, 0, SECOND),)),
            Row((Bar(Form.COMPLETED, 5 * SECOND, 6 * SECOND),), idle_from=SECOND),
            Row((Bar(Form.COMPLETED, 5 * SECOND, 6 * SECOND),), idle_from=6 * SECOND),
        ]
    )
    assert len(_of(drawing, 1, "idle")) == 2
    assert [shape.text for shape in drawing.rows[1] if shape.tag == "text"] == ["idle"]
    assert _of(drawing, 2, "idle") == []


def test_an_open_attempt_has_a_tail_of_fixed_length() -> None:
    """A11: an open bar does not grow with time: only its start is known."""
    drawing = draw([Row((Bar(Form.OPEN, 0, None),)), Row((Bar(Form.COMPLETED, 0, SECOND),))])
    tail = next(shape for shape in drawing.rows[0] if shape.tag == "svg")
    assert _attributes(tail)["width"] == "40"
    assert dict(tail.children[0].attributes)["stroke-dasharray"] == "2 3"


def test_a_gap_is_a_dashed_box_between_what_is_known() -> None:
    """A10: nothing is invented: the box lies between its neighbours, even where they touch."""
    bars = (
        Row((Bar(Form.SUPERSEDED, 0, SECOND),)),
        Row((Bar(Form.LAST, 9 * SECOND, 10 * SECOND),)),
    )
    wide = draw([*bars, Row(gap=True, before=SECOND, after=9 * SECOND)])
    (box,) = _of(wide, 2, "gapbox")
    assert (box["x"], box["width"]) == ("10.67%", "74.54%")
    assert "no evidence" in [shape.text for shape in wide.rows[2]]
    narrow = draw([*bars, Row(gap=True, before=SECOND, after=SECOND)])
    (box,) = _of(narrow, 2, "gapbox")
    assert float(box["width"].rstrip("%")) > 0


def test_a_missing_start_or_a_reversed_pair_is_a_stroke_at_each_known_time() -> None:
    """A10: times are raw: an end without or before its start makes no bar and no correction."""
    drawing = draw(
        [
            Row((Bar(Form.SUPERSEDED, None, SECOND),)),
            Row((Bar(Form.COMPLETED, 3 * SECOND, 2 * SECOND),)),
        ]
    )
    assert len(_of(drawing, 0, "s-fail")) == 1
    assert _of(drawing, 0, "bar-fail") == []
    assert len(_of(drawing, 1, "s-ok")) == 2


def test_two_records_of_one_place_are_two_bars() -> None:
    """A6: a conflict draws both records, one below the other."""
    drawing = draw([Row((Bar(Form.SUPERSEDED, 0, SECOND), Bar(Form.COMPLETED, 0, 2 * SECOND)))])
    assert _of(drawing, 0, "bar-fail")[0]["y"] == "10"
    assert _of(drawing, 0, "bar-ok")[0]["y"] == "28"


def test_without_any_time_nothing_is_drawn() -> None:
    """A10: a zero time is unknown, so there is no scale to draw on."""
    drawing = draw([Row((Bar(Form.COMPLETED, None, None),))])
    assert drawing == Timeline(None, 0, (), (), ((),))


def test_thousands_of_folded_bars_are_drawn_where_they_can_be_told_apart() -> None:
    """A9: bars that would lie on each other are one: a row of any number stays small."""
    bars = tuple(
        Bar(Form.SUPERSEDED, number * SECOND, number * SECOND + SECOND // 2)
        for number in range(5000)
    )
    drawing = draw([Row(bars, folded=True), Row((Bar(Form.COMPLETED, 0, 5000 * SECOND),))])
    drawn = [dict(shape.attributes) for shape in drawing.rows[0]]
    assert 150 <= len(drawn) <= 400
    assert {shape["class"] for shape in drawn} == {"bar-fail w1"}
    places = sorted(float(shape["x"].rstrip("%")) for shape in drawn)
    assert max(after - before for before, after in pairwise(places)) < 1
