"""Laws of the collector's reading: however often a shape was seen, the same events and bytes."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings, strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from flowmark_otel import names
from flowmark_otel.collector.events import Event, Quick, Row
from flowmark_otel.collector.exporters.backend import encoded
from flowmark_otel.collector.payload import Telemetry
from flowmark_otel.collector.reading import read
from flowmark_otel.deliver.transports.headers import installed_version
from flowmark_otel.fast import SHAPES, learned, unfolded_of
from flowmark_otel.fast.layouts import Received
from flowmark_otel.fold import fold_span
from flowmark_otel.model import Envelope, Refused, Span, SpanEvent
from flowmark_otel.wire import shallow
from flowmark_otel.wire.decode import decode_traces
from flowmark_otel.wire.decode_protobuf import read_pair
from flowmark_otel.wire.encode import encode_logs
from tests.laws.test_fast_laws import FLAG, FLAGS, KEYS, NUMBER, NUMBERS, WORD
from tests.support.otlp import traces_protobuf

_VALUES: Final[dict[str, st.SearchStrategy[Any]]] = {
    key: NUMBER if key in NUMBERS else FLAG if key in FLAGS else WORD for key in KEYS
}
_PAIR: Final = {names.ATTEMPT_GROUP_ID: "g", names.ATTEMPT_NUMBER: 1}
_ATTRIBUTES: Final = st.builds(
    lambda pair, more: {**pair, **more},
    st.sampled_from([{}, _PAIR, _PAIR]),
    st.fixed_dictionaries({}, optional=_VALUES),
)
_TIMES: Final = st.sampled_from([0, 1, 5, 1_796_045_879_000_000_000, 2**63 - 1, 2**64 - 1])
_SPANS: Final = st.builds(
    Span,
    st.sampled_from([b"\1" * 16, bytes(16), bytes(15) + b"\xff", b"\1"]),
    st.sampled_from([b"\2" * 8, bytes(8), bytes(7) + b"\1"]),
    st.sampled_from(["op", "", "é" * 300, "a\0"]),
    _TIMES,
    _TIMES,
    st.booleans(),
    _ATTRIBUTES,
    st.sampled_from(["svc", "", None]),
    st.sampled_from([(), (), (SpanEvent("exception", 1, {"exception.type": "E"}),)]),
    st.sampled_from([0, 0, 3]),
)


@settings(max_examples=300, deadline=None)
@given(spans=st.lists(_SPANS, min_size=1, max_size=4))
def test_a_shape_that_is_known_changes_nothing(spans: list[Span]) -> None:
    """A8, section 2: ids, digests and bytes are those of folding, seen before or not."""
    body = traces_protobuf(spans)
    plain = [
        (item.position, event)
        for item in decode_traces(body, "protobuf").marked
        if isinstance(item.record, Span)
        for event in fold_span(item.record)
        if isinstance(event, Envelope)
    ]
    for _ in range(3):  # the first time shapes are learned, the second time layouts
        events = read(Telemetry("traces", "protobuf", body)).events
        made = encoded(events)
        assert [each.event_id for each in events] == [event.event_id for _, event in plain]
        assert [(each.item, each.envelope) for each in events] == plain
        assert made == _one_by_one(events)
        halves = [encoded(events[:1]), encoded(events[1:])]
        assert halves == [_one_by_one(events[:1]), _one_by_one(events[1:])]


def _one_by_one(events: Row) -> bytes:
    """The same request, from envelopes alone."""
    version = installed_version()
    made, left = b"", list(events)
    while left:
        resource = left[0].resource
        same = [each for each in left if each.resource is resource]
        left = left[len(same) :]
        made += encode_logs([each.envelope for each in same], resource, scope_version=version)
    return made


def test_an_attempt_as_it_should_be_takes_the_fast_path() -> None:
    """Speed: the second span of a place in a program is not folded, until somebody looks at it."""
    SHAPES[False].clear()
    span = Span(b"\1" * 16, b"\2" * 8, "op", 1, 2, attributes=_PAIR, failed=False, service_name="s")
    assert unfolded_of(span) is None
    learned(span, fold_span(span))
    found = unfolded_of(span._replace(name="other"))
    assert found is not None
    assert found.folded() == fold_span(span._replace(name="other"))


LAID: Final[dict[str, str | int]] = {
    "http.request.method": "POST",
    names.WORKFLOW_NAME: "crm.sync",
    names.RUN_ID: "run-1",
    names.ATTEMPT_GROUP_ID: "g",
    names.ATTEMPT_NUMBER: 1,
    "url.path": "/contacts",
}


def _laid(attributes: list[tuple[str, str | int]], *, failed: bool = False) -> bytes:
    """A span that is encoded with these attributes in this order, repeated ones too."""
    found = trace_pb2.Span(
        trace_id=b"\1" * 16,
        span_id=b"\2" * 8,
        name="op",
        start_time_unix_nano=1,
        end_time_unix_nano=2,
    )
    if failed:
        found.status.code = trace_pb2.Status.STATUS_CODE_ERROR
    for key, value in attributes:
        pair = found.attributes.add(key=key)
        if isinstance(value, int):
            pair.value.int_value = value
        else:
            pair.value.string_value = value
    return found.SerializeToString()


def _request(*spans: bytes) -> bytes:
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = "svc"
    scope = group.scope_spans.add()
    for each in spans:
        scope.spans.add().ParseFromString(each)
    return request.SerializeToString()


def _parts(*spans: bytes) -> list[Event | Quick]:
    return list(read(Telemetry("traces", "protobuf", _request(*spans))).events.parts)


def test_a_span_that_is_laid_out_as_others_is_not_decoded() -> None:
    """Speed: the third span of a place in a program is found by the bytes of its attributes.

    So are those of another layout that has as many attributes and as many of ours.
    """
    one = _laid(list(LAID.items()))
    other = _laid(list(reversed(LAID.items())))
    for _ in range(2):
        _parts(one, other)
    assert [type(part) for part in _parts(one, other, one, other)] == [Received] * 4


def test_a_row_is_written_once_and_parts_in_two() -> None:
    """Speed, section 3: what is made of a row stays; events the sender is not told of go apart."""
    rows = read(Telemetry("traces", "protobuf", _request(_laid(list(LAID.items()))))).events
    assert not rows.was_made(encoded)
    body = rows.made(encoded)
    assert rows.was_made(encoded)
    assert rows.made(encoded) is body
    assert body == encoded(rows)
    single = Row([Event(7, {}, rows[0].envelope, told=False), *rows.parts])
    assert (len(single), single.told) == (3, 2)
    assert [each.item for each in single.of_told(told=False)] == [7]
    assert [each.event_id for each in single.of_told(told=True)] == [each.event_id for each in rows]


_HIDDEN: Final = "J\x15\n\x16flowmark.attempt.number\x12\x02\x18\x09"
"""What would be an attribute of ours if a text were not a text."""


@pytest.mark.parametrize(
    "attributes",
    [
        [*LAID.items(), (names.ATTEMPT_NUMBER, 2)],
        [(key, _HIDDEN if key == "url.path" else value) for key, value in LAID.items()],
        [(key, "flowmark.x" if key == names.RUN_ID else value) for key, value in LAID.items()],
        [(names.ERROR_TYPE if key == "url.path" else key, value) for key, value in LAID.items()],
        [("error.typ" if key == "url.path" else key, value) for key, value in LAID.items()],
        [(names.ATTEMPT_LIMIT if key == "url.path" else key, 1) for key, value in LAID.items()],
        [(key, "2" if key == names.ATTEMPT_NUMBER else value) for key, value in LAID.items()],
        [(key, "" if key == names.ATTEMPT_GROUP_ID else value) for key, value in LAID.items()],
        [
            ("flowmark.attempt.numbex" if key == names.ATTEMPT_NUMBER else key, value)
            for key, value in LAID.items()
        ],
    ],
)
@pytest.mark.parametrize("failed", [False, True])
def test_what_is_not_laid_out_alike_is_decoded(
    attributes: list[tuple[str, str | int]], *, failed: bool
) -> None:
    """A8: whatever stands where the layout has something else, what folding says is what counts."""
    usual = _laid(list(LAID.items()), failed=failed)
    odd = _laid(attributes, failed=failed)
    for _ in range(3):
        _parts(usual)
    assert isinstance(_parts(usual)[0], Received)
    for _ in range(3):
        body = _request(odd, usual)
        found = read(Telemetry("traces", "protobuf", body))
        events = [
            (item.position, event)
            for item in decode_traces(body, "protobuf").marked
            if isinstance(item.record, Span)
            for event in fold_span(item.record)
        ]
        good = [(at, event) for at, event in events if isinstance(event, Envelope)]
        assert [(each.item, each.envelope) for each in found.events] == good
        assert [each.event_id for each in found.events] == [event.event_id for _, event in good]
        assert encoded(found.events) == _one_by_one(found.events)
        bad = [event.message for _, event in events if isinstance(event, Refused)]
        assert [each.message for each in found.unfit] == bad


_TEXTS: Final = st.one_of(st.text(max_size=5), st.sampled_from(["x" * size for size in (119, 127)]))


@settings(max_examples=300, deadline=None)
@given(
    key=_TEXTS,
    value=st.one_of(_TEXTS, st.integers(-2, 300), st.booleans(), st.floats(), st.none()),
    broken=st.tuples(st.integers(0, 12), st.integers(0, 255)) | st.none(),
)
def test_a_pair_is_read_as_its_parser_reads_it(
    key: str, value: object, broken: tuple[int, int] | None
) -> None:
    """Section 4: short pairs are read where they stand, whole or broken, to the same."""
    pair = KeyValue(key=key)
    if isinstance(value, str):
        pair.value.string_value = value
    elif isinstance(value, bool):
        pair.value.bool_value = value
    elif isinstance(value, int):
        pair.value.int_value = value
    elif isinstance(value, float):
        pair.value.double_value = value
    raw = bytearray(pair.SerializeToString())
    if broken is not None and broken[0] < len(raw):
        raw[broken[0]] = broken[1]
    found = read_pair(bytes(raw))
    assert repr(found) == repr(_parsed(bytes(raw), found))


def _parsed(raw: bytes, found: tuple[str, object]) -> tuple[str, object]:
    """What the parser makes of a pair if it is a text or a number; else what was found."""
    try:
        message = shallow.KeyValue.FromString(raw)
        value = shallow.AnyValue.FromString(message.value)
    except Exception:  # noqa: BLE001 - what is broken is for the slow path alone
        assert not isinstance(found[1], (str, int)) or found == ("", None)
        return found
    kind = value.WhichOneof("value")
    key = message.key.decode("utf-8", "surrogateescape")
    if kind == "string_value":
        return key, value.string_value.decode("utf-8", "surrogateescape")
    if kind == "int_value":
        return key, AnyValue.FromString(message.value).int_value
    return found
