"""What state is read from: rows of evidence, and single values in them (contract, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from flowmark_otel import names
from flowmark_otel.model import event_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flowmark_otel.model import Value

_FAILED_EVENTS = frozenset((names.RUN_FAILED, names.OPERATION_FAILED))


class Accepted(NamedTuple):
    """An accepted event. ``order`` is its arrival; ``sent_at`` uint64 nanoseconds, 0 if unknown."""

    order: int
    event: str
    trace_id: bytes
    span_id: bytes
    part: str
    sent_at: int
    received_at: int
    attributes: Mapping[str, Value]
    dropped_attributes: int = 0
    characters_replaced: bool = False

    @property
    def event_id(self) -> str:
        """The event id (contract, section 2)."""
        return event_id(self.trace_id, self.span_id, self.part)


class Conflicting(NamedTuple):
    """An event rejected as a conflict; ``here``: the run it names is the one being read.

    One that names another run matters where an event accepted here has its id. ``met``: the
    operation id of that event, where it is known without having it among the evidence.
    """

    order: int
    event: str
    event_id: str
    message: str
    sent_at: int
    received_at: int
    digest: bytes
    attributes: Mapping[str, Value]
    operation: str | None = None
    operation_id: str | None = None
    group_id: str | None = None
    number: int | None = None
    here: bool = True
    met: str | None = None


class Error(NamedTuple):
    """What an end says of a failure; a part that was not reported is None."""

    code: str | None
    type: str | None
    retryable: bool | None


def ended(end: Accepted) -> names.Ended:
    """Say how an end ended: failed if and only if its event name says so."""
    return "failed" if end.event in _FAILED_EVENTS else "completed"


def known(sent_at: int) -> int | None:
    """Return a sent time, None for zero, which means unknown."""
    return sent_at or None


def text(attributes: Mapping[str, Value], key: str) -> str | None:
    """Return a string attribute, None if absent."""
    value = attributes.get(key)
    return value if isinstance(value, str) else None


def integer(attributes: Mapping[str, Value], key: str) -> int | None:
    """Return an integer attribute, None if absent."""
    value = attributes.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def duration_of(end: Accepted) -> int | None:
    """Return the recorded duration in nanoseconds; never computed from two arrivals."""
    return integer(end.attributes, names.DURATION_NS)


def error_of(event: Accepted) -> Error | None:
    """Return what an event says of a failure, None if it says nothing."""
    retryable = event.attributes.get(names.ERROR_RETRYABLE)
    error = Error(
        text(event.attributes, names.ERROR_CODE),
        text(event.attributes, names.ERROR_TYPE),
        retryable if isinstance(retryable, bool) else None,
    )
    return None if error == (None, None, None) else error


def result_of(end: Accepted) -> dict[str, Value]:
    """Return the reported result of a run, by key; reported items, never a sum (A16)."""
    prefix = names.RUN_RESULT_PREFIX
    return {
        key.removeprefix(prefix): value
        for key, value in end.attributes.items()
        if key.startswith(prefix)
    }
