"""Sender, hop and backend of the delivery model: the real parts, without their threads.

Time is a ``FakeClock``'s, and every request goes over a ``Link``, which does to it what its script
says next. What dies is opened again on the files that it left.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias, cast

from flowmark_otel import names
from flowmark_otel.backend.accept import Acceptor
from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.status import states
from flowmark_otel.backend.store import open_store
from flowmark_otel.clock import Clock
from flowmark_otel.collector.element import ElementError
from flowmark_otel.collector.events import Event, Row
from flowmark_otel.collector.exporters.custody import Custody
from flowmark_otel.collector.exporters.peer import PeerTransport
from flowmark_otel.collector.exporters.spooling import SpoolElement, Watched
from flowmark_otel.collector.exporters.watch import Watch
from flowmark_otel.collector.joining import receipt_of
from flowmark_otel.collector.meter import NodeMeter
from flowmark_otel.collector.payload import Events, Telemetry
from flowmark_otel.collector.plan import Kind
from flowmark_otel.config.client import ClientOptions
from flowmark_otel.deliver import Delivery
from flowmark_otel.deliver.courier import Courier
from flowmark_otel.deliver.judge import Judgement
from flowmark_otel.deliver.limits import Limits
from flowmark_otel.deliver.pace import Flags, Pace, Progress
from flowmark_otel.deliver.reporter import Reporter
from flowmark_otel.deliver.sender import Sender
from flowmark_otel.deliver.spool import Spool, SpoolBacklog
from flowmark_otel.deliver.transport import Answer, EventStatus, NoAnswer, Transport
from flowmark_otel.errors import Unavailable
from flowmark_otel.fold import digest
from flowmark_otel.listen.protocol import Encoding, Reply, Signal
from flowmark_otel.model import Envelope
from flowmark_otel.testing import FakeClock
from flowmark_otel.testing.transport import Request
from flowmark_otel.wire import outcome
from flowmark_otel.wire.encode import encode_logs
from flowmark_otel.wire.reply import judged
from tests.support.faulty import TYPE, Died, Link, Point, Reach, busy
from tests.support.loop import LoopThread

RESOURCE: Final = {"service.name": "crm"}
MAX_BYTES: Final = 1 << 18  # so small that histories fill segments and begin others
LIMITS: Final = Limits(timeout=2.0, first_wait=0.2, longest_wait=2.0, pause=5.0)

Known: TypeAlias = tuple[str, str]
"""An event id, and the digest of its payload in hex."""

Note: TypeAlias = Callable[[Sequence[Envelope], Judgement], None]
"""Is told what an answer said of events."""


class Backend:
    """The acceptor on a real store; ``up`` says whether it can be reached."""

    def __init__(self, url: str, clock: FakeClock, loop: LoopThread) -> None:
        self._url = url
        self._clock = clock
        self._loop = loop
        self.up = Reach(clock)
        self.capable = True
        self._open()

    def _open(self) -> None:
        self.store = open_store(self._url, clock=self._clock)
        capabilities = (names.CAPABILITY,) if self.capable else ()
        self._acceptor = Acceptor(
            self.store, Keys(self.store), insecure=True, capabilities=capabilities
        )
        self._anyone = self._acceptor.authenticate(None)

    def become(self, *, capable: bool) -> None:
        """Begin an epoch with or without the capability."""
        self.close()
        self.capable = capable
        self._open()

    def dies(self) -> None:
        """Be opened on the files as they are, and be away for a while."""
        self.close()
        self._open()
        self.up.died()

    def close(self) -> None:
        """The acceptor first, then the store."""
        self._acceptor.close()
        self.store.close()

    def answer(self, body: bytes, point: Point) -> Answer:
        """Judge a request in a transaction, which is rolled back if it dies before commit."""
        self.up.check()
        if point in (Point.BEFORE_COMMIT, Point.NOWHERE):
            self._fail_before_commit(_BeforeCommit() if point is Point.BEFORE_COMMIT else _full())
        try:
            reply = self._loop.run(
                self._acceptor.accept(Signal.LOGS, Encoding.PROTOBUF, body, self._anyone, "ua/1")
            )
        except _BeforeCommit as error:
            self.dies()
            raise NoAnswer(point.value) from error
        except Unavailable as error:
            return busy(str(error))
        if point in (Point.BEFORE_COMMIT, Point.AFTER_COMMIT):
            self.dies()
            raise NoAnswer(point.value)
        return _answered(reply)

    def _fail_before_commit(self, error: Exception) -> None:
        """Have the next transaction write all it writes, and go no further."""
        (session,) = self.store._writer._sessions
        write = session._transactions.judge_and_write

        def fail(*given: object, **more: object) -> None:
            write(*given, **more)  # type: ignore[arg-type]
            session._transactions.judge_and_write = write  # type: ignore[method-assign]
            raise error

        session._transactions.judge_and_write = fail  # type: ignore[method-assign,assignment]

    def states(self, event_ids: Sequence[str]) -> list[EventStatus]:
        """What the store says."""
        self.up.check()
        return self.known(event_ids)

    def known(self, event_ids: Sequence[str]) -> list[EventStatus]:
        """What the store says to one who can open it."""
        found = states(self.store, self._anyone.project_id, self._anyone.origin, list(event_ids))
        return [EventStatus(each, state, hex_ or "") for each, state, hex_, _ in found]


class _BeforeCommit(Exception):
    """The backend was killed with its transaction open."""


class Passing:
    """A hop that keeps nothing: it adds to the resource, and answers as it is answered."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def answer(self, body: bytes, point: Point) -> Answer:
        """Hand it on; without an answer to give it asks to try again."""
        if point is Point.BEFORE_COMMIT:
            raise NoAnswer(point.value)
        events = Request(body, TYPE, 1.0).events
        try:
            answer = self._link.send(encode_logs(events, {**RESOURCE, "hop": 1}), TYPE, 1.0)
        except NoAnswer:
            answer = busy("no answer to give")
        except Died as death:  # this hop's own
            raise NoAnswer(str(death)) from death
        if point is Point.AFTER_COMMIT:
            raise NoAnswer(point.value)
        return answer

    def states(self, event_ids: Sequence[str]) -> list[EventStatus]:
        """What the next one says."""
        return self._link.status(event_ids, 1.0)


class Noting(Courier):
    """The client's courier, which has ``note`` know of each judgement, and dies after it."""

    link: Link
    note: Note

    def carry(self, events: Sequence[Envelope], resource: Mapping[str, object]) -> Judgement | None:
        """As the base."""
        judgement = super().carry(events, resource)
        if judgement is not None:
            self.note(events, judgement)
            if self.link.doomed:
                self.link.doomed = False
                raise Died
        return judgement


def pace_on(clock: FakeClock) -> Pace:
    """The pace of a sender whose waits move the clock; batches so small that there are several."""
    return Pace(limits=LIMITS, batch=8, linger=0.0, jitter=lambda: 0.5, wait=clock.wait)


class Life(Delivery):
    """One process of an application: the client's delivery on a spool, sending where it flushes."""

    def __init__(
        self,
        folder: Path,
        clock: FakeClock,
        link: Link,
        note: Note,
    ) -> None:
        self._link = link
        self._note = note
        self.backlog = SpoolBacklog(folder, clock=clock, report=print, max_bytes=MAX_BYTES)
        self.backlog.spool.shelf.adopt()
        super().__init__(
            ClientOptions(timeout=2000),
            clock=clock,
            transport=link,
            backlog=self.backlog,
            on_diagnostic=lambda _: None,
            pace=pace_on(clock),
        )

    def _start(self) -> bool:
        return False

    def _new_sender(self) -> Sender:
        courier = Noting(
            self._opened_transport,
            self._reporter,
            self._clock,
            self._pace,
            self._flags,
            self._progress,
        )
        courier.link, courier.note = self._link, self._note
        return Sender(self.backlog, courier, self._ledger, self._reporter, self._pace, self._flags)


class Hop:
    """A collector's exporter on a spool: it takes custody, and delivers when it is told."""

    def __init__(
        self,
        folder: Path,
        clock: FakeClock,
        loop: LoopThread,
        link: Link,
        backend: Backend,
        note: Note,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._loop = loop
        self._link = link
        self._backend = backend
        self._synced: dict[Path, int] = {}  # of segments whose process was killed
        self._note = note
        self.up = Reach(clock)
        self.taken = 0  # events that are, or were, in its spool
        self.settled = 0  # by processes that died
        self.open()

    def open(self) -> None:
        """Begin a process, which adopts what others left."""
        watch = cast("Watch", _Watch(self._backend))
        self.custody = Custody(
            self._folder,
            MAX_BYTES,
            Watched(cast("PeerTransport", self._link), watch),
            self._clock,
            lambda _: None,
            pace=pace_on(self._clock),
            courier=self._courier,
        )
        meter = NodeMeter(Kind.EXPORTER, "flowmark", self._clock)
        self._element = SpoolElement(self.custody, watch, meter)
        self.spool.shelf.adopt()

    @property
    def spool(self) -> Spool:
        """Where it keeps what it took."""
        return self.custody._backlog.spool

    def _courier(
        self,
        transport: Callable[[], Transport],
        reporter: Reporter,
        clock: Clock,
        pace: Pace,
        flags: Flags,
        progress: Progress,
    ) -> Courier:
        courier = Noting(transport, reporter, clock, pace, flags, progress)
        courier.link, courier.note = self._link, self._note
        return courier

    def answer(self, body: bytes, point: Point) -> Answer:
        """Take custody; a death before commit is one before the sync."""
        self.up.check()
        source = Telemetry("logs", "protobuf", body)
        envelopes = Request(body, TYPE, 1.0).events
        events = Row([Event(item, RESOURCE, each) for item, each in enumerate(envelopes)])
        if point is Point.NOWHERE:
            return busy(point.value)
        if point is Point.BEFORE_COMMIT:
            self.custody._append(events)
            self.taken += len(events)
            self.dies(power_cut=True)
            raise NoAnswer(point.value)
        try:
            taken = self._loop.run(self._element.take(Events(source, events), 1.0))
        except ElementError as error:
            return busy(str(error))
        self.taken += len(events)
        if point is Point.AFTER_COMMIT:
            self.dies(power_cut=True)
            raise NoAnswer(point.value)
        receipt, rejections = receipt_of(taken)
        return _answered(Reply(*judged(receipt, rejections, "protobuf", "logs", bare=0)))

    def states(self, event_ids: Sequence[str]) -> list[EventStatus]:
        """It has what it was asked about, or says nothing."""
        held = self.custody.held(event_ids)
        return [
            EventStatus(each, names.CUSTODY if each in held else names.STATE_UNKNOWN)
            for each in event_ids
        ]

    def deliver(self, seconds: float) -> None:
        """Send on what waits, for at most so long."""
        deadline = self._clock.monotonic() + seconds
        self.custody._sender.run_until(lambda: False, deadline)

    def dies(self, *, power_cut: bool) -> None:
        """Lose memory, and with the power what was not synced; begin again after a while."""
        before = self.left()
        self.settled += self.settled_here()
        for segment in self.spool.shelf._segments:
            synced = max(segment.synced, self._synced.get(segment.name, 0))
            self._synced[segment.name] = synced
            if power_cut:
                os.truncate(segment.name, min(synced, segment.written))
        self.spool.shelf.forget()
        self.open()
        self.taken -= before - self.left()
        self.up.died()

    def left(self) -> int:
        """How many events are in its spool."""
        return len(list(self.spool.shelf.unsettled()))

    def settled_here(self) -> int:
        """How many its process took from the spool for good; its counts add up."""
        recorded, counts = self.custody.counts()
        assert sum(counts.values()) == recorded
        return recorded - counts.get((names.SPOOLED, ""), 0)


class _Watch:
    """What a watch knows that asks all the time."""

    why = "the backend does not acknowledge attempts, or is away"

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def capable(self) -> bool:
        """Whether it acknowledges attempts."""
        return bool(self._backend.up) and self._backend.capable


def _full() -> Exception:
    return OSError(errno.ENOSPC, "no space left")


def _answered(reply: Reply) -> Answer:
    return Answer(outcome.ANSWERS[reply.outcome].http, reply.body, {"content-type": TYPE})


def known(event: Envelope) -> Known:
    """By what the model knows an event."""
    return event.event_id, digest(event).hex()
