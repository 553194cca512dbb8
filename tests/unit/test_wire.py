"""Reading OTLP requests: scan, protobuf, JSON (contract, section 4)."""

from __future__ import annotations

import json

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from flowmark_otel import names
from flowmark_otel.errors import Unparsable
from flowmark_otel.fold import fold_span
from flowmark_otel.model import Misshapen, Refused, Span
from flowmark_otel.wire.decode import Request, decode_traces
from flowmark_otel.wire.scan import scan
from tests.support.otlp import json_span, traces_protobuf

MARKED = Span(
    b"\1" * 16,
    b"\2" * 8,
    "op",
    1,
    2,
    failed=True,
    attributes={names.ATTEMPT_GROUP_ID: "group-é", names.ATTEMPT_NUMBER: 1},
    service_name="svc",
)
PLAIN = MARKED._replace(attributes={"http.request.method": "GET"})


def of_json(*items: object) -> Request:
    """The marked spans of a JSON request with these."""
    return decode_traces(
        json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": items}]}]}).encode(), "json"
    )


def test_only_marked_spans_are_parsed_and_keep_their_position() -> None:
    """D4: positions count through all resources and scopes, marked or not."""
    request = decode_traces(traces_protobuf([PLAIN, MARKED, PLAIN, MARKED]), "protobuf")
    assert request.items == 4
    assert [item.position for item in request.marked] == [1, 3]
    record = request.marked[0].record
    assert isinstance(record, Span)
    assert record.attributes == MARKED.attributes
    assert record.failed


def test_nothing_marked_is_never_parsed() -> None:
    """A21: items without our keys are counted, and recognised by their bytes alone."""
    found = scan(traces_protobuf([PLAIN] * 3))
    assert (found.items, found.marked) == (3, [])


@pytest.mark.parametrize("cut", range(1, len(traces_protobuf([MARKED]))))
def test_every_truncation_is_unparsable(cut: int) -> None:
    """Fault row 18: a request cut at any byte is refused as a whole, before anything is parsed."""
    with pytest.raises(Unparsable):
        scan(traces_protobuf([MARKED])[:cut])


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xff\xff",
        b"<html></html>",
        b"\x08\x01",  # the resource group's field as a number
        b"\x0b\x0c",  # a group
        b"\x0a\x05\x0a",  # longer than what holds it
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x02\x00",  # field 0
        b"\x11\x00",  # a fixed64 that ends early
    ],
)
def test_broken_frames_are_unparsable(body: bytes) -> None:
    """Fault row 18: wrong wire types, groups and lengths are refused."""
    with pytest.raises(Unparsable):
        scan(body)


def test_unknown_fields_are_ignored() -> None:
    """Fault row 18: fields that a later OTLP adds are skipped."""
    body = traces_protobuf([MARKED]) + b"\x50\x01" + b"\x5a\x02hi" + b"\x61" + bytes(8)
    assert len(scan(body + b"\x6d" + bytes(4)).marked) == 1


def test_one_bad_string_costs_only_itself() -> None:
    """Fault row 20: invalid UTF-8 in one attribute leaves the span's other values readable."""
    other = traces_protobuf([MARKED._replace(name="name-é")])
    body = other.replace("name-é".encode(), b"name-\xff\xfe")
    (item,) = decode_traces(body, "protobuf").marked
    assert isinstance(item.record, Span)
    assert item.record.attributes == MARKED.attributes
    assert not any(isinstance(event, Refused) for event in fold_span(item.record))
    body = other.replace("group-é".encode(), b"group-\xff\xfe")
    (item,) = decode_traces(body, "protobuf").marked
    assert isinstance(item.record, Span)
    first = fold_span(item.record)[0]
    assert isinstance(first, Refused)
    assert "invalid UTF-8" in first.message


def field(number: int, payload: bytes) -> bytes:
    """A length-delimited field of fewer than 16 kB."""
    size = len(payload)
    return bytes([number << 3 | 2, size & 127 | 128, size >> 7]) + payload


def test_pairs_written_in_any_order_are_read() -> None:
    """Protobuf lets a value stand before its key, and a key's length take two bytes."""
    value = b"\x12\x03\x0a\x01g"
    key = names.ATTEMPT_GROUP_ID.encode()
    reversed_pair = value + b"\x0a" + bytes([len(key)]) + key
    long_length = b"\x0a" + bytes([len(key) | 128, 0]) + key + value
    for pair in (reversed_pair, long_length):
        span = b"\x4a" + bytes([len(pair)]) + pair
        (item,) = decode_traces(field(1, field(2, field(2, span))), "protobuf").marked
        assert isinstance(item.record, Span)
        assert item.record.attributes == {names.ATTEMPT_GROUP_ID: "g"}


def test_an_undecodable_span_costs_only_itself() -> None:
    """Fault row 18: a marked span whose own bytes are no message is refused, its neighbour kept."""
    request = ExportTraceServiceRequest.FromString(traces_protobuf([MARKED]))
    good = request.resource_spans[0].scope_spans[0].spans[0].SerializeToString()
    bad = b"\x0a\x7fflowmark."  # a trace id of 127 bytes that ends after nine
    body = field(1, field(2, field(2, bad) + field(2, good)))
    items = decode_traces(body, "protobuf").marked
    assert isinstance(items[0].record, Refused)
    assert isinstance(items[1].record, Span)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{",
        b'{"resourceSpans": {}}',
        b'{"resourceSpans": [1]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": {}}]}]}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_json_of_a_wrong_top_level_shape(body: bytes) -> None:
    """Fault row 21: what is no OTLP request in JSON is refused as a whole, at any depth."""
    with pytest.raises(Unparsable):
        decode_traces(body, "json")


@pytest.mark.parametrize(
    "change",
    [
        {"traceId": 5},
        {"startTimeUnixNano": "-5"},
        {"startTimeUnixNano": 2**64},
        {"endTimeUnixNano": "soon"},
        {"endTimeUnixNano": True},
        {"status": "ERROR"},
        {"status": {"code": "7"}},
        {"status": {"code": 2.0}},
        {"status": {"code": True}},
        {"events": {}},
        {"name": ["a"]},
    ],
)
def test_a_json_span_of_a_wrong_shape_costs_itself(change: dict[str, object]) -> None:
    """Contract, section 4: one span of a wrong shape costs that span, at its position."""
    request = of_json({**json_span(MARKED), **change}, json_span(MARKED), 7)
    assert request.items == 3
    assert isinstance(request.marked[0].record, Refused)
    assert isinstance(request.marked[1].record, Span)


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({"intValue": "2"}, 2),
        ({"intValue": 2}, 2),
        ({"intValue": "99999999999999999999"}, 99999999999999999999),
        ({"intValue": 2.5}, Misshapen("intValue")),
        ({"intValue": "2.0"}, Misshapen("intValue")),
        ({"doubleValue": 2}, 2.0),
        ({"doubleValue": "2.5"}, 2.5),
        ({"stringValue": 2}, Misshapen("stringValue")),
        ({"boolValue": "true"}, Misshapen("boolValue")),
        ({"bytesValue": "AQ=="}, b"\1"),
        ({"arrayValue": {}}, []),
        ({}, None),
        (None, None),
        (5, Misshapen("value")),
    ],
)
def test_json_values(value: object, read: object) -> None:
    """OTLP/JSON: integers as strings or numbers, doubles as either; anything else is misshapen."""
    span = {**json_span(PLAIN), "attributes": [{"key": names.ATTEMPT_NUMBER, "value": value}]}
    record = of_json(span).marked[0].record
    assert isinstance(record, Span)
    assert record.attributes[names.ATTEMPT_NUMBER] == read


def test_json_details() -> None:
    """OTLP/JSON: enum names, ids in either case and times as numbers are read; NaN is a value."""
    span = {
        **json_span(MARKED),
        "traceId": "AB" * 16,
        "status": {"code": "STATUS_CODE_ERROR"},
        "startTimeUnixNano": 5,
        "unknownField": [{}],
    }
    record = of_json(span).marked[0].record
    assert isinstance(record, Span)
    assert (record.trace_id, record.failed, record.start_time_unix_nano) == (b"\xab" * 16, True, 5)
    huge = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [json_span(MARKED)]}]}]})
    body = huge.replace('"name": "op"', '"x": NaN, "y": ' + "9" * 100_000).encode()
    assert isinstance(decode_traces(body, "json").marked[0].record, Span)
