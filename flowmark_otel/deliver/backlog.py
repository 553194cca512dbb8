"""What waits for its delivery: the protocol of queue and spool, and the queue in memory.

Nothing is removed before its acknowledgement: a backlog hands out a batch and keeps it until told
what became of every event in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from flowmark_otel import names
from flowmark_otel.deliver.batch import Batch, Recorded
from flowmark_otel.fast import Unfolded
from flowmark_otel.model import Envelope


class Handout(Protocol):
    """A batch of one resource, in the order recorded, that the backlog still keeps.

    Either this process recorded all of it, or others did.
    """

    @property
    def events(self) -> Sequence[Envelope]:
        """What was handed out; never empty."""
        ...

    def event_id(self, position: int) -> str:
        """The id of one of them."""
        ...

    @property
    def resource(self) -> Mapping[str, object]:
        """The attributes of the resource of all of it."""
        ...

    @property
    def adopted(self) -> bool:
        """Whether other processes recorded it."""
        ...

    def done(self, positions: Iterable[int]) -> None:
        """Remove the events at these positions for good: each has its final state."""
        ...

    def set_aside(self, positions: Iterable[int]) -> None:
        """As ``done``, for events that were not acknowledged: a durable backlog keeps a copy."""
        ...

    def again(self) -> None:
        """Put back what is not done, in front of all else and in its order."""
        ...


class Backlog(Protocol):
    """Events in the order recorded. Any thread may call; none of it waits for the network.

    ``state`` is what the counts call an event in it: ``queued`` or ``spooled``. ``durable`` says
    whether it outlives the process.
    """

    @property
    def state(self) -> str:
        """``names.QUEUED`` or ``names.SPOOLED``."""
        ...

    @property
    def durable(self) -> bool:
        """Whether what it holds survives the end of this process."""
        ...

    @property
    def full_reason(self) -> str:
        """Why an event that found no room is dropped: ``queue_full`` or ``spool_full``."""
        ...

    def put(self, events: Sequence[Envelope], resource: Mapping[str, object]) -> int:
        """Take events of one resource, the same mapping object for all of one provider.

        Returns how many were taken, from the front; the others found no room.
        """
        ...

    def take(self, limit: int) -> Handout | None:
        """The oldest events, at most ``limit``, of one resource; None if none wait."""
        ...

    def waiting(self) -> int:
        """How many events wait, without those handed out; cheap, may be an estimate."""
        ...

    def inherited(self) -> bool:
        """Whether anything that dead processes left behind is not done; looks for more of it."""
        ...

    def in_memory(self) -> int:
        """How many of the events that are not done would be lost with this process."""
        ...

    def ids(self, limit: int) -> list[str]:
        """The ids of the oldest events that are not done, handed out ones included."""
        ...

    def after_fork(self) -> None:
        """In a child: forget what the parent recorded, who delivers it; replace the locks."""
        ...

    def close(self) -> None:
        """Let go of files; what a durable one holds stays there."""
        ...


class Queue:
    """The backlog in memory, about ``limit`` events; handed out ones take room too.

    It has no lock: any thread appends, one takes, and each step of either is atomic. So a signal
    handler that records, or flushes, on the thread it met cannot block the one that sends. Threads
    that record at the same moment may pass the limit by what each of them adds.

    Events of a span that nobody looks at stay together as they came, and are looked at when they
    have to be: None follows for each event after the first, so that every event takes one place.
    """

    state = names.QUEUED
    durable = False
    full_reason = names.REASON_QUEUE_FULL

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._places: deque[Recorded | Unfolded | None] = deque()
        # Written by the thread that takes, alone.
        self._out: _QueueHandout | None = None
        self._held_out = 0

    def put(self, events: Sequence[Envelope], resource: Mapping[str, object]) -> int:
        """Take as many as there is room for."""
        room = self._limit - len(self._places) - self._held_out
        if type(events) is Unfolded and events.size <= room:
            events.resource = resource
            if events.size == 1:
                self._places.append(events)
            else:
                self._places.extend((events, None))
            return events.size
        taken = events[: max(room, 0)]
        self._places.extend([Recorded(event, resource) for event in taken])
        return len(taken)

    def take(self, limit: int) -> _QueueHandout | None:
        """The oldest events of one resource, by identity of its mapping.

        Events that came together and stay so are not divided: there may be more of them.
        """
        places = self._places
        oldest = places[0] if places else None
        if oldest is None:
            return None
        resource = oldest.resource
        found: list[Recorded | Unfolded] = []
        number = 0
        while places and number < limit:
            first = places[0]
            if first is None or first.resource is not resource:
                break
            size = first.size if type(first) is Unfolded else 1
            self._held_out += size
            found.append(first)
            for _ in range(size):
                places.popleft()
            number += size
        self._out = _QueueHandout(self, Batch(found, number), resource)
        return self._out

    def waiting(self) -> int:
        """How many events wait."""
        return len(self._places)

    def inherited(self) -> bool:
        """Memory ends with its process."""
        return False

    def in_memory(self) -> int:
        """All of it."""
        return len(self._places) + self._held_out

    def ids(self, limit: int) -> list[str]:
        """The ids of the oldest events that are not done."""
        out = self._out
        found = [] if out is None else out.ids_left()
        for place in self._copy():
            if len(found) >= limit:
                break
            if place is not None:
                found += (
                    place.event_ids() if isinstance(place, Unfolded) else [place.event.event_id]
                )
        return found[:limit]

    def _copy(self) -> list[Recorded | Unfolded | None]:
        while True:
            with suppress(RuntimeError):  # it changed meanwhile
                return list(self._places)

    def after_fork(self) -> None:
        """Empty: what is in it is the parent's."""
        self._begin_anew()

    def close(self) -> None:
        """Holds nothing that has to be let go of."""

    def settled(self, handout: _QueueHandout, number: int) -> None:
        """Give the room of settled events back; a handout from before a fork is the parent's."""
        if handout is self._out:
            self._held_out -= number

    def put_back(self, handout: _QueueHandout) -> None:
        """Put what is left of a handout in front."""
        if handout is self._out:
            left = handout.left()
            self._out = None
            self._places.extendleft(reversed(left))
            self._held_out -= len(left)


class _QueueHandout:
    """A batch of a queue; belongs to the thread that took it."""

    adopted = False

    def __init__(self, queue: Queue, events: Batch, resource: Mapping[str, object]) -> None:
        self.events = events
        self.resource = resource
        self._queue = queue
        self._done: set[int] = set()

    def event_id(self, position: int) -> str:
        """The id of one of them."""
        return self.events.event_ids()[position]

    def done(self, positions: Iterable[int]) -> None:
        """Remove the events at these positions."""
        before = len(self._done)
        self._done.update(positions)
        self._queue.settled(self, len(self._done) - before)

    def set_aside(self, positions: Iterable[int]) -> None:
        """Remove them too: memory keeps nothing for later."""
        self.done(positions)

    def again(self) -> None:
        """Put back what is not done."""
        self._queue.put_back(self)

    def ids_left(self) -> list[str]:
        """The ids of what is not done, in order."""
        ids = self.events.event_ids()
        return [each for place, each in enumerate(ids) if place not in self._done]

    def left(self) -> list[Recorded]:
        """What is not done, in order."""
        if len(self._done) == len(self.events):
            return []
        return [
            Recorded(event, self.resource)
            for place, event in enumerate(self.events)
            if place not in self._done
        ]
