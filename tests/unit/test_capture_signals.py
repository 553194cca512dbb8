"""Signals on SDK spans: the processor reads them as whoever gets the exported span (section 8)."""

from __future__ import annotations

import pytest
from opentelemetry import context as otel
from opentelemetry.sdk.trace import SpanLimits
from opentelemetry.trace import StatusCode

from flowmark_otel import names
from flowmark_otel.annotate.context import RUN_ID_KEY, WORKFLOW_KEY
from flowmark_otel.fold import digest
from flowmark_otel.model import Envelope
from flowmark_otel.signals import ANY, signals_of
from tests.support.capturing import Captured, as_exported, capturing
from tests.support.signals import NAMES, attempts_in, spans_in

TASK = {
    "celery.action": "run",
    "celery.state": "SUCCESS",
    "celery.task_name": "t.fetch",
    "messaging.message.id": "task-1",
}
SAFE = signals_of(("safe",))


def both(captured: Captured, words: tuple[str, ...] = ("safe",)) -> list[Envelope]:
    """What was recorded; it has to be what the next party makes of the exported spans."""
    captured.sink.check()
    exported = as_exported(captured.exporter.get_finished_spans(), signals_of(words))
    found = captured.sink.envelopes
    theirs = [each for each in exported if isinstance(each, Envelope)]
    assert [(each.event_id, digest(each)) for each in found] == [
        (each.event_id, digest(each)) for each in theirs
    ]
    return found


@pytest.mark.parametrize("at_start", [0, 1, 4])
def test_a_try_is_recorded_wherever_its_keys_are_set(at_start: int) -> None:
    """A8, E3: keys set at the start or later: the same attempt as the exported span gives."""
    captured = capturing()
    items = list(TASK.items())
    with captured.tracer.start_as_current_span("run", attributes=dict(items[:at_start])) as span:
        for key, value in items[at_start:]:
            span.set_attribute(key, value)
    assert attempts_in(both(captured)) == [("t.fetch", "task-1", 1, "completed")]


@pytest.mark.parametrize("name", NAMES)
def test_captured_spans_give_the_same_in_the_sdk(name: str) -> None:
    """A8: spans with attributes of the captures fold alike in the SDK and behind an exporter."""
    captured = capturing(signals=names.SIGNAL_NAMES)
    for given in spans_in(name, ANY):
        span = captured.tracer.start_span(given.name)
        for key, value in given.attributes.items():
            span.set_attribute(key, value)  # type: ignore[arg-type]
        if given.failed:
            span.set_status(StatusCode.ERROR)
        span.end()
    both(captured, names.SIGNAL_NAMES)


def test_the_second_span_of_the_same_keys_is_no_plainer_than_the_first() -> None:
    """E3: keys that were met before are not taken for plain ones."""
    captured = capturing()
    for number in range(3):
        attributes: dict[str, str | int] = {**TASK, "celery.retries": number}
        captured.tracer.start_span("run", attributes=attributes).end()
    assert [number for _, _, number, _ in attempts_in(both(captured))] == [1, 2, 3]


def test_other_spans_stay_none_of_ours() -> None:
    """A10: producers, and what carries another's keys, record nothing."""
    captured = capturing()
    captured.tracer.start_span("a", attributes={**TASK, "celery.action": "apply_async"}).end()
    captured.tracer.start_span("b", attributes={"http.request.resend_count": 2}).end()
    assert both(captured) == []


def test_own_keys_go_before_signals() -> None:
    """Contract 1: an annotated span is one attempt, by its own keys alone."""
    captured = capturing()
    own: dict[str, str | int] = {names.ATTEMPT_GROUP_ID: "mine", names.ATTEMPT_NUMBER: 7}
    captured.tracer.start_span("a", attributes={**TASK, **own}).end()
    with captured.tracer.start_as_current_span("b", attributes=TASK) as span:
        span.set_attributes(own)
    found = both(captured)
    assert {each.attributes[names.ATTEMPT_GROUP_ID] for each in found} == {"mine"}
    assert len(found) == 4


def test_nothing_is_read_where_nothing_is_enabled() -> None:
    """Section 8: none reads nothing."""
    captured = capturing(signals=("none",))
    captured.tracer.start_span("run", attributes=TASK).end()
    assert both(captured, ("none",)) == []


def test_the_environment_says_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 6: FLOWMARK_SIGNALS is asked where nobody says it."""
    monkeypatch.setenv("FLOWMARK_SIGNALS", "none")
    captured = capturing()
    captured.tracer.start_span("run", attributes=TASK).end()
    assert captured.sink.envelopes == []


def test_tries_inside_of_a_workflow_are_of_its_run() -> None:
    """Contract 1: identity stamped from the context is the attempt's, here and for others."""
    captured = capturing()
    context = otel.set_value(RUN_ID_KEY, "r", otel.set_value(WORKFLOW_KEY, "w"))
    given = {names.WORKFLOW_NAME: "w"}
    captured.tracer.start_span("run", context=context, attributes={**TASK, **given}).end()
    found = both(captured)
    assert {each.attributes[names.RUN_ID] for each in found} == {"r"}


def test_a_limit_that_cuts_is_the_same_for_both() -> None:
    """A8: what a length limit of the SDK cut, it cut for everybody."""
    captured = capturing(limits=SpanLimits(max_span_attribute_length=4))
    captured.tracer.start_span("run", attributes={**TASK, "celery.action": "run"}).end()
    assert attempts_in(both(captured)) == [("t.fe", "task", 1, "open")]
