"""Envelopes → OTLP log records (contract, section 2).

Protobuf is written by hand, field by field in the order of their numbers, because building the
stock messages costs three times what recording a span may cost. A law compares every byte with
what the stock messages write. Pairs of key and value that occur again are kept.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from flowmark_otel import names
from flowmark_otel.model import Envelope, Value, event_id

_TIME: Final = Struct("<BQ")  # field 1, fixed64
_TIME_TAG: Final = 0x09
_ATTRIBUTE: Final = b"\x32"  # field 6
_DROPPED: Final = b"\x38"  # field 7
_TRACE_ID: Final = b"\x4a\x10"  # field 9, 16 bytes
_SPAN_ID: Final = b"\x52\x08"  # field 10, 8 bytes
_EVENT_NAME: Final = b"\x62"  # field 12
_KEY: Final = b"\x0a"  # field 1 of a pair
_VALUE: Final = b"\x12"  # field 2 of a pair
_STRING: Final = b"\x0a"  # field 1 of a value
_INTEGER: Final = b"\x18"  # field 3 of a value
_MAX_UINT64: Final = 2**64 - 1

_FIRST: Final = b"\x0a"  # resource group of a request, resource of a group, scope of a scope group
_SECOND: Final = b"\x12"  # scope group of a resource group, record of a scope group

_MORE: Final = 128  # the bit that says another byte of a number follows
_TWO_BYTES: Final = 1 << 14


def encode_logs(
    envelopes: Iterable[Envelope],
    resource_attributes: Mapping[str, object],
    *,
    encoding: str = "protobuf",
    scope_version: str = "",
) -> bytes:
    """An ExportLogsServiceRequest with one record for each envelope, under one resource."""
    if encoding == "json":
        return _encode_json(envelopes, resource_attributes, scope_version)
    resource = Resource()
    for key, value in resource_attributes.items():
        _set(resource.attributes.add(key=key).value, value)
    scope = InstrumentationScope(name=names.SCOPE, version=scope_version)
    parts = [_FIRST, _sized(scope.SerializeToString())]
    for envelope in envelopes:
        record = encode_record(envelope)
        parts += (_SECOND, _varint(len(record)), record)
    scoped = b"".join(parts)
    described = _sized(resource.SerializeToString())
    return _FIRST + _sized(b"".join((_FIRST, described, _SECOND, _varint(len(scoped)), scoped)))


def encode_record(envelope: Envelope) -> bytes:
    """One envelope as the bytes of a LogRecord."""
    event, trace_id, span_id, part, time_unix_nano, attributes, dropped, _ = envelope
    named, name = _EVENTS[event]
    parts = [
        _TIME.pack(_TIME_TAG, time_unix_nano) if time_unix_nano else b"",
        named,
        _id_pair(trace_id, span_id, part),
    ]
    texts, numbers = _TEXTS, _NUMBERS
    for pair in attributes.items():
        kind = type(pair[1])
        if kind is str:
            parts.append(texts.get(pair) or _text(pair))
        elif kind is int:
            parts.append(numbers.get(pair) or _number(pair))
        else:
            parts.append(_other(*pair))
    if dropped:
        parts += (_DROPPED, _varint(dropped))
    parts += (_TRACE_ID, trace_id, _SPAN_ID, span_id, name)
    return b"".join(parts)


_TEXTS: Final[dict[tuple[str, Value], bytes]] = {}
_NUMBERS: Final[dict[tuple[str, Value], bytes]] = {}
"""Pairs as they were written, texts apart from integers, others never: 1 == True == 1.0. Shared
by threads: a lost entry is written again."""

_ONCE: Final = frozenset((names.OPERATION_ID, names.DURATION_NS))
"""Keys whose values do not occur again: they would only push others out."""

_MAX_MEMO: Final = 4096
_MAX_REMEMBERED: Final = 256


def _text(pair: tuple[str, Value]) -> bytes:
    key, text = pair
    written = _attribute(_key(key), _STRING + _sized(str(text).encode()))
    return written if key in _ONCE else _remember(_TEXTS, pair, written)


def _number(pair: tuple[str, Value]) -> bytes:
    key, number = pair
    written = _attribute(_key(key), _INTEGER + _varint(int(number) & _MAX_UINT64))
    return written if key in _ONCE else _remember(_NUMBERS, pair, written)


def _other(key: str, value: Value) -> bytes:
    """A pair whose value is neither text nor integer."""
    target = AnyValue()
    _set(target, value)
    return _attribute(_key(key), target.SerializeToString())


def _remember(
    memo: dict[tuple[str, Value], bytes], pair: tuple[str, Value], written: bytes
) -> bytes:
    """Keep a written pair unless it is long; a full memo begins anew."""
    if len(written) <= _MAX_REMEMBERED:
        if len(memo) >= _MAX_MEMO:
            memo.clear()
        memo[pair] = written
    return written


def _id_pair(trace_id: bytes, span_id: bytes, part: str) -> bytes:
    """The pair that holds the event id."""
    form = _FORMS.get(part)
    if form is not None:  # ids of these parts have one length, so all before them is the same
        head, kind, rest = form
        return b"%b%b-%b-%b-%b" % (
            head,
            kind,
            trace_id.hex().encode(),
            span_id.hex().encode(),
            rest,
        )
    return _attribute(
        _key(names.EVENT_ID), _STRING + _sized(event_id(trace_id, span_id, part).encode())
    )


def _key(key: str) -> bytes:
    """The first half of a pair, up to its value's length."""
    return _KEYS.get(key) or b"".join((_KEY, _sized(key.encode()), _VALUE))


_KEYS: Final[dict[str, bytes]] = {}


def _attribute(key: bytes, value: bytes) -> bytes:
    return _ATTRIBUTE + _sized(key + _sized(value))


def _sized(payload: bytes) -> bytes:
    """A payload behind its length."""
    size = len(payload)
    return (_SMALL[size] if size < _MORE else _varint(size)) + payload


_SMALL: Final = [bytes((size,)) for size in range(_MORE)]


def _varint(number: int) -> bytes:
    if number < _MORE:
        return _SMALL[number]
    if number < _TWO_BYTES:
        return bytes((number & 127 | _MORE, number >> 7))
    written = bytearray()
    while number >= _MORE:
        written.append(number & 127 | _MORE)
        number >>= 7
    written.append(number)
    return bytes(written)


_KEYS.update(
    (key, _key(key))
    for key in (
        *names.IDENTITY_KEYS,
        names.OPERATION_NAME,
        names.OPERATION_ID,
        *names.ATTEMPT_START_KEYS,
        *names.RUN_START_KEYS,
        names.DURATION_NS,
        names.EVENT_ID,
        names.ERROR_CODE,
        names.ERROR_TYPE,
    )
)

_EVENTS: Final = {
    # The event name stands among the attributes too, because older hops drop the field.
    event: (_text((names.EVENT_NAME, event)), _EVENT_NAME + _sized(event.encode()))
    for event in (*names.PART_OF_EVENT, names.ATTEMPT_OBSERVED)
}


def _form(part: str) -> tuple[bytes, bytes, bytes]:
    """What stands before the event id of a part, its kind, and its rest."""
    sample = event_id(bytes(16), bytes(8), part).encode()
    whole = _attribute(_key(names.EVENT_ID), _STRING + _sized(sample))
    kind, _, rest = part.partition("-")
    return whole[: -len(sample)], kind.encode(), rest.encode()


_FORMS: Final = {part: _form(part) for part in set(names.PART_OF_EVENT.values())}


def _set(target: AnyValue, value: object) -> None:
    if isinstance(value, str):
        target.string_value = value
    elif isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int):
        target.int_value = value
    elif isinstance(value, float):
        target.double_value = value
    elif isinstance(value, bytes):
        target.bytes_value = value
    elif isinstance(value, Sequence):
        target.array_value.SetInParent()
        for one in value:
            _set(target.array_value.values.add(), one)


def _encode_json(
    envelopes: Iterable[Envelope], resource_attributes: Mapping[str, object], scope_version: str
) -> bytes:
    records = [
        {
            "timeUnixNano": str(envelope.time_unix_nano),
            "eventName": envelope.event,
            "traceId": envelope.trace_id.hex(),
            "spanId": envelope.span_id.hex(),
            "droppedAttributesCount": envelope.dropped_attributes_count,
            "attributes": [
                {"key": key, "value": _json_value(value)} for key, value in _carried(envelope)
            ],
        }
        for envelope in envelopes
    ]
    resource = [
        {"key": key, "value": _json_value(value)} for key, value in resource_attributes.items()
    ]
    scope = {"name": names.SCOPE, "version": scope_version}
    document = {
        "resourceLogs": [
            {
                "resource": {"attributes": resource},
                "scopeLogs": [{"scope": scope, "logRecords": records}],
            }
        ]
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _carried(envelope: Envelope) -> Iterator[tuple[str, object]]:
    yield names.EVENT_NAME, envelope.event
    yield names.EVENT_ID, envelope.event_id
    yield from envelope.attributes.items()


def _json_value(value: object) -> dict[str, Any]:
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, bytes):
        return {"bytesValue": base64.b64encode(value).decode()}
    if isinstance(value, Sequence):
        return {"arrayValue": {"values": [_json_value(one) for one in value]}}
    return {}
