"""Marked items of a protobuf request → records.

A string that is no UTF-8 makes protobuf refuse its whole message. Such an item is read again with
descriptors whose strings are bytes, so that one bad string costs only itself (contract, section 4).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from flowmark_otel import names
from flowmark_otel.model import LogRecord, Refused, Resource, Span, SpanEvent

_ERROR: Final = trace_pb2.Status.STATUS_CODE_ERROR
_READ_EVENTS: Final = (names.EXCEPTION_EVENT, names.ATTEMPT_OBSERVED)
_UNDECODABLE: Final = "the item cannot be decoded; its bytes are no valid protobuf message"


def decode_span(item: bytes, resource: Resource) -> Span | Refused:
    """One span, as far as folding reads it."""
    try:
        return _span(trace_pb2.Span.FromString(item), resource)
    except DecodeError:
        pass
    try:
        return _span(_lenient("Span").FromString(item), resource)
    except DecodeError:
        return Refused(names.INVALID, _UNDECODABLE)


def decode_log(item: bytes) -> LogRecord | Refused:
    """One log record, as far as an envelope's reader needs it."""
    try:
        return _log(logs_pb2.LogRecord.FromString(item))
    except DecodeError:
        pass
    try:
        return _log(_lenient("LogRecord").FromString(item))
    except DecodeError:
        return Refused(names.INVALID, _UNDECODABLE)


def decode_resource(raw: bytes) -> Resource:
    """The service an item came from; what cannot be decoded is unknown."""
    message: Any
    try:
        message = resource_pb2.Resource.FromString(raw)
    except DecodeError:
        try:
            message = _lenient("Resource").FromString(raw)
        except DecodeError:
            return Resource()
    found = {}
    for pair in message.attributes:
        key = _text(pair.key)
        if key.startswith("service."):
            found[key] = _value(pair.value)
    return Resource(
        found.get(names.SERVICE_NAME),
        found.get(names.SERVICE_VERSION),
        found.get(names.SERVICE_INSTANCE_ID),
    )


def _span(message: Any, resource: Resource) -> Span:  # noqa: ANN401  stock or lenient class
    return Span(
        message.trace_id,
        message.span_id,
        _text(message.name),
        message.start_time_unix_nano,
        message.end_time_unix_nano,
        message.status.code == _ERROR,
        _attributes(message.attributes),
        resource.service_name,
        _events(message.events) if message.events else (),
        message.dropped_attributes_count,
    )


def _log(message: Any) -> LogRecord:  # noqa: ANN401  stock or lenient class
    return LogRecord(
        _text(message.event_name),
        message.trace_id,
        message.span_id,
        message.time_unix_nano,
        _attributes(message.attributes),
        message.dropped_attributes_count,
    )


def _events(events: Iterable[Any]) -> list[SpanEvent]:
    return [
        SpanEvent(
            name,
            event.time_unix_nano,
            {_text(pair.key): _value(pair.value) for pair in event.attributes},
        )
        for event in events
        if (name := _text(event.name)) in _READ_EVENTS
    ]


def _attributes(pairs: Iterable[Any]) -> dict[str, object]:
    """The attributes that folding reads; the others are never looked into."""
    found = {}
    for pair in pairs:
        key = pair.key
        if type(key) is not str:
            key = _text(key)
        if key.startswith("flowmark.") or key == "error.type":
            found[key] = _value(pair.value)
    return found


def _value(value: Any) -> object:  # noqa: ANN401  stock or lenient class
    kind = value.WhichOneof("value")
    if kind == "string_value":
        found = value.string_value
        return found if type(found) is str else _text(found)
    if kind == "int_value":
        return value.int_value
    if kind is None:
        return None
    if kind == "array_value":
        return []
    if kind == "kvlist_value":
        return {}
    return getattr(value, kind)


def _text(value: str | bytes) -> str:
    """Text; bytes that are no UTF-8 become lone surrogates, which no rule accepts."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogateescape")


def _lenient(name: str) -> Any:  # noqa: ANN401  a generated message class
    return _LENIENT[name]


def _lenient_classes() -> dict[str, Any]:
    """Copies of the OTLP messages in a private pool, their strings turned into bytes."""
    pool = descriptor_pool.DescriptorPool()
    for module in (common_pb2, resource_pb2, trace_pb2, logs_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        for message in file.message_type:
            _strings_to_bytes(message)
        pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(full))
        for name, full in (
            ("Span", "opentelemetry.proto.trace.v1.Span"),
            ("LogRecord", "opentelemetry.proto.logs.v1.LogRecord"),
            ("Resource", "opentelemetry.proto.resource.v1.Resource"),
        )
    }


def _strings_to_bytes(message: descriptor_pb2.DescriptorProto) -> None:
    for field in message.field:
        if field.type == field.TYPE_STRING:
            field.type = field.TYPE_BYTES
    for nested in message.nested_type:
        _strings_to_bytes(nested)


_LENIENT: Final = _lenient_classes()
