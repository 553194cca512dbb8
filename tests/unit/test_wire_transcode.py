"""OTLP/JSON and protobuf made of each other (section 9, fault rows 18, 20 and 21)."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from hypothesis import given, settings
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from flowmark_otel import names
from flowmark_otel.errors import Unparsable
from flowmark_otel.wire.decode import decode_logs, decode_traces
from flowmark_otel.wire.scan import scan
from flowmark_otel.wire.transcode import to_json, to_protobuf
from tests.support.cuttable import REQUESTS, field
from tests.support.signals import SAMPLES

_PAIRS: Final = [path for path in SAMPLES if path.suffix == ".json"]


@pytest.mark.parametrize("sample", _PAIRS, ids=lambda path: path.stem)
def test_samples_are_the_same_in_both_encodings(sample: Any) -> None:
    """Section 9: what a stock exporter sends in one encoding is made of the other."""
    text = sample.read_bytes()
    written = to_json(sample.with_suffix(".pb").read_bytes(), "traces")
    # The paths in one trace back were made neutral in JSON alone.
    assert json.loads(written.body.replace(b"/tmp/", b"/srv/app/")) == json.loads(text)
    back = to_protobuf(text, "traces")
    assert json.loads(to_json(back.body, "traces").body) == json.loads(text)
    assert (written[1:], back[1:]) == ((False, 0), (False, 0))


@settings(max_examples=100, deadline=None)
@given(body=REQUESTS)
def test_there_and_back_is_the_same(body: bytes) -> None:
    """Section 9: nothing that OTLP knows is lost on the way."""
    there = to_json(body, "traces")
    back = to_protobuf(there.body, "traces")
    message = ExportTraceServiceRequest.FromString(body)
    message.DiscardUnknownFields()
    assert ExportTraceServiceRequest.FromString(back.body) == message
    assert (there[1:], back[1:]) == ((False, 0), (False, 0))
    assert there.body.isascii()


def _values(target: RepeatedCompositeFieldContainer[KeyValue]) -> None:
    for at, value in enumerate(
        (
            *(AnyValue(string_value="é\u2028\n"), AnyValue(bool_value=False), AnyValue()),
            *(AnyValue(int_value=-(2**63)), AnyValue(double_value=-0.0)),
            *(AnyValue(double_value=float("inf")), AnyValue(bytes_value=b"\xff\0")),
        )
    ):
        target.add(key=str(at)).value.CopyFrom(value)
    target.add(key="list").value.array_value.values.add(int_value=0)
    target.add(key="map").value.kvlist_value.values.add(key="k").value.string_value = ""
    target.add(key="empty").value.array_value.SetInParent()


def test_every_kind_of_value_is_carried_in_logs_too() -> None:
    """Section 9: 64-bit integers are strings, bytes base64, ids hex, enums integers."""
    request = ExportLogsServiceRequest()
    group = request.resource_logs.add(schema_url="s")
    _values(group.resource.attributes)
    record = group.scope_logs.add().log_records.add(
        trace_id=bytes(range(16)), span_id=bytes(8), severity_number=9, event_name="e", flags=1
    )
    record.time_unix_nano = 2**64 - 1
    record.body.string_value = "b"
    _values(record.attributes)
    body = request.SerializeToString()
    written = to_json(body, "logs").body
    [found] = json.loads(written)["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    assert found["traceId"] == bytes(range(16)).hex()
    assert found["timeUnixNano"] == str(2**64 - 1)
    assert found["severityNumber"] == 9
    values = [one["value"] for one in found["attributes"]]
    assert values[1:7] == [
        *({"boolValue": False}, {}, {"intValue": str(-(2**63))}, {"doubleValue": -0.0}),
        *({"doubleValue": "Infinity"}, {"bytesValue": "/wA="}),
    ]
    assert ExportLogsServiceRequest.FromString(to_protobuf(written, "logs").body) == request


def test_marked_items_read_the_same_in_both_encodings() -> None:
    """A8: what is folded of a request does not depend on the encoding it was carried in."""
    request = ExportTraceServiceRequest()
    span = (
        request.resource_spans.add()
        .scope_spans.add()
        .spans.add(trace_id=b"\1" * 16, span_id=b"\2" * 8, name="n", start_time_unix_nano=5)
    )
    span.attributes.add(key=names.ATTEMPT_GROUP_ID).value.string_value = "g"
    span.attributes.add(key=names.ATTEMPT_NUMBER).value.int_value = 2
    span.events.add(name="exception", time_unix_nano=6).attributes.add(
        key="exception.type"
    ).value.string_value = "E"
    span.status.code = span.status.STATUS_CODE_ERROR
    body = request.SerializeToString()
    written = to_json(body, "traces").body
    [expected] = decode_traces(body, "protobuf").marked
    [in_json] = decode_traces(written, "json").marked
    [back] = decode_traces(to_protobuf(written, "traces").body, "protobuf").marked
    assert in_json.record == back.record == expected.record


def test_text_that_is_no_utf8_is_replaced_and_said() -> None:
    """Row 20: one bad text costs its own characters, and the request says so."""
    name = field(5, b"bad \xff name")
    body = field(1, field(2, field(2, field(1, b"\1" * 16) + name) + field(2, field(5, b"good"))))
    written = to_json(body, "traces")
    spans = json.loads(written.body)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert [span["name"] for span in spans] == ["bad � name", "good"]
    assert spans[0]["traceId"] == "01" * 16
    assert (written.replaced, written.unread) == (True, 0)


def test_an_item_that_is_no_message_is_kept_as_its_bytes() -> None:
    """Row 18: what the frame's scan lets pass is carried, and its neighbours are read."""
    good, broken = field(2, field(5, b"good")), field(2, b"\x0a\x7f")
    body = field(1, field(1, b"") + field(2, field(1, b"") + good + broken + good))
    assert scan(body).items == 3
    written = to_json(body, "traces")
    [group] = json.loads(written.body)["resourceSpans"]
    spans = group["scopeSpans"][0]["spans"]
    assert [span.get("name") for span in spans] == ["good", None, "good"]
    assert (written.replaced, written.unread) == (False, 1)
    assert to_protobuf(written.body, "traces").body == body


@pytest.mark.parametrize("depth", [10, 40, 60, 1000])
def test_nesting_is_never_an_error(depth: int) -> None:
    """Row 21: a value of any depth is carried or kept as bytes, on both ways."""
    value = b""
    for _ in range(depth):
        value = field(5, field(1, value))
    item = field(2, field(9, field(1, b"k") + field(2, value)))
    body = field(1, field(2, item + field(2, field(5, b"good"))))
    written = to_json(body, "traces")
    assert b"good" in written.body
    assert written.unread == (depth > 50)
    back = to_protobuf(written.body, "traces")
    assert decode_traces(back.body, "protobuf").items == 2


def test_what_is_misshapen_in_json_costs_itself() -> None:
    """Section 4: one span of a wrong shape costs that span, a letter that is none itself."""
    spans = [
        {"name": 7},
        [],
        {"name": "x\ud800", "spanId": "zz", "unknown": {}},
        {"name": "good", "traceId": "AB" * 16, "kind": "SPAN_KIND_CLIENT", "flags": 1},
        {"attributes": [{"key": "k", "value": {"intValue": 10**30}}]},
    ]
    document = {"resourceSpans": [{"scopeSpans": [{"spans": spans}], "schemaUrl": "s"}]}
    found = to_protobuf(json.dumps(document).encode(), "traces")
    assert found[1:] == (True, 3)
    [group] = ExportTraceServiceRequest.FromString(found.body).resource_spans
    assert group.schema_url == "s"
    assert [span.name for span in group.scope_spans[0].spans] == ["", "", "x�", "good", ""]
    assert group.scope_spans[0].spans[2].span_id == b"zz"
    assert group.scope_spans[0].spans[3].trace_id == b"\xab" * 16


@pytest.mark.parametrize("body", [b"", b"[]", b'{"resourceLogs": 1}', b"{" * 100_000])
def test_what_is_no_request_is_unparsable(body: bytes) -> None:
    """Row 21: a wrong top-level shape refuses the request, as when it is decoded."""
    with pytest.raises(Unparsable):
        decode_logs(body, "json")
    with pytest.raises(Unparsable):
        to_protobuf(body, "logs")
