"""The sentence of a run page: what happened, said once, from the same places as the table.

"At least" stands wherever a gap, an open attempt or a conflict is (A10, A11, A16).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.backend.views import GroupView, RunView
from flowmark_otel.dashboard import words
from flowmark_otel.dashboard.marks import Kind
from flowmark_otel.dashboard.pages.frame import Piece
from flowmark_otel.dashboard.places import error_word, places, uncertain

RUN_MARKS: Final = {
    names.STATUS_COMPLETED: Kind.COMPLETED,
    names.STATUS_FAILED: Kind.FAILED,
    names.STATUS_OPEN: Kind.OPEN,
    names.STATUS_UNKNOWN: Kind.NONE,
}

# Which group the sentence is about: what most needs a reader first.
_ORDER: Final = (
    names.VERDICT_FAILED,
    names.VERDICT_UNDETERMINED,
    names.VERDICT_OPEN,
    names.VERDICT_AFTER_RETRY,
    names.VERDICT_FIRST_TRY,
)


class Sentence(NamedTuple):
    """The run's mark, the word it stands for, the sentence, and what else must be said."""

    kind: Kind
    lead: str
    pieces: tuple[Piece, ...]
    sub: str


def sentence(run: RunView, groups: Sequence[GroupView], *, paged: bool) -> Sentence:
    """Say what happened in a run. ``paged``: there are more groups than these."""
    about = min(groups, key=_weight, default=None)
    lead = words.capital(words.RUN_STATUSES[run.status])
    if run.status == names.STATUS_COMPLETED and any(
        group.verdict == names.VERDICT_AFTER_RETRY for group in groups
    ):
        lead = "Completed after retry"
    return Sentence(
        RUN_MARKS[run.status],
        f"{lead}.",
        _about(about) if about else _without(run),
        " ".join(_rest(run, groups, about, paged=paged)),
    )


def _weight(group: GroupView) -> tuple[int, int]:
    return _ORDER.index(group.verdict), -len(group.attempts)


def _without(run: RunView) -> tuple[Piece, ...]:
    if not run.counts.occurrences:
        return (Piece("No operation is known of it."),)
    return (Piece(f"No attempts; {words.several(run.counts.occurrences, 'ordinary occurrence')}."),)


def _about(group: GroupView) -> tuple[Piece, ...]:
    found = places(group)
    last = found[-1] if found else None
    number = last.last if last else 0
    head = (Piece(group.operation, data=True), Piece(" for "), Piece(group.group_id, data=True))
    if group.verdict == names.VERDICT_FAILED:
        code = error_word(last.attempt.error) if last and last.attempt else None
        said = Piece(f" failed in the end: attempt {number}, the highest known")
        with_code = (Piece(", with "), Piece(code, data=True, code=True)) if code else ()
        return (*head, said, *with_code, Piece("."))
    if group.verdict == names.VERDICT_UNDETERMINED:
        return (*head, Piece(f" is undetermined: two records claim attempt {number}."))
    if group.verdict == names.VERDICT_OPEN:
        said = Piece(f" is open: no end of attempt {number}, the highest known, was received.")
        return (*head, said)
    if group.verdict == names.VERDICT_FIRST_TRY:
        return (*head, Piece(" completed at first try."))
    if uncertain(found):
        return (*head, Piece(f" completed at attempt {number}."))
    return (*head, Piece(f" needed {words.several(number, 'attempt')}."))


def _rest(
    run: RunView, groups: Sequence[GroupView], about: GroupView | None, *, paged: bool
) -> list[str]:
    said: list[str] = []
    others = Counter(group.verdict for group in groups if group is not about)
    parts = [
        f"{others[verdict]:,} {words.VERDICTS[verdict]}" for verdict in _ORDER if others[verdict]
    ]
    if parts:
        where = "Other groups on this page" if paged else "Other groups"
        said.append(f"{where}: {words.listed(parts)}.")
    said += _evidence(run, groups, paged=paged)
    return said


def _evidence(run: RunView, groups: Sequence[GroupView], *, paged: bool) -> list[str]:
    kinds = Counter(place.kind for group in groups for place in places(group))
    doubts = [
        words.several(kinds[kind], one, many)
        for kind, one, many in (
            (Kind.NONE, "gap", "gaps"),
            (Kind.OPEN, "open", "open"),
            (Kind.CONFLICT, "conflict", "conflicts"),
        )
        if kinds[kind]
    ]
    attempts = words.several(run.counts.attempts, "attempt")
    if not doubts:
        # Of a single group the sentence itself has said how many.
        return [f"{attempts} known." if paged else f"{attempts}."] if len(groups) > 1 else []
    verb = "is" if len(doubts) == 1 and sum(kinds[k] for k in _DOUBTS) == 1 else "are"
    where = "in the evidence on this page" if paged else "in the evidence"
    return [f"At least {attempts}: {words.listed(doubts)} {verb} {where}."]


_DOUBTS: Final = (Kind.NONE, Kind.OPEN, Kind.CONFLICT)
