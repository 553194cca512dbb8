"""What all pages have in common: title, navigation, project, the way to the JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from flowmark_otel.dashboard.marks import Kind


class Foot(NamedTuple):
    """How far the evidence reaches: the latest arrival, in full for the tooltip, and how long ago.

    All three are None while there is none.
    """

    reaches: str | None = None
    title: str | None = None
    behind: str | None = None


class Asking(NamedTuple):
    """Where a page asks whether there is new evidence, and the way to it."""

    poll: str
    show: str


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame of a page.

    ``project`` is None where nobody has signed in; ``session``: whether there is one to leave
    (there is none without authentication). ``base``: what the addresses of the project begin with;
    it is put before all of ours where they are written. ``json``: where the same answer is as JSON,
    ``csv``: where the page is one table, that as CSV.
    ``tab``: the view in the navigation; ``current``: ``page`` where it is that very view, ``true``
    below it, None where it is neither. ``carry``: the query that takes the time range along, with
    its ``?``.
    ``foot`` is None where the store could not be asked. ``asks`` is None where a page does not ask
    whether there is new evidence.
    """

    title: str
    project: str | None = None
    session: bool = False
    base: str = ""
    current: str | None = None
    json: str | None = None
    csv: str | None = None
    tab: str = "runs"
    carry: str = ""
    foot: Foot | None = None
    asks: Asking | None = None


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


class Moment(NamedTuple):
    """A time as it is written, and in full, RFC 3339."""

    text: str
    full: str


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


class Choice(NamedTuple):
    """One choice of several; ``value`` is what the address says, empty for no choice."""

    value: str
    text: str
    chosen: bool


class Way(NamedTuple):
    """A choice that is a link."""

    text: str
    href: str
    chosen: bool


class Piece(NamedTuple):
    """A part of a sentence; ``data``: what somebody sent, kept apart from our words."""

    text: str
    data: bool = False
    code: bool = False
