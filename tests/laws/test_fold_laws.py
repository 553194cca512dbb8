"""Laws of folding, digests and encodings, over random spans."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings, strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from flowmark_otel import names
from flowmark_otel.fold import digest, fold_log, fold_span, fold_starts
from flowmark_otel.fold.redact import served_idempotency_key
from flowmark_otel.model import Envelope, LogRecord, Refused, Span, SpanEvent
from flowmark_otel.validate.secrets import redact_text
from flowmark_otel.wire.decode import decode_logs, decode_traces
from flowmark_otel.wire.encode import encode_logs
from tests.support.otlp import any_value, traces_json, traces_protobuf

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
INT64 = st.integers(-(2**63), 2**63 - 1)
ANY = st.one_of(TEXT, st.booleans(), INT64, st.floats(), st.binary(max_size=4), st.none())
TIME = st.integers(0, 2**64 - 1)
KEYS = st.sampled_from(
    [
        names.WORKFLOW_NAME,
        names.RUN_ID,
        names.OPERATION_NAME,
        names.OPERATION_ID,
        *names.ATTEMPT_START_KEYS,
        names.ATTEMPT_TIME_READ,
        *names.RUN_START_KEYS,
        names.RUN_OUTCOME,
        names.RUN_RESULT_PREFIX + "imported",
        names.RUN_RESULT_PREFIX + "api_key",
        names.ERROR_CODE,
        names.ERROR_RETRYABLE,
        names.ERROR_TYPE,
        "flowmark.unknown",
        "http.request.method",
    ]
)
NAME = TEXT.filter(lambda text: "\0" not in text and bool(text.strip()))
PROPER = st.fixed_dictionaries(
    {},
    optional={
        names.WORKFLOW_NAME: NAME,
        names.RUN_ID: NAME,
        names.OPERATION_NAME: NAME,
        names.OPERATION_ID: NAME,
        names.ATTEMPT_LIMIT: st.integers(1, 2**53 - 1),
        names.ATTEMPT_KIND: st.sampled_from(["reported", "observed"]),
        names.ATTEMPT_IDEMPOTENCY_KEY: NAME,
        names.ATTEMPT_TIME_READ: st.booleans(),
        names.RUN_OUTCOME: NAME,
        names.RUN_RESULT_PREFIX + "x": st.one_of(
            NAME, st.booleans(), INT64, st.floats(allow_nan=False, allow_infinity=False)
        ),
        names.ERROR_CODE: NAME,
        names.ERROR_TYPE: NAME,
    },
)
PAIR = st.fixed_dictionaries(
    {names.ATTEMPT_GROUP_ID: NAME, names.ATTEMPT_NUMBER: st.integers(1, 2**53 - 1)}
)
OBSERVED = st.builds(
    SpanEvent,
    st.just(names.ATTEMPT_OBSERVED),
    TIME,
    st.fixed_dictionaries(
        {
            names.OBSERVED_NUMBER: st.integers(0, 5),
            names.OBSERVED_OUTCOME: st.sampled_from(["completed", "failed", "maybe"]),
        },
        optional={names.OBSERVED_SERIES: TEXT, names.ERROR_TYPE: TEXT},
    ),
)
EXCEPTION = st.builds(
    SpanEvent, st.just("exception"), TIME, st.fixed_dictionaries({"exception.type": TEXT})
)


def spans(attributes: st.SearchStrategy[dict[str, object]]) -> st.SearchStrategy[Span]:
    """Spans with such attributes and everything else at random."""
    return st.builds(
        Span,
        trace_id=st.binary(min_size=16, max_size=16),
        span_id=st.binary(min_size=8, max_size=8),
        name=TEXT,
        start_time_unix_nano=TIME,
        end_time_unix_nano=TIME,
        failed=st.booleans(),
        attributes=attributes,
        service_name=st.one_of(st.none(), TEXT),
        events=st.lists(st.one_of(OBSERVED, EXCEPTION), max_size=3).map(tuple),
        dropped_attributes_count=st.integers(0, 2**32 - 1),
    )


ANNOTATED = spans(st.builds(lambda proper, pair: {**proper, **pair}, PROPER, PAIR))
WILD = spans(st.dictionaries(KEYS, ANY, max_size=8))


def folds(span: Span) -> list[Any]:
    """What a span folds into, with the digests of its envelopes."""
    return [
        (event, digest(event) if isinstance(event, Envelope) else None) for event in fold_span(span)
    ]


@given(st.one_of(ANNOTATED, WILD))
def test_folding_again_gives_the_same(span: Span) -> None:
    """A8: folding the same span any number of times gives the same ids and digests."""
    assert folds(span) == folds(span)


@given(st.lists(st.one_of(ANNOTATED, WILD), max_size=4))
def test_a_span_folds_alike_in_every_encoding(given_spans: list[Span]) -> None:
    """D1, A8: a span folds alike whether it arrives in protobuf or in JSON, or never left."""
    expected = [folds(span) for span in given_spans]
    for body, encoding in (
        (traces_protobuf(given_spans), "protobuf"),
        (traces_json(given_spans), "json"),
    ):
        got: list[list[Any]] = [[] for _ in given_spans]
        for item in decode_traces(body, encoding).marked:
            assert isinstance(item.record, Span)
            got[item.position] = folds(item.record)
        assert got == expected


@given(ANNOTATED)
def test_decode_after_encode_is_identity(span: Span) -> None:
    """D1: an envelope comes back from its log record as it went, digest included."""
    envelopes = [event for event in fold_span(span) if isinstance(event, Envelope)]
    for encoding in ("protobuf", "json"):
        body = encode_logs(envelopes, {"service.name": "svc"}, encoding=encoding)
        back = []
        for item in decode_logs(body, encoding).marked:
            assert isinstance(item.record, LogRecord)
            back.append(fold_log(item.record))
        kept = [event._replace(characters_replaced=False) for event in envelopes]
        assert back == kept
        for one, other in zip(back, kept, strict=True):
            assert isinstance(one, Envelope)
            assert digest(one) == digest(other)


@given(ANNOTATED, st.dictionaries(NAME, st.one_of(NAME, st.booleans(), INT64), max_size=3))
def test_records_are_the_bytes_of_the_stock_messages(
    span: Span, resource: dict[str, object]
) -> None:
    """D1: what is written by hand is what the stock OTLP messages write, byte for byte."""
    envelopes = [event for event in fold_span(span) if isinstance(event, Envelope)]
    request = ExportLogsServiceRequest()
    group = request.resource_logs.add()
    for key, value in resource.items():
        group.resource.attributes.add(key=key).value.CopyFrom(any_value(value))
    group.resource.SetInParent()
    scope = group.scope_logs.add()
    scope.scope.name = "flowmark_otel"
    for envelope in envelopes:
        record = scope.log_records.add(
            time_unix_nano=envelope.time_unix_nano,
            event_name=envelope.event,
            trace_id=envelope.trace_id,
            span_id=envelope.span_id,
            dropped_attributes_count=envelope.dropped_attributes_count,
        )
        carried: dict[str, object] = {
            names.EVENT_NAME: envelope.event,
            names.EVENT_ID: envelope.event_id,
            **envelope.attributes,
        }
        for key, value in carried.items():
            record.attributes.add(key=key).value.CopyFrom(any_value(value))
    assert encode_logs(envelopes, resource) == request.SerializeToString()


CHANGES = st.fixed_dictionaries(
    {"name": TEXT, "failed": st.booleans(), "end_time_unix_nano": TIME},
    optional={"dropped_attributes_count": st.just(0)},
)
LATER = st.fixed_dictionaries(
    {},
    optional={
        names.ATTEMPT_TIME_READ: st.booleans(),
        names.ERROR_CODE: NAME,
        names.ERROR_RETRYABLE: st.booleans(),
        names.ERROR_TYPE: NAME,
        "http.response.status_code": st.integers(100, 599),
    },
)


@given(ANNOTATED, CHANGES, LATER)
def test_an_early_start_is_the_start_of_the_finished_span(
    span: Span, changes: dict[str, Any], later: dict[str, object]
) -> None:
    """E1: the start folded when the span started equals the one folded from the finished span.

    The processor writes the operation name on such a span; whatever happens in between (renamed,
    failed, attributes set that are no start fields) changes nothing.
    """
    start = fold_starts(span)[-1]
    assume(isinstance(start, Envelope))
    assert isinstance(start, Envelope)
    written = {
        **{key: value for key, value in span.attributes.items() if key not in later},
        names.OPERATION_NAME: start.attributes[names.OPERATION_NAME],
    }
    started = span._replace(
        attributes=written,
        end_time_unix_nano=0,
        failed=False,
        dropped_attributes_count=0,
    )
    finished = started._replace(
        **{**changes, "dropped_attributes_count": 0}, attributes={**started.attributes, **later}
    )
    early = [event for event in fold_starts(started) if not isinstance(event, Refused)]
    final = [
        event
        for event in fold_span(finished)
        if isinstance(event, Envelope) and event.part.endswith("-start")
    ]
    assert encode_logs(early, {}) == encode_logs(final, {})


SECRETIVE = st.lists(
    st.one_of(
        st.sampled_from(
            [
                *("Bearer ", "fmk_a_", "eyJabcde.abcde.", "AKIA", "ABCDEFGHIJKLMNOP", "://", "@"),
                *("password", "token", "tokens", "api_key", "sig", "authorization", "Cookie"),
                *("=", ":", "%3D", " ", '"', "'", "\\", ";", "&", "/", "\n", "[redacted]", "***"),
                *("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"),
            ]
        ),
        st.text("aA0_.-=+ ", max_size=12),
    ),
    max_size=14,
).map("".join)


@settings(max_examples=500)
@given(st.one_of(TEXT, SECRETIVE))
def test_redacting_again_changes_nothing(text: str) -> None:
    """Contract, section 2: redaction is idempotent, and so is serving an idempotency key.

    It makes nothing longer, so what keeps a limit before it keeps it after.
    """
    once = redact_text(text)
    assert redact_text(once) == once
    assert len(once) <= len(text)
    served = served_idempotency_key(text)
    assert served_idempotency_key(served) == served
