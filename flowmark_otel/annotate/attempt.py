"""The attempt handle: what code inside an attempt can ask about it (B1-B9)."""

from __future__ import annotations

import math
from typing import Final, NamedTuple, NoReturn, Protocol, cast

from opentelemetry import context as otel

from flowmark_otel import names
from flowmark_otel.annotate.context import OPERATION_KEY
from flowmark_otel.annotate.hook import client, tell
from flowmark_otel.annotate.options import Fields
from flowmark_otel.annotate.report import Place, Reported, read_report
from flowmark_otel.annotate.signal import AttemptSignal
from flowmark_otel.clock import Clock

_NANOS_PER_MILLISECOND: Final = 1_000_000


class AttemptFacts(NamedTuple):
    """What a handle tells; times in milliseconds, the deadline since the epoch."""

    number: int = 1
    limit: int | None = 1
    deadline: int | None = None
    timeout: int | None = None
    system: str | None = None
    series: str | None = None
    idempotency_key: str | None = None


class Owner(Protocol):
    """The operation that a handle belongs to."""

    def time_read(self) -> None:
        """Record that time was an input."""
        ...

    def stop_signal(self) -> AttemptSignal:
        """What says that it must stop: always the same."""
        ...

    def place(self) -> Place:
        """Which operation it is."""
        ...

    def observe(self, reported: Reported) -> None:
        """Record a try that was reported, unless the operation has ended."""
        ...


class _Nobody:
    """Where nothing is recorded: outside of an operation."""

    def time_read(self) -> None:
        """Time read outside of an operation is in no record."""

    def stop_signal(self) -> AttemptSignal:
        """One that is never set."""
        return AttemptSignal(client().clock)

    def place(self) -> Place:
        """No operation."""
        return Place("", "", "")

    def observe(self, reported: Reported) -> None:
        """There is no operation to report it in."""
        message = f"attempt {reported.observed.number} was reported outside of an operation"
        tell(client(), names.DIAGNOSTIC_NOT_RECORDED, message)


class AttemptHandle:
    """The attempt that is being made; attempt 1 of 1 where nobody said otherwise (B1).

    It tells and decides nothing: the loop stays with the application. It is bound to this process
    and cannot be pickled or copied (B9).
    """

    __slots__ = ("_clock", "_facts", "_owner")

    def __init__(self, facts: AttemptFacts, clock: Clock, owner: Owner) -> None:
        self._facts = facts
        self._clock = clock
        self._owner = owner

    @property
    def number(self) -> int:
        """The number of this attempt, from 1."""
        return self._facts.number

    @property
    def limit(self) -> int | None:
        """The attempts allowed in total; None if nobody said."""
        return self._facts.limit

    @property
    def deadline(self) -> int | None:
        """Epoch milliseconds, None without one; reading it is recorded (B2)."""
        self._owner.time_read()
        return self._facts.deadline

    @property
    def timeout(self) -> int | None:
        """The cap of this attempt in milliseconds, None without one (B7)."""
        return self._facts.timeout

    @property
    def signal(self) -> AttemptSignal:
        """Set when this attempt must stop: at its cap, at the deadline, on cancellation (B5).

        Outside of an operation it is never set.
        """
        return self._owner.stop_signal()

    @property
    def system(self) -> str | None:
        """The outside system touched, None if none (B6)."""
        return self._facts.system

    @property
    def series(self) -> str | None:
        """The named series this attempt belongs to (B4)."""
        return self._facts.series

    @property
    def idempotency_key(self) -> str | None:
        """The real key, the same for every attempt of the group; records have a digest (B3)."""
        return self._facts.idempotency_key

    def remaining(self) -> float:
        """Milliseconds until the deadline, infinite without one, never negative (B2).

        Reading it is recorded: time was an input of what the attempt did.
        """
        deadline = self.deadline
        if deadline is None:
            return math.inf
        return max(0.0, deadline - self._clock.now_ns() / _NANOS_PER_MILLISECOND)

    def report(
        self,
        *,
        number: int,
        outcome: str,
        started_at: int,
        ended_at: int,
        series: str | None = None,
        system: str | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Record a try that an outside system made on its own, beside this attempt (B8).

        ``number`` from 1, ``outcome`` ``completed`` or ``failed``, times in epoch nanoseconds. Of
        the error its type is recorded; its message, with secrets taken out, goes to the on-attempt
        hook alone. After the end of the operation it is dropped and reported as ``late_report``.
        It changes no control flow. Raises TypeError naming a field that is wrong.
        """
        reported = read_report(
            self._owner.place(),
            number=number,
            outcome=outcome,
            started_at=started_at,
            ended_at=ended_at,
            series=series,
            system=system,
            error=error,
        )
        self._owner.observe(reported)

    def __repr__(self) -> str:
        facts = self._facts
        return f"<attempt {facts.number} of {facts.limit or 'an unknown limit'}>"

    def __reduce__(self) -> NoReturn:
        msg = "an attempt handle is bound to its process; pass on what it tells instead"
        raise TypeError(msg)

    def __copy__(self) -> NoReturn:
        self.__reduce__()

    def __deepcopy__(self, memo: object) -> NoReturn:
        self.__reduce__()


def facts_of(fields: Fields, idempotency_key: str | None) -> AttemptFacts:
    """What the handle of an operation tells."""
    found = fields.attributes
    number = cast("int | None", found.get(names.ATTEMPT_NUMBER))
    return AttemptFacts(
        1 if number is None else number,
        1 if number is None else cast("int | None", found.get(names.ATTEMPT_LIMIT)),
        cast("int | None", found.get(names.ATTEMPT_DEADLINE_MS)),
        cast("int | None", found.get(names.ATTEMPT_TIMEOUT_MS)),
        cast("str | None", found.get(names.ATTEMPT_SYSTEM_NAME)),
        cast("str | None", found.get(names.ATTEMPT_SERIES_NAME)),
        idempotency_key,
    )


def current_attempt() -> AttemptHandle:
    """The handle of the operation whose block or function is being run.

    Outside of one it reads attempt 1 of 1, which is not recorded and opts into nothing (B1).
    """
    found = otel.get_value(OPERATION_KEY)
    if isinstance(found, AttemptHandle):
        return found
    return AttemptHandle(AttemptFacts(), client().clock, _NOBODY)


_NOBODY: Final = _Nobody()
