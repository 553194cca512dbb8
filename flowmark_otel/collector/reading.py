"""A request → the events in it, with their positions and resources (contract, section 4).

As the backend reads one: scanned on the wire, so that what is not ours is never decoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from flowmark_otel.collector.element import Fate
from flowmark_otel.collector.payload import Event, Events, Telemetry
from flowmark_otel.fast import learned, unfolded_of
from flowmark_otel.fold import events_of
from flowmark_otel.model import Refused, Span
from flowmark_otel.signals import NO_SIGNALS, Signals
from flowmark_otel.wire import decode
from flowmark_otel.wire.resource import attributes_of

TRACES: Final = "traces"


class Unfit(NamedTuple):
    """An event that breaks a rule, by position and, where one can be derived, by id.

    ``after``: how many told events of the request, unfit ones left out, come before it.
    """

    item: int
    event_id: str
    message: str
    told: bool
    after: int


class Read(NamedTuple):
    """What is in a request; ``items`` counts all its spans or log records."""

    source: Telemetry
    items: int
    events: tuple[Event, ...]
    unfit: tuple[Unfit, ...]

    @property
    def payload(self) -> Events:
        """The events that go on."""
        return Events(self.source, self.events)


def read(source: Telemetry, signals: Signals = NO_SIGNALS) -> Read:
    """Decode and fold what is marked. Raises Unparsable, TooLarge."""
    if source.signal == TRACES:
        request = decode.decode_traces(source.body, source.encoding, signals)
    else:
        request = decode.decode_logs(source.body, source.encoding)
    events: list[Event] = []
    unfit: list[Unfit] = []
    told = 0
    resources: dict[int, Mapping[str, object]] = {}  # by identity: items of a group share it
    for position, _, record, described in request.marked:
        quick = unfolded_of(record) if isinstance(record, Span) else None
        if quick is None:
            found, mapped = events_of(record, signals)
            if isinstance(record, Span) and not mapped:
                learned(record, found)
            if not found:
                continue
        resource = resources.get(id(described))
        if resource is None:
            resource = resources[id(described)] = attributes_of(described)
        if quick is not None:
            events += (Event(position, resource, quick, place=at) for at in range(quick.size))
            told += quick.size
            continue
        for each in found:
            if isinstance(each, Refused):
                unfit.append(Unfit(position, each.event_id, each.message, not mapped, told))
            else:
                events.append(Event(position, resource, each, not mapped))
                told += not mapped
    return Read(source, request.items, tuple(events), tuple(unfit))


def woven(fates: Sequence[Fate], unfit: Sequence[tuple[int, Fate]]) -> tuple[Fate, ...]:
    """The fates of told events with those of unfit ones, each at its place (``Unfit.after``)."""
    found = list(fates)
    for moved, (after, fate) in enumerate(unfit):
        found.insert(after + moved, fate)
    return tuple(found)
