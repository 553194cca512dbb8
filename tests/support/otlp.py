"""OTLP requests built from our own records, by the stock messages."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from flowmark_otel.model import Span


def any_value(value: object) -> AnyValue:
    """A value as the stock SDK writes it."""
    if value is None:
        return AnyValue()
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, bytes):
        return AnyValue(bytes_value=value)
    msg = f"no attribute value: {value!r}"
    raise TypeError(msg)


def traces_protobuf(spans: Iterable[Span]) -> bytes:
    """An ExportTraceServiceRequest with one resource group a span."""
    request = ExportTraceServiceRequest()
    for span in spans:
        group = request.resource_spans.add()
        if span.service_name is not None:
            pair = group.resource.attributes.add(key="service.name")
            pair.value.CopyFrom(any_value(span.service_name))
        added = group.scope_spans.add().spans.add(
            trace_id=span.trace_id,
            span_id=span.span_id,
            name=span.name,
            start_time_unix_nano=span.start_time_unix_nano,
            end_time_unix_nano=span.end_time_unix_nano,
            dropped_attributes_count=span.dropped_attributes_count,
        )
        if span.failed:
            added.status.code = Status.STATUS_CODE_ERROR
        _fill(added.attributes, span.attributes)
        for event in span.events:
            written = added.events.add(name=event.name, time_unix_nano=event.time_unix_nano)
            _fill(written.attributes, event.attributes)
    return request.SerializeToString()


def _fill(target: Any, attributes: Mapping[str, object]) -> None:
    for key, value in attributes.items():
        target.add(key=key).value.CopyFrom(any_value(value))


def json_value(value: object) -> dict[str, object]:
    """An AnyValue of OTLP/JSON."""
    if value is None:
        return {}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, bytes):
        return {"bytesValue": base64.b64encode(value).decode()}
    msg = f"no attribute value: {value!r}"
    raise TypeError(msg)


def json_attributes(attributes: Mapping[str, object]) -> list[dict[str, object]]:
    """Attributes of OTLP/JSON."""
    return [{"key": key, "value": json_value(value)} for key, value in attributes.items()]


def json_span(span: Span) -> dict[str, Any]:
    """A span of OTLP/JSON."""
    return {
        "traceId": span.trace_id.hex(),
        "spanId": span.span_id.hex(),
        "name": span.name,
        "startTimeUnixNano": str(span.start_time_unix_nano),
        "endTimeUnixNano": str(span.end_time_unix_nano),
        "droppedAttributesCount": span.dropped_attributes_count,
        "status": {"code": 2} if span.failed else {},
        "attributes": json_attributes(span.attributes),
        "events": [
            {
                "name": event.name,
                "timeUnixNano": str(event.time_unix_nano),
                "attributes": json_attributes(event.attributes),
            }
            for event in span.events
        ],
    }


def traces_json(spans: Iterable[Span]) -> bytes:
    """The JSON form of ``traces_protobuf``."""
    groups = []
    for span in spans:
        group: dict[str, Any] = {"scopeSpans": [{"spans": [json_span(span)]}]}
        if span.service_name is not None:
            named = json_attributes({"service.name": span.service_name})
            group["resource"] = {"attributes": named}
        groups.append(group)
    return json.dumps({"resourceSpans": groups}).encode()
