"""Section 2 of the contract: one span in, its envelopes out."""

from __future__ import annotations

import pytest

from flowmark_otel import names
from flowmark_otel.fold import digest, fold_log, fold_span
from flowmark_otel.model import Envelope, LogRecord, Refused, Span, SpanEvent, Value

TRACE, SPAN = bytes.fromhex("ab" * 16), bytes.fromhex("cd" * 8)
PAIR: dict[str, object] = {names.ATTEMPT_GROUP_ID: "g", names.ATTEMPT_NUMBER: 1}
REF: dict[str, object] = {names.RETRY_OF_WORKFLOW_NAME: "w", names.RETRY_OF_RUN_ID: "r"}


def span_of(attributes: dict[str, object], **fields: object) -> Span:
    """A span from 100 to 250 of service "svc"."""
    span = Span(TRACE, SPAN, "name", 100, 250, failed=False, attributes=attributes)
    return span._replace(**{"service_name": "svc", **fields})  # type: ignore[arg-type]


def envelopes(attributes: dict[str, object], **fields: object) -> list[Envelope]:
    """What a span folds into, when nothing of it is refused."""
    folded = fold_span(span_of(attributes, **fields))
    return [event for event in folded if isinstance(event, Envelope)]


def refusals(attributes: dict[str, object], **fields: object) -> list[tuple[str, str]]:
    """Ids and messages of what is refused of a span."""
    folded = fold_span(span_of(attributes, **fields))
    return [(event.event_id, event.message) for event in folded if isinstance(event, Refused)]


def attributes_of(record: Envelope) -> dict[str, Value]:
    """The attributes of an envelope without its identity."""
    identity = (*names.IDENTITY_KEYS, names.OPERATION_NAME, names.OPERATION_ID, names.DEFAULTED)
    return {key: value for key, value in record.attributes.items() if key not in identity}


def test_operation() -> None:
    """A7: start and end of an operation carry the same attempt metadata."""
    start, end = envelopes({**PAIR, names.ATTEMPT_LIMIT: 3})
    fields = {**PAIR, names.ATTEMPT_LIMIT: 3}
    assert (start.event, start.part, start.time_unix_nano) == (
        names.OPERATION_STARTED,
        "op-start",
        100,
    )
    assert attributes_of(start) == fields
    assert (end.event, end.part, end.time_unix_nano) == (names.OPERATION_COMPLETED, "op-end", 250)
    assert attributes_of(end) == {**fields, names.DURATION_NS: 150}
    assert start.event_id == f"op-{'ab' * 16}-{'cd' * 8}-start"


def test_identity_comes_from_defaults_and_says_so() -> None:
    """Contract, sections 1 and 2: what a default gave is carried and named, sorted."""
    start, _ = envelopes(PAIR)
    assert start.attributes[names.WORKFLOW_NAME] == "svc"
    assert start.attributes[names.RUN_ID] == "ab" * 16
    assert start.attributes[names.OPERATION_NAME] == "name"
    assert start.attributes[names.OPERATION_ID] == "cd" * 8
    keys = str(start.attributes[names.DEFAULTED]).split(",")
    assert keys == sorted(keys)
    assert len(keys) == 4


@pytest.mark.parametrize(
    ("service", "workflow"), [(None, "unknown_service"), (7, "unknown_service"), ("", "unknown")]
)
def test_workflow_without_service(service: object, workflow: str) -> None:
    """Contract, section 1: without a service name the workflow is unknown_service."""
    start, _ = envelopes(PAIR, service_name=service)
    assert start.attributes[names.WORKFLOW_NAME] == workflow


def test_retry_reference_alone_starts_a_run() -> None:
    """A12: a retry reference yields the run's start only."""
    (start,) = envelopes(REF)
    assert start.event == names.RUN_STARTED
    assert attributes_of(start) == REF


def test_run_and_operation_in_one_span() -> None:
    """Contract, section 1: a span can be both; each record carries its own keys only."""
    outcome: dict[str, object] = {names.RUN_OUTCOME: "partial", names.RUN_RESULT_PREFIX + "n": 2}
    events = envelopes({**PAIR, **REF, **outcome}, failed=True)
    assert [event.part for event in events] == ["run-start", "op-start", "op-end", "run-end"]
    run_start, op_start, op_end, run_end = map(attributes_of, events)
    assert run_start == REF
    assert op_start == PAIR
    assert op_end == {**PAIR, names.DURATION_NS: 150}
    assert run_end == {**REF, **outcome, names.DURATION_NS: 150}
    assert [event.event for event in events[2:]] == [names.OPERATION_FAILED, names.RUN_FAILED]


@pytest.mark.parametrize(
    ("attributes", "events", "error"),
    [
        ({names.ERROR_TYPE: "Timeout"}, (), ("Timeout", "Timeout", True)),
        ({}, (SpanEvent("exception", 1, {"exception.type": "E1"}),), ("E1", "E1", True)),
        (
            {},
            (
                SpanEvent("exception", 1, {"exception.type": "E1"}),
                SpanEvent("exception", 2, {"exception.type": "E2"}),
            ),
            ("E2", "E2", True),
        ),
        ({names.ERROR_CODE: "MINE", names.ERROR_TYPE: "T"}, (), ("MINE", "T", False)),
        ({names.ERROR_TYPE: "x" * 200}, (), ("x" * 128, "x" * 128, True)),
        ({}, (), (None, None, False)),
        ({names.ERROR_TYPE: ""}, (), (None, None, False)),
    ],
)
def test_error_of_a_failed_end(
    attributes: dict[str, object], events: tuple[SpanEvent, ...], error: tuple[object, ...]
) -> None:
    """Contract, section 1: the code is the given one, else derived and named as such."""
    _, end = envelopes({**PAIR, **attributes}, failed=True, events=events)
    code, error_type = end.attributes.get(names.ERROR_CODE), end.attributes.get(names.ERROR_TYPE)
    derived = names.ERROR_CODE in str(end.attributes.get(names.DEFAULTED)).split(",")
    assert (code, error_type, derived) == error


def test_no_code_is_derived_for_a_completed_end() -> None:
    """Contract, section 1: a derived error code exists on failed ends only."""
    recorded = SpanEvent("exception", 1, {"exception.type": "E1"})
    _, end = envelopes({**PAIR, names.ERROR_TYPE: "T"}, events=[recorded])
    assert names.ERROR_CODE not in end.attributes
    assert end.attributes[names.ERROR_TYPE] == "T"


@pytest.mark.parametrize(
    ("attributes", "events"),
    [
        ({names.ERROR_TYPE: "E\0"}, ()),
        ({names.ERROR_TYPE: "E\ud800"}, ()),
        ({}, (SpanEvent("exception", 1, {"exception.type": "E\udcff"}),)),
    ],
)
def test_replaced_characters_are_flagged(
    attributes: dict[str, object], events: tuple[SpanEvent, ...]
) -> None:
    """Contract, section 4: elsewhere in a span bad characters are replaced and flagged."""
    start, end = envelopes({**PAIR, **attributes}, failed=True, events=events)
    assert end.attributes[names.ERROR_TYPE] == "E\ufffd"
    assert (start.characters_replaced, end.characters_replaced) == (False, True)
    again = fold_log(record_of(end, **{names.ERROR_TYPE: "E\0"}))
    assert isinstance(again, Envelope)
    assert again.characters_replaced


@pytest.mark.parametrize(
    ("start", "end", "duration"),
    [(100, 100, 0), (0, 250, None), (100, 0, None), (250, 100, None), (1, 2**64 - 1, None)],
)
def test_duration(start: int, end: int, duration: int | None) -> None:
    """Contract, section 2: no duration where a time is zero, reversed or beyond an integer."""
    folded = envelopes(PAIR, start_time_unix_nano=start, end_time_unix_nano=end)
    assert folded[1].attributes.get(names.DURATION_NS) == duration
    assert [event.time_unix_nano for event in folded] == [start, end]


START, END = f"op-{'ab' * 16}-{'cd' * 8}-start", f"op-{'ab' * 16}-{'cd' * 8}-end"
RUN_START, RUN_END = (f"run-{'ab' * 16}-{'cd' * 8}-{what}" for what in ("start", "end"))


@pytest.mark.parametrize(
    ("attributes", "ids"),
    [
        ({**PAIR, names.ATTEMPT_NUMBER: "1"}, [START, END]),
        ({**PAIR, names.ATTEMPT_TIME_READ: 1}, [END]),
        ({**PAIR, names.ERROR_CODE: ""}, [END]),
        ({**PAIR, names.RUN_ID: ""}, [START, END]),
        ({**PAIR, names.RUN_OUTCOME: ""}, [RUN_END]),
        ({**PAIR, names.RUN_OUTCOME: "x", names.ERROR_CODE: ""}, [END, RUN_END]),
        (
            {**PAIR, names.RUN_OUTCOME: "x", names.WORKFLOW_NAME: 5},
            [RUN_START, START, END, RUN_END],
        ),
        ({**REF, names.RETRY_OF_RUN_ID: 5}, [RUN_START]),
        ({**REF, names.RUN_OUTCOME: "x", names.PARENT_RUN_ID: ""}, [RUN_START, RUN_END]),
        ({names.RECORD_TYPE: "x"}, [""]),
    ],
)
def test_a_broken_rule_costs_exactly_the_events_that_carry_the_key(
    attributes: dict[str, object], ids: list[str]
) -> None:
    """Contract, section 1: start fields cost both events, identity all, any other the end alone."""
    assert [event_id for event_id, _ in refusals(attributes)] == ids


def test_a_run_does_not_retry_itself() -> None:
    """A13: a run that names itself as its predecessor is refused, given or defaulted."""
    itself: dict[str, object] = {
        names.RETRY_OF_WORKFLOW_NAME: "svc",
        names.RETRY_OF_RUN_ID: "ab" * 16,
    }
    ((event_id, message),) = refusals(itself)
    assert event_id == RUN_START
    assert "names this run itself" in message
    assert not refusals({**itself, names.WORKFLOW_NAME: "another"})


def test_observed_tries() -> None:
    """B8: a reported try becomes one envelope, without group or occurrence of its own."""
    own: dict[str, object] = {names.OBSERVED_NUMBER: 2, names.OBSERVED_OUTCOME: "failed"}
    tries = [
        SpanEvent(names.ATTEMPT_OBSERVED, 150, {**own, names.OBSERVED_SERIES: "sdk"}),
        SpanEvent(names.ATTEMPT_OBSERVED, 160, own),
        SpanEvent(names.ATTEMPT_OBSERVED, 170, {**own, names.OBSERVED_OUTCOME: "maybe"}),
        SpanEvent("other", 180, own),
    ]
    folded = fold_span(span_of(PAIR, events=tries))
    assert [event.part for event in folded if isinstance(event, Envelope)] == [
        "op-start",
        "op-observed-150-sdk-2",
        "op-observed-160-observed-2",
        "op-end",
    ]
    (refused,) = (event for event in folded if isinstance(event, Refused))
    assert "flowmark.observed.outcome is the string 'maybe'" in refused.message
    observed = folded[1]
    assert isinstance(observed, Envelope)
    assert names.ATTEMPT_GROUP_ID not in observed.attributes


def record_of(envelope: Envelope, **changes: object) -> LogRecord:
    """An envelope as the record that carries it."""
    carried: dict[str, object] = {names.EVENT_ID: envelope.event_id, **envelope.attributes}
    carried.update(changes)
    return LogRecord(
        envelope.event, envelope.trace_id, envelope.span_id, envelope.time_unix_nano, carried
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({names.EVENT_ID: "op-1"}, "flowmark.event.id does not fit"),
        ({names.EVENT_NAME: names.RUN_STARTED}, "flowmark.event.name differs"),
        ({names.WORKFLOW_NAME: None}, "flowmark.workflow.name is missing"),
        ({names.OPERATION_ID: None}, "flowmark.operation.id is missing"),
        ({names.ATTEMPT_NUMBER: "1"}, "flowmark.attempt.number is the string '1'"),
        ({names.ATTEMPT_NUMBER: None}, "flowmark.attempt.group_id needs"),
        ({names.DURATION_NS: -1}, "flowmark.duration_ns is the integer -1"),
        ({names.DEFAULTED: "flowmark.attempt.number"}, "which has no default"),
    ],
)
def test_a_record_is_checked_again(changes: dict[str, object], says: str) -> None:
    """Contract, section 4: the receiver trusts neither ids nor rules of the sender."""
    _, end = envelopes(PAIR)
    refused = fold_log(record_of(end, **changes))
    assert isinstance(refused, Refused)
    assert says in refused.message


def test_records_of_others_are_ignored() -> None:
    """Contract, section 4: a log record that is no envelope is none of ours."""
    record = LogRecord("other", TRACE, SPAN, 1, {"flowmark.run.id": "r"})
    assert fold_log(record) is None


def test_secrets_are_redacted_and_keys_served_before_the_digest() -> None:
    """B3; contract, section 2: nothing raw leaves, and redacting again changes nothing."""
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"
    attributes = {
        **PAIR,
        names.ATTEMPT_IDEMPOTENCY_KEY: "order-77",
        names.RUN_RESULT_PREFIX + "api_token": "tell-nobody",
        names.RUN_RESULT_PREFIX + "note": f"used {token}",
        names.ERROR_CODE: f"bad {token}",
    }
    for envelope in envelopes(attributes, failed=True):
        text = str(envelope.attributes)
        assert not any(secret in text for secret in ("order-77", "tell-nobody", token))
        again = fold_log(record_of(envelope))
        assert isinstance(again, Envelope)
        assert again.attributes == envelope.attributes
        assert digest(again) == digest(envelope)
