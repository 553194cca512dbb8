"""One record of a place, as its own events tell it: what is compared with another record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.backend.views import EventView, SenderView
from flowmark_otel.model import Value

_ENDS: Final[dict[str, names.Status]] = {
    names.OPERATION_COMPLETED: names.STATUS_COMPLETED,
    names.OPERATION_FAILED: names.STATUS_FAILED,
}


class Side(NamedTuple):
    """One record: times in epoch nanoseconds, None where not known.

    ``attributes`` are those of its start and its end together, the end's where both carry a key.
    ``sender`` and ``arrived`` are those of the event that arrived first.
    """

    decision: str
    status: names.Status
    started_at: int | None
    ended_at: int | None
    arrived: int
    trace_id: str
    span_id: str
    attributes: Mapping[str, Value]
    sender: SenderView

    @property
    def duration_ns(self) -> int | None:
        """What the end says it took; None where it does not."""
        took = self.attributes.get(names.DURATION_NS)
        return took if isinstance(took, int) else None

    @property
    def operation_id(self) -> str:
        """Its operation id, empty where it names none."""
        return str(self.attributes.get(names.OPERATION_ID, ""))


def sides(events: Iterable[EventView]) -> tuple[Side, ...]:
    """The records that events make, the accepted ones first, each group by first arrival.

    Of what was refused, the events of one span and operation id are one record; two that are the
    same part of it are two, since only one of them can be true. Observed tries are in none.
    """
    found: dict[tuple[object, ...], list[list[EventView]]] = {}
    for event in events:
        if event.event == names.ATTEMPT_OBSERVED:
            continue
        operation_id = event.attributes.get(names.OPERATION_ID)
        span = (event.trace_id, event.span_id)
        # An accepted record may have its start from one span and its end from another.
        key = (operation_id,) if event.state == names.STORED else (operation_id, *span)
        records = found.setdefault(key, [[]])
        part = _part(event)
        free = next((some for some in records if part not in map(_part, some)), None)
        if free is None:
            records.append([event])
        else:
            free.append(event)
    made = [_side(some) for records in found.values() for some in records if some]
    return tuple(sorted(made, key=lambda side: (side.decision != names.STORED, side.arrived)))


def accepted(found: Sequence[Side], operation_id: str | None) -> Side | None:
    """The accepted record of an operation id, None where there is none."""
    for side in found:
        if side.decision == names.STORED and side.operation_id == operation_id:
            return side
    return None


def _part(event: EventView) -> bool:
    return event.event in _ENDS


def _side(events: Sequence[EventView]) -> Side:
    start = next((event for event in events if not _part(event)), None)
    end = next((event for event in events if _part(event)), None)
    first = min(events, key=lambda event: event.received_at)
    rejected = first.state == names.STATE_REJECTED
    return Side(
        decision=f"rejected: {first.code}" if rejected else names.STORED,
        status=_ENDS[end.event] if end else names.STATUS_OPEN,
        started_at=start.sent_at if start else None,
        ended_at=end.sent_at if end else None,
        arrived=first.received_at,
        trace_id=first.trace_id,
        span_id=first.span_id,
        attributes={
            **(start.attributes if start else {}),
            **(end.attributes if end else {}),
        },
        sender=first.sender,
    )
