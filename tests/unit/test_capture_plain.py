"""Spans without our keys: passed on, and never by mistake."""

from __future__ import annotations

import pytest
from opentelemetry import context as otel
from opentelemetry.context import Context
from opentelemetry.context.contextvars_context import ContextVarsRuntimeContext
from opentelemetry.sdk.trace import SpanLimits

from flowmark_otel.annotate.context import current_context, making_current
from tests.support.capturing import capturing

PLAIN = {"http.request.method": "GET", "http.route": "/contacts"}
OURS = "flowmark.operation.name"


def test_a_limit_that_lets_our_key_in_for_another_is_seen() -> None:
    """Contract, section 1: as many attributes as at the start are not the same after a limit."""
    kept = capturing(limits=SpanLimits(max_span_attributes=2))
    span = kept.tracer.start_span("get", attributes=PLAIN)
    span.set_attribute(OURS, "push")
    span.end()
    assert kept.sink.parts == ["op-start", "op-end"]


def test_a_key_that_is_set_again_leaves_a_span_plain() -> None:
    """Contract, section 1: a plain span whose attributes get other values is left alone."""
    kept = capturing()
    for _ in range(2):
        span = kept.tracer.start_span("get", attributes=PLAIN)
        span.set_attribute("http.route", "/contacts/{id}")
        span.end()
    assert kept.sink.batches == []


@pytest.mark.parametrize("size", [0, 1, 2, 128, 129, 200])
def test_open_spans_of_one_size_are_not_confused(size: int) -> None:
    """Contract, section 1: of spans with as many attributes, open at once, ours is found."""
    kept = capturing(limits=SpanLimits(max_span_attributes=300))
    attributes = {f"app.detail.{number}": number for number in range(size)}
    fewer = dict(list(attributes.items())[1:])
    ours = [kept.tracer.start_span("a", attributes=fewer) for _ in range(3)]
    plain = [kept.tracer.start_span("b", attributes=attributes) for _ in range(3)]
    for mine, other in zip(ours, plain, strict=True):
        mine.set_attribute(OURS, "push")
        mine.end()
        other.end()
    assert kept.sink.parts == ["op-start", "op-end"] * 3
    kept.sink.check()


def test_a_context_kept_in_another_way_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract, section 1: identity comes from the current context, whoever keeps it."""
    inside = Context({"a": 1})

    class Keeper(ContextVarsRuntimeContext):
        def get_current(self) -> Context:
            return inside

    assert current_context()() == otel.get_current()
    monkeypatch.setattr(otel, "_RUNTIME_CONTEXT", Keeper())
    assert current_context()() is inside
    assert making_current()(inside)
    monkeypatch.delattr(otel, "_RUNTIME_CONTEXT")
    assert current_context() is otel.get_current
    assert making_current() is otel.attach
