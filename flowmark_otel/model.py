"""The nouns: frozen records that every half of the package shares.

Records made once a span are named tuples (cheap to make); those that people construct are frozen,
slotted data classes that check themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from flowmark_otel import names

Value: TypeAlias = str | bool | int | float
"""What an attribute of an envelope can hold."""

MAX_NUMBER = 2**53 - 1
MAX_NAME = 200
MAX_GROUP_ID = 128
MAX_CODE = 128
MAX_OUTCOME = 64
MAX_RESULT_TEXT = 1024
MAX_RESULTS = 64


def check_text(field: str, value: object, limit: int) -> str:
    """Return ``value`` if it is a nonblank string of at most ``limit`` code points (A5).

    Raises TypeError or ValueError naming the field, what was found and the rule.
    """
    if not isinstance(value, str):
        msg = f"{field} must be a string, found {type(value).__name__}"
        raise TypeError(msg)
    value = str.__str__(value)  # of a class of its own, which may say anything of itself
    if not value or value.isspace():
        msg = f"{field} must not be blank"
        raise ValueError(msg)
    if len(value) > limit:
        msg = f"{field} must have at most {limit} characters, found {len(value)}"
        raise ValueError(msg)
    return value


def _set_text(record: object, field: str, limit: int) -> None:
    """Check a text of a frozen record, and keep it as a plain string."""
    value = getattr(record, field)
    plain = check_text(field, value, limit)
    if type(value) is not str:
        object.__setattr__(record, field, plain)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a group: id of the group (at most 128 characters), number from 1 (A5)."""

    group_id: str
    number: int

    def __post_init__(self) -> None:
        _set_text(self, "group_id", MAX_GROUP_ID)
        number: object = self.number
        if isinstance(number, float) and number.is_integer():
            object.__setattr__(self, "number", int(number))
        elif isinstance(number, bool) or not isinstance(number, int):
            msg = f"number must be an integer, found {type(number).__name__}"
            raise TypeError(msg)
        elif type(number) is not int:
            object.__setattr__(self, "number", int.__int__(number))
        if not 1 <= self.number <= MAX_NUMBER:
            shown = self.number if abs(self.number) < 1 << 64 else "one beyond 64 bits"
            msg = f"number must be from 1 to 2^53-1, found {shown}"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class RunRef:
    """A run named by its workflow and run id, each at most 200 characters (A12)."""

    workflow: str
    run_id: str

    def __post_init__(self) -> None:
        _set_text(self, "workflow", MAX_NAME)
        _set_text(self, "run_id", MAX_NAME)


@dataclass(frozen=True, slots=True)
class Failure:
    """How an operation or run failed, as the application names it (at most 128 characters)."""

    code: str
    retryable: bool | None = None

    def __post_init__(self) -> None:
        _set_text(self, "code", MAX_CODE)
        retryable: object = self.retryable
        if retryable is not None and not isinstance(retryable, bool):
            msg = f"retryable must be a bool, found {type(retryable).__name__}"
            raise TypeError(msg)


@dataclass(frozen=True, slots=True)
class ObservedAttempt:
    """One reported try, as the on-attempt hook is given it.

    Times in epoch nanoseconds. ``outcome`` is ``completed`` or ``failed``. Of the error its type,
    and its message with secrets taken out; never the error itself.
    """

    workflow: str
    run_id: str
    operation: str
    number: int
    outcome: str
    started_at: int
    ended_at: int
    series: str | None = None
    system: str | None = None
    error_type: str | None = None
    error_message: str | None = None


class Misshapen(NamedTuple):
    """An attribute value that its encoding could not read; no rule accepts it."""

    what: str


class SpanEvent(NamedTuple):
    """An event of a span, as far as folding reads it."""

    name: str
    time_unix_nano: int
    attributes: Mapping[str, object]


class Span(NamedTuple):
    """A span as folding reads it, whoever decoded it.

    Attribute values are what the sender set: str, bool, int, float, or anything else (bytes,
    lists, maps), which no rule accepts; None is an empty value. Bytes that were no UTF-8 stand as
    lone surrogates. ``attributes`` may be cut to the keys folding reads.
    """

    trace_id: bytes
    span_id: bytes
    name: str
    start_time_unix_nano: int
    end_time_unix_nano: int
    failed: bool
    attributes: Mapping[str, object]
    service_name: object = None
    events: Sequence[SpanEvent] = ()
    dropped_attributes_count: int = 0


class LogRecord(NamedTuple):
    """A log record as far as an envelope's reader needs it; values as in ``Span``."""

    event_name: str
    trace_id: bytes
    span_id: bytes
    time_unix_nano: int
    attributes: Mapping[str, object]
    dropped_attributes_count: int = 0


class Resource(NamedTuple):
    """What is kept of the resource an item came from; values as in ``Span``, None is unknown."""

    service_name: object = None
    service_version: object = None
    service_instance_id: object = None


class Envelope(NamedTuple):
    """One event (contract, section 2).

    ``part`` is the event id without trace and span id (``op-start``, ``run-end``, …);
    ``attributes`` are all that the LogRecord carries but event id and event name;
    ``time_unix_nano`` is 0 where unknown.
    """

    event: str
    trace_id: bytes
    span_id: bytes
    part: str
    time_unix_nano: int
    attributes: dict[str, Value]
    dropped_attributes_count: int = 0
    characters_replaced: bool = False

    @property
    def event_id(self) -> str:
        """``op-<trace id>-<span id>-start`` and the like."""
        return event_id(self.trace_id, self.span_id, self.part)


class Refused(NamedTuple):
    """One event that is not taken: its id where one can be derived, else its item's position."""

    code: str
    message: str
    event_id: str = ""
    item: int = -1


def event_id(trace_id: bytes, span_id: bytes, part: str) -> str:
    """The event id of a part of a span (contract, section 2)."""
    kind, _, rest = part.partition("-")
    return f"{kind}-{trace_id.hex()}-{span_id.hex()}-{rest}"


def run_key(project_id: int, origin: str, workflow: str, run_id: str) -> bytes:
    """The 16 bytes that name a run within a store, the same wherever and whenever it is stored."""
    text = "\0".join((str(project_id), origin, workflow, run_id))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


class Diagnostic(NamedTuple):
    """Something the application should know about its own recording; it never raises by itself.

    ``code`` is one of ``names.DIAGNOSTIC_CODES``; ``event_id`` is empty where no event is meant.
    """

    code: str
    message: str
    event_id: str = ""


class Sink(Protocol):
    """Where recorded events go. Whoever records knows no more of delivery than this."""

    def put(self, events: Sequence[Envelope | Refused], resource: Mapping[str, object]) -> None:
        """Take events of one resource; waits for no network and raises nothing.

        ``resource`` is the mapping of the provider's resource attributes: the same object for all
        spans of one provider.
        """
        ...

    def diagnose(self, diagnostic: Diagnostic) -> None:
        """Report what is no event: a late report, a wrong argument, frozen metadata."""
        ...


class Unacknowledged(NamedTuple):
    """One event that was not acknowledged: its id, its state, and the reason."""

    event_id: str
    state: str
    reason: str
    message: str = ""


class Rejection(NamedTuple):
    """A rejected event as a receipt names it (contract, section 3)."""

    event_id: str
    code: str
    message: str
    item: int = -1


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of the events of one request (contract, section 3); events, never spans.

    ``rejected_items`` is what OTLP's partial success counts: items with at least one rejected
    event. ``capabilities`` is empty where the accepting side has none.
    """

    capabilities: tuple[str, ...] = (names.CAPABILITY,)
    backend_id: str = ""
    stored: int = 0
    duplicate: int = 0
    custody: int = 0
    received: int = 0
    rejected: int = 0
    rejections: tuple[Rejection, ...] = ()
    rejected_items: int = 0
    error_message: str = ""


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sent an event, as far as is known; None is unknown."""

    user_agent: str | None = None
    service_name: str | None = None
    service_version: str | None = None
    service_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Principal:
    """Whom a key stands for: its project, its kind; ``origin`` follows from the kind.

    ``pages`` are the web origins from which a browser key may send, ``events_per_minute`` what it
    may send; empty and None for other kinds.
    """

    project_id: int
    project: str
    kind: str
    key_id: str = ""
    pages: tuple[str, ...] = ()
    events_per_minute: int | None = None

    @property
    def origin(self) -> str:
        """``browser`` for publishable keys, else ``server``."""
        return names.ORIGIN_BROWSER if self.kind == names.KEY_BROWSER else names.ORIGIN_SERVER
