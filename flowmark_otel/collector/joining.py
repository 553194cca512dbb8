"""How the answers of several exporters become one, and that one the answer to the sender (C4).

Pure. Several branches may answer for the same events; then the worst is said of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowmark_otel import names
from flowmark_otel.collector.element import Alike, ElementError, Fate, Outcome
from flowmark_otel.collector.plan import Trigger
from flowmark_otel.model import Receipt, Rejection

_GOOD: Final = (names.DUPLICATE, names.STORED, names.CUSTODY)
"""From best to worst: what one branch knew already another may have stored just now."""


def joined(outcomes: Sequence[Outcome]) -> Outcome:
    """The answers of branches that all took the same payload."""
    if len(outcomes) == 1:
        return outcomes[0]
    answering = [each for each in outcomes if each.acknowledged is not None or each.fates]
    if len(answering) <= 1:
        return answering[0] if answering else Outcome()
    # A branch that gave no receipt says nothing of any event.
    first, *others = [each.fates for each in answering if each.fates] or [()]
    fates = list(first)
    for more in others:
        fates = _worst(fates, more)
    return Outcome(
        tuple(fates),
        all(each.acknowledged for each in answering),
        next((each.backend_id for each in answering if each.backend_id), ""),
    )


def failure_of(
    trigger: Trigger, errors: Sequence[ElementError], number: int
) -> ElementError | None:
    """Why a message failed that went to so many exporters; None if it did not."""
    if not errors or (trigger is not Trigger.ALL_SUCCESS and len(errors) < number):
        return None
    # Another try helps one of several only where each of them has to succeed.
    wanted = any if trigger is Trigger.ALL_SUCCESS else all
    permanent = wanted(each.permanent for each in errors)
    told = next(each for each in errors if each.permanent is permanent)
    waits = [each.retry_after for each in errors if each.retry_after is not None]
    return ElementError(
        told.reason,
        "; ".join(dict.fromkeys(str(each) for each in errors)),
        permanent=permanent,
        retry_after=max(waits, default=None),
        fates=told.fates if number == 1 or all(each.fates for each in errors) else (),
    )


def receipt_of(outcome: Outcome) -> tuple[Receipt, list[Rejection]]:
    """The receipt without its rejections, and all of these in order."""
    counts = dict.fromkeys(_GOOD, 0)
    rejections: list[Rejection] = []
    items: set[int] = set()
    fates = outcome.fates
    if isinstance(fates, Alike) and fates.state in counts:
        counts[fates.state] = len(fates)
        fates = ()
    for fate in fates:
        if fate.state in counts:
            counts[fate.state] += 1
            continue
        position = -1 if fate.event_id else fate.item
        rejections.append(Rejection(fate.event_id, fate.state, fate.message, position))
        items.add(fate.item)
    receipt = Receipt(
        capabilities=(names.CAPABILITY,) if outcome.acknowledged else (),
        backend_id=outcome.backend_id,
        stored=counts[names.STORED],
        duplicate=counts[names.DUPLICATE],
        custody=counts[names.CUSTODY],
        received=len(outcome.fates),
        rejected=len(rejections),
        rejected_items=len(items),
    )
    return receipt, rejections


def _worst(fates: Sequence[Fate], more: Sequence[Fate]) -> list[Fate]:
    """The worse fate of each event: both branches had the same events, in one order."""
    return [max(one, other, key=_badness) for one, other in zip(fates, more, strict=True)]


def _badness(fate: Fate) -> int:
    return _GOOD.index(fate.state) if fate.state in _GOOD else len(_GOOD)
