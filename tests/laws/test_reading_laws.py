"""Laws of the collector's reading: however often a shape was seen, the same events and bytes."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import given, settings, strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from flowmark_otel import names
from flowmark_otel.collector.exporters.backend import encoded
from flowmark_otel.collector.payload import Event, Telemetry
from flowmark_otel.collector.reading import read
from flowmark_otel.deliver.transports.headers import installed_version
from flowmark_otel.fast import SHAPES, learned, unfolded_of
from flowmark_otel.fold import fold_span
from flowmark_otel.model import Envelope, Span, SpanEvent
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
    for _ in range(2):  # the first time shapes are learned
        events = read(Telemetry("traces", "protobuf", body)).events
        made = encoded(events)
        assert [each.event_id for each in events] == [event.event_id for _, event in plain]
        assert [(each.item, each.envelope) for each in events] == plain
        assert made == _one_by_one(events)
        halves = [encoded(events[:1]), encoded(events[1:])]
        assert halves == [_one_by_one(events[:1]), _one_by_one(events[1:])]


def _one_by_one(events: tuple[Event, ...]) -> bytes:
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
