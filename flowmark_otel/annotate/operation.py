"""An operation of a run: a handle, a context manager and a decorator (A2)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from opentelemetry import context as otel
from opentelemetry.context import Context
from opentelemetry.trace import Span

from flowmark_otel import names
from flowmark_otel.annotate import report
from flowmark_otel.annotate.attempt import AttemptHandle, facts_of
from flowmark_otel.annotate.cap import UNCAPPED, Cap, Uncapped
from flowmark_otel.annotate.context import OPERATION_KEY, enter, leave
from flowmark_otel.annotate.hook import client, tell
from flowmark_otel.annotate.options import Fields, MapError, end_attributes, type_name
from flowmark_otel.annotate.recording import Ending, Place, Recording
from flowmark_otel.annotate.signal import AttemptSignal
from flowmark_otel.annotate.wrapping import wrap
from flowmark_otel.model import Failure

if TYPE_CHECKING:
    from typing_extensions import Self

F = TypeVar("F", bound=Callable[..., object])


class Told(NamedTuple):
    """What was said of an operation when it was made."""

    name: object
    fields: Fields
    idempotency_key: str | None
    map_error: MapError | None


class Operation:
    """One operation: ends with ``complete`` or ``fail``, or with its block or function.

    With an attempt it starts where it is made, and its start is sent then (E1). Without one
    nothing is sent before its end, and its span is opened when first needed, at the time at which
    it was made; so a decorator can stand where nothing runs yet.

    A ``timeout`` counts from where its block or function begins. A coroutine, an asynchronous
    generator and an ``async with`` block are stopped there with ``AttemptTimeoutError`` under
    asyncio; all else is told by ``current_attempt().signal`` alone (B5).
    """

    __slots__ = (
        "_again",
        "_begun",
        "_cap",
        "_handed_out",
        "_inside",
        "_lock",
        "_place",
        "_recording",
        "_signal",
        "_told",
    )

    def __init__(
        self, told: Told, inside: Context, trace_id: bytes, again: Callable[[], Operation]
    ) -> None:
        self._told = told
        self._inside = inside
        self._again = again
        self._place = Place(inside, client().clock.now_ns(), trace_id=trace_id)
        self._handed_out = False
        self._lock = threading.Lock()  # held while what is made once is made: span, signal
        self._recording: Recording | None = None
        self._begun = False
        self._cap: Cap | Uncapped = UNCAPPED
        self._signal: AttemptSignal | None = None
        if names.ATTEMPT_TIMEOUT_MS in told.fields.attributes:
            self.stop_signal()  # without a block or function the cap counts from here
        if told.fields.faults or names.ATTEMPT_NUMBER in told.fields.attributes:
            self._open()

    @property
    def span(self) -> Span:
        """The OpenTelemetry span, for attributes of the application's own."""
        return self._open().span

    @property
    def attempt(self) -> AttemptHandle:
        """The attempt handle, as ``current_attempt`` gives it inside."""
        facts = facts_of(self._told.fields, self._told.idempotency_key)
        return AttemptHandle(facts, client().clock, self)

    def complete(self) -> None:
        """End it: completed."""
        self._open().end(Ending(failed=False, attributes={}))

    def fail(self, *, code: str | None = None, retryable: bool | None = None) -> None:
        """End it: failed. ``code`` is the application's name for the failure."""
        attributes = end_attributes((code, retryable), None, None)
        self._open().end(Ending(failed=True, attributes=attributes))

    def __enter__(self) -> Self:
        if not self._begun:
            self._begun = True  # a generator enters once for each item
            if self._signal is not None:
                self._signal.begin()
        span = self._open().span
        enter(self, span, otel.set_value(OPERATION_KEY, self.attempt, self._inside))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        leave(self)
        if error is not None and not isinstance(error, (Exception, GeneratorExit)):
            self.stop_signal().cancel()  # by a task's cancellation, an interrupt, an exit
        recording = self._open()
        if recording.ended:
            return
        if not is_failure(error):
            recording.end(Ending(failed=False, attributes={}))
            return
        mapped: Mapping[str, object] = {}
        try:
            mapped = self._mapped(error)
        finally:  # an interrupt that strikes in the callback passes; the attempt is over by then
            recording.end(Ending(failed=True, attributes=mapped, error=error))

    async def __aenter__(self) -> Self:
        self.__enter__()
        self._cap = self.cap().enter()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        late = self._cap.leave(error)
        if late is None:
            self.__exit__(kind, error, trace)
            return
        self.__exit__(type(late), late, trace)
        raise late from error

    def stop_signal(self) -> AttemptSignal:
        """What says that it must stop, as its handle gives it (B5)."""
        with self._lock:
            if self._signal is None:
                facts = facts_of(self._told.fields, None)
                self._signal = AttemptSignal(client().clock, facts.timeout, facts.deadline)
            return self._signal

    def cap(self) -> Cap | Uncapped:
        """A block that is stopped where this attempt's time is up."""
        facts = facts_of(self._told.fields, None)
        if facts.timeout is None:
            return UNCAPPED
        what = f"attempt {facts.number}, with {facts.timeout} ms,"
        return Cap(self.stop_signal(), client().clock, what)

    def time_read(self) -> None:
        """Record that time was an input of what the attempt did (B2)."""
        self._open().mark(names.ATTEMPT_TIME_READ)

    def place(self) -> report.Place:
        """Which operation of which run it is."""
        found = self._told.fields.attributes
        keys = (*names.IDENTITY_KEYS, names.OPERATION_NAME)
        return report.Place(*(str(found.get(key, "")) for key in keys))

    def observe(self, reported: report.Reported) -> None:
        """Record a try that was reported in it, and tell the on-attempt hook (B8)."""
        made, found = self._open(), client()
        if not made.observe(reported.time_unix_nano, reported.attributes):
            message = f"attempt {reported.observed.number} was reported after the end; dropped"
            tell(found, names.DIAGNOSTIC_LATE_REPORT, message)
            return
        if found.on_attempt is None:
            return
        try:
            found.on_attempt(reported.observed)
        except Exception as raised:  # noqa: BLE001 - a callback of the application
            message = f"on_attempt raised {type_name(type(raised))}"
            tell(found, names.DIAGNOSTIC_CALLBACK_FAILED, message)

    def pause(self) -> None:
        """Leave its block without ending it, as a generator does between two items."""
        leave(self)

    def __call__(self, function: F) -> F:
        """Decorate a function, coroutine function or generator function; each call is recorded.

        The first call is this operation if it has started, each other call one more.
        """
        given: object = function
        try:
            if callable(given):
                return wrap(function, self._for_a_call)
        except Exception:  # noqa: BLE001, S110 - an object that cannot say what it is; said below
            pass
        message = f"a {type(given).__name__} cannot be decorated; give a function"
        tell(client(), names.DIAGNOSTIC_INVALID, message)
        return function

    def _for_a_call(self) -> Operation:
        recording = self._recording
        if recording is None or recording.ended or self._handed_out:
            return self._again()
        self._handed_out = True
        return self

    def _open(self) -> Recording:
        if self._recording is not None:
            return self._recording
        told = self._told
        with self._lock:
            if self._recording is None:
                self._recording = Recording(
                    client(), names.RECORD_OPERATION, told.name, told.fields, self._place
                )
            return self._recording

    def _mapped(self, error: BaseException | None) -> Mapping[str, object]:
        """How the application names the exception; it may raise, and is not trusted."""
        map_error = self._told.map_error
        if map_error is None or not isinstance(error, Exception):
            return {}
        try:
            failure: object = map_error(error)
        except Exception as raised:  # noqa: BLE001 - a callback of the application
            message = f"map_error raised {type_name(type(raised))}; the failure has no code"
            tell(client(), names.DIAGNOSTIC_CALLBACK_FAILED, message)
            return {}
        if failure is None:
            return {}
        if not isinstance(failure, Failure):
            message = f"map_error gave a {type(failure).__name__}; give a Failure or None"
            tell(client(), names.DIAGNOSTIC_INVALID, message)
            return {}
        return end_attributes((failure.code, failure.retryable), None, None)


def is_failure(error: BaseException | None) -> bool:
    """Whether what leaves a block is a failure.

    A generator that its consumer closes and a program that exits with success have not failed; a
    cancelled task has.
    """
    if error is None or isinstance(error, GeneratorExit):
        return False
    return not (isinstance(error, SystemExit) and error.code in {None, 0})
