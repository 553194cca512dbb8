"""The spool as the client's backlog: events on disk before the recording call returns (E1).

Where the disk refuses an event it waits in memory, in its place in the order, and that is reported
once. Who flushes counts settled events and relies on the order, so what this process recorded is
handed out as it was recorded, whatever held it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.clock import Clock
from flowmark_otel.deliver import forks
from flowmark_otel.deliver.batch import Recorded
from flowmark_otel.deliver.spool import codec
from flowmark_otel.deliver.spool.keeper import Keeper
from flowmark_otel.deliver.spool.quarantine import UNREADABLE
from flowmark_otel.deliver.spool.segment import Record
from flowmark_otel.deliver.spool.spool import MAX_BYTES, Spool, SpoolFull
from flowmark_otel.model import Diagnostic, Envelope

MEMORY_LIMIT: Final = 2048
"""Events that wait in memory while the disk refuses them."""

_TYPICAL_BYTES: Final = 1024
_MAX_RESOURCES: Final = 16


class _Held(NamedTuple):
    """An event that only memory has; it comes after the first ``after`` events of the spool."""

    recorded: Recorded
    after: int


class SpoolBacklog:
    """Implements ``Backlog``; a thread syncs and adopts, begun at once.

    ``on_found`` is called when another process left something to deliver; ``report`` as for
    ``Spool``. Raises ConfigurationError for a folder that cannot be used.
    """

    state = names.SPOOLED
    durable = True
    full_reason = names.REASON_SPOOL_FULL

    def __init__(
        self,
        directory: Path,
        *,
        clock: Clock,
        report: Callable[[Diagnostic], object],
        on_found: Callable[[], object] = lambda: None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.spool = Spool(
            directory,
            clock=clock,
            report=report,
            on_append=self._on_append,
            max_bytes=max_bytes,
        )
        self._keeper = Keeper(self.spool, clock, on_found)
        self._begin_anew()
        forks.register(self)
        self._keeper.start()

    def _on_append(self) -> None:
        self._keeper.appended()

    def _begin_anew(self) -> None:
        self._process = self.spool.process
        # Replaced, never changed, so that any thread may read it without a lock.
        self._encoded: tuple[Mapping[str, object], bytes] | None = None
        self._decoded: dict[bytes, Mapping[str, object]] = {}
        self._adopted_next = False
        self._adopted_out = False  # set before anything leaves the shelf: see ``inherited``
        # Owned by the one thread that takes; appended to by those that record.
        self._memory: deque[_Held] = deque()
        self._taken = 0

    # -- recording ------------------------------------------------------------------------------
    def put(self, events: Sequence[Envelope], resource: Mapping[str, object]) -> int:
        """Take events with one write; all of them, or none if the spool is full."""
        try:
            prefix = self._prefix(resource)
            self.spool.append([prefix + codec.encode_envelope(event) for event in events])
        except SpoolFull:
            return 0
        except (OSError, RecursionError, TypeError, ValueError) as error:  # or no encoding for it
            return self._keep_in_memory(events, resource, error)
        self.spool.shelf.well("append")
        return len(events)

    def _prefix(self, resource: Mapping[str, object]) -> bytes:
        known = self._encoded
        if known is None or known[0] is not resource:
            known = self._encoded = (resource, codec.encode_resource(resource))
        return known[1]

    def _keep_in_memory(
        self, events: Sequence[Envelope], resource: Mapping[str, object], error: Exception
    ) -> int:
        room = max(MEMORY_LIMIT - len(self._memory), 0)
        after = self.spool.appended
        taken = events[:room]
        self._memory.extend(_Held(Recorded(event, resource), after) for event in taken)
        self.spool.shelf.fell_ill("append", f"events are kept in memory alone: {error}")
        return len(taken)

    # -- delivering -----------------------------------------------------------------------------
    def take(self, limit: int) -> SpoolHandout | None:
        """The oldest events of one resource: of this process and of dead ones in turns."""
        self._adopted_next = not self._adopted_next
        if self._adopted_next:
            return self._take_adopted(limit) or self._take_own(limit)
        return self._take_own(limit) or self._take_adopted(limit)

    def _take_adopted(self, limit: int) -> SpoolHandout | None:
        self._adopted_out = True
        handout = self._take_spooled(limit, adopted=True)
        self._adopted_out = handout is not None
        return handout

    def _take_own(self, limit: int) -> SpoolHandout | None:
        if not self._memory:
            return self._take_spooled(limit, adopted=False)
        before = self._memory[0].after - self._taken
        if before > 0:
            handout = self._take_spooled(min(limit, before), adopted=False)
            if handout is not None:
                return handout
        return self._take_memory(limit)

    def _take_memory(self, limit: int) -> SpoolHandout:
        first = self._memory[0]
        found: list[_Held] = []
        while self._memory and len(found) < limit:
            held = self._memory[0]
            if held.recorded.resource is not first.recorded.resource or held.after != first.after:
                break
            found.append(self._memory.popleft())
        events = [each.recorded.event for each in found]
        return SpoolHandout(self, events, first.recorded.resource, [], found)

    def _take_spooled(self, limit: int, *, adopted: bool) -> SpoolHandout | None:
        """Records of one resource, decoded; those that cannot be are set aside."""
        part = b""

        def same_resource(payload: bytes) -> bool:
            nonlocal part
            try:
                found = codec.resource_part(payload)
            except codec.Unreadable:
                return True
            part = part or found
            return found == part

        while True:
            records = self.spool.shelf.take(limit, same_resource, adopted=adopted)
            if not records:
                return None
            handout = self._decode(records, adopted=adopted)
            if handout is not None:
                return handout

    def _decode(self, records: Sequence[Record], *, adopted: bool) -> SpoolHandout | None:
        events: list[Envelope] = []
        resource: Mapping[str, object] = {}
        kept: list[Record] = []
        unreadable: list[Record] = []
        fault = ""
        for record in records:
            found = self._recorded(record.payload)
            if isinstance(found, Recorded):
                events.append(found.event)
                resource = found.resource
                kept.append(record)
            else:
                unreadable.append(record)
                fault = str(found)
        if unreadable:
            self.spool.shelf.set_aside(unreadable, UNREADABLE)
            self.spool.shelf.tell(
                names.DIAGNOSTIC_SPOOL_DAMAGED,
                f"{len(unreadable)} records cannot be read and were set aside: {fault}",
            )
        if not adopted:
            self._taken += len(records)
        return SpoolHandout(self, events, resource, kept, [], adopted=adopted) if events else None

    def _recorded(self, payload: bytes) -> Recorded | codec.Unreadable:
        try:
            part = codec.resource_part(payload)
            resource = self._resource(part)
            return Recorded(codec.decode_envelope(payload, len(part)), resource)
        except codec.Unreadable as error:
            return error

    def _resource(self, part: bytes) -> Mapping[str, object]:
        """The same mapping object for the same resource, so that batches stay together."""
        found = self._decoded.get(part)
        if found is None:
            found = codec.decode_resource(part)
            if len(self._decoded) >= _MAX_RESOURCES:
                self._decoded.clear()
            self._decoded[part] = found
        return found

    def adopted_done(self) -> None:
        """What was handed out of others' events is done, or waits again."""
        self._adopted_out = False

    def put_back(self, records: Sequence[Record], held: Sequence[_Held]) -> None:
        """Let what a handout still has wait again, in front."""
        self.spool.shelf.again(records)
        self._taken -= sum(not record.adopted for record in records)
        self._memory.extendleft(reversed(held))

    # -- state ----------------------------------------------------------------------------------
    def waiting(self) -> int:
        """How many events wait: what memory holds, and an estimate from the spool's bytes."""
        shelf = self.spool.shelf
        spooled = shelf.waiting(adopted=False) + shelf.waiting(adopted=True)
        return len(self._memory) - (-spooled // _TYPICAL_BYTES)

    def inherited(self) -> bool:
        """Whether anything that dead processes left behind is not done; looks for more of it."""
        # The keeper may adopt while this thread waits to look: then it is there, not found here.
        return self._holds_adopted() or self.spool.shelf.adopt() or self._holds_adopted()

    def _holds_adopted(self) -> bool:
        # In this order: a batch is out before it stops waiting.
        return self.spool.shelf.waiting(adopted=True) > 0 or self._adopted_out

    def in_memory(self) -> int:
        """How many events wait that only memory has: they are queued rather than spooled."""
        return len(self._memory)

    def ids(self, limit: int) -> list[str]:
        """The ids of the oldest events of this process that are not done, spooled ones first."""
        # What cannot be read is set aside, and that is said, when it is handed out.
        spooled = [self._recorded(each) for each in self.spool.shelf.peek(limit)]
        waiting = [each for each in spooled if isinstance(each, Recorded)]
        waiting += [held.recorded for held in list(self._memory)]
        return [each.event.event_id for each in waiting[:limit]]

    # -- ends -----------------------------------------------------------------------------------
    def after_fork(self) -> None:
        """In a child: with a spool, a thread and a segment of its own once it records."""
        self.spool.after_fork()
        if self._process != self.spool.process:
            self._keeper.forget()
            self._begin_anew()

    def close(self) -> None:
        """End the thread, sync, let go of the files; what is not settled stays there."""
        self._keeper.stop()
        self.spool.close()


class SpoolHandout:
    """A batch of one resource; positions are those in ``events``."""

    def __init__(
        self,
        backlog: SpoolBacklog,
        events: Sequence[Envelope],
        resource: Mapping[str, object],
        records: Sequence[Record],
        held: Sequence[_Held],
        *,
        adopted: bool = False,
    ) -> None:
        self.events = events
        self.resource = resource
        self.adopted = adopted
        self._backlog = backlog
        self._records = records
        self._held = held
        self._left = set(range(len(events)))

    def event_id(self, position: int) -> str:
        """The id of one of them."""
        return self.events[position].event_id

    def done(self, positions: Iterable[int]) -> None:
        """Remove the events at these positions for good."""
        self._backlog.spool.shelf.settle(self._settled(positions))
        if not self._left:
            self._let_go()

    def set_aside(self, positions: Iterable[int]) -> None:
        """Remove events that were not acknowledged, and keep them for an operator to replay."""
        records = self._settled(positions)
        self._backlog.spool.shelf.set_aside(records, names.UNACKNOWLEDGED)

    def again(self) -> None:
        """Put back what is not done."""
        left = sorted(self._left)
        self._left = set()
        self._backlog.put_back(
            [self._records[each] for each in left if self._records],
            [self._held[each] for each in left if self._held],
        )
        self._let_go()

    def _let_go(self) -> None:
        if self.adopted:
            self._backlog.adopted_done()

    def _settled(self, positions: Iterable[int]) -> list[Record]:
        settled = sorted(self._left.intersection(positions))
        self._left.difference_update(settled)
        return [self._records[each] for each in settled if self._records]
