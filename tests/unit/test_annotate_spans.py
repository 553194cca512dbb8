"""Spans of the application's own that are annotated, at their creation and later."""

from __future__ import annotations

from typing import Any, cast

import pytest

import flowmark_otel as flowmark
from flowmark_otel import Attempt, RunRef, names
from tests.support.recorders import Recorder, recorder


def annotated(made: Recorder, **annotations: Any) -> None:
    """A span of somebody else's, annotated by hand."""
    span = made.tracer().start_span("theirs")
    flowmark.annotate(span, **annotations)
    span.end()


def test_annotating_a_span() -> None:
    """D4: any OpenTelemetry span can be annotated before it ends."""
    with recorder() as made:
        annotated(made, attempt=Attempt("g", 2), limit=3, workflow="w", run_id="r")
        annotated(made, retry_of=RunRef("w", "r"), outcome="complete", result={"n": 1})
    assert made.sink.told() == [
        "operation.started",
        "operation.completed",
        "run.started",
        "run.completed",
    ]
    assert made.sink.envelopes[0].attributes[names.ATTEMPT_LIMIT] == 3


def test_attributes_at_creation() -> None:
    """E1: annotations given at creation have the start sent at once."""
    with recorder() as made:
        given = flowmark.attributes(attempt=Attempt("g", 1), operation="push", idempotency_key="k")
        span = made.tracer().start_span("theirs", attributes=given)
        assert made.sink.told() == ["operation.started"]
        span.end()
    key = str(made.sink.envelopes[0].attributes[names.ATTEMPT_IDEMPOTENCY_KEY])
    assert key.startswith("sha256:")
    assert given[names.ATTEMPT_IDEMPOTENCY_KEY] == key


@pytest.mark.parametrize("span", [None, 5, "span"])
def test_annotating_what_is_no_span(span: object) -> None:
    """Contract, section 6: what is no span is told and counted, and raises nothing."""
    with recorder("captured") as made:
        flowmark.annotate(cast("Any", span), attempt=Attempt("g", 1))
        flowmark.annotate(cast("Any", span))
    assert [refused.message for refused in made.sink.refused] == [
        f"span is a {type(span).__name__}; give the span to annotate"
    ] * 2


def test_a_wrong_annotation_is_left_out() -> None:
    """Contract, section 6: a wrong annotation is counted `invalid`, the right ones stay."""
    with recorder() as made:
        annotated(made, attempt=Attempt("g", 1), limit="3", bogus=1)
    assert made.sink.told() == ["operation.started", "operation.completed"]
    [refused] = made.sink.refused
    assert "flowmark.attempt.limit is the string '3'" in refused.message
    assert "bogus is no option" in refused.message


@pytest.mark.parametrize("kind", ["unsampled", "none"])
def test_a_span_that_nobody_records(kind: str) -> None:
    """E2: an annotation that is lost because its span is not recorded is reported."""
    with recorder(kind) as made:
        annotated(made, attempt=Attempt("g", 1))
    assert made.sink.envelopes == []
    assert made.sink.codes() == [names.DIAGNOSTIC_NOT_RECORDED]
