"""The announcement of new evidence: where a page asks for it, and what it says (nothing moves)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from flowmark_otel.backend.views import Page, RunView
from flowmark_otel.dashboard.pages.frame import Asking
from flowmark_otel.dashboard.pages.links import EVIDENCE, RUNS, query, run_path


@dataclass(frozen=True, slots=True)
class NewsPage:
    """A sentence of a few words, put into the page that asked.

    ``most``: so many are counted, None where all are.
    """

    template: ClassVar[str] = "news.html"
    count: int
    most: int | None
    what: str


def of_list(found: Page[RunView], filters: dict[str, str], cursor: str | None) -> Asking | None:
    """The newest page of a list asks for runs that would stand above its first."""
    if cursor is not None:
        return None
    after = str(found.items[0].first_received_at) if found.items else "0"
    poll = query(f"{RUNS}/news", {**filters, "after": after})
    return Asking(poll, query(RUNS, filters))


def of_events(path: str, received: int, show: str) -> Asking:
    """A view of the whole project asks for events after those it was made of."""
    return Asking(query(f"{path}/news", {"after": str(received)}), show)


def of_evidence(received: int, now: int, filters: dict[str, str]) -> Asking:
    """The list of problems asks for those that were not there yet."""
    poll = query(f"{EVIDENCE}/news", {**filters, "after": f"{received}-{now}"})
    return Asking(poll, query(EVIDENCE, filters))


def of_run(key: str, mark: tuple[int, int], show: str) -> Asking:
    """The page of a run asks for events after those it was made of."""
    stored, refused = mark
    return Asking(query(f"{run_path(key)}/news", {"after": f"{stored}-{refused}"}), show)
