"""The budgets of one request: what is refused before anything is built, and what never is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span as SpanMessage

from flowmark_otel import names
from flowmark_otel.errors import TooLarge
from flowmark_otel.model import Refused, Span
from flowmark_otel.wire import budget
from flowmark_otel.wire.decode import decode_logs, decode_traces
from tests.support import bombs

SIZE = 4 * bombs.MIB


@pytest.mark.parametrize(
    ("name", "body"), [pytest.param(*each, id=each[0]) for each in bombs.protobuf_bombs(SIZE)]
)
def test_a_bomb_is_too_large(name: str, body: bytes) -> None:
    """Fault row 17: no kind of part can be repeated without end, in spans or log records."""
    assert len(body) <= SIZE
    if name == "observed attempts":  # at this size, one item over its own budget
        (item,) = decode_traces(body, "protobuf").marked
        assert isinstance(item.record, Refused)
    else:
        with pytest.raises(TooLarge, match="more than"):
            decode_traces(body, "protobuf")
    if name.startswith(("empty spans", "tiny")) or "group" in name:
        with pytest.raises(TooLarge, match="more than"):
            decode_logs(body, "protobuf")


@pytest.mark.parametrize(
    "body", [pytest.param(body, id=name) for name, body in bombs.json_bombs(2 * SIZE)]
)
def test_a_json_bomb_is_too_large(body: bytes) -> None:
    """Fault rows 17 and 21: JSON is held against a budget before it is parsed."""
    with pytest.raises(TooLarge, match="more than"):
        decode_traces(body, "json")


@pytest.mark.parametrize("spare", [0, -1])
def test_the_budget_of_items_is_exact(spare: int) -> None:
    """Fault row 17: items and their groups up to the budget pass, one more does not."""
    count = budget.MAX_ITEMS - 2 - spare
    protobuf = bombs.request(bombs.EMPTY_SPAN * count)
    document: Any = {"resourceSpans": [{"scopeSpans": [{"spans": [{}] * count}]}]}
    for body, encoding in ((protobuf, "protobuf"), (json.dumps(document).encode(), "json")):
        if spare:
            with pytest.raises(TooLarge, match=str(budget.MAX_ITEMS)):
                decode_traces(body, encoding)
        else:
            assert decode_traces(body, encoding).items == count


@pytest.mark.parametrize("spare", [0, -1])
def test_the_budget_of_annotated_items_is_exact(spare: int) -> None:
    """Fault row 17: annotated items and their read events pass up to the budget, and no further."""
    pair = {"key": names.ATTEMPT_GROUP_ID, "value": {"stringValue": "g"}}
    event = {"name": names.ATTEMPT_OBSERVED}
    for each, as_json in (
        (bombs.TINY_SPAN, {"attributes": [pair]}),
        (bombs.annotated(bombs.OBSERVED), {"attributes": [pair], "events": [event]}),
    ):
        taken = 2 if "events" in as_json else 1
        count = budget.MAX_ANNOTATED // taken - spare
        document: Any = {"resourceSpans": [{"scopeSpans": [{"spans": [as_json] * count}]}]}
        for body, encoding in (
            (bombs.request(each * count), "protobuf"),
            (json.dumps(document).encode(), "json"),
        ):
            if spare:
                with pytest.raises(TooLarge, match=str(budget.MAX_ANNOTATED)):
                    decode_traces(body, encoding)
            else:
                assert len(decode_traces(body, encoding).marked) == count


@pytest.mark.parametrize("size", [1, 40_000])
def test_fields_beside_items_are_counted(size: int) -> None:
    """Fault row 17: what is unknown is skipped, but not without end, wherever it stands."""
    good = bombs.request(bombs.TINY_SPAN)
    for extra in (b"\x7a\0", b"\x78\0", b"\x79" + bytes(8), b"\x7d" + bytes(4)):
        assert len(decode_traces(good + extra * size, "protobuf").marked) == 1
    with pytest.raises(TooLarge, match=str(budget.MAX_FRAME_FIELDS)):
        decode_traces(good + b"\x78\0" * (budget.MAX_FRAME_FIELDS + 1), "protobuf")


def _crowded(count: int) -> bytes:
    return bombs.annotated(bombs.EMPTY_ATTRIBUTE * count)


def test_an_item_over_its_budget_costs_itself() -> None:
    """Fault row 17: one span of too many attributes is invalid, its neighbours are read."""
    body = bombs.request(
        bombs.TINY_SPAN + _crowded(budget.MAX_ITEM_FIELDS) + _crowded(1000) + bombs.TINY_SPAN
    )
    first, over, crowded, last = decode_traces(body, "protobuf").marked
    for each in (first, crowded, last):
        assert isinstance(each.record, Span)
        assert each.record.attributes[names.ATTEMPT_GROUP_ID] == "g"
    assert isinstance(over.record, Refused)
    assert over.record.code == names.INVALID
    assert str(budget.MAX_ITEM_FIELDS) in over.record.message
    assert [first.position, over.position, crowded.position, last.position] == [0, 1, 2, 3]


def test_a_log_record_over_its_budget_costs_itself() -> None:
    """Fault row 17: the same of log records."""
    pair = bombs.field(b"\x32", bombs.field(b"\x0a", names.RUN_ID.encode()))
    small = bombs.field(b"\x12", pair)
    crowded = bombs.field(b"\x12", pair + b"\x32\0" * budget.MAX_ITEM_FIELDS)
    found = decode_logs(bombs.request(small + crowded + small), "protobuf").marked
    assert [isinstance(each.record, Refused) for each in found] == [False, True, False]


def test_a_json_item_over_its_budget_costs_itself() -> None:
    """Fault row 17: the same in JSON, where an absent key costs nothing."""
    pair = {"key": names.RUN_ID, "value": {"stringValue": "r"}}
    crowd: Any = [{}] * budget.MAX_ITEM_FIELDS
    spans = [{"attributes": [pair, *crowd]}, {"attributes": [pair], "events": "none"}]
    spans += [{"attributes": [pair], "events": crowd, "links": [{}]}, {"attributes": [pair]}]
    document = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    found = decode_traces(json.dumps(document).encode(), "json").marked
    assert [isinstance(each.record, Refused) for each in found] == [True, True, True, False]


def test_a_resource_over_its_budget_is_unknown() -> None:
    """Fault row 17: spans of a resource of too many attributes are kept, of an unknown service."""
    resource = bombs.field(b"\x0a", b"\x0a\0" * (budget.MAX_ITEM_FIELDS + 1))
    body = bombs.field(b"\x0a", resource + bombs.field(b"\x12", bombs.TINY_SPAN))
    (item,) = decode_traces(body, "protobuf").marked
    assert isinstance(item.record, Span)
    assert item.resource.service_name is None


def test_a_large_batch_of_a_stock_exporter_fits() -> None:
    """D5: 4,096 annotated spans of 128 attributes, 8 events and 8 links are no bomb."""
    span = SpanMessage(
        name="push",
        attributes=[
            KeyValue(key=names.ATTEMPT_GROUP_ID, value=AnyValue(string_value="g")),
            *(
                KeyValue(key=f"http.request.header.{number}", value=AnyValue(int_value=number))
                for number in range(127)
            ),
        ],
        events=[SpanMessage.Event(name="exception")] * 8,
        links=[SpanMessage.Link(trace_id=bytes(16), span_id=bytes(8))] * 8,
    )
    scopes = [ScopeSpans(spans=[span] * 256)] * 16
    found = ExportTraceServiceRequest(resource_spans=[ResourceSpans(scope_spans=scopes)])
    assert len(decode_traces(found.SerializeToString(), "protobuf").marked) == 4096


def test_a_group_for_each_span_fits() -> None:
    """D5: 8,192 spans, each of a resource of its own, as a Collector batches them, are no bomb."""
    group = ResourceSpans(
        resource=Resource(attributes=[KeyValue(key="service.name", value=AnyValue())]),
        scope_spans=[ScopeSpans(spans=[SpanMessage(name="push")], schema_url="s")],
        schema_url="s",
    )
    found = ExportTraceServiceRequest(resource_spans=[group] * 8192)
    assert decode_traces(found.SerializeToString(), "protobuf").items == 8192


@pytest.mark.parametrize("depth", [48, 100, 10_000])
def test_depth_costs_nothing(depth: int) -> None:
    """Fault row 21: a value nested deeply, of a key that is not ours, is never opened."""
    value = AnyValue(string_value="x").SerializeToString()
    for _ in range(depth):
        value = bombs.field(b"\x2a", bombs.field(b"\x0a", value))
    pair = bombs.field(bombs.ATTRIBUTE, bombs.field(b"\x0a", b"k") + bombs.field(b"\x12", value))
    (item,) = decode_traces(bombs.request(bombs.annotated(pair)), "protobuf").marked
    assert isinstance(item.record, Span)


@pytest.mark.parametrize("depth", [48, 100, 10_000])
def test_depth_of_our_own_value_is_no_text(depth: int) -> None:
    """Fault row 21: a value of ours that is nested reads as a list, which no rule accepts."""
    value = ArrayValue().SerializeToString()
    for _ in range(depth):
        value = bombs.field(b"\x0a", bombs.field(b"\x2a", value))
    held = bombs.field(b"\x12", bombs.field(b"\x2a", value))
    pair = bombs.field(bombs.ATTRIBUTE, bombs.field(b"\x0a", names.RUN_ID.encode()) + held)
    (item,) = decode_traces(bombs.request(bombs.field(bombs.SPAN, pair)), "protobuf").marked
    assert isinstance(item.record, Span)
    assert item.record.attributes[names.RUN_ID] == []


@pytest.mark.parametrize("depth", [48, 90, 200, 100_000])
def test_groups_cost_their_span(depth: int) -> None:
    """Fault rows 18 and 21: nested groups are skipped, or cost the span that holds them."""
    nested = b"\x7b" * depth + b"\x7c" * depth
    body = bombs.request(bombs.annotated(nested) + bombs.TINY_SPAN)
    first, second = decode_traces(body, "protobuf").marked
    assert isinstance(first.record, Span if depth < 100 else Refused)
    assert isinstance(second.record, Span)


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ('{"intValue": ' + "9" * 100_000 + "}", "int"),
        ('{"doubleValue": NaN}', "float"),
        ('{"doubleValue": 1e999999}', "float"),
        ('{"stringValue": "a", "stringValue": "b"}', "str"),
        ('{"arrayValue": ' + "[" * 900 + "]" * 900 + "}", "list"),
    ],
)
def test_odd_json_costs_at_most_its_value(value: str, read: str) -> None:
    """Fault row 21: digits without end, NaN, duplicate keys and depth stay within their span."""
    body = (
        '{"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": [{"key": "flowmark.run.id",'
        f' "value": {value}}}], "attributes": [{{"key": "flowmark.run.id", "value": {value}}}]}}'
        "]}]}]}"
    )
    (item,) = decode_traces(body.encode(), "json").marked
    assert isinstance(item.record, Span)
    assert type(item.record.attributes[names.RUN_ID]).__name__ == read
