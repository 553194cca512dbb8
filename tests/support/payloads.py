"""OTLP requests of traces written by hand, odd ones too: JSON dictionaries, in both encodings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

JSON: Final = "application/json"
PROTOBUF: Final = "application/x-protobuf"
START: Final = 1_796_045_879_000_000_000
END: Final = START + 250_000_000

Json = dict[str, Any]


def any_value(value: object) -> Json:
    """A Python value as OTLP/JSON's AnyValue."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(each) for each in value]}}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": attributes(value)}}
    assert value is None
    return {}


def attributes(given: Mapping[str, object]) -> list[Json]:
    """Attributes as OTLP/JSON writes them."""
    return [{"key": key, "value": any_value(value)} for key, value in given.items()]


def span(number: int, given: Mapping[str, object], **fields: object) -> Json:
    """A span in OTLP/JSON; ``number`` makes its ids, ``fields`` replace what is usual."""
    return {
        "traceId": f"{number:032x}",
        "spanId": f"{number:016x}",
        "name": "push-to-crm",
        "kind": 1,
        "startTimeUnixNano": str(START),
        "endTimeUnixNano": str(END),
        "attributes": attributes(given),
        "status": {},
        **fields,
    }


def request(spans: Iterable[Json], service: str = "crm-sync") -> Json:
    """One resource, one scope, these spans."""
    resource = {"attributes": attributes({"service.name": service})}
    scope = {"scope": {"name": "tests"}, "spans": list(spans)}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def as_json(document: Json) -> bytes:
    """The request in OTLP/JSON; what is no UTF-8 is escaped."""
    return json.dumps(document).encode()


def as_protobuf(document: Json) -> bytes:
    """The request in protobuf, for documents that protobuf can say."""
    message = ExportTraceServiceRequest()
    for given in document["resourceSpans"]:
        resource_spans = message.resource_spans.add()
        _fill(resource_spans.resource.attributes, given["resource"]["attributes"])
        for scope in given["scopeSpans"]:
            scope_spans = resource_spans.scope_spans.add()
            scope_spans.scope.name = scope["scope"]["name"]
            for each in scope["spans"]:
                _span(scope_spans.spans.add(), each)
    return message.SerializeToString()


def _span(message: SpanMessage, given: Json) -> None:
    message.trace_id = bytes.fromhex(given["traceId"])
    message.span_id = bytes.fromhex(given["spanId"])
    message.parent_span_id = bytes.fromhex(given.get("parentSpanId", ""))
    message.name = given["name"]
    message.kind = given["kind"]
    message.start_time_unix_nano = int(given["startTimeUnixNano"])
    message.end_time_unix_nano = int(given["endTimeUnixNano"])
    message.status.code = given["status"].get("code", 0)
    _fill(message.attributes, given["attributes"])


def _fill(target: RepeatedCompositeFieldContainer[KeyValue], given: Iterable[Json]) -> None:
    for each in given:
        _value(target.add(key=each["key"]).value, each["value"])


def _value(target: AnyValue, given: Json) -> None:
    if "stringValue" in given:
        target.string_value = given["stringValue"]
    elif "boolValue" in given:
        target.bool_value = given["boolValue"]
    elif "intValue" in given:
        target.int_value = int(given["intValue"])
    elif "doubleValue" in given:
        target.double_value = float(given["doubleValue"])
    elif "arrayValue" in given:
        target.array_value.SetInParent()
        for each in given["arrayValue"]["values"]:
            _value(target.array_value.values.add(), each)
    elif "kvlistValue" in given:
        target.kvlist_value.SetInParent()
        _fill(target.kvlist_value.values, given["kvlistValue"]["values"])
