"""A request → the events in it, with their positions and resources (contract, section 4).

As the backend reads one: scanned on the wire, so that what is not ours is never decoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from flowmark_otel.collector.element import Fate
from flowmark_otel.collector.events import Event, Quick, Row
from flowmark_otel.collector.payload import Events, Telemetry
from flowmark_otel.fast import Unfolded, learned, unfolded_of
from flowmark_otel.fast.layouts import laid_out, received
from flowmark_otel.fold import events_of
from flowmark_otel.model import LogRecord, Refused, Span
from flowmark_otel.signals import NO_SIGNALS, Signals
from flowmark_otel.wire import decode
from flowmark_otel.wire.decode_protobuf import ERROR_MARK
from flowmark_otel.wire.resource import attributes_of

TRACES: Final = "traces"

_Described: TypeAlias = bytes | Mapping[str, Any]
"""A resource as it came."""


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
    events: Row
    unfit: tuple[Unfit, ...]

    @property
    def payload(self) -> Events:
        """The events that go on."""
        return Events(self.source, self.events)


def read(source: Telemetry, signals: Signals = NO_SIGNALS) -> Read:
    """Decode and fold what is marked. Raises Unparsable, TooLarge."""
    if source.signal != TRACES:
        request = decode.decode_logs(source.body, source.encoding)
    elif source.encoding == decode.PROTOBUF:
        return _opened(source, signals)
    else:
        request = decode.decode_traces(source.body, source.encoding, signals)
    making = _Making(signals)
    for position, _, record, described in request.marked:
        making.add(position, record, described)
    return making.made(source, request.items)


def _opened(source: Telemetry, signals: Signals) -> Read:
    """Of spans in protobuf, those that are laid out as others before are not decoded."""
    body = source.body
    opened = decode.Opened(body, signals)
    making = _Making(signals)
    errors = bool(opened.marked) and ERROR_MARK in body
    last: bytes | None = None
    service: object = None
    for mark in opened.marked:
        position, item, described, own = mark
        if described is not last:
            last, service = described, opened.resource(mark).service_name
        raw = body[item] if isinstance(item, slice) else item
        if own and raw is not None:
            quick = received(raw, own, service, errors=errors)
            if quick is not None:
                making.take(position, quick, described)
                continue
        record = opened.span(mark)
        if not own and isinstance(record, Refused):
            continue
        unfolded = making.add(position, record, described)
        if unfolded is not None and own and raw is not None:
            laid_out(raw, own, unfolded)
    return making.made(source, opened.items)


class _Making:
    """The events of one request, as they are found."""

    __slots__ = ("_parts", "_resources", "_signals", "_told", "_unfit")

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._parts: list[Event | Quick] = []
        self._unfit: list[Unfit] = []
        self._told = 0
        # By identity: items of a group share it.
        self._resources: dict[int, Mapping[str, object]] = {}

    def made(self, source: Telemetry, items: int) -> Read:
        """All of them."""
        return Read(source, items, Row(self._parts), tuple(self._unfit))

    def add(
        self, position: int, record: Span | LogRecord | Refused, described: _Described
    ) -> Unfolded | None:
        """Take an item; returns its events where it took the fast path."""
        quick = unfolded_of(record) if isinstance(record, Span) else None
        if quick is not None:
            self.take(position, quick, described)
            return quick
        found, mapped = events_of(record, self._signals)
        if isinstance(record, Span) and not mapped:
            learned(record, found)
        if not found:
            return None
        resource = self._resource(described)
        for each in found:
            if isinstance(each, Refused):
                unfit = Unfit(position, each.event_id, each.message, not mapped, self._told)
                self._unfit.append(unfit)
            else:
                self._parts.append(Event(position, resource, each, told=not mapped))
                self._told += not mapped
        return None

    def take(self, position: int, quick: Quick, described: _Described) -> None:
        """Take the events of a span that took the fast path."""
        quick.item = position
        quick.resource = self._resource(described)
        self._parts.append(quick)
        self._told += quick.size

    def _resource(self, described: _Described) -> Mapping[str, object]:
        found = self._resources.get(id(described))
        if found is None:
            found = self._resources[id(described)] = attributes_of(described)
        return found


def woven(fates: Sequence[Fate], unfit: Sequence[tuple[int, Fate]]) -> tuple[Fate, ...]:
    """The fates of told events with those of unfit ones, each at its place (``Unfit.after``)."""
    found = list(fates)
    for moved, (after, fate) in enumerate(unfit):
        found.insert(after + moved, fate)
    return tuple(found)
