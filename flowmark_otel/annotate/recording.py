"""One span that is a run or an operation, and who records its events.

Where a processor of ours captures the span, the processor records; else (no SDK, sampled out,
somebody else's provider) the recording here does, by the same fold. Never both: which of the two
is settled when the span starts.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from opentelemetry import context as otel, trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Link, Span, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from flowmark_otel import model, names
from flowmark_otel.annotate.context import GIVEN_KEY
from flowmark_otel.annotate.hook import Client, tell
from flowmark_otel.annotate.options import Fields, shown, type_name
from flowmark_otel.fold import fold_span, fold_starts
from flowmark_otel.model import Envelope, Refused, SpanEvent, Value, event_id
from flowmark_otel.validate import BrokenRule, check_value, clean_default, rule_of

EARLY: Final = frozenset((names.ATTEMPT_NUMBER, names.RETRY_OF_RUN_ID, names.RECORD_TYPE))
"""A span that carries one of these has its start sent when it starts (E1)."""

_PARTS: Final = {
    names.RECORD_RUN: (names.PART_RUN_START, names.PART_RUN_END),
    names.RECORD_OPERATION: (names.PART_OPERATION_START, names.PART_OPERATION_END),
}
_CARRIED: Final = (str, bool, int, float)


class Place(NamedTuple):
    """Where a span starts: its parent, its links, its time, and a trace id if it gets none."""

    parent: Context
    start_ns: int
    links: Sequence[Link] = ()
    trace_id: bytes = b""


class Ending(NamedTuple):
    """How a span ends: the attributes as given, and the exception if one ended it."""

    failed: bool
    attributes: Mapping[str, object]
    error: BaseException | None = None


class Recording:
    """A started span and its events; its end is recorded once. Any thread may end it.

    ``kind`` is ``names.RECORD_RUN`` or ``names.RECORD_OPERATION``. Fields with faults are not
    recorded: both events are refused, so that nothing is made up about them. ``span``: one that
    was started with them at that place, else it is started here.
    """

    __slots__ = (
        "_attributes",
        "_client",
        "_ended",
        "_kind",
        "_lock",
        "_observed",
        "_own",
        "_started_early",
        "span",
        "span_id",
        "trace_id",
    )

    def __init__(
        self,
        client: Client,
        kind: str,
        name: object,
        fields: Fields,
        place: Place,
        *,
        span: Span | None = None,
    ) -> None:
        if fields.faults and client.strict:
            tell(client, names.DIAGNOSTIC_INVALID, "; ".join(fields.faults))
        self._client = client
        self._kind = kind
        self._lock = threading.Lock()
        self._ended: Ending | None = None
        self._observed: list[SpanEvent] = []
        self._attributes: dict[str, object] = dict(fields.attributes)
        self.span = self._start_span(name, fields, place) if span is None else span
        self.trace_id, self.span_id = self._ids(place)
        # Owned here from now on: what the span is recorded by does not change while it is open.
        self._own: model.Span | None = None
        self._started_early = False
        if fields.faults:
            self._refuse(fields.faults)
        elif not client.captured(self.span):
            self._own = self._folded_as(place.start_ns)
            if not EARLY.isdisjoint(fields.attributes):
                self._started_early = True
                self._put(fold_starts(self._own))

    @property
    def ended(self) -> bool:
        """Whether the end was recorded."""
        return self._ended is not None

    def mark(self, key: str) -> None:
        """Set ``key`` to true on an open span; on an ended one nothing can be said any more."""
        with self._lock:
            if self._ended is None:
                self._attributes[key] = True
                self.span.set_attribute(key, value=True)

    def observe(self, time_ns: int, attributes: Mapping[str, Value]) -> bool:
        """Add a reported try as a span event; False if the span has ended."""
        with self._lock:
            if self._ended is not None:
                return False
            self._observed.append(SpanEvent(names.ATTEMPT_OBSERVED, time_ns, attributes))
            self.span.add_event(names.ATTEMPT_OBSERVED, attributes, time_ns)
            return True

    def end(self, ending: Ending) -> None:
        """End the span and record how; another end changes nothing and is reported."""
        client = self._client
        if client.strict:
            faults = _faults(ending.attributes)
            if faults:
                tell(client, names.DIAGNOSTIC_INVALID, "; ".join(faults))
        with self._lock:
            first = self._ended
            if first is None:
                self._ended = ending
        if first is not None:
            if (first.failed, first.attributes) != (ending.failed, ending.attributes):
                message = "ended again in another way; the first end stands"
                tell(client, names.DIAGNOSTIC_ALREADY_ENDED, message, self._event_id(1))
            return
        end_ns = client.clock.now_ns()
        self._attributes.update(ending.attributes)
        if ending.error is not None:
            self._attributes[names.ERROR_TYPE] = type_name(type(ending.error))
        self._end_span(ending, end_ns)
        own = self._own
        if own is not None:
            self._own = None
            ended = own._replace(
                end_time_unix_nano=end_ns, failed=ending.failed, events=self._observed
            )
            events = fold_span(ended)
            self._put(each for each in events if not (self._started_early and _is_start(each)))

    def _start_span(self, name: object, fields: Fields, place: Place) -> Span:
        attributes = fields.attributes
        if fields.faults:  # the identity alone makes no record
            attributes = {k: v for k, v in attributes.items() if k in names.IDENTITY_KEYS}
        try:
            return self._client.tracer().start_span(
                clean_default(shown(name) if isinstance(name, str) else "")[0],
                context=otel.set_value(GIVEN_KEY, attributes, place.parent),
                attributes=attributes,
                links=place.links,
                start_time=place.start_ns,
            )
        except Exception as error:  # noqa: BLE001 - somebody else's sampler or processor
            message = f"the tracer raised {type_name(type(error))}; recorded without a span"
            tell(self._client, names.DIAGNOSTIC_INTERNAL, message)
            return INVALID_SPAN

    def _ids(self, place: Place) -> tuple[bytes, bytes]:
        """The span's ids; a tracer that records nothing hands its parent on, which is no id."""
        context = self.span.get_span_context()
        parent = trace.get_current_span(place.parent).get_span_context()
        if context.is_valid and context.span_id != parent.span_id:
            return context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big")
        trace_id = context.trace_id.to_bytes(16, "big")
        if not context.trace_id:
            trace_id = place.trace_id or os.urandom(16)
        return trace_id, os.urandom(8)

    def _folded_as(self, start_ns: int) -> model.Span:
        return model.Span(
            self.trace_id,
            self.span_id,
            str(self._attributes.get(names.OPERATION_NAME, "")),
            start_ns,
            0,
            failed=False,
            attributes=self._attributes,
            service_name=self._client.resource.get(names.SERVICE_NAME),
        )

    def _end_span(self, ending: Ending, end_ns: int) -> None:
        span = self.span
        # A processor of the application may raise; its trace is not ours to guard, its work is.
        with suppress(Exception):
            for key, value in ending.attributes.items():
                span.set_attribute(key, self._carried(key, value))
            if self._own is None and ending.attributes:
                self._client.say(span, ending.attributes)
            if ending.error is not None:
                span.set_attribute(names.ERROR_TYPE, type_name(type(ending.error)))
            if ending.failed:
                span.set_status(Status(StatusCode.ERROR, _description(ending)))
        with suppress(Exception):  # the exception may not be able to say what it is
            if ending.error is not None and span.is_recording():
                span.record_exception(ending.error)
        with suppress(Exception):
            span.end(end_ns)

    def _carried(self, key: str, value: object) -> AttributeValue:
        """A value as a span takes it; one it would drop is put so that folding refuses it."""
        if isinstance(value, _CARRIED):
            return value
        kind = type(value).__name__
        if self._own is None:
            message = f"{key} is a {kind}; set a string, bool, integer or double"
            tell(self._client, names.DIAGNOSTIC_INVALID, message, self._event_id(1))
        return [kind]

    def _refuse(self, faults: Iterable[str]) -> None:
        message = "; ".join(faults)
        self._put([Refused(names.INVALID, message, self._event_id(which)) for which in (0, 1)])

    def _event_id(self, which: int) -> str:
        return event_id(self.trace_id, self.span_id, _PARTS[self._kind][which])

    def _put(self, events: Iterable[Envelope | Refused]) -> None:
        self._client.sink.put(list(events), self._client.resource)


def _description(ending: Ending) -> str | None:
    code = ending.attributes.get(names.ERROR_CODE)
    if isinstance(code, str):
        return code
    return None if ending.error is None else type_name(type(ending.error))


def _is_start(event: Envelope | Refused) -> bool:
    return event.event_id.endswith("-start")


def _faults(attributes: Mapping[str, object]) -> list[str]:
    """The broken rules of an end's attributes."""
    faults = []
    for key, value in attributes.items():
        rule = rule_of(key)
        if rule is None:
            continue
        try:
            check_value(key, rule, value)
        except BrokenRule as fault:
            faults.append(f"{key} {fault}")
    return faults
