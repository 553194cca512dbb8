"""Where the same group id and operation name occur in other runs (A3): said, never merged."""

from __future__ import annotations

from typing import Final, NamedTuple

from flowmark_otel.backend.views import GroupView
from flowmark_otel.dashboard import words
from flowmark_otel.dashboard.pages.frame import Link
from flowmark_otel.dashboard.pages.links import run_path

_KEY_SHOWN: Final = 12


class Elsewhere(NamedTuple):
    """How many other runs, in words, and ways to the latest of them."""

    word: str
    links: tuple[Link, ...]


def elsewhere(group: GroupView) -> Elsewhere | None:
    """What is said of a group's other runs, None where there are none."""
    keys = group.elsewhere
    if not keys:
        return None
    return Elsewhere(
        words.other_runs(group.elsewhere_count, len(keys), at_least=group.elsewhere_at_least),
        tuple(Link(f"{key[:_KEY_SHOWN]}…", run_path(key)) for key in keys),
    )
