"""Envelopes → OTLP log records (contract, section 2)."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from flowmark_otel import names
from flowmark_otel.model import Envelope
from flowmark_otel.validate.secrets import redact_resource
from flowmark_otel.wire.records import FRAMES, encode_record, sized, varint

_FIRST: Final = b"\x0a"  # resource group of a request, resource of a group, scope of a scope group
_SECOND: Final = b"\x12"  # scope group of a resource group


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
    framed: list[bytes] = []
    for envelope in envelopes:
        record = encode_record(envelope)
        framed += (FRAMES[len(record)], record)
    return encode_framed(framed, resource_attributes, scope_version=scope_version)


def encode_framed(
    framed: Sequence[bytes], resource_attributes: Mapping[str, object], *, scope_version: str = ""
) -> bytes:
    """As ``encode_logs`` in protobuf, of records that are written already, each in its frame."""
    resource = Resource()
    for key, value in redact_resource(resource_attributes).items():
        _set(resource.attributes.add(key=key).value, value)
    scope = InstrumentationScope(name=names.SCOPE, version=scope_version)
    # Joined twice and no more: what is many records long is copied each time.
    scoped = b"".join((_FIRST, sized(scope.SerializeToString()), *framed))
    head = b"".join((_FIRST, sized(resource.SerializeToString()), _SECOND, varint(len(scoped))))
    return b"".join((_FIRST, varint(len(head) + len(scoped)), head, scoped))


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
    elif isinstance(value, Mapping):
        target.kvlist_value.SetInParent()
        for key, one in value.items():
            _set(target.kvlist_value.values.add(key=str(key)).value, one)
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
        {"key": key, "value": _json_value(value)}
        for key, value in redact_resource(resource_attributes).items()
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
    if isinstance(value, Mapping):
        pairs = [{"key": str(key), "value": _json_value(one)} for key, one in value.items()]
        return {"kvlistValue": {"values": pairs}}
    if isinstance(value, Sequence):
        return {"arrayValue": {"values": [_json_value(one) for one in value]}}
    return {}
