"""A strict double of a transport: keeps what it was given, answers to order (A25)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias

from flowmark_otel import names
from flowmark_otel.deliver.transport import Answer, EventStatus, NoAnswer
from flowmark_otel.fold import digest, fold_log
from flowmark_otel.model import Envelope, LogRecord, Receipt
from flowmark_otel.wire import receipt
from flowmark_otel.wire.decode import decode_logs

BACKEND_ID: Final = "recording"
MAX_STATUS: Final = 1000
_CONTENT_TYPES: Final = {"protobuf": "application/x-protobuf", "json": "application/json"}


class Request(NamedTuple):
    """One request as the transport was given it."""

    body: bytes
    content_type: str
    timeout: float

    @property
    def events(self) -> list[Envelope]:
        """The envelopes in it, read back."""
        encoding = "json" if self.content_type == _CONTENT_TYPES["json"] else "protobuf"
        records = [item.record for item in decode_logs(self.body, encoding).marked]
        folded = [fold_log(record) for record in records if isinstance(record, LogRecord)]
        return [event for event in folded if isinstance(event, Envelope)]


Scripted: TypeAlias = Answer | NoAnswer | Callable[[Request], Answer]
"""What one request is answered with; a NoAnswer is raised."""


class RecordingTransport:
    """Implements ``deliver.Transport``: answers in the order given, then all is stored.

    Strict: calls that overlap, that come after ``close`` or break the protocol raise
    AssertionError. Since delivery takes an exception for a missing answer, ``requests`` raises it
    again.
    """

    def __init__(self, *answers: Scripted, encoding: str = "protobuf") -> None:
        self.encoding = encoding
        self.closed = False
        self._answers = deque(answers)
        self._requests: list[Request] = []
        self._known: dict[str, str] = {}
        self._busy = threading.Lock()
        self._faults: list[str] = []

    @property
    def requests(self) -> list[Request]:
        """Every request so far; raises AssertionError if the protocol was broken."""
        if self._faults:
            raise AssertionError("; ".join(self._faults))
        return list(self._requests)

    @property
    def events(self) -> list[Envelope]:
        """The events of all requests, those of repeated ones again."""
        return [event for request in self.requests for event in request.events]

    def send(self, body: bytes, content_type: str, timeout: float) -> Answer:
        """Keep a request and answer as ordered."""
        self._begin(timeout)
        try:
            if content_type != _CONTENT_TYPES[self.encoding]:
                self._fault(f"a body of type {content_type} for a transport of {self.encoding}")
            request = Request(body, content_type, timeout)
            self._requests.append(request)
            answer = self._answers.popleft() if self._answers else self.stored
            if isinstance(answer, NoAnswer):
                raise answer
            return answer(request) if callable(answer) else answer
        finally:
            self._busy.release()

    def stored(self, request: Request) -> Answer:
        """The answer that every event of a request was stored."""
        events = request.events
        self._known.update((event.event_id, digest(event).hex()) for event in events)
        found = Receipt(backend_id=BACKEND_ID, stored=len(events), received=len(events))
        body = receipt.encode(found, self.encoding, "logs")
        return Answer(HTTPStatus.OK, body, {"content-type": request.content_type})

    def status(self, event_ids: Sequence[str], timeout: float) -> list[EventStatus]:
        """What became of events: stored as far as ``stored`` answered for them."""
        self._begin(timeout)
        try:
            if len(event_ids) > MAX_STATUS:
                self._fault(f"asked about {len(event_ids)} events, at most {MAX_STATUS} at a time")
            return [
                EventStatus(each, names.STORED, self._known[each])
                if each in self._known
                else EventStatus(each, names.STATE_UNKNOWN)
                for each in event_ids
            ]
        finally:
            self._busy.release()

    def after_fork(self) -> None:
        """In a child: nothing was sent."""
        self._busy = threading.Lock()
        self._requests = []

    def close(self) -> None:
        """No call may follow."""
        self.closed = True

    def _begin(self, timeout: float) -> None:
        if not self._busy.acquire(blocking=False):
            self._fault("called by two threads at once")
        if self.closed or timeout <= 0:
            self._busy.release()
            self._fault("called after close" if self.closed else f"a timeout of {timeout} s")

    def _fault(self, fault: str) -> None:
        self._faults.append(fault)
        raise AssertionError(fault)
