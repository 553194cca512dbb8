"""Sender, hop and backend of the delivery model: the real parts, without their threads.

Time is a ``FakeClock``'s, and every request goes over a ``Link``, which does to it what its script
says next. What dies is opened again on the files that it left.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from http import HTTPStatus
from pathlib import Path
from typing import Final, Protocol, TypeAlias, cast

from flowmark_otel import names
from flowmark_otel.backend.accept import Acceptor
from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.status import states
from flowmark_otel.backend.store import open_store
from flowmark_otel.clock import Clock
from flowmark_otel.collector.element import ElementError
from flowmark_otel.collector.exporters.custody import Custody
from flowmark_otel.collector.exporters.peer import PeerTransport
from flowmark_otel.collector.exporters.spooling import SpoolElement, Watched
from flowmark_otel.collector.exporters.watch import Watch
from flowmark_otel.collector.joining import receipt_of
from flowmark_otel.collector.meter import NodeMeter
from flowmark_otel.collector.payload import Event, Events, Telemetry
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
from flowmark_otel.fold import digest
from flowmark_otel.listen.protocol import Encoding, Reply, Signal
from flowmark_otel.model import Envelope
from flowmark_otel.testing import FakeClock
from flowmark_otel.testing.transport import Request
from flowmark_otel.wire import outcome
from flowmark_otel.wire.encode import encode_logs
from flowmark_otel.wire.reply import judged
from tests.support.loop import LoopThread

TYPE: Final = "application/x-protobuf"
RESOURCE: Final = {"service.name": "crm"}
MAX_BYTES: Final = 1 << 18  # so small that histories fill segments and begin others
LIMITS: Final = Limits(timeout=2.0, first_wait=0.2, longest_wait=2.0, pause=5.0)

Known: TypeAlias = tuple[str, str]
"""An event id, and the digest of its payload in hex."""

Note: TypeAlias = Callable[[Sequence[Envelope], Judgement], None]
"""Is told what an answer said of events."""


class Point(Enum):
    """Where the one who is asked dies; ``NEVER``: it answers."""

    NEVER = "never"
    BEFORE_COMMIT = "before commit"
    AFTER_COMMIT = "after commit, before the reply"


class Fault(Enum):
    """What happens to one request."""

    NONE = "none"
    LOST = "it does not arrive"
    NO_REPLY = "its answer is lost"
    TWICE = "it arrives twice"
    LATE = "it arrives later, when nobody waits for it"
    STRIPPED = "its answer comes without the receipt"
    SWALLOWED = "a stock server takes it"
    BUSY = "503 with a time to wait"
    KILLED_BEFORE_COMMIT = "who is asked dies before commit"
    KILLED_AFTER_COMMIT = "who is asked dies after commit, before the reply"
    SENDER_DIES_BEFORE = "the sender dies, nothing was sent"
    SENDER_DIES_WAITING = "the sender dies, it was judged"
    SENDER_DIES_ANSWERED = "the sender dies with the answer, before it noted it"


_STOCK: Final = Answer(HTTPStatus.OK, b"", {"content-type": TYPE})
"""A success without a receipt."""

_DEATHS: Final = {
    Fault.KILLED_BEFORE_COMMIT: Point.BEFORE_COMMIT,
    Fault.KILLED_AFTER_COMMIT: Point.AFTER_COMMIT,
}


class Died(BaseException):
    """The sender was killed here; no handler of faults sees it."""


class Asked(Protocol):
    """Who answers requests."""

    def answer(self, body: bytes, point: Point) -> Answer:
        """Judge one request, or die on the way. Raises NoAnswer."""
        ...

    def states(self, event_ids: Sequence[str]) -> list[EventStatus]:
        """What became of events. Raises NoAnswer."""
        ...


class Link:
    """Implements ``Transport``: a way to ``to``, which can change; ``script`` is used up."""

    encoding = "protobuf"

    def __init__(self, to: Asked, clock: FakeClock, late: list[tuple[Asked, bytes]]) -> None:
        self.to = to
        self.script: deque[Fault] = deque()
        self.doomed = False  # dies once it has the answer
        self._clock = clock
        self._late = late

    def send(self, body: bytes, content_type: str, timeout: float) -> Answer:
        """The answer, or what the script makes of it."""
        assert content_type == TYPE
        fault = self.script.popleft() if self.script else Fault.NONE
        if fault is Fault.SENDER_DIES_BEFORE:
            raise Died
        if fault is Fault.BUSY:
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, b"", {"retry-after": "1"})
        if fault is Fault.SWALLOWED:
            return _STOCK
        if fault is Fault.LATE:
            self._late.append((self.to, body))
        if fault in (Fault.LOST, Fault.LATE):
            self._clock.advance(timeout)
            raise NoAnswer(fault.value, names.REASON_TIMEOUT)
        if fault is Fault.TWICE:
            self.to.answer(body, Point.NEVER)
        answer = self.to.answer(body, _DEATHS.get(fault, Point.NEVER))
        if fault is Fault.NO_REPLY:
            self._clock.advance(timeout)
            raise NoAnswer(fault.value, names.REASON_TIMEOUT)
        if fault is Fault.SENDER_DIES_WAITING:
            raise Died
        self.doomed = fault is Fault.SENDER_DIES_ANSWERED
        return _STOCK if fault is Fault.STRIPPED else answer

    def status(self, event_ids: Sequence[str], timeout: float) -> list[EventStatus]:  # noqa: ARG002
        """What became of events."""
        return self.to.states(event_ids)

    def after_fork(self) -> None:
        """Nothing forks."""

    def close(self) -> None:
        """Nothing is open."""


class Backend:
    """The acceptor on a real store; ``up`` says whether it can be reached."""

    def __init__(self, url: str, clock: FakeClock, loop: LoopThread) -> None:
        self._url = url
        self._clock = clock
        self._loop = loop
        self.up = True
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
        """Be opened on the files as they are, and be away until it is brought ``up``."""
        self.close()
        self._open()
        self.up = False

    def close(self) -> None:
        """The acceptor first, then the store."""
        self._acceptor.close()
        self.store.close()

    def answer(self, body: bytes, point: Point) -> Answer:
        """Judge a request in a transaction, which is rolled back if it dies before commit."""
        self._look()
        if point is Point.BEFORE_COMMIT:
            self._fail_before_commit()
        try:
            reply = self._loop.run(
                self._acceptor.accept(Signal.LOGS, Encoding.PROTOBUF, body, self._anyone, "ua/1")
            )
        except _BeforeCommit as error:
            self.dies()
            raise NoAnswer(point.value) from error
        if point is not Point.NEVER:
            self.dies()
            raise NoAnswer(point.value)
        return _answered(reply)

    def _fail_before_commit(self) -> None:
        """Have the next transaction write all it writes, and go no further."""
        (session,) = self.store._writer._sessions
        write = session._transactions.judge_and_write

        def fail(*given: object, **more: object) -> None:
            write(*given, **more)  # type: ignore[arg-type]
            raise _BeforeCommit

        session._transactions.judge_and_write = fail  # type: ignore[method-assign,assignment]

    def states(self, event_ids: Sequence[str]) -> list[EventStatus]:
        """What the store says."""
        self._look()
        return self.known(event_ids)

    def known(self, event_ids: Sequence[str]) -> list[EventStatus]:
        """What the store says to one who can open it."""
        found = states(self.store, self._anyone.project_id, self._anyone.origin, list(event_ids))
        return [EventStatus(each, state, hex_ or "") for each, state, hex_, _ in found]

    def _look(self) -> None:
        if not self.up:
            msg = "the backend is away"
            raise NoAnswer(msg)


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
            answer = Answer(HTTPStatus.SERVICE_UNAVAILABLE, b"", {"retry-after": "1"})
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
        self.up = True
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
        if not self.up:
            msg = "the hop is away"
            raise NoAnswer(msg)
        source = Telemetry("logs", "protobuf", body)
        envelopes = Request(body, TYPE, 1.0).events
        events = tuple(Event(item, RESOURCE, each) for item, each in enumerate(envelopes))
        if point is Point.BEFORE_COMMIT:
            self.custody._append(events)
            self.dies(power_cut=True)
            raise NoAnswer(point.value)
        try:
            taken = self._loop.run(self._element.take(Events(source, events), 1.0))
        except ElementError as error:
            wait = {"retry-after": "1"}
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, b"", wait, message=str(error))
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
        """Lose memory, and with the power what was not synced; begin again, away until ``up``."""
        for segment in self.spool.shelf._segments:
            synced = max(segment.synced, self._synced.get(segment.name, 0))
            self._synced[segment.name] = synced
            if power_cut:
                os.truncate(segment.name, min(synced, segment.written))
        self.spool.shelf.forget()
        self.open()
        self.up = False


class _Watch:
    """What a watch knows that asks all the time."""

    why = "the backend does not acknowledge attempts, or is away"

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def capable(self) -> bool:
        """Whether it acknowledges attempts."""
        return self._backend.up and self._backend.capable


def _answered(reply: Reply) -> Answer:
    return Answer(outcome.ANSWERS[reply.outcome].http, reply.body, {"content-type": TYPE})


def known(event: Envelope) -> Known:
    """By what the model knows an event."""
    return event.event_id, digest(event).hex()
