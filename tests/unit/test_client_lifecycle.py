"""The client of a process: configured once, flushed truthfully, replaced without loss."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

import flowmark_otel as flowmark
from flowmark_otel import Attempt, DeliveryError, Diagnostic, names
from flowmark_otel.client import lifecycle, pre_instrument
from flowmark_otel.client.exporter import FlowmarkSpanExporter
from flowmark_otel.deliver import Answer, NoAnswer
from flowmark_otel.testing import RecordingTransport


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process without client, and without settings of the machine it runs on."""
    for variable in list(os.environ):
        if variable.startswith(("FLOWMARK_", "OTEL_")):
            monkeypatch.delenv(variable)
    with lifecycle.set_aside():
        yield


def provider(**options: Any) -> TracerProvider:
    """A provider of the SDK, as an application sets one up."""
    resource = Resource({"service.name": "tests"})
    return TracerProvider(resource=resource, shutdown_on_exit=False, **options)


def recorded(transport: RecordingTransport) -> list[str]:
    """What arrived: event names, sorted, without prefix."""
    return sorted(event.event.removeprefix("flowmark.") for event in transport.events)


def test_works_without_set_up() -> None:
    """Contract, section 6: without an SDK provider a private one records, the global stays."""
    transport = RecordingTransport()
    flowmark.configure(transport=transport)
    flow = flowmark.workflow("w")
    assert flow.span.is_recording()
    flow.call("o", int, "3", attempt=Attempt("g", 1))
    flow.done()
    flowmark.flush()
    assert recorded(transport) == [
        "operation.completed",
        "operation.started",
        "run.completed",
        "run.started",
    ]
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def test_a_given_provider(tmp_path: Path) -> None:
    """D1: spans are recorded with the application's provider, which exports them as before."""
    theirs, transport = InMemorySpanExporter(), RecordingTransport()
    given = provider()
    given.add_span_processor(SimpleSpanProcessor(theirs))
    flowmark.configure(transport=transport, tracer_provider=given, spool_dir=tmp_path / "spool")
    with flowmark.workflow("w"):
        given.get_tracer("theirs").start_span("inner").end()
    flowmark.flush()
    inner, run = theirs.get_finished_spans()
    assert (inner.attributes or {})[names.WORKFLOW_NAME] == "w"
    assert (run.attributes or {})[names.RECORD_TYPE] == "run"
    assert recorded(transport) == ["run.completed", "run.started"]


def test_a_provider_that_is_set_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract, section 6: once the application has a provider, it is recorded with."""
    transport, late = RecordingTransport(), provider()
    flowmark.configure(transport=transport)
    first = flowmark.workflow("first")
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: late)
    second = flowmark.workflow("second")
    assert second.span.resource is late.resource  # type: ignore[attr-defined]
    first.done()
    second.done()
    flowmark.flush()
    assert recorded(transport) == ["run.completed", "run.completed", "run.started", "run.started"]


def test_unsampled_spans_annotated_at_creation_are_recorded() -> None:
    """E2: configure wraps the sampler, so that what is annotated at creation is not lost."""
    transport, given = RecordingTransport(), provider(sampler=ALWAYS_OFF)
    flowmark.configure(transport=transport, tracer_provider=given)
    tracer = given.get_tracer("theirs")
    span = tracer.start_span("push", attributes=flowmark.attributes(attempt=Attempt("g", 1)))
    assert not span.get_span_context().trace_flags.sampled
    span.end()
    flowmark.flush()
    assert recorded(transport) == ["operation.completed", "operation.started"]


def test_processor_and_handles_record_once() -> None:
    """Contract, section 6: a processor made by hand is covered by flush, and nothing is doubled."""
    transport, given = RecordingTransport(), provider()
    given.add_span_processor(flowmark.FlowmarkSpanProcessor())
    flowmark.configure(transport=transport, tracer_provider=given)
    flowmark.workflow("w").done()
    span = given.get_tracer("theirs").start_span("push")
    flowmark.annotate(span, attempt=Attempt("g", 1))
    span.end()
    flowmark.flush()
    assert recorded(transport) == [
        "operation.completed",
        "operation.started",
        "run.completed",
        "run.started",
    ]
    ids = [event.event_id for event in transport.events]
    assert len(set(ids)) == len(ids)


def test_processor_and_exporter_record_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """D2: the exporter feeds the same queue, attaches the processor, and delivers nothing twice."""
    transport, given = RecordingTransport(), provider()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: given)
    given.add_span_processor(BatchSpanProcessor(FlowmarkSpanExporter()))
    lifecycle.configure(transport=transport)
    # As where nobody configured anything: there is no processor of ours at first.
    given._active_span_processor._span_processors = given._active_span_processor._span_processors[
        1:
    ]
    tracer = given.get_tracer("theirs")
    for number in (1, 2):
        attempt = flowmark.attributes(attempt=Attempt("g", number), workflow="w", run_id="r")
        span = tracer.start_span("push", attributes=attempt)
        tracer.start_span("not annotated").end()
        span.end()
        flowmark.flush()
    assert recorded(transport) == ["operation.completed"] * 2 + ["operation.started"] * 2
    given.shutdown()


def test_processor_and_exporter_record_a_signal_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """D2, E3: a try that another instrumentation marks: once, whichever of them is first."""
    transport, given = RecordingTransport(), provider()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: given)
    given.add_span_processor(BatchSpanProcessor(FlowmarkSpanExporter()))
    lifecycle.configure(transport=transport)
    # As where nobody configured anything: there is no processor of ours at first.
    given._active_span_processor._span_processors = given._active_span_processor._span_processors[
        1:
    ]
    for number in (1, 2):
        task = {"celery.action": "run", "celery.state": "RETRY", "messaging.message.id": "t"}
        given.get_tracer("theirs").start_span(
            "run/t", attributes={**task, "celery.retries": number - 1}
        ).end()
        flowmark.flush()
    assert recorded(transport) == ["operation.failed"] * 2 + ["operation.started"] * 2
    given.shutdown()


class Broken(trace.TracerProvider):
    """A provider that makes no tracers."""

    def get_tracer(self, *_: Any, **__: Any) -> trace.Tracer:
        """Fail."""
        msg = "no tracer today"
        raise RuntimeError(msg)


@pytest.mark.parametrize("provider", [Broken(), "nonsense"])
def test_a_provider_that_fails_is_reported_and_replaced(provider: Any) -> None:
    """Contract, section 6: a wrong provider raises nothing; a private one records."""
    transport = RecordingTransport()
    told: list[Diagnostic] = []
    flowmark.configure(transport=transport, tracer_provider=provider, on_diagnostic=told.append)
    flow = flowmark.workflow("w")
    assert flow.call("o", int, "3", attempt=Attempt("g", 1)) == 3
    flow.done()
    flowmark.flush()
    assert len(transport.events) == 4
    assert [one.code for one in told] == ["configuration"]


def test_flush_says_what_was_not_acknowledged() -> None:
    """A22: flush raises DeliveryError with what was not acknowledged and why, once."""
    bare = Answer(200, b"", {"content-type": "application/x-protobuf"})
    flowmark.configure(transport=RecordingTransport(*[bare] * 10))
    flow = flowmark.workflow("w")
    flow.operation("o", attempt=Attempt("g", 1)).complete()
    with pytest.raises(DeliveryError) as caught:
        flowmark.flush()
    assert {failure.reason for failure in caught.value.failures} == {"unacknowledged"}
    flowmark.flush()
    flow.done()
    flowmark.flush()


def test_configuring_again_loses_nothing() -> None:
    """Contract, section 6: what an earlier configuration recorded is flushed with the rest."""
    first, second = RecordingTransport(), RecordingTransport()
    flowmark.configure(transport=first)
    one = flowmark.workflow("one")
    flowmark.configure(transport=second)
    flowmark.workflow("two").done()
    flowmark.flush()
    assert recorded(first) == ["run.started"]
    assert recorded(second) == ["run.completed", "run.started"]
    one.done()
    flowmark.flush()
    ids = {event.event_id for event in (*first.events, *second.events)}
    assert len(ids) == 4  # the open run's start came twice: the second delivery cannot know


def test_flush_joins_the_failures_of_all_configurations() -> None:
    """A22: one DeliveryError speaks for everything that was recorded."""
    for _ in range(2):
        silent = RecordingTransport(*[NoAnswer("no")] * 50)
        flowmark.configure(transport=silent)
        flowmark.workflow("w")
    with pytest.raises(DeliveryError) as caught:
        flowmark.flush(0.2)
    assert sum(caught.value.counts.values()) == 2
    assert len(caught.value.failures) == 2


def test_after_shutdown_nothing_is_recorded_and_that_is_counted() -> None:
    """Contract, section 3: what is recorded after shutdown is dropped, with its reason."""
    transport = RecordingTransport()
    flowmark.configure(transport=transport)
    flow = flowmark.workflow("w")
    flowmark.shutdown()
    flow.done()
    assert recorded(transport) == ["run.started"]
    counts = lifecycle.current().delivery.counts()
    assert counts[names.DROPPED, names.REASON_SHUTDOWN] == 1


def test_nothing_recorded_nothing_to_flush() -> None:
    """A22: flush and shutdown of a process that recorded nothing are fine."""
    flowmark.flush()
    flowmark.shutdown()


def test_wrong_settings_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract, section 6: a wrong setting never stops an application; it is a diagnostic."""
    monkeypatch.setenv("FLOWMARK_TIMEOUT", "soon")
    monkeypatch.setenv("FLOWMARK_ENPOINT", "http://127.0.0.1:1")
    told: list[Diagnostic] = []
    given: Any = {"endpoint": "nowhere", "bogus": 1}
    flowmark.configure(transport=RecordingTransport(), on_diagnostic=told.append, **given)
    flowmark.flush()
    assert {diagnostic.code for diagnostic in told} == {names.DIAGNOSTIC_CONFIGURATION}
    said = " ".join(diagnostic.message for diagnostic in told)
    for name in ("FLOWMARK_TIMEOUT", "FLOWMARK_ENPOINT is no setting", "endpoint", "bogus"):
        assert name in said
    with pytest.raises(flowmark.ConfigurationError):
        flowmark.configure(strict=True)


def test_redacted_results() -> None:
    """Contract, section 2: FLOWMARK_REDACT adds result keys to the built-in ones."""
    transport = RecordingTransport()
    flowmark.configure(transport=transport, redact="customer.*, note")
    result: dict[str, str | int] = {
        "customer.name": "Ada",
        "note": "x",
        "notes": "y",
        "customer.age": 36,
    }
    flowmark.workflow("w").done(result=result)
    flowmark.flush()
    [end] = [event for event in transport.events if event.event == names.RUN_COMPLETED]
    found = {key: end.attributes[names.RUN_RESULT_PREFIX + key] for key in result}
    assert found == {**result, "customer.name": names.REDACTED, "note": names.REDACTED}


@pytest.mark.parametrize("asked", [True, False])
def test_pre_instrument(monkeypatch: pytest.MonkeyPatch, asked: bool) -> None:  # noqa: FBT001 - both
    """D2: without code the provider gets processor and sampler only if the environment asks."""
    given = provider()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: given)
    if asked:
        monkeypatch.setenv("FLOWMARK_ENDPOINT", "http://127.0.0.1:1")
    pre_instrument()
    ours = [
        each
        for each in given._active_span_processor._span_processors
        if isinstance(each, flowmark.FlowmarkSpanProcessor)
    ]
    assert len(ours) == int(asked)
    assert isinstance(given.sampler, flowmark.FlowmarkSampler) is asked


def test_pre_instrument_never_raises(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """D2: an exception would leave the application without its instrumentation."""
    monkeypatch.setenv("FLOWMARK_ENDPOINT", "nowhere")
    monkeypatch.setenv("FLOWMARK_STRICT", "1")
    pre_instrument()
    assert "flowmark could not be set up" in caplog.text


def test_importing_is_cheap() -> None:
    """Contract, section 6: importing the package loads no transport and nothing that encodes."""
    heavy = ("requests", "grpc", "google.protobuf", "flowmark_otel.deliver", "importlib.metadata")
    program = (
        "import sys, opentelemetry.sdk.trace.export, opentelemetry.sdk.resources\n"
        "before = set(sys.modules)\n"
        "import flowmark_otel\n"
        f"print(sorted(set({heavy!r}) & (set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_hooks_get_what_was_reported() -> None:
    """B8: the on-attempt hook that was configured is told of each reported try."""
    told: list[flowmark.ObservedAttempt] = []
    flowmark.configure(transport=RecordingTransport(), on_attempt=told.append)
    with flowmark.workflow("w").operation("o"):
        flowmark.current_attempt().report(
            number=1, outcome="completed", started_at=1, ended_at=2, system="queue"
        )
    flowmark.flush()
    assert [(each.operation, each.number, each.system) for each in told] == [("o", 1, "queue")]
