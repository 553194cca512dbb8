"""Envelopes → OTLP log records (contract, section 2)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2

from flowmark_otel import names
from flowmark_otel.model import Envelope


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
    request = logs_service_pb2.ExportLogsServiceRequest()
    group = request.resource_logs.add()
    for key, value in resource_attributes.items():
        _set(group.resource.attributes.add(key=key).value, value)
    scope = group.scope_logs.add()
    scope.scope.name = names.SCOPE
    scope.scope.version = scope_version
    for envelope in envelopes:
        _fill(scope.log_records.add(), envelope)
    return request.SerializeToString()


def _fill(record: logs_pb2.LogRecord, envelope: Envelope) -> None:
    record.time_unix_nano = envelope.time_unix_nano
    record.event_name = envelope.event
    record.trace_id = envelope.trace_id
    record.span_id = envelope.span_id
    record.dropped_attributes_count = envelope.dropped_attributes_count
    for key, value in _carried(envelope):
        _set(record.attributes.add(key=key).value, value)


def _carried(envelope: Envelope) -> Iterable[tuple[str, object]]:
    """The event name stands among the attributes too, because older hops drop the field."""
    yield names.EVENT_NAME, envelope.event
    yield names.EVENT_ID, envelope.event_id
    yield from envelope.attributes.items()


def _set(target: common_pb2.AnyValue, value: object) -> None:
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
