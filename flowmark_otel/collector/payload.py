"""What flows between nodes: one received request's share (contract, section 9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias, overload

from flowmark_otel.errors import Unparsable
from flowmark_otel.fast import Unfolded
from flowmark_otel.model import Envelope
from flowmark_otel.wire import cut


class Size:
    """How many spans or log records a request has; 0 until somebody who reads it says so."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items = 0


class Telemetry(NamedTuple):
    """An OTLP export request as it came, never changed.

    ``signal``: ``traces`` or ``logs``. ``encoding``: ``protobuf`` or ``json``. ``size`` is shared
    by all who carry it on.
    """

    signal: str
    encoding: str
    body: bytes
    size: Size | None = None


class Event:
    """An envelope, the position of its item in the request it came with, and its resource.

    Events of one resource share the mapping. ``told``: whether the sender is told what became of
    it; what only our own signal mappings made is in no receipt (contract, section 3). Of
    ``unfolded`` events the envelope, the one at ``place``, is made when somebody looks at it:
    mostly its bytes and its id are all that is wanted.
    """

    __slots__ = ("_made", "item", "place", "resource", "told", "unfolded")

    def __init__(
        self,
        item: int,
        resource: Mapping[str, object],
        made: Envelope | Unfolded,
        told: bool = True,  # noqa: FBT001, FBT002 - one a span: by name it costs more
        place: int = 0,
    ) -> None:
        self.item = item
        self.resource = resource
        self._made = made
        self.told = told
        self.place = place
        self.unfolded = made if type(made) is Unfolded else None

    @property
    def envelope(self) -> Envelope:
        """The envelope."""
        made = self._made
        return made.folded()[self.place] if isinstance(made, Unfolded) else made

    @property
    def event_id(self) -> str:
        """Its event id."""
        made = self._made
        return made.event_id(self.place) if isinstance(made, Unfolded) else made.event_id

    @property
    def given(self) -> Mapping[str, object]:
        """What it carries, but for what a default or folding adds."""
        made = self._made
        return made.given() if isinstance(made, Unfolded) else made.attributes


class Envelopes(Sequence[Envelope]):
    """The envelopes of events, each made when it is looked at."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events

    def __len__(self) -> int:
        return len(self._events)

    @overload
    def __getitem__(self, place: int) -> Envelope: ...
    @overload
    def __getitem__(self, place: slice) -> list[Envelope]: ...
    def __getitem__(self, place: int | slice) -> Envelope | list[Envelope]:
        if isinstance(place, slice):
            return [each.envelope for each in self._events[place]]
        return self._events[place].envelope


class Events(NamedTuple):
    """What a ``flowmark`` connector made of a request, or read in one.

    ``source`` is that request: a letter needs the untouched input.
    """

    source: Telemetry
    events: tuple[Event, ...]


class Letter(NamedTuple):
    """What failed at a node and was routed to its error port (C6).

    ``attempts`` counts tries, from 1; ``exception`` is an error name of section 9; ``node`` the id
    of the component. ``input`` holds the items that failed and nothing else, untouched;
    secrets in it are replaced where it is written.
    """

    attempts: int
    exception: str
    message: str
    node: str
    time_unix_nano: int
    input: Telemetry


class Letters(NamedTuple):
    """What flows in a pipeline that receives from an ``errors`` connector."""

    letters: tuple[Letter, ...]


Payload: TypeAlias = Telemetry | Events | Letters


def size_of(payload: Payload) -> int:
    """How many spans, log records, events or letters there are; counted where nobody did."""
    if not isinstance(payload, Telemetry):
        return len(payload.events if isinstance(payload, Events) else payload.letters)
    size = payload.size or Size()
    if not size.items:
        with suppress(Unparsable):
            size.items = cut.count(payload.body, encoding=payload.encoding, signal=payload.signal)
    return size.items
