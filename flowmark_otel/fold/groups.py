"""Groups: attempts by number, gaps, places in conflict and verdicts (contract, section 5; A9-A11).

A place is a (group, number) of one operation name in one run. Which places are in conflict follows
from all evidence, accepted or rejected, so that the order of arrival cannot matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowmark_otel import names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from flowmark_otel.fold.rows import Conflicting
    from flowmark_otel.fold.state import Occurrence, Place

Gap = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Group:
    """One group; ``attempts`` by number, ``conflicts`` the numbers in conflict, ascending.

    A group known only from rejected evidence has no attempts. ``rejected`` is in order of arrival.
    """

    operation: str
    group_id: str
    attempts: tuple[Occurrence, ...]
    conflicts: tuple[int, ...]
    gaps: tuple[Gap, ...]
    verdict: names.Verdict
    rejected: tuple[Conflicting, ...]


def groups(
    occurrences: Iterable[Occurrence], conflicting: Sequence[Conflicting] = ()
) -> tuple[Group, ...]:
    """The groups of a run, by first arrival; those known only from rejected evidence come last.

    ``occurrences`` as ``state.occurrences`` reads them from the same evidence.
    """
    attempts: dict[tuple[str, str], dict[int, Occurrence]] = {}
    rejected: dict[tuple[str, str], dict[tuple[int, str], Conflicting]] = {}
    numbers: dict[tuple[str, str], set[int]] = {}
    for one in sorted(occurrences, key=lambda one: one.order):
        if one.group_id is None or one.number is None:
            continue
        group = (one.operation, one.group_id)
        attempts.setdefault(group, {})[one.number] = one
        if one.conflict:
            numbers.setdefault(group, set()).add(one.number)
            rejected.setdefault(group, {}).update((_name(r), r) for r in one.rejected)
    for record in sorted(conflicting, key=lambda record: record.order):
        place = place_of(record)
        if place is not None:
            operation, group_id, number = place
            attempts.setdefault((operation, group_id), {})
            numbers.setdefault((operation, group_id), set()).add(number)
            rejected.setdefault((operation, group_id), {})[_name(record)] = record
    return tuple(
        _group(group, tries, numbers.get(group, set()), rejected.get(group, {}).values())
        for group, tries in attempts.items()
    )


def place_of(record: Conflicting) -> Place | None:
    """The place that a rejected event names in the run being read, if it names one."""
    if record.here and record.operation and record.group_id and record.number:
        return record.operation, record.group_id, record.number
    return None


def gaps(known: Iterable[int]) -> tuple[Gap, ...]:
    """The numbers from 1 that higher known numbers imply, as ``(from, to)`` with both ends."""
    missing: list[Gap] = []
    expected = 1
    for number in sorted(set(known)):
        if number > expected:
            missing.append((expected, number - 1))
        expected = number + 1
    return tuple(missing)


def verdict(tries: Mapping[int, names.Status], conflicts: Collection[int]) -> names.Verdict:
    """The verdict of a group, from its highest known number; ``tries`` are its known attempts."""
    highest = max((*tries, *conflicts))
    if highest in conflicts:
        return "undetermined"
    status = tries[highest]
    if status == "completed":
        return "first_try" if highest == 1 else "after_retry"
    return status


def lone_verdict(status: names.Status) -> names.Verdict:
    """The verdict of an occurrence without attempt, which is an operation of its own (A4)."""
    return "first_try" if status == "completed" else status


def _name(record: Conflicting) -> tuple[int, str]:
    return record.order, record.event_id


def _group(
    group: tuple[str, str],
    tries: Mapping[int, Occurrence],
    conflicts: Collection[int],
    rejected: Iterable[Conflicting],
) -> Group:
    operation, group_id = group
    return Group(
        operation=operation,
        group_id=group_id,
        attempts=tuple(tries[number] for number in sorted(tries)),
        conflicts=tuple(sorted(conflicts)),
        gaps=gaps((*tries, *conflicts)),
        verdict=verdict({number: one.status for number, one in tries.items()}, conflicts),
        rejected=tuple(sorted(rejected, key=lambda record: record.order)),
    )
