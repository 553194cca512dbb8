"""The client's delivery: takes recorded events and answers for every one of them (A22)."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from flowmark_otel import names
from flowmark_otel.clock import Clock, SystemClock
from flowmark_otel.config.client import ClientOptions
from flowmark_otel.deliver import forks
from flowmark_otel.deliver.backlog import Backlog, Queue
from flowmark_otel.deliver.counts import MAX_NAMED, Ledger, Window, joined
from flowmark_otel.deliver.pace import Flags, Pace, Progress
from flowmark_otel.deliver.reporter import OnDiagnostic, Reporter
from flowmark_otel.deliver.transport import Transport
from flowmark_otel.deliver.transports import open_transport, transport_of
from flowmark_otel.deliver.truth import Truth, truth_of
from flowmark_otel.errors import ConfigurationError, DeliveryError
from flowmark_otel.fast import Unfolded
from flowmark_otel.model import Diagnostic, Envelope, Refused

if TYPE_CHECKING:
    from flowmark_otel.deliver.sender import Sender
    from flowmark_otel.deliver.spool import Spool

FLUSH_SECONDS: Final = 30.0

_LOOK_SECONDS: Final = 0.05
"""How soon is noticed that nothing is left of what others left behind."""

_JOIN_SECONDS: Final = 0.5
"""How long ``shutdown`` waits beyond its timeout for a thread that is about to end."""


class Delivery:
    """Implements ``model.Sink``. One daemon thread sends; it is started at the first event.

    ``transport`` replaces the one that the options describe (A25), ``backlog`` the queue in
    memory; both are closed by ``shutdown``. ``on_diagnostic`` is called on the sending thread, or
    on one that flushes; what it raises is caught. Flushing judges every event recorded since the
    flush before. After a fork the child starts with nothing recorded: the parent delivers its own.
    """

    def __init__(
        self,
        options: ClientOptions,
        *,
        clock: Clock | None = None,
        transport: Transport | None = None,
        backlog: Backlog | None = None,
        on_diagnostic: OnDiagnostic | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._transport = transport
        self._reporter = Reporter(self._clock, on_diagnostic)
        self._ready = False  # a spool may find something before all is there
        pace = pace or Pace()
        self._backlog = backlog if backlog is not None else self._new_backlog(pace)
        limits = pace.limits._replace(timeout=options.timeout / 1000)
        if self._backlog.durable:
            limits = limits._replace(budget=None)  # it is kept for as long as it takes
        self._pace = replace(pace, limits=limits)
        self._begin_anew()
        self._ready = True
        forks.register(self)
        if self._backlog.durable:
            self._found()  # what the process before left behind

    def _begin_anew(self) -> None:
        """All that belongs to one process."""
        self._process = os.getpid()
        self._lock = threading.RLock()  # guards what starts and ends: thread, transport, closed
        self._closed = False
        self._thread: threading.Thread | None = None
        self._ledger = Ledger(self._backlog.state)
        self._flags = Flags(self._clock, self._pace)
        self._progress = Progress(self._ledger.look)
        self._unheard: list[Window] = []  # what ``try_flush`` judged, of which no error spoke
        self._ended_at = 0  # how many had entered when the interpreter's end was last judged

    def _new_backlog(self, pace: Pace) -> Backlog:
        """A spool where there is a folder for it, else the queue in memory."""
        directory = self._options.spool_dir
        if directory is None:
            return Queue(pace.queue)
        from flowmark_otel.deliver.spool import SpoolBacklog  # noqa: PLC0415 - few have one

        try:
            return SpoolBacklog(
                directory, clock=self._clock, report=self._reporter.post, on_found=self._found
            )
        except ConfigurationError as error:
            self._reporter.post(Diagnostic(names.DIAGNOSTIC_CONFIGURATION, str(error)))
            return Queue(pace.queue)

    # -- recording -------------------------------------------------------------------------------
    def put(self, events: Sequence[Envelope | Refused], resource: Mapping[str, object]) -> None:
        """Take events of one resource; waits for no network and raises nothing.

        Refused ones are counted ``invalid`` and never sent; what finds no room is counted
        ``dropped``, reason ``queue_full``, and what comes after ``shutdown`` reason ``shutdown``.
        """
        try:
            self._put(events, resource)
        except Exception as error:  # noqa: BLE001 - the application must not meet a defect of ours
            message = f"{type(error).__name__}: {error}"
            self._reporter.post(Diagnostic(names.DIAGNOSTIC_INTERNAL, message))

    def _put(self, events: Sequence[Envelope | Refused], resource: Mapping[str, object]) -> None:
        whole: Sequence[Envelope]
        if type(events) is Unfolded:
            whole = events
        else:
            whole = [event for event in events if not isinstance(event, Refused)]
            if len(whole) != len(events):
                self._refuse([event for event in events if isinstance(event, Refused)])
            if not whole:
                return
        if not self._ledger.enter(len(whole)):
            late = [(event.event_id, "recorded after shutdown") for event in whole]
            self._ledger.refuse(late, names.DROPPED, names.REASON_SHUTDOWN)
            self._reporter.condition(names.REASON_SHUTDOWN, "recorded after shutdown")
            return
        taken = self._backlog.put(whole, resource)
        if taken < len(whole):
            reason = self._backlog.full_reason
            self._ledger.overflow(whole[taken:], names.DROPPED, reason)
            self._reporter.condition(reason, "no room left, the newest are dropped")
        if self._thread is None:
            self._start()
        self._flags.wake(self._backlog.waiting())

    def _refuse(self, refused: Sequence[Refused]) -> None:
        told = [(event.event_id, event.message) for event in refused]
        self._ledger.refuse(told, names.INVALID, names.REASON_NOT_SENT)
        for event in refused:
            self.diagnose(Diagnostic(names.DIAGNOSTIC_INVALID, event.message, event.event_id))

    def diagnose(self, diagnostic: Diagnostic) -> None:
        """Report what is no event; the callback follows on the sending thread."""
        self._reporter.post(diagnostic)
        if self._closed:
            self._reporter.drain()  # no thread is left to do it
            return
        if self._thread is None:
            self._start()
        self._flags.wake(0)

    @property
    def spool(self) -> Spool | None:
        """The spool, where there is one."""
        return getattr(self._backlog, "spool", None)

    def start(self) -> None:
        """Begin the sending thread now, with all it needs, so that the first event is in time (E1).

        Imports here and not there: the application may be importing the same packages.
        """
        if self._transport is None:
            transport_of(self._options.protocol)
        self._start()

    # -- the truth -------------------------------------------------------------------------------
    def flush(self, timeout: float = FLUSH_SECONDS) -> None:
        """Wait, at most ``timeout`` seconds, until all that was recorded so far is settled.

        Raises DeliveryError if anything recorded since the flush before was not acknowledged;
        what still waits then counts as that.
        """
        found = self._flush(timeout)
        if found.failed:
            raise DeliveryError(found.message, found.named, found.failed)

    def try_flush(self, timeout: float = FLUSH_SECONDS) -> bool:
        """As ``flush``, but False where that would raise."""
        entered = self._ledger.entered()
        self._settle(entered, self._clock.monotonic() + timeout)
        left, window = self._judged(entered)
        if window.failed:
            self._unheard = [joined([*self._unheard, window])]
        return not (left or window.failed)

    def finish(self, timeout: float) -> None:
        """As ``flush``, at the end of the interpreter: the last chance to say what was lost.

        Speaks too of what only a ``try_flush`` judged, and not again of what waited at an earlier
        ``shutdown`` or ``finish``. Then goes on, within ``timeout`` seconds, with what dead
        processes left behind. Nothing is closed.
        """
        entered = self._ledger.entered()
        deadline = self._clock.monotonic() + timeout
        if not self._closed and entered != self._ended_at:
            self._settle(entered, deadline)
        if not self._closed:
            self._settle_inherited(deadline)
        known = self._closed or entered == self._ended_at
        self._ended_at = entered
        unheard, self._unheard = self._unheard, []
        left, window = self._judged(0 if known else entered)
        found = self._told(left, joined([*unheard, window]))
        if found.failed:
            raise DeliveryError(found.message, found.named, found.failed)

    def shutdown(self, timeout: float = FLUSH_SECONDS) -> None:
        """Flush, then end the thread and close the transport; raises as ``flush`` does.

        What dead processes left behind is delivered too, for as long as ``timeout`` seconds last;
        none of that makes it raise. What is recorded from now on is dropped, and what a queue in
        memory could not deliver within that time is given up. Can be called again.
        """
        first = self._ledger.shut()
        if first:
            deadline = self._clock.monotonic() + timeout
            self._settle(self._ledger.entered(), deadline)
            self._settle_inherited(deadline)
            self._end()
        found = self._told(*self._judged(self._ledger.entered()))
        if first:
            self._let_go()
        if found.failed:
            raise DeliveryError(found.message, found.named, found.failed)

    def counts(self) -> Mapping[tuple[str, str], int]:
        """The events of this process by (state, reason); their sum is what was recorded."""
        return self._ledger.snapshot(self._backlog.in_memory())[1]

    def recorded(self) -> int:
        """How many events were recorded in this process."""
        return self._ledger.snapshot()[0]

    def diagnostics(self) -> Mapping[str, int]:
        """How often each diagnostic code was met."""
        return self._reporter.counts()

    def after_fork(self) -> None:
        """In a child: start with nothing recorded; can be called again."""
        if self._process == os.getpid():
            return
        self._reporter.after_fork()
        self._begin_anew()
        self._backlog.after_fork()
        if self._transport is not None:
            self._transport.after_fork()

    def _found(self) -> None:
        """Another process left something to deliver, or may have."""
        if self._ready and (self._thread is not None or self._start()):
            self._flags.wake(0)

    # -- inside ----------------------------------------------------------------------------------
    def _start(self) -> bool:
        """Whether a thread sends; at the end of the interpreter none can be started."""
        with self._lock:
            if self._thread is not None:
                return True
            if self._closed:
                return False
            thread = threading.Thread(target=self._run, name="flowmark-send", daemon=True)
            self._thread = thread
            try:
                thread.start()
            except RuntimeError:
                self._thread = None
            return self._thread is not None

    def _new_sender(self) -> Sender:
        """A sender, made where it sends: what it needs takes a while to import."""
        from flowmark_otel.deliver.courier import Courier  # noqa: PLC0415 - it imports protobuf
        from flowmark_otel.deliver.sender import Sender  # noqa: PLC0415 - as the courier

        courier = Courier(
            self._opened_transport,
            self._reporter,
            self._clock,
            self._pace,
            self._flags,
            self._progress,
        )
        return Sender(self._backlog, courier, self._ledger, self._reporter, self._pace, self._flags)

    def _run(self) -> None:
        """Send until halted; if a callback ends the thread, a flush or an event starts another."""
        try:
            with forks.importing:
                sender = self._new_sender()
                with suppress(Exception):  # the first request will say what is wrong
                    self._opened_transport()
            sender.run()
        finally:
            self._thread = None
            if self._flags.flushing() and not self._flags.halted():
                self._start()  # whoever waits would wait in vain

    def _opened_transport(self) -> Transport:
        """The transport, made on the sending thread: its libraries take a while to import."""
        if self._transport is None:
            self._transport = open_transport(self._options)
        return self._transport

    def _flush(self, timeout: float) -> Truth:
        entered = self._ledger.entered()
        self._settle(entered, self._clock.monotonic() + timeout)
        return self._told(*self._judged(entered))

    def _settle(self, entered: int, deadline: float) -> None:
        """Wait until the first ``entered`` events are settled, or for the deadline."""
        if self._thread is threading.current_thread():
            return  # a callback that flushes would wait for itself
        if not (self._backlog.durable or self._ledger.left_of(entered)):
            return
        with self._flags.flush() as number:
            if self._start():
                left = max(deadline - self._clock.monotonic(), 0.0)
                self._ledger.wait(entered, left, lambda: self._progress.is_refused(number))
            else:
                self._new_sender().run_until(lambda: not self._ledger.left_of(entered), deadline)

    def _settle_inherited(self, deadline: float) -> None:
        """Wait until nothing is left of what dead processes left, or for the deadline."""
        if self._thread is threading.current_thread() or not self._backlog.inherited():
            return
        left = SystemClock()  # waits in real time, whatever clock the deadline is of
        end = left.monotonic() + max(deadline - self._clock.monotonic(), 0.0)
        with self._flags.flush() as number:
            if not self._start():
                self._new_sender().run_until(lambda: not self._backlog.inherited(), deadline)
                return
            while self._backlog.inherited() and left.monotonic() < end:
                if self._progress.is_refused(number):
                    return
                self._flags.wake(0)
                self._ledger.wait_for_any(min(_LOOK_SECONDS, max(end - left.monotonic(), 0.0)))

    def _judged(self, entered: int) -> tuple[int, Window]:
        """How many of these still wait, and what was settled since the flush before."""
        self._reporter.drain()
        # In this order: what is settled in between is told twice rather than never.
        left = self._ledger.left_of(entered)
        return left, self._ledger.take_window()

    def _told(self, left: int, window: Window) -> Truth:
        """What is true now of the events since the flush before."""
        ids = self._backlog.ids(min(left, MAX_NAMED)) if left else []
        reason = self._progress.trouble or names.REASON_TIMEOUT
        return truth_of(window, (self._backlog.state, reason, left), ids)

    def _end(self) -> None:
        """Halt the thread, and give up what would be lost with it."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._flags.halt()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_SECONDS)
        left = self._ledger.left_of(self._ledger.entered())
        if not self._backlog.durable:
            reason = self._progress.trouble or names.REASON_TIMEOUT
            ids = self._backlog.ids(min(left, MAX_NAMED))
            self._ledger.give_up(left, self._progress.tried, reason, ids)
        else:
            self._ledger.give_up(self._backlog.in_memory(), 0, "", ())

    def _let_go(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._backlog.close()
