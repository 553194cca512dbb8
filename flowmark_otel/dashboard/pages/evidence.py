"""What is not known, and what was refused: each with what is missing and what implies it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.backend.views import EvidenceItem, Page, rfc3339
from flowmark_otel.dashboard import words
from flowmark_otel.dashboard.marks import Kind
from flowmark_otel.dashboard.pages.frame import Choice, Frame, Link, Way
from flowmark_otel.dashboard.pages.links import EVIDENCE, attempt_path, query, run_path
from flowmark_otel.dashboard.places import span

SHOWN: Final = 5
"""Items of a kind on the page of all kinds."""

UNKNOWN_SERVICE: Final = "unknown service"
_IDS: Final = 4

KINDS: Final[Mapping[names.Problem, tuple[Kind | None, str]]] = {
    "gap": (Kind.NONE, "Gaps"),
    "open": (Kind.OPEN, "Open longer than"),
    "unresolved": (Kind.UNRESOLVED, "Unresolved references"),
    "conflict": (Kind.CONFLICT, "Conflicts"),
    "rejected": (None, "Rejected events"),
}

_NOTES: Final[Mapping[names.Problem, str]] = {
    "gap": "a number implied by a higher one, and no evidence of it",
    "open": "no end received; this is no proof that work is going on",
    "unresolved": "the named run is not stored in this project; one that arrives later resolves it",
    "conflict": "two records claim one place; the first stays",
    "rejected": "kept apart as evidence of their rejection; they change no figure",
}

_REASONS: Final[Mapping[names.EvidenceReason, str]] = {
    names.EVIDENCE_EVENT_ID: "one event id with two contents",
    names.EVIDENCE_OPERATION_ID: "one operation id with other metadata",
    names.EVIDENCE_SECOND_END: "a second end, from another span",
    names.EVIDENCE_PLACE: "another operation id for one number",
}


class Row(NamedTuple):
    """One item. ``says`` is the API's sentence where the columns would say less.

    ``missing`` leads to the place of the attempt, where there is one to look at.
    """

    missing: Link
    implied: str
    says: str | None
    operation: str | None
    group_id: str | None
    run: Link | None
    workflow: str | None
    service: str | None
    arrived: str
    arrived_day: str
    arrived_title: str
    ago: str | None
    events: tuple[str, ...]
    more_events: int


class Section(NamedTuple):
    """The items of one kind; ``number`` is those looked at, ``more`` leads to the whole list."""

    kind: names.Problem
    mark: Kind | None
    title: str
    note: str
    number: str
    reasons: str
    rows: tuple[Row, ...]
    more: str | None


class Cell(NamedTuple):
    """A number of the matrix and the list it leads to."""

    number: str
    href: str | None


class Line(NamedTuple):
    """A service, and how many items of each kind its events left."""

    service: str
    href: str | None
    cells: tuple[Cell, ...]


class Matrix(NamedTuple):
    """Services by kind, over the items looked at; ``cut``: there are more than were looked at."""

    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    total: tuple[str, ...]
    cut: bool


class Filters(NamedTuple):
    """The filters as the form shows them."""

    kind: tuple[Choice, ...]
    workflow: str
    service: str
    last: tuple[Choice, ...]
    since: str
    until: str


@dataclass(frozen=True, slots=True)
class EvidencePage:
    """All kinds with the first of each, or a page of one kind."""

    template: ClassVar[str] = "evidence.html"
    frame: Frame
    ranges: tuple[Way, ...]
    filters: Filters
    filtered: bool
    matrix: Matrix | None
    sections: tuple[Section, ...]
    csv: str
    newest: str | None
    older: str | None


class Looked(NamedTuple):
    """One kind: the first of its items, and whether there are more."""

    kind: names.Problem
    page: Page[EvidenceItem]


class Told(NamedTuple):
    """What the whole page is told in: now, the threshold of open, and the address's filters."""

    now: int
    open_after: int
    asked: Mapping[str, str]


def title_of(kind: names.Problem, open_after: int) -> str:
    """``Gaps``, ``Open longer than 15 min``."""
    title = KINDS[kind][1]
    return f"{title} {threshold(open_after)}" if kind == "open" else title


def threshold(duration: int) -> str:
    """``15 min``, ``90 s``: a setting as people wrote it."""
    seconds = duration // words.SECOND
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def section(looked: Looked, told: Told, *, shown: int, whole: bool) -> Section:
    """The section of one kind; ``whole``: it is a page of the list and needs no way to it."""
    kind, page = looked
    mark, _ = KINDS[kind]
    reasons = Counter(item.reason for item in page.items)
    href = query(EVIDENCE, {**told.asked, "kind": kind})
    return Section(
        kind,
        mark,
        title_of(kind, told.open_after),
        _NOTES[kind],
        _count(len(page.items), more=page.next is not None),
        ", ".join(f"{_reason(reason)}: {count:,}" for reason, count in reasons.most_common())
        if kind in ("conflict", "rejected")
        else "",
        tuple(_row(item, told) for item in page.items[:shown]),
        None if whole or (len(page.items) <= shown and page.next is None) else href,
    )


def matrix(found: Sequence[Looked], told: Told) -> Matrix | None:
    """Services by kind; None where there is nothing."""
    counted: dict[str | None, Counter[str]] = {}
    for kind, page in found:
        for item in page.items:
            counted.setdefault(item.service, Counter())[kind] += 1
    if not counted:
        return None
    kinds = [kind for kind, _ in found]
    lines = sorted(counted.items(), key=lambda each: (-each[1].total(), each[0] or ""))
    return Matrix(
        tuple(title_of(kind, told.open_after) for kind in kinds),
        tuple(_line(service, counts, kinds, told) for service, counts in lines),
        tuple(_count(len(page.items), more=page.next is not None) for _, page in found),
        any(page.next is not None for _, page in found),
    )


def _line(
    service: str | None, counts: Counter[str], kinds: Sequence[names.Problem], told: Told
) -> Line:
    of_service = {"service": service} if service else {}
    return Line(
        service or UNKNOWN_SERVICE,
        query(EVIDENCE, {**told.asked, **of_service}) if service else None,
        tuple(
            Cell(
                f"{counts[kind]:,}",
                query(EVIDENCE, {**told.asked, **of_service, "kind": kind})
                if counts[kind] and service
                else None,
            )
            for kind in kinds
        ),
    )


def _count(count: int, *, more: bool) -> str:
    return f"{count:,} or more" if more else f"{count:,}"


def _reason(reason: names.EvidenceReason) -> str:
    return _REASONS.get(reason, reason)


def _row(item: EvidenceItem, told: Told) -> Row:
    missing, implied, says = _says(item)
    first = item.first_received_at
    return Row(
        Link(missing, _place(item)),
        implied,
        says,
        item.operation,
        item.group_id,
        None if item.run is None else Link(item.run.run_id, run_path(item.run.key)),
        None if item.run is None else item.run.workflow,
        item.service,
        words.clock(first)[:8],
        words.day(first),
        rfc3339(first),
        words.ago(told.now - first) if item.kind == "open" and told.now > first else None,
        item.event_ids[:_IDS],
        max(len(item.event_ids) - _IDS, 0),
    )


def _place(item: EvidenceItem) -> str | None:
    """The page of the attempt that an item is about; what was refused as invalid has none."""
    if item.run is None or item.operation is None or item.group_id is None:
        return None
    if item.kind == "rejected" or item.number is None:
        return None
    return attempt_path(item.run.key, item.operation, item.group_id, item.number)


def _says(item: EvidenceItem) -> tuple[str, str, str | None]:
    """What is missing, what implies it, and the API's own sentence where it says more."""
    place = "" if item.number is None else f"attempt {item.number:,}"
    if item.kind == "gap" and item.number is not None:
        last = item.last_number or item.number
        one = "attempt" if last == item.number else "attempts"
        return f"{one} {span(item.number, last)}", f"attempt {last + 1:,} was received", None
    if item.kind == "open":
        what = place or ("the operation" if item.operation else "the run")
        return f"the end of {what}", "its start was received", None
    if item.kind == "unresolved":
        return "the run it retries", "named as predecessor", item.says
    if item.kind == "conflict":
        what = f" for {place}" if place else ""
        return f"which record is true{what}", _reason(item.reason), item.says
    return item.reason, item.says, None
