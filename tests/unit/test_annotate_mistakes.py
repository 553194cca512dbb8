"""Wrong arguments are reported and counted; the application's work goes on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Sampler, SamplingResult

import flowmark_otel as flowmark
from flowmark_otel import Attempt, Failure, InvalidUse, ObservedAttempt, RunRef, names
from flowmark_otel.annotate import hook as hook_module
from tests.support.recorders import Recorder, recorder


def wrong(value: object) -> Any:
    """A wrong argument, which type checkers would find."""
    return value


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"attempt": "g/1"}, "attempt is the string 'g/1'; set a flowmark_otel.Attempt"),
        ({"limit": 0}, "flowmark.attempt.limit is the integer 0"),
        ({"limit": True}, "flowmark.attempt.limit is the bool true"),
        ({"deadline": 1.5}, "flowmark.attempt.deadline_ms is the double 1.5"),
        ({"timeout": "3"}, "flowmark.attempt.timeout_ms is the string '3'"),
        ({"system": " "}, "flowmark.attempt.system.name is blank"),
        ({"series": 7}, "flowmark.attempt.series.name is the integer 7"),
        ({"idempotency_key": 7}, "flowmark.attempt.idempotency_key is the integer 7"),
        ({"map_error": "x"}, "map_error is a str"),
        ({"atempt": None}, "atempt is no option"),
        ({"attempt": Attempt("\ud800", 1)}, "flowmark.attempt.group_id has a lone surrogate"),
    ],
)
@pytest.mark.parametrize("kind", ["captured", "none"])
def test_a_wrong_option(kind: str, options: dict[str, object], says: str) -> None:
    """A2: the function runs and gives its result; both events of the operation are `invalid`."""
    given: Any = options
    with recorder(kind) as made:
        flow = flowmark.workflow("w")
        assert flow.call("o", int, "3", **given) == 3
        flow.done()
    assert made.sink.told() == ["run.started", "run.completed"]
    assert [refused.code for refused in made.sink.refused] == ["invalid"] * 2
    assert {refused.event_id.rpartition("-")[2] for refused in made.sink.refused} == {
        "start",
        "end",
    }
    assert says in made.sink.refused[0].message


@pytest.mark.parametrize("name", ["", " ", None, 7, "x" * 201, "\0"])
def test_a_wrong_name(name: object) -> None:
    """Contract, section 6: what has no usable name is refused, and what is under it too."""
    given: Any = name
    with recorder() as made:
        flow = flowmark.workflow(given, run_id="r")
        assert flow.call("o", int, "3") == 3
        with flow, flow.operation(given):
            pass
        assert isinstance(flow.ref, RunRef)
    assert made.sink.told() == []
    assert len(made.sink.refused) == 6


def test_wrong_references_refuse_the_run_alone() -> None:
    """Contract, section 1: a broken rule makes invalid exactly the events that carry the key."""
    given: Any = "previous"
    with recorder() as made:
        flow = flowmark.workflow("w", retry_of=given, parent_run_id="")
        flow.operation("o").complete()
        flow.done()
    assert made.sink.told() == ["operation.started", "operation.completed"]
    assert "retry_of is the string 'previous'" in made.sink.refused[0].message


@pytest.mark.parametrize("kind", ["captured", "none"])
@pytest.mark.parametrize(
    ("result", "says"),
    [
        ({"n": 1 << 70}, "beyond 64 bits"),
        ({"Bad Key": 1}, "is no result key"),
        ({"n": math.nan}, "finite"),
        ({"n": "x" * 1025}, "1025 characters"),
        ({"n": object()}, "flowmark.run.result.n"),
        ({f"k{n}": n for n in range(65)}, "are 65"),
        (3, "is no result key"),
    ],
)
def test_a_wrong_result(kind: str, result: object, says: str) -> None:
    """Contract, section 1: a wrong result refuses the end of the run and nothing else."""
    given: Any = result
    with recorder(kind) as made:
        flowmark.workflow("w").done(result=given)
    assert made.sink.told() == ["run.started"]
    [refused] = made.sink.refused
    assert says in refused.message
    assert refused.event_id.endswith("-end")


@pytest.mark.parametrize("kind", ["captured", "none"])
def test_a_wrong_failure(kind: str) -> None:
    """Contract, section 1: a wrong code or retryable refuses the end alone."""
    given: Any = "yes"
    with recorder(kind) as made:
        flow = flowmark.workflow("w")
        flow.operation("o", attempt=Attempt("g", 1)).fail(code="", retryable=given)
    assert made.sink.told() == ["run.started", "operation.started"]
    [refused] = made.sink.refused
    assert "flowmark.error.code is blank" in refused.message
    assert "flowmark.error.retryable is the string 'yes'" in refused.message


def test_values_of_derived_classes_are_what_they_are() -> None:
    """Contract, section 1: a number of a class derived from int is that number."""

    class Count(int):
        def __str__(self) -> str:
            return "many"

    with recorder("none") as made:
        flowmark.workflow("w").done(result={"n": Count(3)})
    value = made.sink.envelopes[-1].attributes["flowmark.run.result.n"]
    assert (type(value), value) == (int, 3)


class Broken(Sampler):
    """A sampler of somebody else's that raises."""

    def should_sample(self, *_: object, **__: object) -> SamplingResult:
        """Raise."""
        raise LookupError

    def get_description(self) -> str:
        """Its name."""
        return "broken"


def test_a_tracer_that_raises() -> None:
    """E2: somebody else's defect never reaches the application, and costs no attempt."""
    with recorder() as made:
        made.provider = TracerProvider(sampler=Broken())
        assert flowmark.workflow("w").call("o", int, "3", attempt=Attempt("g", 1)) == 3
    assert made.sink.told() == ["run.started", "operation.started", "operation.completed"]
    assert set(made.sink.codes()) == {names.DIAGNOSTIC_INTERNAL}


def test_ending_twice() -> None:
    """Contract, section 6: the first end stands; another one that differs is reported."""
    with recorder() as made:
        operation = flowmark.workflow("w").operation("o")
        operation.fail(code="A")
        operation.fail(code="A")
        assert made.sink.codes() == []
        operation.complete()
    assert made.sink.told()[-1] == "operation.failed"
    assert made.sink.codes() == [names.DIAGNOSTIC_ALREADY_ENDED]


def raising(*_: object) -> Any:
    """A callback that fails."""
    raise LookupError


@pytest.mark.parametrize(
    ("mapper", "code"),
    [
        (raising, names.DIAGNOSTIC_CALLBACK_FAILED),
        (lambda _: "CODE", names.DIAGNOSTIC_INVALID),
        (lambda _: None, None),
    ],
)
def test_callbacks_are_not_trusted(mapper: Callable[..., Any], code: str | None) -> None:
    """Contract, section 6: what a callback raises or gives wrongly never replaces the exception."""
    with recorder() as made:
        flow = flowmark.workflow("w")
        with pytest.raises(ZeroDivisionError):
            flow.call("o", lambda: 1 / 0, map_error=mapper)
    assert made.sink.told()[-1] == "operation.failed"
    assert made.sink.codes() == ([] if code is None else [code])


def test_an_idempotency_rule_that_raises() -> None:
    """B3: without a key the attempt is recorded all the same, and the callback is reported."""
    with recorder() as made:
        flow = flowmark.workflow("w")
        flow.operation("o", attempt=Attempt("g", 1), idempotency_key=raising).complete()
    assert made.sink.told()[-1] == "operation.completed"
    assert made.sink.codes() == [names.DIAGNOSTIC_CALLBACK_FAILED]


def test_an_exception_that_cannot_be_shown() -> None:
    """Contract, section 6: an exception whose text raises passes through as it is."""

    class Unshowable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    with recorder() as made, pytest.raises(Unshowable):
        flowmark.workflow("w").call("o", raising_of(Unshowable))
    assert made.sink.told()[-1] == "operation.failed"


def raising_of(kind: type[Exception]) -> Callable[[], None]:
    """A function that raises."""

    def run() -> None:
        raise kind

    return run


@pytest.mark.parametrize(
    "use",
    [
        lambda: flowmark.workflow(""),
        lambda: flowmark.workflow("w", retry_of=wrong("x")),
        lambda: flowmark.workflow("w").operation("o", limit=0),
        lambda: flowmark.workflow("w").done(result={"Bad Key": 1}),
        lambda: flowmark.workflow("w").operation("o").fail(code=" "),
        lambda: flowmark.attributes(limit=0),
    ],
)
def test_strict_raises(use: Callable[[], object]) -> None:
    """Contract, section 6: FLOWMARK_STRICT turns diagnostics into exceptions."""
    with recorder(strict=True), pytest.raises(InvalidUse, match="invalid: "):
        use()


@pytest.mark.parametrize(
    ("construct", "error"),
    [
        (lambda: Attempt("", 1), ValueError),
        (lambda: Attempt("g", 0), ValueError),
        (lambda: Attempt("g", wrong("1")), TypeError),
        (lambda: RunRef("w", " "), ValueError),
        (lambda: Failure("c", retryable=wrong(1)), TypeError),
    ],
)
def test_constructors_raise(construct: Callable[[], object], error: type[Exception]) -> None:
    """A5: what people construct checks itself, naming field and rule."""
    with pytest.raises(error, match="must"):
        construct()


INTERRUPTS = (KeyboardInterrupt, SystemExit, GeneratorExit)


@pytest.mark.parametrize("kind", INTERRUPTS)
@pytest.mark.parametrize("how", ["block", "call", "decorated"])
def test_an_interrupt_out_of_map_error_passes(kind: type[BaseException], how: str) -> None:
    """A2: an interrupt that strikes in ``map_error`` passes, and the attempt has failed."""

    def interrupted(_: Exception) -> Failure:
        raise kind

    def fails() -> None:
        raise LookupError

    def attempted(flow: flowmark.Workflow) -> None:
        attempt = Attempt("g", 1)
        if how == "call":
            flow.call("o", fails, attempt=attempt, map_error=interrupted)
        elif how == "decorated":
            flow.operation("o", attempt=attempt, map_error=interrupted)(fails)()
        else:
            with flow.operation("o", attempt=attempt, map_error=interrupted):
                fails()

    with recorder() as made, pytest.raises(kind):
        attempted(flowmark.workflow("w"))
    assert made.sink.envelopes[-1].event == names.OPERATION_FAILED
    assert made.sink.envelopes[-1].attributes[names.ERROR_TYPE] == "LookupError"


def test_a_wrong_map_error_ends_the_attempt_in_strict_mode_too() -> None:
    """Contract, section 6: strict, the diagnostic raises, and the attempt has an end."""
    with recorder(strict=True) as made:
        flow = flowmark.workflow("w")
        options = {"attempt": Attempt("g", 1), "map_error": wrong(str)}
        with pytest.raises(InvalidUse), flow.operation("o", **options):
            raise LookupError
    assert made.sink.told()[-1] == "operation.failed"


@pytest.mark.parametrize("kind", INTERRUPTS)
def test_an_interrupt_out_of_on_attempt_passes(kind: type[BaseException]) -> None:
    """B8: an interrupt in the hook ends the attempt as any interrupt does, with the report kept."""

    class Interrupted(Recorder):
        """A client whose hook is interrupted."""

        @property
        def on_attempt(self) -> Callable[[ObservedAttempt], object]:
            """Interrupts."""

            def hook(_: ObservedAttempt) -> None:
                raise kind

            return hook

    with recorder() as outer:
        made = Interrupted("captured")
        hook_module.register(lambda: made)
        flow = flowmark.workflow("w")
        with pytest.raises(kind), flow.operation("o", attempt=Attempt("g", 1)) as operation:
            operation.attempt.report(number=1, outcome="failed", started_at=1, ended_at=2)
    assert outer.sink.events == []
    # A program that exits with success, and a generator that is closed, have not failed.
    ended = "failed" if kind is KeyboardInterrupt else "completed"
    assert made.sink.told()[-2:] == ["attempt.observed", f"operation.{ended}"]
