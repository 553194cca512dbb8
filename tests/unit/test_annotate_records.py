"""Runs and operations through the recording API read alike under any tracer provider."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flowmark_otel import Attempt, Failure, RunRef, names, workflow
from flowmark_otel.model import Envelope
from tests.support.recorders import PROVIDERS, SECOND, START, Recorder, recorder


@pytest.fixture(params=PROVIDERS)
def made(request: pytest.FixtureRequest) -> Iterator[Recorder]:
    """A client over each kind of provider."""
    with recorder(request.param) as found:
        yield found


def own(event: Envelope) -> dict[str, object]:
    """What an event says beside identity and ids."""
    left_out = {*names.IDENTITY_KEYS, names.OPERATION_ID, names.DEFAULTED}
    return {key: value for key, value in event.attributes.items() if key not in left_out}


def test_a_manual_retry(made: Recorder) -> None:
    """A2, A7, E1, E2: both attempts are recorded, starts first, whatever the provider samples."""
    flow = workflow("crm.sync", run_id="r1")
    first = flow.operation("push-to-crm", attempt=Attempt("batch-42", 1))
    assert made.sink.told() == ["run.started", "operation.started"]
    first.fail(code="CRM_UNAVAILABLE", retryable=True)
    flow.operation("push-to-crm", attempt=Attempt("batch-42", 2), limit=3).complete()
    flow.done(outcome="complete", result={"imported": 3})
    assert made.sink.told() == [
        "run.started",
        "operation.started",
        "operation.failed",
        "operation.started",
        "operation.completed",
        "run.completed",
    ]
    _, started, failed, _, completed, ended = made.sink.envelopes
    pair = {names.ATTEMPT_GROUP_ID: "batch-42", names.ATTEMPT_NUMBER: 1}
    assert own(started) == {names.OPERATION_NAME: "push-to-crm", **pair}
    assert own(failed) == {
        **own(started),
        names.ERROR_CODE: "CRM_UNAVAILABLE",
        names.ERROR_RETRYABLE: True,
        names.DURATION_NS: SECOND,
    }
    assert started.time_unix_nano == START + 2 * SECOND
    assert own(completed)[names.ATTEMPT_LIMIT] == 3
    assert own(ended)[names.RUN_RESULT_PREFIX + "imported"] == 3
    assert {event.attributes[names.RUN_ID] for event in made.sink.envelopes} == {"r1"}
    assert made.sink.refused == []
    assert made.sink.diagnostics == []


def test_every_event_has_an_id_of_its_own(made: Recorder) -> None:
    """A4: operations of one name stay separate, also where a tracer hands out no ids."""
    flow = workflow("w")
    for _ in range(3):
        flow.operation("read").complete()
    flow.done()
    ids = [event.event_id for event in made.sink.envelopes]
    assert len(set(ids)) == len(ids) == 8
    assert len({event.trace_id for event in made.sink.envelopes}) == 1
    assert made.sink.told().count("operation.completed") == 3


def test_the_trace_of_the_application_is_kept(made: Recorder) -> None:
    """E2: what is recorded belongs to the trace it was recorded in, and its ids are valid."""
    with workflow("w") as flow, flow.operation("outer", attempt=Attempt("g", 1)) as outer:
        flow.operation("inner", attempt=Attempt("h", 1)).complete()
    inner = next(
        e for e in made.sink.envelopes if e.attributes.get(names.OPERATION_NAME) == "inner"
    )
    assert any(inner.trace_id)
    assert any(inner.span_id)
    context = outer.span.get_span_context()
    if context.is_valid:
        assert inner.trace_id == context.trace_id.to_bytes(16, "big")


def test_a_call_passes_its_exception_through(made: Recorder) -> None:
    """A2: a wrapped callable fails with its exception, whose type and mapped code are recorded."""
    flow = workflow("w")

    def push(_customers: list[str]) -> int:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        flow.call(
            "push",
            push,
            ["Ada"],
            attempt=Attempt("g", 1),
            map_error=lambda _: Failure("CRM_UNAVAILABLE", retryable=True),
        )
    ended = made.sink.envelopes[-1]
    assert ended.event == names.OPERATION_FAILED
    assert ended.attributes[names.ERROR_TYPE] == "ConnectionError"
    assert ended.attributes[names.ERROR_CODE] == "CRM_UNAVAILABLE"
    assert ended.attributes[names.ERROR_RETRYABLE] is True


def test_without_a_code_the_type_stands_in(made: Recorder) -> None:
    """Contract, section 1: the error code defaults to the error type, and says that it did."""
    with pytest.raises(ZeroDivisionError), workflow("w").operation("divide"):
        _ = 1 / 0
    ended = made.sink.envelopes[-1]
    assert ended.attributes[names.ERROR_CODE] == "ZeroDivisionError"
    assert names.ERROR_CODE in str(ended.attributes[names.DEFAULTED])


def test_a_retried_run(made: Recorder) -> None:
    """A12, A15: a retry is a run of its own that names its predecessor, which stays failed."""
    partial = workflow("booking.confirm")
    partial.fail(code="PROVIDER_UNAVAILABLE", outcome="partial", result={"confirmed": 2})
    recovery = workflow("booking.confirm", retry_of=partial.ref)
    recovery.done(outcome="complete")
    assert made.sink.told() == ["run.started", "run.failed", "run.started", "run.completed"]
    assert partial.run_id != recovery.run_id
    for event in made.sink.envelopes[2:]:
        assert event.attributes[names.RETRY_OF_RUN_ID] == partial.run_id
        assert event.attributes[names.RETRY_OF_WORKFLOW_NAME] == "booking.confirm"
    assert made.sink.envelopes[1].attributes[names.RUN_OUTCOME] == "partial"


def test_legacy_references(made: Recorder) -> None:
    """A19: the parent run id and the correlation id are carried by both events of the run."""
    workflow("w", parent_run_id="p", correlation_id="c").done()
    for event in made.sink.envelopes:
        assert event.attributes[names.PARENT_RUN_ID] == "p"
        assert event.attributes[names.CORRELATION_ID] == "c"


def test_a_run_gets_a_new_id(made: Recorder) -> None:
    """A13: without an id a run gets a new UUID, with one it keeps it."""
    one, other = workflow("w"), workflow("w")
    assert len(one.run_id) == 36
    assert one.run_id != other.run_id
    assert workflow("w", run_id="given").ref == RunRef("w", "given")
    assert made.sink.envelopes[0].attributes[names.RUN_ID] == one.run_id


def test_a_run_that_names_itself_is_refused(made: Recorder) -> None:
    """A13: a run cannot be its own predecessor; both its events are refused, nothing raises."""
    flow = workflow("w", run_id="r", retry_of=RunRef("w", "r"))
    flow.operation("o").complete()
    flow.done()
    assert made.sink.told() == ["operation.started", "operation.completed"]
    assert [refused.code for refused in made.sink.refused] == ["invalid", "invalid"]
    assert "names this run itself" in made.sink.refused[0].message


def test_what_is_not_ended_stays_open(made: Recorder) -> None:
    """A11, E1: an attempt that nobody ended has a start and no end."""
    flow = workflow("w")
    flow.operation("o", attempt=Attempt("g", 1))
    assert made.sink.told() == ["run.started", "operation.started"]


def test_ordinary_operations_opt_into_nothing(made: Recorder) -> None:
    """A21: without attempt and retry reference no event carries metadata that opts in."""
    flow = workflow("w")
    flow.operation("o").complete()
    flow.done(result={"n": 1})
    for event in made.sink.envelopes:
        assert not any(key.startswith(names.ATTEMPT_PREFIX) for key in event.attributes)
        assert names.RETRY_OF_RUN_ID not in event.attributes


def test_options_of_an_attempt(made: Recorder) -> None:
    """Contract, section 6: every option is carried, the idempotency key in its served form (B3)."""
    flow = workflow("w", run_id="r")
    flow.operation(
        "o",
        attempt=Attempt("g", 1),
        limit=3,
        deadline=1_800_000_000_000,
        timeout=500,
        system="crm",
        series="push",
        idempotency_key=lambda workflow, run, name, group: f"{workflow}/{run}/{name}/{group}",
    ).complete()
    started, ended = made.sink.envelopes[1:]
    served = started.attributes[names.ATTEMPT_IDEMPOTENCY_KEY]
    assert str(served).startswith("sha256:")
    assert own(started) == {
        names.OPERATION_NAME: "o",
        names.ATTEMPT_GROUP_ID: "g",
        names.ATTEMPT_NUMBER: 1,
        names.ATTEMPT_LIMIT: 3,
        names.ATTEMPT_DEADLINE_MS: 1_800_000_000_000,
        names.ATTEMPT_TIMEOUT_MS: 500,
        names.ATTEMPT_SYSTEM_NAME: "crm",
        names.ATTEMPT_SERIES_NAME: "push",
        names.ATTEMPT_IDEMPOTENCY_KEY: served,
    }
    assert own(ended) == {**own(started), names.DURATION_NS: SECOND}


def test_spans_say_the_same() -> None:
    """D1: the span itself carries all that was recorded, for whoever else reads it."""
    with recorder("captured") as made:
        flow = workflow("w", run_id="r")
        with pytest.raises(KeyError), flow.operation("o", attempt=Attempt("g", 1)):
            raise KeyError
        flow.done(outcome="complete")
        operation, run = made.spans.get_finished_spans()
    attributes = operation.attributes or {}
    assert attributes[names.WORKFLOW_NAME] == "w"
    assert attributes[names.ATTEMPT_NUMBER] == 1
    assert operation.status.is_ok is False
    assert [event.name for event in operation.events] == ["exception"]
    assert operation.parent is not None
    assert operation.parent.span_id == run.context.span_id
    assert run.status.is_unset


def test_a_retry_links_to_the_run_it_retries() -> None:
    """Contract, section 6: a retry reference is a span link where the run's span is known."""
    with recorder("captured") as made:
        before = workflow("w")
        before.fail()
        workflow("w", retry_of=before.ref).done()
        workflow("w", retry_of=RunRef("w", "of another process")).done()
        first, second, third = made.spans.get_finished_spans()
    assert [link.context.span_id for link in second.links] == [first.context.span_id]
    assert third.links == ()
