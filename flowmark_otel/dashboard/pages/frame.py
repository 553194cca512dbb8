"""What all pages have in common: title, navigation, project, the way to the JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from flowmark_otel.dashboard.marks import Kind


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame of a page.

    ``project`` is None where nobody has signed in; ``session``: whether there is one to leave
    (there is none without authentication). ``json``: where the same answer is as JSON.
    """

    title: str
    project: str | None = None
    session: bool = False
    current: str | None = None
    json: str | None = None
    foot: str = "All times UTC."


class Page(Protocol):
    """A page: its frame and the name of its template."""

    template: ClassVar[str]

    @property
    def frame(self) -> Frame:
        """The page's frame."""
        ...


class State(NamedTuple):
    """A mark with its word beside it, and what stands below it."""

    kind: Kind
    word: str
    sub: str | None = None


class Link(NamedTuple):
    """A way to another page; without ``href`` only the text."""

    text: str
    href: str | None = None
    note: str | None = None


class Fact(NamedTuple):
    """A line of a list of facts; ``code`` writes the value as an identifier.

    ``time``: the full time for the tooltip, RFC 3339. ``muted``: there is nothing to be known.
    """

    name: str
    value: str
    code: bool = False
    time: str | None = None
    muted: bool = False


class Piece(NamedTuple):
    """A part of a sentence; ``data``: what somebody sent, kept apart from our words."""

    text: str
    data: bool = False
    code: bool = False
