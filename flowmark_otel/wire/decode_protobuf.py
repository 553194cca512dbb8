"""Marked items of a protobuf request → records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from flowmark_otel import names
from flowmark_otel.model import LogRecord, Misshapen, Refused, Resource, Span, SpanEvent
from flowmark_otel.signals import NO_SIGNALS, Signals
from flowmark_otel.wire import shallow
from flowmark_otel.wire.budget import PLAIN, Budget, OverBudgetError
from flowmark_otel.wire.scan import MARK

_OBSERVED: Final = names.ATTEMPT_OBSERVED.encode()
_READ_EVENTS: Final = (names.EXCEPTION_EVENT.encode(), _OBSERVED)
ERROR_MARK: Final = names.ERROR_TYPE.encode()[: len(MARK)]
"""What an attribute of another's has to begin with to be read."""
_KEY: Final = 0x0A  # field 1 of a pair
_VALUE: Final = 0x12  # field 2 of a pair
_STRING: Final = 0x0A  # field 1 of a value
_INTEGER: Final = 0x18  # field 3 of a value
_MORE: Final = 128  # the bit that says another byte of a number follows
_HEADS: Final = 4  # tag and length of a value, and of what it holds; or of a small number
_LEAST: Final = 6
_FAILED: Final = b"\x18\x02"  # a status that holds its code and nothing else
_UNDECODABLE: Final = "the item cannot be decoded; its bytes are no valid protobuf message"
_OVER_BUDGET: Final = Refused(names.INVALID, str(OverBudgetError()))


class Decoder:
    """Reads the items of one request; equal attributes of different items are decoded once.

    The memo lives as long as the request and holds no more than its bytes. What an item is made of
    is taken from the request's budget; of a long one it was taken already where it was found.
    ``marks``: those of ``signals`` that are somewhere in the request.
    """

    __slots__ = ("_budget", "_marks", "_memo", "_signals")

    def __init__(
        self, budget: Budget, signals: Signals = NO_SIGNALS, marks: Sequence[bytes] = ()
    ) -> None:
        self._budget = budget
        self._signals = signals
        self._marks = marks
        self._memo: dict[bytes, tuple[str, object]] = {}

    def span(self, item: bytes | None, resource: Resource) -> Span | Refused:
        """One span, as far as folding reads it. Raises TooLarge for the request."""
        if item is None:
            return _OVER_BUDGET
        try:
            message = shallow.Span.FromString(item)
            if len(item) <= PLAIN:
                parts = len(message.attributes) + len(message.events) + len(message.links)
                self._budget.fields(parts)
            return Span(
                message.trace_id,
                message.span_id,
                _text(message.name),
                message.start_time_unix_nano,
                message.end_time_unix_nano,
                is_failed(message.status),
                self._attributes(item, list(message.attributes)),
                resource.service_name,
                self._events(message.events) if message.events else (),
                message.dropped_attributes_count,
            )
        except DecodeError:
            return Refused(names.INVALID, _UNDECODABLE)
        except OverBudgetError:
            return _OVER_BUDGET

    def log(self, item: bytes | None) -> LogRecord | Refused:
        """One log record, as far as an envelope's reader needs it. Raises TooLarge."""
        if item is None:
            return _OVER_BUDGET
        try:
            message = shallow.LogRecord.FromString(item)
            if len(item) <= PLAIN:
                self._budget.fields(len(message.attributes))
        except DecodeError:
            return Refused(names.INVALID, _UNDECODABLE)
        except OverBudgetError:
            return _OVER_BUDGET
        return LogRecord(
            _text(message.event_name),
            message.trace_id,
            message.span_id,
            message.time_unix_nano,
            self._attributes(item, list(message.attributes)),
            message.dropped_attributes_count,
        )

    def _events(self, events: Iterable[bytes]) -> list[SpanEvent]:
        """The span events that folding reads."""
        found = []
        for raw in events:
            event = shallow.SpanEvent.FromString(raw)
            if event.name in _READ_EVENTS:
                if event.name == _OBSERVED:
                    self._budget.annotated()
                else:
                    self._budget.items(1)
                self._budget.fields(len(event.attributes))
                attributes = dict(map(read_pair, event.attributes))
                found.append(SpanEvent(_text(event.name), event.time_unix_nano, attributes))
        return found

    def _attributes(self, item: bytes, pairs: list[bytes]) -> dict[str, object]:
        """The attributes that folding reads; the others are never decoded.

        Every known encoder writes a pair as tag, length of the key, key: then the key stands at
        the third byte. Where the item holds more marks than were met there, all pairs are read.
        """
        if self._marks and any(mark in item for mark in self._marks):
            return self._with_signals(item, pairs)
        found = {}
        memo = self._memo
        met = 0
        for raw in pairs:
            head = raw[2:11]
            if head == MARK:
                met += 1
            elif head != ERROR_MARK:
                continue
            pair = memo.get(raw)
            if pair is None:
                pair = memo[raw] = read_pair(raw)
            found[pair[0]] = pair[1]
        if met < item.count(MARK):
            return dict(map(read_pair, pairs))
        return found

    def _with_signals(self, item: bytes, pairs: list[bytes]) -> dict[str, object]:
        """The same of an item that holds a mark of a signal."""
        reads = self._signals.raw_reads
        found = {}
        memo = self._memo
        met = 0
        for raw in pairs:
            head = raw[2:11]
            if head == MARK:
                met += 1
            elif head != ERROR_MARK and raw[2 : 2 + sum(raw[1:2])] not in reads:
                continue
            pair = memo.get(raw)
            if pair is None:
                pair = memo[raw] = read_pair(raw)
            found[pair[0]] = pair[1]
        if met < item.count(MARK) or self._signals.marks.isdisjoint(found):
            return dict(map(read_pair, pairs))
        return found


def decode_resource(raw: bytes, budget: Budget) -> Resource:
    """The service an item came from; what cannot be decoded is unknown. Raises TooLarge."""
    try:
        pairs = shallow.Resource.FromString(raw).attributes
        budget.fields(len(pairs))
    except (DecodeError, OverBudgetError):
        return Resource()
    found = dict(read_pair(pair) for pair in pairs if b"service." in pair)
    return Resource(
        found.get(names.SERVICE_NAME),
        found.get(names.SERVICE_VERSION),
        found.get(names.SERVICE_INSTANCE_ID),
    )


def is_failed(status: bytes) -> bool:
    """Whether an encoded Status says so. Raises DecodeError."""
    if not status or status == _FAILED:
        return bool(status)
    code: int = shallow.Status.FromString(status).code
    return code == Status.STATUS_CODE_ERROR


def read_pair(raw: bytes) -> tuple[str, object]:
    """Key and value of an attribute; a value that cannot be read is one that no rule accepts.

    A short text or number, written as every known encoder writes it, is read where it stands.
    """
    size = len(raw)
    if size > _LEAST and raw[0] == _KEY:
        end = 2 + raw[1]
        rest = size - end  # tag and length of the value, tag and length of the text, the text
        if _HEADS <= rest <= _MORE > raw[1] and raw[end] == _VALUE and raw[end + 1] == rest - 2:
            kind, last = raw[end + 2], raw[end + 3]
            if kind == _STRING and last == rest - _HEADS:
                return _text(raw[2:end]), _text(raw[end + 4 :])
            if kind == _INTEGER and rest == _HEADS and last < _MORE:
                return _text(raw[2:end]), last
    try:
        message = shallow.KeyValue.FromString(raw)
    except DecodeError:
        return "", None
    try:
        return _text(message.key), _value(shallow.AnyValue.FromString(message.value))
    except DecodeError:
        return _text(message.key), Misshapen("value")


def _value(value: Any) -> object:  # noqa: ANN401  a shallow AnyValue
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return _text(value.string_value)
    if kind is None:
        return None
    if kind == "array_value":
        return _list(value.array_value)
    if kind == "kvlist_value":
        return {}
    return getattr(value, kind)


def _list(raw: bytes) -> list[object]:
    """The one item of a list if it is a plain value; no rule and no signal looks into others."""
    try:
        items = list(shallow.ArrayValue.FromString(raw).values) if len(raw) <= _MAX_LIST else []
        if len(items) == 1:
            only = shallow.AnyValue.FromString(items[0])
            if only.WhichOneof("value") not in _NESTED:
                return [_value(only)]
    except DecodeError:
        pass
    return []


_MAX_LIST: Final = 1024
_NESTED: Final = ("array_value", "kvlist_value")


def _text(value: bytes) -> str:
    """Text; bytes that are no UTF-8 become lone surrogates, which no rule accepts."""
    return value.decode("utf-8", "surrogateescape")
