"""The sampler: what carries our keys is recorded although its trace is not sampled (E2)."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
)
from opentelemetry.trace import TraceState

from flowmark_otel import names
from flowmark_otel.capture import FlowmarkSampler, attach, sampler_from_name
from tests.support.capturing import PAIR
from tests.support.sinks import RecordingSink


def provider_of(sampler: Sampler) -> tuple[TracerProvider, RecordingSink, InMemorySpanExporter]:
    """A provider that samples so, recorded by us and exported by a stock exporter."""
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    exporter, sink = InMemorySpanExporter(), RecordingSink()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    attach(provider, sink, accept_baggage=False)
    return provider, sink, exporter


@pytest.mark.parametrize("sampler", [ALWAYS_OFF, ParentBased(ALWAYS_OFF)])
def test_an_annotated_span_is_recorded_though_not_sampled(sampler: Sampler) -> None:
    """E2: recorded by us, exported by nobody else, and the sampled flag stays off."""
    provider, sink, exporter = provider_of(sampler)
    span = provider.get_tracer("t").start_span("push", attributes=PAIR)
    assert not span.get_span_context().trace_flags.sampled
    inside = trace.set_span_in_context(span)
    child = provider.get_tracer("t").start_span("child", context=inside, attributes=PAIR)
    child.end()
    span.end()
    assert sink.parts == ["op-start", "op-start", "op-end", "op-end"]
    assert exporter.get_finished_spans() == ()
    sink.check()


@pytest.mark.parametrize(
    "attributes", [None, {}, {"a": 1}, {names.RUN_ID: "r", names.WORKFLOW_NAME: "w"}]
)
def test_other_spans_are_dropped_as_before(attributes: dict[str, str] | None) -> None:
    """E2: without keys of ours, or with identity alone, the wrapped sampler decides."""
    provider, sink, _ = provider_of(ALWAYS_OFF)
    span = provider.get_tracer("t").start_span("get", attributes=attributes)
    assert not span.is_recording()
    span.set_attribute("flowmark.attempt.group_id", "too late")
    span.end()
    assert sink.events == []


def test_sampled_spans_are_decided_by_the_wrapped_sampler() -> None:
    """E2: what is sampled anyway passes through, result and all."""
    wanted = SamplingResult(Decision.RECORD_AND_SAMPLE, {"sampler.x": 1})
    sampler = FlowmarkSampler(_Fixed(wanted))
    assert sampler.should_sample(None, 1, "a", attributes=PAIR) is wanted


class _Fixed(Sampler):
    """Answers what it was told to."""

    def __init__(self, result: SamplingResult) -> None:
        self.result = result

    def should_sample(self, *_: object, **__: object) -> SamplingResult:
        """The result."""
        return self.result

    def get_description(self) -> str:
        """A name."""
        return "Fixed"


def test_what_the_wrapped_sampler_adds_is_kept() -> None:
    """E2: attributes and trace state of a dropping sampler stay; creation attributes join them."""
    state = TraceState([("vendor", "1")])
    dropped = SamplingResult(Decision.DROP, {"sampler.rate": 0.5, "a": 2}, state)
    result = FlowmarkSampler(_Fixed(dropped)).should_sample(
        None, 1, "a", attributes={**PAIR, "a": 1}
    )
    assert result.decision is Decision.RECORD_ONLY
    assert dict(result.attributes or {}) == {**PAIR, "sampler.rate": 0.5, "a": 2}
    assert result.trace_state is state


@pytest.mark.parametrize(
    ("argument", "description"),
    [
        (None, "root:AlwaysOnSampler"),
        ("", "root:AlwaysOnSampler"),
        ("always_off", "FlowmarkSampler{AlwaysOffSampler}"),
        ("ALWAYS_ON", "FlowmarkSampler{AlwaysOnSampler}"),
        ("traceidratio=0.25", "FlowmarkSampler{TraceIdRatioBased{0.25}}"),
        ("parentbased_traceidratio=0.5", "root:TraceIdRatioBased{0.5}"),
    ],
)
def test_the_entry_point_wraps_the_sampler_it_is_told(
    argument: str | None, description: str
) -> None:
    """E2: OTEL_TRACES_SAMPLER=flowmark wraps the sampler that its argument names."""
    sampler = sampler_from_name(argument)
    assert isinstance(sampler, FlowmarkSampler)
    assert description in sampler.get_description()


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("nobody", "there is no 'nobody'; set one of always_off, always_on, parentbased_"),
        ("=", "there is no ''; set one of always_off"),
        ("a=b=c", "there is no 'a';"),
        ("0.25", "there is no '0.25';"),
        ("traceidratio", "the ratio is ''; set traceidratio=0.25, or another from 0 to 1"),
        ("parentbased_traceidratio=often", "the ratio is 'often'; set parentbased_traceidratio=0."),
        ("traceidratio=nan", "the ratio is 'nan'"),
        ("traceidratio=7", "the ratio is '7'"),
        ("\ud800" * 1000, "there is no '"),
        ("flowmark", "there is no 'flowmark'"),
    ],
)
def test_a_sampler_that_cannot_be_had_is_replaced(
    argument: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """E2: a wrong argument is said with its mend; attempts are recorded all the same."""
    assert "ParentBased{root:AlwaysOnSampler" in sampler_from_name(argument).get_description()
    [told] = [record.getMessage() for record in caplog.records]
    assert told.startswith("OTEL_TRACES_SAMPLER_ARG: ")
    assert said in told
    assert len(told) < 600


@pytest.mark.skipif(
    not hasattr(TracerProvider(shutdown_on_exit=False), "_tracers"),
    reason="before 1.41 the SDK does not know the tracers that it made",
)
def test_wrapping_reaches_tracers_made_before() -> None:
    """E2: the sampler of a provider is wrapped once, and that of its tracers with it."""
    provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    tracer = provider.get_tracer("early")
    sink = RecordingSink()
    attach(provider, sink, accept_baggage=False)
    attach(provider, sink, accept_baggage=False)
    tracer.start_span("push", attributes=PAIR).end()
    assert sink.parts == ["op-start", "op-end"]
    assert provider.sampler.get_description() == "FlowmarkSampler{AlwaysOffSampler}"
    plain = TracerProvider(sampler=ALWAYS_ON, shutdown_on_exit=False)
    attach(plain, sink, sampling=False)
    assert plain.sampler is ALWAYS_ON
