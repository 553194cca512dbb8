"""What is said of spans that mark tries by a convention of others: attempts, or why not (E5)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from flowmark_otel import names
from flowmark_otel.dashboard.words import several
from flowmark_otel.model import Span
from flowmark_otel.signals import EVERY, Attempt, Convention, NoAttempt, Signals, read


class Explained(NamedTuple):
    """One span that a convention is about.

    ``number``: of the observed attempt that it would be, of ``operation`` and ``group_id``; None
    if it would be none. ``says``: how it ended, or why it would be none.
    """

    place: str
    item: int
    name: str
    signal: str
    says: str
    number: int | None = None
    operation: str = ""
    group_id: str = ""


def explain(span: Span, enabled: Signals, place: str, item: int) -> Explained | None:
    """What becomes of a span without a record of its own; None if no convention is about it."""
    why: NoAttempt | None = None
    left_out: tuple[Convention, Attempt] | None = None
    for row in EVERY.conventions:
        found = read(span, row)
        if isinstance(found, Attempt):
            if row in enabled.conventions:
                operation = span.name if found.operation is None else found.operation
                which = (found.number, operation, found.group_id)
                return Explained(place, item, span.name, row.name, _ended(found), *which)
            left_out = left_out or (row, found)
        elif found is not None:
            why = why or found
    if left_out is not None:
        row, found = left_out
        says = f"it is try {found.number}, and {_enable(row)}"
        return Explained(place, item, span.name, row.name, says)
    if why is None:
        return None
    return Explained(place, item, span.name, why.signal, why.says)


def _enable(row: Convention) -> str:
    reason = f"; it is not among safe because {row.doubt}" if row.doubt else ""
    word = names.SIGNALS_SAFE if row.is_safe else f"{names.SIGNALS_SAFE},{row.name}"
    return f"would be an attempt with FLOWMARK_SIGNALS={word}{reason}"


def _ended(found: Attempt) -> str:
    if found.failed is None:
        return "open: nothing says how it ended"
    return names.STATUS_FAILED if found.failed else names.STATUS_COMPLETED


def sentences(explained: Iterable[Explained]) -> Iterator[str]:
    """Lines for people: one for each group, then one for each reason, with the number of spans."""
    groups: defaultdict[tuple[str, str, str], list[Explained]] = defaultdict(list)
    others: defaultdict[tuple[str, str, str], list[Explained]] = defaultdict(list)
    for each in explained:
        if each.number is not None:
            groups[each.signal, each.operation, each.group_id].append(each)
        else:
            others[each.place, each.signal, each.says].append(each)
    for (signal, operation, group), tries in groups.items():
        shown = ", ".join(
            f"{each.number} {each.says}" for each in sorted(tries, key=lambda one: one.number or 0)
        )
        yield f"{signal}: group {group!r} of operation {operation!r}: {shown}"
    for (place, signal, says), spans in others.items():
        first = spans[0]
        more = f" and {several(len(spans) - 1, 'other')}" if len(spans) > 1 else ""
        yield f"{place} item {first.item} {first.name!r}{more}: no attempt by {signal}: {says}"
