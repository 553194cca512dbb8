"""The span processor on a stock SDK provider: identity, early starts, frozen start fields."""

from __future__ import annotations

from contextlib import nullcontext
from enum import Enum, IntEnum

import pytest
from opentelemetry import baggage, context as otel
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.trace import StatusCode

from flowmark_otel import names
from flowmark_otel.annotate import hook
from flowmark_otel.annotate.context import with_identity
from flowmark_otel.capture import FlowmarkSpanProcessor, reading
from flowmark_otel.errors import InvalidUse
from flowmark_otel.fold import digest
from flowmark_otel.model import Envelope, Refused
from tests.support.capturing import PAIR, as_exported, capturing
from tests.support.sinks import BrokenSink, RecordingSink

INSIDE = with_identity(Context(), "crm.sync", "run-1", send=False)


def test_a_start_is_sent_when_the_attempt_starts() -> None:
    """E1: the start of an attempt is with the sink before the span ends, and is not sent again."""
    kept = capturing()
    span = kept.tracer.start_span("push", attributes=PAIR)
    assert kept.sink.parts == ["op-start"]
    span.end()
    assert kept.sink.parts == ["op-start", "op-end"]
    kept.sink.check()


@pytest.mark.parametrize(
    ("attributes", "early"),
    [
        (PAIR, ["op-start"]),
        (
            {"flowmark.retry_of.workflow.name": "w", "flowmark.retry_of.run.id": "r"},
            ["run-start"],
        ),
        ({"flowmark.record.type": "run"}, ["run-start"]),
        ({"flowmark.record.type": "operation"}, ["op-start"]),
        ({"flowmark.operation.name": "push"}, []),
        ({"flowmark.attempt.number": 1}, []),
        ({"flowmark.run.outcome": "complete"}, []),
    ],
)
def test_what_is_sent_early(attributes: dict[str, str | int], early: list[str]) -> None:
    """E1: attempt pair, retry_of pair and record type send a start early; nothing else does."""
    kept = capturing()
    span = kept.tracer.start_span("push", attributes=attributes)
    assert kept.sink.parts == early
    span.end()
    sent = [event for event in kept.sink.events if not isinstance(event, Refused)]
    assert sorted(map(digest, sent)) == sorted(
        digest(event)
        for event in as_exported(kept.exporter.get_finished_spans())
        if isinstance(event, Envelope)
    )
    kept.sink.check()


def test_a_span_without_our_keys_is_left_alone() -> None:
    """Contract, section 1: what carries no key of ours is passed on untouched, every time."""
    kept = capturing()
    for _ in range(2):
        kept.tracer.start_span("get", attributes={"http.request.method": "GET"}).end()
        kept.tracer.start_span("get").end()
    assert kept.sink.batches == []
    attributes = [dict(span.attributes or {}) for span in kept.exporter.get_finished_spans()]
    assert attributes == [{"http.request.method": "GET"}, {}] * 2


def test_a_key_of_ours_on_a_known_shape_is_seen() -> None:
    """D4: a result alone, set late on a span of a usual shape, makes the run it says."""
    kept = capturing()
    kept.tracer.start_span("get", attributes={"http.request.method": "GET"}).end()
    span = kept.tracer.start_span("get", attributes={"http.request.method": "GET"})
    span.set_attribute("flowmark.run.result.imported", 3)
    span.end()
    assert kept.sink.parts == ["run-start", "run-end"]


def test_identity_of_the_context_is_written_on_every_span() -> None:
    """Contract, section 1: spans started inside a workflow are stamped, annotated or not."""
    kept = capturing()
    kept.tracer.start_span("plain", context=INSIDE).end()
    kept.tracer.start_span("push", context=INSIDE, attributes=PAIR).end()
    plain, push = kept.exporter.get_finished_spans()
    stamp = {names.WORKFLOW_NAME: "crm.sync", names.RUN_ID: "run-1"}
    assert dict(plain.attributes or {}) == stamp
    assert dict(push.attributes or {}) == {**PAIR, **stamp, names.OPERATION_NAME: "push"}
    assert kept.sink.parts == ["op-start", "op-end"]
    assert names.DEFAULTED in kept.sink.of("op-end").attributes  # the operation id alone
    assert kept.sink.of("op-end").attributes[names.RUN_ID] == "run-1"


def test_the_current_context_counts_where_none_is_given() -> None:
    """Contract, section 1: the context is the current one, unless one was given."""
    kept = capturing()
    token = otel.attach(INSIDE)
    try:
        kept.tracer.start_span("inside").end()
        kept.tracer.start_span("outside", context=Context()).end()
    finally:
        otel.detach(token)
    inside, outside = kept.exporter.get_finished_spans()
    assert (inside.attributes or {})[names.RUN_ID] == "run-1"
    assert not outside.attributes


def test_each_identity_key_is_resolved_by_itself() -> None:
    """Contract, section 1: attribute before context before baggage, each key by itself."""
    given = baggage.set_baggage(names.RUN_ID, "from-baggage", Context())
    given = baggage.set_baggage(names.WORKFLOW_NAME, "from-baggage", given)
    for accept, own, expected in [
        (True, {names.WORKFLOW_NAME: "own"}, {"own", "from-baggage"}),
        (True, {}, {"from-baggage"}),
        (False, {}, set()),
    ]:
        kept = capturing(accept_baggage=accept)
        kept.tracer.start_span("a", context=given, attributes=own).end()
        [span] = kept.exporter.get_finished_spans()
        assert set((span.attributes or {}).values()) == expected
    kept = capturing(accept_baggage=True)
    both = with_identity(given, "crm.sync", "run-1", send=False)
    kept.tracer.start_span("a", context=both, attributes={names.RUN_ID: "own"}).end()
    [span] = kept.exporter.get_finished_spans()
    assert dict(span.attributes or {}) == {
        names.RUN_ID: "own",
        names.WORKFLOW_NAME: "crm.sync",
    }


@pytest.mark.parametrize("forged", ["", "   ", "x" * 201, "a\0b"])
def test_baggage_cannot_make_a_span_invalid(forged: str) -> None:
    """Contract, section 1: what a stranger put into baggage is not taken if it breaks a rule."""
    kept = capturing(accept_baggage=True)
    given = baggage.set_baggage(names.RUN_ID, forged, Context())
    kept.tracer.start_span("push", context=given, attributes=PAIR).end()
    assert kept.sink.parts == ["op-start", "op-end"]
    assert len(str(kept.sink.of("op-end").attributes[names.RUN_ID])) == 32


def test_the_environment_allows_baggage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract, section 1: a processor made by hand reads baggage if FLOWMARK_BAGGAGE says so."""
    given = baggage.set_baggage(names.RUN_ID, "from-baggage", Context())
    for value, expected in [("accept,send", "from-baggage"), ("send", None)]:
        monkeypatch.setenv("FLOWMARK_BAGGAGE", value)
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(FlowmarkSpanProcessor(RecordingSink()))
        span = provider.get_tracer("t").start_span("a", context=given)
        assert isinstance(span, ReadableSpan)
        assert (span.attributes or {}).get(names.RUN_ID) == expected


def test_a_renamed_span_keeps_its_operation() -> None:
    """Contract, section 1: an early start writes the operation name, since spans are renamed."""
    kept = capturing()
    span = kept.tracer.start_span("push", attributes=PAIR)
    span.update_name("something else")
    span.end()
    names_sent = {event.attributes[names.OPERATION_NAME] for event in kept.sink.envelopes}
    assert names_sent == {"push"}
    [exported] = kept.exporter.get_finished_spans()
    assert (exported.attributes or {})[names.OPERATION_NAME] == "push"


def test_nothing_is_written_that_changes_what_a_span_is() -> None:
    """Contract, section 1: a run's early start writes no operation name."""
    kept = capturing()
    kept.tracer.start_span("sync", attributes={"flowmark.record.type": "run"}).end()
    assert kept.sink.parts == ["run-start", "run-end"]
    [exported] = kept.exporter.get_finished_spans()
    assert dict(exported.attributes or {}) == {"flowmark.record.type": "run"}


def test_a_start_field_changed_later_is_left_out_and_reported() -> None:
    """Contract, section 2: what an early start carries is frozen; a change is metadata_changed."""
    kept = capturing()
    span = kept.tracer.start_span("push", attributes={**PAIR, "flowmark.attempt.limit": 3})
    span.set_attribute("flowmark.attempt.number", 2)
    span.set_attribute("flowmark.run.id", "late")
    span.set_attribute("flowmark.attempt.limit", 3.0)  # carried alike
    span.set_attribute("flowmark.correlation.id", "c")  # of runs, not of this record
    span.set_status(StatusCode.ERROR)
    span.end()
    start, end = kept.sink.envelopes
    assert {**end.attributes, **start.attributes} == end.attributes
    [diagnostic] = kept.sink.diagnostics
    assert diagnostic.code == names.DIAGNOSTIC_METADATA_CHANGED
    assert diagnostic.event_id == end.event_id
    assert "flowmark.attempt.number, flowmark.run.id:" in diagnostic.message
    kept.sink.check()


def test_without_an_early_start_the_last_value_counts() -> None:
    """Contract, section 2: start fields are frozen by a start that was sent, by nothing else."""
    kept = capturing()
    span = kept.tracer.start_span("push", attributes={"flowmark.operation.name": "a"})
    span.set_attribute("flowmark.operation.name", "b")
    span.end()
    assert {event.attributes[names.OPERATION_NAME] for event in kept.sink.envelopes} == {"b"}
    assert kept.sink.diagnostics == []


def test_a_record_type_set_late_is_reported() -> None:
    """Contract, section 2: a started operation that turns into a run reads open, and is named."""
    kept = capturing()
    span = kept.tracer.start_span("push", attributes=PAIR)
    span.set_attribute("flowmark.record.type", "run")
    span.end()
    assert kept.sink.parts == ["op-start", "run-start", "run-end"]
    [diagnostic] = kept.sink.diagnostics
    assert diagnostic.message.startswith("flowmark.record.type:")


def test_a_run_added_to_a_started_attempt_is_recorded_at_the_end() -> None:
    """Contract, section 2: an outcome set later makes the span a run too, folded at its end."""
    kept = capturing()
    span = kept.tracer.start_span("push", attributes=PAIR)
    span.set_attribute("flowmark.run.outcome", "complete")
    span.end()
    assert kept.sink.parts == ["op-start", "run-start", "op-end", "run-end"]
    assert kept.sink.diagnostics == []


@pytest.mark.parametrize("early", [True, False])
def test_an_attribute_limit_cannot_change_the_fold(*, early: bool) -> None:
    """Contract, section 1: start fields are kept, so a limit that takes them changes nothing."""
    kept = capturing(limits=SpanLimits(max_span_attributes=8))
    attributes: dict[str, str | int] = {
        "flowmark.operation.name": "push",
        **(PAIR if early else {}),
    }
    span = kept.tracer.start_span("push", context=INSIDE, attributes=attributes)
    for number in range(20):
        span.set_attribute(f"other.{number}", number)
    span.end()
    end = kept.sink.of("op-end")
    expected = {**attributes, names.WORKFLOW_NAME: "crm.sync", names.RUN_ID: "run-1"}
    assert {key: end.attributes.get(key) for key in expected} == expected
    assert end.dropped_attributes_count > 0
    assert kept.sink.of("op-start").attributes.items() <= end.attributes.items()
    assert kept.sink.diagnostics == []


def test_a_key_that_pushes_another_out_is_seen() -> None:
    """D4: a key of ours that takes the place of another, so that no more are held, is recorded."""
    kept = capturing(limits=SpanLimits(max_span_attributes=2))
    span = kept.tracer.start_span("push", attributes={"first": 1, "second": 2})
    span.set_attribute("flowmark.operation.name", "push")
    span.end()
    assert kept.sink.parts == ["op-start", "op-end"]
    kept.sink.check()


@pytest.mark.parametrize(
    "value", ["\ud800", b"raw", ["a"], {"a": 1}, "", " ", "x" * 129, True, 1.5, 2**63, "a\0"]
)
def test_a_value_that_no_rule_accepts_is_refused_by_name(value: object) -> None:
    """A5: a broken attempt key makes both events invalid, each once, wherever it comes from."""
    kept = capturing()
    span = kept.tracer.start_span(
        "push",
        attributes={"flowmark.attempt.group_id": value, "flowmark.attempt.number": 1},  # type: ignore[dict-item]
    )
    span.end()
    kept_as = getattr(span, "attributes", {}).get(names.ATTEMPT_GROUP_ID)
    if isinstance(value, bytes) and kept_as != value:
        pytest.skip("before 1.43 the SDK drops bytes and says so itself, or makes text of them")
    context = span.get_span_context()
    ids = [event.event_id for event in kept.sink.events if isinstance(event, Refused)]
    stem = f"op-{context.trace_id:032x}-{context.span_id:016x}"
    assert ids == [f"{stem}-start", f"{stem}-end"]
    kept.sink.check()


def test_a_bad_record_type_counts_once() -> None:
    """Contract, section 1: a span with a bad record type counts as one event, at its end."""
    kept = capturing()
    span = kept.tracer.start_span("a", attributes={**PAIR, "flowmark.record.type": "banana"})
    assert kept.sink.events == []
    span.end()
    assert kept.sink.parts == ["refused"]


class _Code(str, Enum):
    """An error code as applications write it."""

    DOWN = "CRM_DOWN"


class _Try(IntEnum):
    """A number as applications write it."""

    SECOND = 2


def test_enum_members_are_their_values() -> None:
    """A8: a subclass of a built-in type folds as the value that an exporter would send."""
    kept = capturing()
    attributes = PAIR | {names.ATTEMPT_NUMBER: _Try.SECOND, names.ERROR_CODE: _Code.DOWN}
    span = kept.tracer.start_span("push", attributes=attributes)
    span.set_status(StatusCode.ERROR)
    span.end()
    end = kept.sink.of("op-end")
    assert end.attributes[names.ERROR_CODE] == "CRM_DOWN"
    assert type(end.attributes[names.ATTEMPT_NUMBER]) is int
    ours = [digest(event) for event in kept.sink.envelopes]
    theirs = as_exported(kept.exporter.get_finished_spans())
    assert ours == [digest(event) for event in theirs if isinstance(event, Envelope)]


def test_times_that_otlp_cannot_carry_are_unknown() -> None:
    """E1: a start given in floating nanoseconds, or before 1970, costs the time, not the event."""
    kept = capturing()
    for wrong in (1.5e18, -1, 2**64):
        span = kept.tracer.start_span("push", attributes=PAIR, start_time=wrong)  # type: ignore[arg-type]
        assert kept.sink.envelopes[-1].time_unix_nano == 0
        del span
    kept.sink.check()


def test_reported_tries_are_folded() -> None:
    """B8: events of an operation's span named as reported tries come between start and end."""
    kept = capturing()
    span = kept.tracer.start_span("push", attributes=PAIR)
    span.add_event(
        names.ATTEMPT_OBSERVED,
        {names.OBSERVED_NUMBER: 1, names.OBSERVED_OUTCOME: "failed", "error.type": "Timeout"},
        timestamp=5,
    )
    span.end()
    assert kept.sink.parts == ["op-start", "op-observed-5-observed-1", "op-end"]


def test_spans_of_one_provider_share_one_resource_mapping() -> None:
    """D1: events come with the resource's own mapping, the same object for every span."""
    kept = capturing()
    for _ in range(3):
        kept.tracer.start_span("push", attributes=PAIR).end()
    assert kept.sink.resources == [kept.provider.resource.attributes]
    other = TracerProvider(resource=Resource({"service.name": "b"}), shutdown_on_exit=False)
    other.add_span_processor(FlowmarkSpanProcessor(kept.sink, accept_baggage=False))
    other.get_tracer("t").start_span("push", attributes=PAIR).end()
    assert kept.sink.envelopes[-1].attributes[names.WORKFLOW_NAME] == "b"
    kept.sink.check()


def test_a_sink_that_raises_does_not_reach_the_application() -> None:
    """Contract, section 6: nothing raises into the application, whatever breaks underneath."""
    provider = TracerProvider(shutdown_on_exit=False)
    processor = FlowmarkSpanProcessor(BrokenSink(), accept_baggage=False)
    provider.add_span_processor(processor)
    with provider.get_tracer("t").start_as_current_span("push", attributes=PAIR) as span:
        span.set_attribute("flowmark.attempt.number", 2)
    assert processor.force_flush() is False
    processor.shutdown()


class _Flushed(RecordingSink):
    """A sink that can be flushed."""

    def __init__(self, *, answer: bool) -> None:
        super().__init__()
        self.answer = answer
        self.seconds: list[float] = []

    def try_flush(self, timeout: float) -> bool:
        """Answer as told."""
        self.seconds.append(timeout)
        return self.answer


def test_force_flush_tells_what_the_sink_says() -> None:
    """A22: force_flush of the provider is False when something was not acknowledged."""
    for answer in (True, False):
        sink = _Flushed(answer=answer)
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(FlowmarkSpanProcessor(sink, accept_baggage=False))
        assert provider.force_flush(2000) is answer
        assert 1 < sink.seconds[0] <= 2
    assert capturing().provider.force_flush() is True


class _Client:
    """A client as the hook has it, strict or not."""

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self.sink = RecordingSink()


@pytest.mark.parametrize("strict", [False, True])
def test_the_clients_sink_is_the_default(monkeypatch: pytest.MonkeyPatch, *, strict: bool) -> None:
    """Contract, section 6: without a sink the client's is used; strict, a change raises."""
    client = _Client(strict=strict)
    monkeypatch.setattr(hook, "client", lambda: client)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(FlowmarkSpanProcessor(accept_baggage=False))
    assert provider.force_flush() is True  # nothing recorded: no client is made for it
    span = provider.get_tracer("t").start_span("push", attributes=PAIR)
    span.set_attribute("flowmark.attempt.number", 2)
    with pytest.raises(InvalidUse) if strict else nullcontext():
        span.end()
    assert client.sink.parts == ["op-start", "op-end"]
    assert len(client.sink.diagnostics) == (0 if strict else 1)


def test_known_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """I6: an application that makes up attribute keys does not fill the memory; ours are seen."""
    monkeypatch.setattr(reading, "_MAX_PLAIN", 0)
    before = len(reading._plain)
    kept = capturing()
    for number in range(20):
        kept.tracer.start_span("get", attributes={f"made.up.{number}": 1}).end()
    assert len(reading._plain) == before
    kept.tracer.start_span("push", attributes={"made.up.x": 1, **PAIR}).end()
    assert kept.sink.parts == ["op-start", "op-end"]
