"""The events of a request; those of a span that nobody looks at stay together as they came."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar, cast, final, overload

from flowmark_otel.fast import Unfolded
from flowmark_otel.fast.layouts import Received
from flowmark_otel.model import Envelope

_Made = TypeVar("_Made")

Quick: TypeAlias = Unfolded | Received
"""Both events of a span that took the fast path."""


@final
class Event:
    """An envelope, the position of its item in the request it came with, and its resource.

    Events of one resource share the mapping. ``told``: whether the sender is told what became of
    it; what only our own signal mappings made is in no receipt (contract, section 3). Of unfolded
    events the envelope, the one at ``place``, is made when somebody looks at it: mostly its id is
    all that is wanted.
    """

    __slots__ = ("_made", "item", "place", "resource", "told")

    def __init__(
        self,
        item: int,
        resource: Mapping[str, object],
        made: Envelope | Quick,
        *,
        told: bool = True,
        place: int = 0,
    ) -> None:
        self.item = item
        self.resource = resource
        self._made = made
        self.told = told
        self.place = place

    @property
    def envelope(self) -> Envelope:
        """The envelope."""
        made = self._made
        return made if isinstance(made, Envelope) else made.folded()[self.place]

    @property
    def event_id(self) -> str:
        """Its event id."""
        made = self._made
        return made.event_id if isinstance(made, Envelope) else made.event_id(self.place)

    @property
    def given(self) -> Mapping[str, object]:
        """What it carries, but for what a default or folding adds."""
        made = self._made
        return made.attributes if isinstance(made, Envelope) else made.given()


class Row(Sequence[Event]):
    """Events in their order. ``parts``: single ones, and unfolded ones as they are, all told.

    An event of the latter is made when somebody looks at it; part of a row is a row of single ones.
    ``told``: how many of them the sender is told of.
    """

    __slots__ = ("_events", "_made", "parts", "size", "told")

    def __init__(self, parts: Sequence[Event | Quick]) -> None:
        self.parts = parts
        self.size = self.told = 0
        for part in parts:
            if type(part) is Event:
                self.size += 1
                self.told += part.told
            else:
                self.size += part.size
                self.told += part.size
        self._events: list[Event] | None = None
        self._made: dict[Callable[[Row], object], object] = {}

    def made(self, make: Callable[[Row], _Made]) -> _Made:
        """What a pure function makes of it, which it is asked for once."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast("_Made", self._made[make])

    def was_made(self, make: Callable[[Row], object]) -> bool:
        """Whether ``made`` has it already."""
        return make in self._made

    def of_told(self, *, told: bool) -> Row:
        """Those the sender is told of, or the others."""
        if self.told == (self.size if told else 0):
            return self
        return Row([part for part in self.parts if (type(part) is not Event or part.told) is told])

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events or _each(self.parts))

    @overload
    def __getitem__(self, place: int) -> Event: ...
    @overload
    def __getitem__(self, place: slice) -> Row: ...
    def __getitem__(self, place: int | slice) -> Event | Row:
        found = self._events
        if found is None:
            found = self._events = list(_each(self.parts))
        return Row(found[place]) if isinstance(place, slice) else found[place]


def _each(parts: Sequence[Event | Quick]) -> Iterator[Event]:
    for part in parts:
        if type(part) is Event:
            yield part
        else:
            for place in range(part.size):
                yield Event(part.item, part.resource, part, place=place)


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
