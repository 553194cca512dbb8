"""From evidence to state: what one run and its occurrences read as (contract, section 5).

Pure, and indifferent to order: every choice between two pieces of evidence goes by their order of
arrival at the backend or by their own content, never by the order in which they are given here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from flowmark_otel import names
from flowmark_otel.fold.rows import Accepted, Conflicting, ended, integer, known, text
from flowmark_otel.model import RunRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from flowmark_otel.model import Value

_RUN_FIELDS = names.RUN_START_KEYS
Place: TypeAlias = tuple[str, str, int]
"""Operation name, group id, number: what names one operation id within a run (A6)."""

_RUN_PARTS = frozenset((names.PART_RUN_START, names.PART_RUN_END))


@dataclass(frozen=True, slots=True)
class RunState:
    """What a run reads as. ``ends`` by sent time, ties by event id: the last one speaks for it.

    Times are nanoseconds, None if unknown. ``status`` is ``unknown`` if no run was recorded.
    """

    status: names.RunStatus
    started_at: int | None
    ends: tuple[Accepted, ...]
    retry_of: RunRef | None
    parent_run_id: str | None
    correlation_id: str | None
    flags: tuple[names.Flag, ...]
    defaulted: tuple[str, ...]

    @property
    def end(self) -> Accepted | None:
        """The latest end by sent time, ties by event id."""
        return self.ends[-1] if self.ends else None


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One operation id: first accepted start, the one accepted end, tries observed inside it.

    ``fields`` are its start fields by attribute key; ``observed`` is in order of arrival.
    ``conflict`` and ``rejected``: whether other evidence contradicts it, and which.
    """

    operation: str
    operation_id: str
    fields: Mapping[str, Value]
    start: Accepted | None
    end: Accepted | None
    observed: tuple[Accepted, ...] = ()
    conflict: bool = False
    rejected: tuple[Conflicting, ...] = ()

    @property
    def order(self) -> int:
        """When it was first heard of, as an order of arrival."""
        return min(event.order for event in (self.start, self.end) if event)

    @property
    def group_id(self) -> str | None:
        """The id of its group, None for an ordinary occurrence (A4)."""
        return text(self.fields, names.ATTEMPT_GROUP_ID)

    @property
    def number(self) -> int | None:
        """Its number in its group, from 1; None for an ordinary occurrence."""
        return integer(self.fields, names.ATTEMPT_NUMBER)

    @property
    def status(self) -> names.Status:
        """``open`` without an end, which proves nothing about work going on (A11)."""
        return ended(self.end) if self.end else "open"

    @property
    def flags(self) -> tuple[names.Flag, ...]:
        """What a reader should know of this record."""
        limit = integer(self.fields, names.ATTEMPT_LIMIT)
        beyond = limit is not None and self.number is not None and limit < self.number
        events = [event for event in (self.start, self.end, *self.observed) if event]
        return _flags(events, beyond_limit=beyond)

    @property
    def defaulted(self) -> tuple[str, ...]:
        """The keys its evidence took from a default, sorted."""
        return _defaulted(event for event in (self.start, self.end) if event)


def run_state(events: Iterable[Accepted]) -> RunState:
    """Read a run from its own accepted events; events of operations are left aside (A14, A15)."""
    own = sorted(event for event in events if event.part in _RUN_PARTS)
    starts = [event for event in own if event.part == names.PART_RUN_START]
    ends = sorted(
        (event for event in own if event.part == names.PART_RUN_END),
        key=lambda end: (end.sent_at, end.event_id),
    )
    speaks = starts[0] if starts else next((e for e in own if e.part == names.PART_RUN_END), None)
    fields = speaks.attributes if speaks else {}
    workflow = text(fields, names.RETRY_OF_WORKFLOW_NAME)
    run_id = text(fields, names.RETRY_OF_RUN_ID)
    differs = any(_run_fields(event.attributes) != _run_fields(fields) for event in own)
    return RunState(
        status=ended(ends[-1]) if ends else "open" if starts else "unknown",
        started_at=known(starts[0].sent_at) if starts else None,
        ends=tuple(ends),
        retry_of=RunRef(workflow, run_id) if workflow and run_id else None,
        parent_run_id=text(fields, names.PARENT_RUN_ID),
        correlation_id=text(fields, names.CORRELATION_ID),
        flags=_flags(own, metadata_differs=differs),
        defaulted=_defaulted(own),
    )


def occurrences(
    events: Iterable[Accepted], conflicting: Sequence[Conflicting] = ()
) -> tuple[Occurrence, ...]:
    """Read the occurrences of a run, by first arrival.

    An operation known only by observed tries is none. ``events`` are all of the run, or all of
    some of its operations; ``conflicting`` are all of the run.
    """
    by_operation: dict[str, list[Accepted]] = {}
    for event in sorted(events):
        operation_id = text(event.attributes, names.OPERATION_ID)
        if operation_id is not None and event.part not in _RUN_PARTS:
            by_operation.setdefault(operation_id, []).append(event)
    by_event_id: dict[str, str] = {}
    by_place: dict[Place, str] = {}
    for operation_id, evidence in by_operation.items():
        for event in evidence:
            by_event_id[event.event_id] = operation_id
            place = _place(event)
            if place is not None:
                by_place[place] = operation_id
    rejected = contradictions(conflicting, by_place, by_event_id)
    found = [
        _occurrence(operation_id, evidence, tuple(rejected.get(operation_id, ())))
        for operation_id, evidence in by_operation.items()
    ]
    return tuple(sorted((one for one in found if one), key=lambda one: one.order))


def _occurrence(
    operation_id: str, evidence: Sequence[Accepted], rejected: tuple[Conflicting, ...]
) -> Occurrence | None:
    start = next((e for e in evidence if e.part == names.PART_OPERATION_START), None)
    end = next((e for e in evidence if e.part == names.PART_OPERATION_END), None)
    speaks = start or end
    if speaks is None:
        return None
    attributes = speaks.attributes
    return Occurrence(
        operation=text(attributes, names.OPERATION_NAME) or names.UNKNOWN_NAME,
        operation_id=operation_id,
        fields={key: attributes[key] for key in names.ATTEMPT_START_KEYS if key in attributes},
        start=start,
        end=end,
        observed=tuple(e for e in evidence if e.event == names.ATTEMPT_OBSERVED),
        conflict=bool(rejected),
        rejected=rejected,
    )


def contradictions(
    conflicting: Sequence[Conflicting],
    by_place: Mapping[Place, str],
    by_event_id: Mapping[str, str] | None = None,
) -> dict[str, list[Conflicting]]:
    """Which rejected events contradict which operation ids; those may be known or not.

    A rejected event met other evidence by its operation id, by its place or by its event id, and
    would have met it the other way round too, so the marks do not depend on order. ``by_place``
    and ``by_event_id`` give the accepted operation ids.
    """
    found: dict[str, list[Conflicting]] = {}
    for record in sorted(conflicting, key=lambda record: record.order):
        met = {record.met, (by_event_id or {}).get(record.event_id)}
        if record.here:
            met.add(record.operation_id)
            if record.operation and record.group_id and record.number:
                met.add(by_place.get((record.operation, record.group_id, record.number)))
        for operation_id in filter(None, met):
            found.setdefault(operation_id, []).append(record)
    return found


def _place(event: Accepted) -> Place | None:
    operation = text(event.attributes, names.OPERATION_NAME)
    group_id = text(event.attributes, names.ATTEMPT_GROUP_ID)
    number = integer(event.attributes, names.ATTEMPT_NUMBER)
    return (operation, group_id, number) if operation and group_id and number else None


def _run_fields(attributes: Mapping[str, Value]) -> tuple[Value | None, ...]:
    return tuple(attributes.get(key) for key in _RUN_FIELDS)


def _flags(
    events: Sequence[Accepted], *, beyond_limit: bool = False, metadata_differs: bool = False
) -> tuple[names.Flag, ...]:
    flags: list[names.Flag] = []
    if beyond_limit:
        flags.append("beyond_limit")
    if metadata_differs:
        flags.append("metadata_differs")
    if any(event.dropped_attributes for event in events):
        flags.append("metadata_may_be_incomplete")
    if any(event.characters_replaced for event in events):
        flags.append("characters_replaced")
    return tuple(flags)


def _defaulted(events: Iterable[Accepted]) -> tuple[str, ...]:
    keys: set[str] = set()
    for event in events:
        keys.update(filter(None, (text(event.attributes, names.DEFAULTED) or "").split(",")))
    return tuple(sorted(keys))
