"""Every public function under arguments that no function was made for (contract, section 6)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from opentelemetry import context as otel
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult

import flowmark_otel as flowmark
from flowmark_otel import Attempt, ConfigurationError, DeliveryError, InvalidUse
from flowmark_otel.client import lifecycle
from flowmark_otel.testing import FakeClock, recording
from tests.support.hostile import Call, name_of, values

RECORDS = {"Attempt", "RunRef", "Failure", "Diagnostic", "ObservedAttempt", "Unacknowledged"}
ERRORS = {"AttemptTimeoutError", "ConfigurationError", "DeliveryError", "FlowmarkError"} | {
    "InvalidUse"
}
PAIR = Attempt("g", 1)


def start(**options: Any) -> flowmark.Workflow:
    """A run, looked at, entered and ended."""
    given: dict[str, Any] = {"name": "w", **options}
    flow = flowmark.workflow(given.pop("name"), **given)
    assert isinstance(flow.run_id, str)
    assert isinstance(repr(flow), str)
    with flow:
        flow.operation("o", attempt=PAIR).complete()
    return flow


def operate(**options: Any) -> None:
    """An operation as a block, a call and a decorator; what the application does is done."""
    given: dict[str, Any] = {"name": "o", "attempt": PAIR, **options}
    name = given.pop("name")
    flow = flowmark.workflow("w")
    operation = flow.operation(name, **given)
    with operation:
        handle = flowmark.current_attempt()
        assert isinstance(repr(handle), str)
        assert handle.remaining() >= 0
        assert handle.number == 1
    with pytest.raises(KeyError), flow.operation(name, **given):
        raise KeyError
    assert flow.call(name, lambda: 7, **given) == 7
    assert flow.operation(name, **given)(lambda: 8)() == 8


def annotated(**annotations: Any) -> None:
    """Annotations at the start of a span, and later."""
    flowmark.attributes(**annotations)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(flowmark.FlowmarkSpanProcessor())
    span = provider.get_tracer("t").start_span("s")
    flowmark.annotate(span, **annotations)
    span.end()


def defined(name: Any, operation: Any = "o", **options: Any) -> None:
    """A definition, and what is made from it."""
    definition: flowmark.WorkflowDefinition = flowmark.WorkflowDefinition(name)
    own = definition.operation(operation, **options)
    assert isinstance(repr(definition), str)
    flow = definition.start()
    flow.operation(own, attempt=PAIR).complete()
    flow.done()


def twice(value: Any) -> None:
    """Ends that contradict each other."""
    flow = flowmark.workflow("w")
    flow.done(outcome=value)
    flow.done(outcome=value, result=value)
    flow.fail(code=value, retryable=value)


def processed(value: Any) -> None:
    """The processor, called as no SDK would."""
    processor = flowmark.FlowmarkSpanProcessor()
    processor.on_start(value)
    processor.on_start(value, value)
    processor.on_end(value)
    processor.force_flush(value)


def exported(value: Any) -> None:
    """The exporter, called as no SDK would."""
    exporter = flowmark.FlowmarkSpanExporter()
    exporter.export(value)
    exporter.export([value])
    exporter.force_flush(value)


def configured(**options: Any) -> None:
    """A client of its own for one record, which is not waited for."""
    flowmark.configure(**{"transport": lifecycle.current().delivery._transport, **options})
    flowmark.workflow("w").operation("o", attempt=PAIR).complete()
    with suppress(DeliveryError):
        lifecycle.current().delivery.shutdown(0)


def reported(**options: Any) -> None:
    """A report; its fields raise by name."""
    given: dict[str, Any] = {"number": 1, "outcome": "failed", "started_at": 1, "ended_at": 2}
    with flowmark.workflow("w").operation("o", attempt=PAIR), suppress(TypeError):
        flowmark.current_attempt().report(**{**given, **options})


def signalled(value: Any) -> None:
    """A wait of some length for a signal that is set, and for one that time will set."""
    with flowmark.workflow("w").operation("o", attempt=PAIR, timeout=0):
        assert flowmark.current_attempt().signal.wait(value)
    flowmark.AttemptSignal(FakeClock(), timeout=1).wait(value)


class Dropping(Sampler):
    """Drops, and looks at nothing."""

    def should_sample(self, *_: object, **__: object) -> SamplingResult:
        """Drop."""
        return SamplingResult(Decision.DROP)

    def get_description(self) -> str:
        """Its name."""
        return "dropping"


def delivered(act: Call) -> Call:
    """Flush or shutdown: what was not acknowledged may be said."""

    def call(value: Any) -> None:
        with suppress(DeliveryError):
            act(value)

    return call


def each(make: Callable[..., object], label: str, fields: str) -> dict[str, Call]:
    """A call for each of these fields, by name."""

    def calling(field: str) -> Call:
        return lambda value: make(**{field: value})

    return {f"{label} {field}": calling(field) for field in fields.split()}


CALLS: dict[str, Call] = {
    **each(start, "workflow", "name run_id retry_of parent_run_id correlation_id unknown"),
    **each(
        operate,
        "operation",
        "name attempt limit deadline timeout system series idempotency_key map_error unknown",
    ),
    **each(
        annotated,
        "attributes annotate",
        "workflow run_id operation operation_id attempt limit deadline timeout system series "
        "idempotency_key retry_of parent_run_id correlation_id outcome result code retryable "
        "unknown",
    ),
    **each(reported, "report", "number outcome started_at ended_at series system error"),
    **each(
        configured,
        "configure",
        "endpoint api_key spool_dir tracer_provider on_diagnostic on_attempt transport clock "
        "timeout headers protocol unknown",
    ),
    "fail code": lambda value: flowmark.workflow("w").operation("o").fail(code=value),
    "fail retryable": lambda value: flowmark.workflow("w").fail(retryable=value),
    "done outcome": lambda value: flowmark.workflow("w").done(outcome=value),
    "done result": lambda value: flowmark.workflow("w").done(result=value),
    "done result value": lambda value: flowmark.workflow("w").done(result={"a": value}),
    "done twice": twice,
    "decorate": lambda value: [flowmark.workflow("w").operation("o")(value)],
    "annotate span": lambda value: flowmark.annotate(value, attempt=PAIR),
    "AttemptSignal wait": signalled,
    "current_attempt": lambda _: flowmark.current_attempt(),
    "WorkflowDefinition": defined,
    "WorkflowDefinition operation": lambda value: defined("w", value),
    "WorkflowDefinition limit": lambda value: defined("w", limit=value),
    "OperationDefinition": lambda value: operate(name=flowmark.OperationDefinition(value)),
    "OperationDefinition options": lambda value: operate(
        name=flowmark.OperationDefinition("o", value)
    ),
    "flush": delivered(flowmark.flush),
    "shutdown": delivered(flowmark.shutdown),
    "FlowmarkSpanProcessor": processed,
    "FlowmarkSpanExporter": exported,
    "FlowmarkSampler": lambda value: flowmark.FlowmarkSampler(Dropping()).should_sample(
        None, 1, value, None, value, value
    ),
}
"""What is called with each hostile value, by the public names that it covers."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of warnings are not what a person wants to read; entered contexts are left."""
    before = otel.get_current()
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
    otel.attach(before)


@pytest.mark.parametrize("label", CALLS)
def test_nothing_raises_into_the_application(
    label: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contract, section 6: a wrong argument is a diagnostic, whatever it is; the counts add up."""
    monkeypatch.chdir(tmp_path)  # some of the values are names of folders
    for value in values():
        otel.attach(Context())
        with suppress(DeliveryError), recording(strict=False):
            client = lifecycle.current()
            try:
                CALLS[label](value)
            except Exception as error:  # noqa: BLE001 - named with the value that did it
                pytest.fail(f"{label} with {name_of(value)} raised {type(error).__name__}: {error}")
            delivery = client.delivery
            assert sum(delivery.counts().values()) == delivery.recorded()
            assert "internal" not in delivery.diagnostics() or "Processor" in label, name_of(value)


@pytest.mark.parametrize("label", [label for label in CALLS if not label.startswith("configure")])
def test_strict_raises_what_names_the_fault_and_nothing_else(label: str) -> None:
    """Contract, section 6: strict, a wrong argument is an InvalidUse; no error of the inside."""
    for value in values():
        otel.attach(Context())
        with suppress(DeliveryError, InvalidUse), recording(strict=True):
            try:
                CALLS[label](value)
            except (InvalidUse, ConfigurationError):
                pass
            except Exception as error:  # noqa: BLE001 - named with the value that did it
                pytest.fail(f"{label} with {name_of(value)} raised {type(error).__name__}: {error}")


@pytest.mark.parametrize("field", ["group_id", "number", "workflow", "run_id", "code", "retryable"])
def test_records_raise_naming_the_field(field: str) -> None:
    """Contract, section 6: Attempt, RunRef and Failure raise TypeError or ValueError by name."""
    make: dict[str, Call] = {
        "group_id": lambda value: Attempt(value, 1),
        "number": lambda value: Attempt("g", value),
        "workflow": lambda value: flowmark.RunRef(value, "r"),
        "run_id": lambda value: flowmark.RunRef("w", value),
        "code": flowmark.Failure,
        "retryable": lambda value: flowmark.Failure("c", value),
    }
    for value in values():
        with suppress(TypeError, ValueError):
            made: Any = make[field](value)
            assert type(getattr(made, field)) in {str, int, bool, type(None)}
            continue
        with pytest.raises((TypeError, ValueError), match=f"^{field} "):
            make[field](value)


def test_every_public_name_is_swept() -> None:
    """Contract, section 6: a public name that is added has to be added to the sweep."""
    covered = {word for label in CALLS for word in label.split()}
    aliases = {"Workflow": "workflow", "Operation": "operation", "AttemptHandle": "report"}
    left = {
        name
        for name in flowmark.__all__
        if name not in RECORDS | ERRORS and aliases.get(name, name) not in covered
    }
    assert left == set()
