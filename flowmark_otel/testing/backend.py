"""A backend in memory, plugged into the client as its transport: no socket, no file, no server.

What it is sent takes the whole way: encoded by the client, decoded and folded here, judged by the
contract's table, answered with a real receipt that the client judges.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final

from flowmark_otel import names
from flowmark_otel.clock import Clock, SystemClock
from flowmark_otel.deliver.transport import Answer, EventStatus, NoAnswer
from flowmark_otel.errors import RequestError
from flowmark_otel.fold import digest, fold_log
from flowmark_otel.fold.rows import Accepted, Conflicting, integer, text
from flowmark_otel.model import Envelope, LogRecord, Receipt, Refused, Rejection, Span
from flowmark_otel.testing.judging import Judge, best_judge
from flowmark_otel.testing.runs import RecordedRun
from flowmark_otel.wire import outcome, receipt
from flowmark_otel.wire.decode import decode_logs
from flowmark_otel.wire.status import encode_status

BACKEND_ID: Final = "in-memory"
_ENCODINGS: Final = {"application/x-protobuf": "protobuf", "application/json": "json"}


class InMemoryBackend:
    """Implements ``deliver.Transport``; any thread may read it.

    ``available``: set it to False and no request is answered. ``acknowledges``: set it to False
    and answers are those of a stock OTLP server, without receipt. Both can be set back. The judge
    is the backend's own where the ``server`` extra is installed, else the same table on the core.
    """

    def __init__(
        self, encoding: str = "protobuf", *, clock: Clock | None = None, judge: Judge | None = None
    ) -> None:
        self.encoding = encoding
        self.available = True
        self.acknowledges = True
        self.before_reading: Callable[[], None] = _nothing
        """Called before anything is read; ``recording`` has it flush the client."""
        self._clock = clock or SystemClock()
        self._judge = judge or best_judge()
        self._lock = threading.Lock()  # guards what was received
        self._order = 0
        self._digests: dict[str, str] = {}
        self._run_of: dict[str, tuple[tuple[str, str], str | None]] = {}
        self._rejected: dict[str, Rejection] = {}
        self._accepted: dict[tuple[str, str], list[Accepted]] = {}
        self._conflicting: list[tuple[tuple[str, str], Conflicting]] = []
        self.rejections: list[Rejection] = []
        """Every event that was not taken, and why, in order of arrival."""

    # -- reading ------------------------------------------------------------------------------
    def runs(self) -> list[RecordedRun]:
        """Every run there is evidence of, by first arrival."""
        self.before_reading()
        with self._lock:
            keys = dict.fromkeys([*self._accepted, *(key for key, _ in self._conflicting)])
            return [self._read(key) for key in keys]

    def run(self, workflow: str | None = None, run_id: str | None = None) -> RecordedRun:
        """The one run that matches; raises AssertionError, which lists all, if it is not one."""
        known = self.runs()
        found = [
            run
            for run in known
            if workflow in (None, run.workflow) and run_id in (None, run.run_id)
        ]
        if len(found) == 1:
            return found[0]
        wanted = " and ".join(
            f"{what} {value!r}"
            for what, value in (("workflow", workflow), ("run id", run_id))
            if value is not None
        )
        listed = "\n".join(run.describe() for run in known) or "nothing was recorded"
        msg = f"{len(found)} runs with {wanted or 'any name'}, expected one; recorded:\n{listed}"
        raise AssertionError(msg)

    # -- Transport ----------------------------------------------------------------------------
    def send(self, body: bytes, content_type: str, timeout: float) -> Answer:  # noqa: ARG002
        """Judge a request."""
        if not self.available:
            msg = "the in-memory backend is not available"
            raise NoAnswer(msg)
        headers: dict[str, str | bytes] = {"content-type": content_type}
        encoding = _ENCODINGS[content_type]
        if not self.acknowledges:
            return Answer(HTTPStatus.OK, b"{}" if encoding == receipt.JSON else b"", headers)
        try:
            request = decode_logs(body, encoding)
        except RequestError as error:
            row = outcome.ANSWERS[outcome.outcome_of(error)]
            return Answer(row.http, encode_status(row.grpc, str(error), encoding), headers)
        with self._lock:
            taken = [
                self._take(event, position)
                for position, _, record, _ in request.marked
                if (event := _folded(record)) is not None
            ]
        return _answer(taken, request.items, encoding, headers)

    def status(self, event_ids: Sequence[str], timeout: float) -> list[EventStatus]:  # noqa: ARG002
        """What became of events, stored before rejected."""
        if not self.available:
            msg = "the in-memory backend is not available"
            raise NoAnswer(msg)
        with self._lock:
            return [self._status(each) for each in event_ids]

    def after_fork(self) -> None:
        """In a child: a lock that nobody holds; what the parent was sent stays readable."""
        self._lock = threading.Lock()

    def close(self) -> None:
        """What was received stays readable."""

    # -- inside; the caller holds the lock ------------------------------------------------------
    def _take(self, event: Envelope | Refused, position: int) -> str | Rejection:
        """Judge and keep one event: its state, or its rejection."""
        self._order += 1
        if isinstance(event, Refused):
            item = -1 if event.event_id else position
            return self._reject(Rejection(event.event_id, event.code, event.message, item))
        ruling = self._judge.judge(event)
        key = (str(event.attributes[names.WORKFLOW_NAME]), str(event.attributes[names.RUN_ID]))
        if ruling.state == names.STORED:
            self._digests[event.event_id] = digest(event).hex()
            self._run_of[event.event_id] = (key, text(event.attributes, names.OPERATION_ID))
            self._accepted.setdefault(key, []).append(self._accept(event))
        if ruling.state != names.CONFLICT:
            return ruling.state
        self._keep_conflict(key, event, ruling.message)
        return self._reject(Rejection(event.event_id, ruling.state, ruling.message))

    def _reject(self, rejection: Rejection) -> Rejection:
        self._rejected[rejection.event_id] = rejection
        self.rejections.append(rejection)
        return rejection

    def _accept(self, event: Envelope) -> Accepted:
        return Accepted(
            self._order,
            event.event,
            event.trace_id,
            event.span_id,
            event.part,
            event.time_unix_nano,
            self._clock.now_ns(),
            event.attributes,
            event.dropped_attributes_count,
            event.characters_replaced,
        )

    def _keep_conflict(self, key: tuple[str, str], event: Envelope, message: str) -> None:
        """A rejected event marks places of the run it names and of the run its id is known in."""
        given = event.attributes
        record = Conflicting(
            self._order,
            event.event,
            event.event_id,
            message,
            event.time_unix_nano,
            self._clock.now_ns(),
            digest(event),
            given,
            text(given, names.OPERATION_NAME),
            text(given, names.OPERATION_ID),
            text(given, names.ATTEMPT_GROUP_ID),
            integer(given, names.ATTEMPT_NUMBER),
        )
        self._conflicting.append((key, record))
        first = self._run_of.get(event.event_id)
        if first is not None and first[0] != key:
            self._conflicting.append((first[0], record._replace(here=False, met=first[1])))

    def _read(self, key: tuple[str, str]) -> RecordedRun:
        conflicting = tuple(record for at, record in self._conflicting if at == key)
        return RecordedRun(*key, tuple(self._accepted.get(key, ())), conflicting)

    def _status(self, event_id: str) -> EventStatus:
        known = self._digests.get(event_id)
        if known is not None:
            return EventStatus(event_id, names.STORED, known)
        rejected = self._rejected.get(event_id)
        if rejected is not None:
            return EventStatus(event_id, names.STATE_REJECTED, "", rejected.code)
        return EventStatus(event_id, names.STATE_UNKNOWN)


def _folded(record: Span | LogRecord | Refused) -> Envelope | Refused | None:
    if isinstance(record, LogRecord):
        return fold_log(record)
    return record if isinstance(record, Refused) else None


def _answer(
    taken: Sequence[str | Rejection], items: int, encoding: str, headers: dict[str, str | bytes]
) -> Answer:
    """The answer of the contract's table (section 4), with its receipt."""
    rejections = tuple(each for each in taken if isinstance(each, Rejection))
    found = Receipt(
        backend_id=BACKEND_ID,
        stored=taken.count(names.STORED),
        duplicate=taken.count(names.DUPLICATE),
        received=len(taken),
        rejected=len(rejections),
        rejections=rejections[: receipt.MAX_REJECTIONS],
        rejected_items=len(rejections),
    )
    if rejections and len(rejections) == items:
        conflict = any(each.code == names.CONFLICT for each in rejections)
        row = outcome.ANSWERS[outcome.CONFLICT if conflict else outcome.REFUSED]
        message = f"all {items} events rejected"
        return Answer(row.http, encode_status(row.grpc, message, encoding, found), headers)
    return Answer(HTTPStatus.OK, receipt.encode(found, encoding, "logs"), headers)


def _nothing() -> None:
    """Where no client records into the backend there is nothing to wait for."""
