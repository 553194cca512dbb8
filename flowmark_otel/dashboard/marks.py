"""The seven marks, declared once: sprite, legend, strips and spoken labels come from this table.

Shape carries the meaning and colour only confirms it, so a mark never stands without its word.
Source: the dashboard's plan, "Marks"; A10, A11.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple


class Kind(Enum):
    """What a mark says; the value is the end of its symbol's id (``m-completed``)."""

    COMPLETED = "completed"
    SUPERSEDED = "superseded"
    FAILED = "failed"
    OPEN = "open"
    NONE = "none"
    UNRESOLVED = "unresolved"
    CONFLICT = "conflict"


class Shape(NamedTuple):
    """One SVG element: its tag, its attributes in order, what it holds (elements or one text)."""

    tag: str
    attributes: tuple[tuple[str, str], ...]
    children: tuple[Shape, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark: its word, as spoken and written; what justifies it; its shapes in a 16 unit square.

    ``folds``: whether a long strip may fold it into "n more".
    """

    kind: Kind
    word: str
    because: str
    shapes: tuple[Shape, ...]
    folds: bool = True


def _path(d: str, classes: str, dashes: str = "") -> Shape:
    attributes = (("d", d), ("class", classes))
    return Shape("path", (*attributes, ("stroke-dasharray", dashes)) if dashes else attributes)


def _square(edge: float, size: float, classes: str, dashes: str = "") -> Shape:
    attributes = (
        ("x", f"{edge:g}"),
        ("y", f"{edge:g}"),
        ("width", f"{size:g}"),
        ("height", f"{size:g}"),
        ("class", classes),
    )
    return Shape("rect", (*attributes, ("stroke-dasharray", dashes)) if dashes else attributes)


MARKS: Final[tuple[Mark, ...]] = (
    Mark(
        Kind.COMPLETED,
        "completed",
        "terminal evidence, no failure",
        (
            Shape("circle", (("cx", "8"), ("cy", "8"), ("r", "6"), ("class", "f-ok"))),
            _path("M5 8.2l2.1 2.1L11.2 6", "n s-bg w18"),
        ),
    ),
    Mark(
        Kind.SUPERSEDED,
        "failed, a later attempt is known",
        "terminal failure, higher number seen",
        (
            _square(2.8, 10.4, "n s-fail w15"),
            _path("M5.4 5.4l5.2 5.2M10.6 5.4l-5.2 5.2", "n s-fail w15"),
        ),
    ),
    Mark(
        Kind.FAILED,
        "failed, highest known",
        "terminal failure, none higher",
        (
            _square(2, 12, "f-fail"),
            _path("M5.2 5.2l5.6 5.6M10.8 5.2l-5.6 5.6", "n s-bg w18"),
        ),
    ),
    Mark(
        Kind.OPEN,
        "open: no end received",
        "a start, no terminal evidence",
        (
            _path("M10.5 2.9A6 6 0 1 0 10.5 13.1", "n s-open w18"),
            _path("M11.6 8h4", "n s-open w18", "1.4 1.2"),
        ),
    ),
    Mark(
        Kind.NONE,
        "no evidence",
        "a number implied by a higher one",
        (
            _square(2.8, 10.4, "n s-gap w13", "2 1.7"),
            _path("M6.3 6.5a1.8 1.8 0 1 1 2.5 1.7c-.6.3-.8.6-.8 1.2M8 10.7v1.3", "n s-gap w13"),
        ),
        folds=False,
    ),
    Mark(
        Kind.UNRESOLVED,
        "unresolved reference",
        "names a run that is not stored",
        (
            _path("M1 8h8.4M6.2 4.6L9.6 8 6.2 11.4", "n s-unres w18"),
            _path("M13 2.4v11.2", "n s-unres w18", "2.4 1.8"),
        ),
        folds=False,
    ),
    Mark(
        Kind.CONFLICT,
        "conflict",
        "two records claim one place",
        (
            _path("M8 1.2L14.8 8 8 14.8 1.2 8z", "n s-conf w15"),
            _path("M5.2 6.6h5.6M5.2 9.4h5.6M9.9 4.6L6.1 11.4", "n s-conf w13"),
        ),
        folds=False,
    ),
)

BY_KIND: Final[dict[Kind, Mark]] = {mark.kind: mark for mark in MARKS}


def word(kind: Kind) -> str:
    """The word that stands with a mark, in lower case."""
    return BY_KIND[kind].word
