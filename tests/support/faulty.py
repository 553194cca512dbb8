"""What may happen to a request of the delivery model: links that do what a script says."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from enum import Enum
from http import HTTPStatus
from typing import Final, Protocol

from flowmark_otel import names
from flowmark_otel.deliver.transport import Answer, EventStatus, NoAnswer
from flowmark_otel.testing import FakeClock

TYPE: Final = "application/x-protobuf"


class Point(Enum):
    """Where the one who is asked dies; ``NEVER`` and ``NOWHERE``: it answers."""

    NEVER = "never"
    BEFORE_COMMIT = "before commit"
    AFTER_COMMIT = "after commit, before the reply"
    NOWHERE = "it goes on, but could not write"


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
    FULL_DISK = "who is asked cannot write"
    SENDER_DIES_BEFORE = "the sender dies, nothing was sent"
    SENDER_DIES_WAITING = "the sender dies, it was judged"
    SENDER_DIES_ANSWERED = "the sender dies with the answer, before it noted it"


_RESTART: Final = 3.0

_STOCK: Final = Answer(HTTPStatus.OK, b"", {"content-type": TYPE})
"""A success without a receipt."""

_DEATHS: Final = {
    Fault.KILLED_BEFORE_COMMIT: Point.BEFORE_COMMIT,
    Fault.KILLED_AFTER_COMMIT: Point.AFTER_COMMIT,
    Fault.FULL_DISK: Point.NOWHERE,
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
            return busy(fault.value)
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


class Reach:
    """Whether somebody can be reached; who died can again after ``_RESTART`` seconds."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._from = 0.0

    def set(self, *, up: bool) -> None:
        """From now on, or no more."""
        self._from = 0.0 if up else math.inf

    def died(self) -> None:
        """Be away for a while."""
        self._from = max(self._from, self._clock.monotonic() + _RESTART)

    def __bool__(self) -> bool:
        return self._clock.monotonic() >= self._from

    def check(self) -> None:
        """Raises NoAnswer if it is away."""
        if not self:
            msg = "nobody is there"
            raise NoAnswer(msg)


def busy(why: str) -> Answer:
    """503 with a time to wait."""
    return Answer(HTTPStatus.SERVICE_UNAVAILABLE, b"", {"retry-after": "1"}, message=why)
