"""Laws of signals: whatever a span carries, every party makes the same of it."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import given, settings, strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.trace import StatusCode

from flowmark_otel import names
from flowmark_otel.fold import digest, events_of as backend_events_of, fold_span
from flowmark_otel.model import Envelope, Span
from flowmark_otel.proxy.decide import TRACES, events_of
from flowmark_otel.signals import ANY, ATTEMPTS, EVERY, Attempt, read, signals_of
from flowmark_otel.wire.decode import decode_traces
from tests.support.capturing import capturing

_KEYS: Final = sorted(ANY.reads | {names.RUN_ID, names.OPERATION_NAME, names.ERROR_CODE})
_WORDS: Final = sorted(
    {value for row in ATTEMPTS if row.where for value in row.where[1]}
    | {"SUCCESS", "RETRY", "acked", "nacked", "attempt=2; max=3", "attempt=", "1", "-1", "g"}
)
_ONE: Final = st.one_of(
    st.sampled_from(_WORDS),
    st.integers(-2, 600),
    st.sampled_from([2**53, 2**63 - 1]),
    st.floats(allow_nan=False),
    st.booleans(),
    st.text(max_size=4),
)
_VALUES: Final[st.SearchStrategy[Any]] = st.one_of(
    _ONE, st.lists(st.sampled_from(_WORDS), max_size=2), st.lists(st.integers(0, 3), max_size=2)
)
_TRIES: Final[list[dict[str, Any]]] = [
    {},
    {"celery.action": "run", "messaging.message.id": "g", "celery.state": "RETRY"},
    {"remoulade.action": "run", "messaging.message.id": "g", "remoulade.retry_count": 1},
    {"az.client_request_id": "g", "http.response.status_code": 503},
    {"hatchet.step_run_id": "g", "hatchet.retry_count": 1},
    {"messaging.gcp_pubsub.message.delivery_attempt": 1, "messaging.message.id": "g"},
]
"""What makes tries, for the rest to change."""
_SPANS: Final = st.tuples(
    st.sampled_from(["run/t", "hatchet.start_step_run"]),
    st.builds(
        lambda tried, more: {**tried, **more},
        st.sampled_from(_TRIES),
        st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=3),
    ),
    st.booleans(),
)
_SETTINGS: Final = st.lists(st.sampled_from(names.SIGNAL_NAMES), max_size=6).map(tuple)


@settings(max_examples=150, deadline=None)
@given(spans=st.lists(_SPANS, max_size=3), words=_SETTINGS)
def test_every_party_makes_the_same_of_a_span(
    spans: list[tuple[str, dict[str, Any], bool]], words: tuple[str, ...]
) -> None:
    """A8, A20: the SDK's events are the backend's, and the proxy knows all of them."""
    captured = capturing(signals=words)
    for name, attributes, failed in spans:
        span = captured.tracer.start_span(name)
        span.set_attributes(attributes)
        if failed:
            span.set_status(StatusCode.ERROR)
        span.end()
    body = encode_spans(captured.exporter.get_finished_spans()).SerializeToString()
    theirs = [
        event
        for item in decode_traces(body, "protobuf", signals_of(words)).marked
        for event in backend_events_of(item.record, signals_of(words))[0]
    ]
    read_here = {(event.event_id, digest(event)) for event in captured.sink.envelopes}
    assert read_here == {
        (event.event_id, digest(event)) for event in theirs if isinstance(event, Envelope)
    }
    known = {event.event_id for event in events_of(TRACES, "protobuf", body)}
    assert known >= {event.event_id for event in theirs}


@settings(max_examples=200, deadline=None)
@given(span=_SPANS)
def test_an_attempt_is_on_the_span_and_nowhere_else(
    span: tuple[str, dict[str, Any], bool],
) -> None:
    """Section 8: group and number of an attempt are values of the span, else there is none."""
    name, attributes, failed = span
    record = Span(b"t" * 16, b"s" * 8, name, 1, 2, failed, attributes, "s")
    texts = {
        part
        for value in attributes.values()
        for part in (value if isinstance(value, list) else [value])
        if isinstance(part, str)
    }
    for row in EVERY.conventions:
        found = read(record, row)
        if isinstance(found, Attempt):
            assert found.group_id in texts
            assert 1 <= found.number < 2**53
            assert found.failed or not failed


@settings(max_examples=50, deadline=None)
@given(span=_SPANS)
def test_own_records_are_what_they_are_without_signals(
    span: tuple[str, dict[str, Any], bool],
) -> None:
    """Contract 1: a span that is a record by its own keys folds as if there were no signals."""
    name, attributes, failed = span
    record = Span(b"t" * 16, b"s" * 8, name, 1, 2, failed, attributes, "s")
    own = fold_span(record)
    events, mapped = backend_events_of(record, ANY)
    assert mapped == (not own)
    if own:
        assert events == own
