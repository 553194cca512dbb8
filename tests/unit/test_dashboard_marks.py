"""The marks and what is made from them."""

from __future__ import annotations

import re
from pathlib import Path

import flowmark_otel.dashboard
from flowmark_otel.backend import views
from flowmark_otel.dashboard.marks import MARKS, Kind, Shape, word
from flowmark_otel.dashboard.pages.frame import Frame
from flowmark_otel.dashboard.pages.runs import runs_page
from flowmark_otel.dashboard.render import render
from tests.support import run_views
from tests.support.html_page import parse

_CSS = Path(flowmark_otel.dashboard.__file__).parent / "static" / "dashboard.css"


def _classes(shapes: tuple[Shape, ...]) -> set[str]:
    return {
        name
        for shape in shapes
        for key, value in shape.attributes
        if key == "class"
        for name in value.split()
    }


def test_every_kind_has_one_mark_with_a_word_and_a_reason() -> None:
    """A10, A11: seven marks, each with words of its own; none says more than is known."""
    assert [mark.kind for mark in MARKS] == list(Kind)
    assert len({mark.word for mark in MARKS}) == len({mark.because for mark in MARKS}) == 7
    assert word(Kind.OPEN) == "open: no end received"
    assert not any("running" in f"{mark.word} {mark.because}" for mark in MARKS)


def test_the_shape_of_every_mark_differs_without_colour() -> None:
    """A11: colour only confirms, so the geometry alone tells any two marks apart."""
    bare = {
        tuple(
            (shape.tag, tuple(pair for pair in shape.attributes if pair[0] != "class"))
            for shape in mark.shapes
        )
        for mark in MARKS
    }
    assert len(bare) == len(MARKS)


def test_the_stylesheet_knows_every_class_of_the_marks() -> None:
    """D5: a strict policy forbids inline styles, so each class has a rule in the stylesheet."""
    css = _CSS.read_text(encoding="utf-8")
    for mark in MARKS:
        for name in _classes(mark.shapes):
            assert re.search(rf"\.{re.escape(name)}\b", css), name


def test_sprite_and_legend_are_made_from_the_table() -> None:
    """A9: a page draws each mark from the table, and its legend names all of them in its words."""
    page = runs_page(
        Frame("Runs", project="p"),
        [(run_views.run(), views.Page((run_views.every_mark(),), None))],
        following=None,
        asked={},
    )
    document = parse(render(page))
    symbols = [one.attributes["id"] for one in document.all("symbol")]
    assert symbols == [f"m-{mark.kind.value}" for mark in MARKS]
    legend = document.all("section", "legend")[0]
    assert legend.marks() == [mark.kind.value for mark in MARKS]
    assert [one.text for one in legend.all("b")] == [mark.word for mark in MARKS]
