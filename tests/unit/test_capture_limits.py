"""Attribute limits of the SDK: what our own fold has of what was given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Span, StatusCode

import flowmark_otel as flowmark
from flowmark_otel import names
from flowmark_otel.annotate.context import with_identity
from flowmark_otel.capture import FlowmarkSampler, FlowmarkSpanProcessor
from flowmark_otel.model import Attempt, Envelope, RunRef
from flowmark_otel.testing import assert_attempts, recording
from tests.support.capturing import as_exported, capturing
from tests.support.recorders import Recorder, recorder
from tests.support.sinks import RecordingSink

LONG = "customer-batch-42-of-the-night-run"
LIMITS = SpanLimits(max_attribute_length=8)
PAIR: dict[str, str | int] = {names.ATTEMPT_GROUP_ID: LONG, names.ATTEMPT_NUMBER: 1}


@contextmanager
def limited(limits: SpanLimits) -> Iterator[Recorder]:
    """The recording API over a provider with limits, whose sampler is not ours."""
    with recorder() as made:
        given = TracerProvider(
            span_limits=limits, resource=Resource({"service.name": "s"}), shutdown_on_exit=False
        )
        given.add_span_processor(FlowmarkSpanProcessor(made.sink, accept_baggage=False))
        made.provider = given
        yield made


def start(kept_in: TracerProvider, **attributes: str | int) -> Span:
    """A span of the application's own."""
    return kept_in.get_tracer("t").start_span("push", attributes=attributes)


def values(sink: RecordingSink, key: str) -> set[object]:
    """What the envelopes carry under a key."""
    return {event.attributes.get(key) for event in sink.envelopes}


@pytest.mark.parametrize(
    "limits", [LIMITS, SpanLimits(max_span_attribute_length=0), SpanLimits(max_span_attributes=1)]
)
def test_what_the_recording_api_is_given_is_recorded_whole(limits: SpanLimits) -> None:
    """Contract, section 1: under any limit our fold has ids, codes and results as given."""
    with limited(limits) as made:
        flow = flowmark.workflow("crm.sync.of.everything", run_id=LONG)
        flow.operation("push-to-crm", attempt=Attempt(LONG, 1), system="crm-system").fail(
            code="CRM_UNAVAILABLE_FOR_NOW", retryable=True
        )
        flow.done(outcome="complete-as-planned", result={"note": LONG})
    made.sink.check()
    assert made.sink.diagnostics == []
    assert values(made.sink, names.WORKFLOW_NAME) == {"crm.sync.of.everything"}
    assert values(made.sink, names.RUN_ID) == {LONG}
    started, failed = made.sink.of("op-start"), made.sink.of("op-end")
    assert started.attributes.items() <= failed.attributes.items()
    assert failed.attributes[names.ATTEMPT_GROUP_ID] == LONG
    assert failed.attributes[names.OPERATION_NAME] == "push-to-crm"
    assert failed.attributes[names.ERROR_CODE] == "CRM_UNAVAILABLE_FOR_NOW"
    ended = made.sink.of("run-end").attributes
    assert ended[names.RUN_OUTCOME] == "complete-as-planned"
    assert ended[names.RUN_RESULT_PREFIX + "note"] == LONG


def test_two_ids_that_a_limit_makes_one_stay_two() -> None:
    """A3: ids that differ behind the limit are two groups, of the application's own spans too."""
    kept = capturing(limits=LIMITS)  # attached: the sampler is ours
    for end in "ab":
        group = f"batch-of-{end}"
        span = start(kept.provider, **PAIR | {names.ATTEMPT_GROUP_ID: group})
        assert (span.attributes or {})[names.ATTEMPT_GROUP_ID] == "batch-of"  # type: ignore[attr-defined]
        assert kept.sink.envelopes[-1].attributes[names.ATTEMPT_GROUP_ID] == group
        span.end()
    assert values(kept.sink, names.ATTEMPT_GROUP_ID) == {"batch-of-a", "batch-of-b"}
    assert kept.sink.diagnostics == []
    kept.sink.check()


def test_identity_of_the_context_is_recorded_whole() -> None:
    """Contract, section 1: what context gives is cut on the span, and not in our fold."""
    kept = capturing(limits=LIMITS)
    inside = with_identity(Context(), "workflow-of-the-night", LONG, send=False)
    kept.tracer.start_span("push-to-crm", context=inside, attributes=PAIR).end()
    end = kept.sink.of("op-end").attributes
    assert (end[names.WORKFLOW_NAME], end[names.RUN_ID]) == ("workflow-of-the-night", LONG)
    assert end[names.OPERATION_NAME] == "push-to-crm"
    [exported] = kept.exporter.get_finished_spans()
    assert (exported.attributes or {})[names.RUN_ID] == LONG[:8]
    assert kept.sink.diagnostics == []


def test_another_party_that_folds_the_cut_span_reads_what_is_on_it() -> None:
    """Contract, section 1: behind a limit two parties fold different metadata, under one id."""
    kept = capturing(limits=LIMITS)
    start(kept.provider, **PAIR).end()
    theirs = as_exported(kept.exporter.get_finished_spans())
    assert [event.event_id for event in kept.sink.events] == [each.event_id for each in theirs]
    cut = {each.attributes[names.ATTEMPT_GROUP_ID] for each in theirs if isinstance(each, Envelope)}
    assert cut == {LONG[:8]}


@pytest.mark.parametrize("at_start", [True, False])
def test_what_annotate_sets_is_recorded_whole(*, at_start: bool) -> None:
    """Contract, section 1: ``annotate`` on a span of the application's own survives the limit."""
    with limited(LIMITS) as made:
        tracer = made.provider.get_tracer("t")
        own: dict[str, str | int] = {names.OPERATION_NAME: "push"} if at_start else {}
        span = tracer.start_span("push", attributes=own)
        flowmark.annotate(span, attempt=Attempt(LONG + "-not", 1))
        flowmark.annotate(span, attempt=Attempt(LONG, 2), retry_of=RunRef("w-of-before", LONG))
        span.end()
    end = made.sink.of("op-end").attributes
    assert (end[names.ATTEMPT_GROUP_ID], end[names.ATTEMPT_NUMBER]) == (LONG, 2)
    assert made.sink.of("run-start").attributes[names.RETRY_OF_RUN_ID] == LONG
    assert made.sink.diagnostics == []
    made.sink.check()


def test_what_annotate_sets_survives_the_eviction_of_the_oldest() -> None:
    """Contract, section 1: annotated keys that later attributes push out are recorded."""
    with limited(SpanLimits(max_span_attributes=4)) as made:
        span = made.provider.get_tracer("t").start_span("push")
        flowmark.annotate(span, attempt=Attempt(LONG, 2), code="DOWN")
        for number in range(10):
            span.set_attribute(f"other.{number}", number)
        span.set_status(StatusCode.ERROR)
        span.end()
    end = made.sink.of("op-end").attributes
    assert (end[names.ATTEMPT_GROUP_ID], end[names.ATTEMPT_NUMBER]) == (LONG, 2)
    assert end[names.ERROR_CODE] == "DOWN"


def test_a_frozen_id_that_is_changed_behind_the_limit_is_reported() -> None:
    """Contract, section 2: another id after the start is a change, also if both are cut alike."""
    with limited(LIMITS) as made:
        op = flowmark.workflow("w").operation("push", attempt=Attempt(LONG, 1))
        flowmark.annotate(op.span, attempt=Attempt(LONG + "-another", 1))
        op.complete()
    assert values(made.sink, names.ATTEMPT_GROUP_ID) >= {LONG}
    assert made.sink.of("op-end").attributes[names.ATTEMPT_GROUP_ID] == LONG
    [told] = made.sink.diagnostics
    assert told.code == names.DIAGNOSTIC_METADATA_CHANGED


@pytest.mark.parametrize("set_late", [True, False])
def test_what_nobody_could_keep_is_said(*, set_late: bool) -> None:
    """Contract, section 1: an id that a limit may have cut unseen is named; two may be one."""
    sink = RecordingSink()
    provider = TracerProvider(span_limits=LIMITS, shutdown_on_exit=False)
    provider.add_span_processor(FlowmarkSpanProcessor(sink, accept_baggage=False))
    span = start(provider, **({} if set_late else PAIR))
    if set_late:
        span.set_attributes(PAIR)
    span.end()
    end = sink.of("op-end")
    assert end.attributes[names.ATTEMPT_GROUP_ID] == LONG[:8]
    [told] = sink.diagnostics
    assert (told.code, told.event_id) == (names.DIAGNOSTIC_METADATA_CHANGED, end.event_id)
    assert told.message.startswith(f"{names.ATTEMPT_GROUP_ID}: may be cut to 8 characters")


def test_what_is_shorter_than_the_limit_is_in_no_doubt() -> None:
    """Contract, section 1: where nothing can have been cut, nothing is said."""
    sink = RecordingSink()
    provider = TracerProvider(span_limits=LIMITS, shutdown_on_exit=False)
    provider.add_span_processor(FlowmarkSpanProcessor(sink, accept_baggage=False))
    start(provider, **PAIR | {names.ATTEMPT_GROUP_ID: "g", "other": LONG}).end()
    assert sink.diagnostics == []


def test_a_value_set_since_is_not_taken_for_a_cut_one() -> None:
    """A8: a text that the application sets later counts, also one that begins like the first."""
    kept = capturing(limits=LIMITS)
    span = start(kept.provider, **{names.OPERATION_NAME: LONG, names.OPERATION_ID: LONG})
    span.set_attribute(names.OPERATION_NAME, LONG[:3])
    span.end()
    end = kept.sink.of("op-end").attributes
    assert (end[names.OPERATION_NAME], end[names.OPERATION_ID]) == (LONG[:3], LONG)


def test_what_one_span_was_created_with_is_not_lent_to_the_next() -> None:
    """A3: a dropped span's attributes, of the same trace and thread, stay its own."""
    kept = capturing(limits=LIMITS)
    with kept.tracer.start_as_current_span("parent"):
        start(kept.provider, **PAIR).end()
        start(kept.provider, **PAIR | {names.ATTEMPT_GROUP_ID: LONG[:8]}).end()
    assert [event.attributes[names.ATTEMPT_GROUP_ID] for event in kept.sink.envelopes] == [
        *[LONG] * 2,
        *[LONG[:8]] * 2,
    ]


def test_the_environment_tells_a_sampler_of_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """E2: a sampler made by hand, before any provider, knows the limit of the environment."""
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "nonsense")
    assert FlowmarkSampler(ALWAYS_ON).notes is False
    monkeypatch.delenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT")
    assert FlowmarkSampler(ALWAYS_ON).notes is False
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "8")
    provider = TracerProvider(sampler=FlowmarkSampler(ALWAYS_ON), shutdown_on_exit=False)
    sink = RecordingSink()
    provider.add_span_processor(FlowmarkSpanProcessor(sink, accept_baggage=False))
    start(provider, **PAIR).end()
    assert values(sink, names.ATTEMPT_GROUP_ID) == {LONG}


@pytest.mark.parametrize("limit", ["nonsense", "8"])
def test_without_a_provider_no_limit_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Contract, section 6: the private provider records whole, and no environment stops it."""
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", limit)
    with recording() as backend:
        flowmark.workflow(LONG).operation("o", attempt=Attempt(LONG, 1)).complete()
        assert_attempts(backend.run(LONG), "o", ["completed"])
