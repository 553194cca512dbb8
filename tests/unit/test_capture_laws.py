"""Laws of capture on the real SDK: whatever happens to a span, all parties fold alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st
from opentelemetry.context import Context
from opentelemetry.trace import Span, StatusCode

from flowmark_otel import names
from flowmark_otel.annotate.context import with_identity
from flowmark_otel.capture.freeze import START_KEYS
from flowmark_otel.fold import digest
from flowmark_otel.model import Envelope, Refused
from tests.support.capturing import PAIR, as_exported, capturing

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
NUMBER = st.integers(-(2**63), 2**63 - 1)
# What a stock exporter can send; the rest it drops without a word.
VALUE = st.one_of(
    TEXT,
    st.booleans(),
    NUMBER,
    st.integers(1, 5),
    st.floats(),
    st.sampled_from([1.0, 2.0, "run", "operation", "reported"]),
    st.binary(max_size=4),
    st.lists(TEXT, max_size=2),
    st.none(),
)
END_KEYS = [
    names.ATTEMPT_TIME_READ,
    names.RUN_OUTCOME,
    names.RUN_RESULT_PREFIX + "imported",
    names.RUN_RESULT_PREFIX + "api_key",
    names.ERROR_CODE,
    names.ERROR_RETRYABLE,
    names.ERROR_TYPE,
    "flowmark.unknown",
    "http.request.method",
]
GIVEN = st.dictionaries(
    st.sampled_from([*START_KEYS, names.RECORD_TYPE, *END_KEYS]), VALUE, max_size=8
)
PROPER = st.fixed_dictionaries(
    {
        names.ATTEMPT_GROUP_ID: st.sampled_from(["g", "h"]),
        names.ATTEMPT_NUMBER: st.integers(1, 9),
    },
    optional={
        names.OPERATION_NAME: st.just("push"),
        names.RUN_ID: st.just("r"),
        names.ATTEMPT_IDEMPOTENCY_KEY: TEXT,
        names.RETRY_OF_RUN_ID: st.just("r"),
        names.RETRY_OF_WORKFLOW_NAME: st.just("w"),
    },
)
CONTEXT = st.sampled_from([Context(), with_identity(Context(), "crm.sync", "run-1", send=False)])

Step = Callable[[Span], object]


def _event(number: object, outcome: str) -> Step:
    attributes: dict[str, Any] = {names.OBSERVED_NUMBER: number, names.OBSERVED_OUTCOME: outcome}
    return lambda span: span.add_event(names.ATTEMPT_OBSERVED, attributes, timestamp=7)


def _set(key: str, value: Any) -> Step:
    return lambda span: span.set_attribute(key, value)


STEP: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda name: lambda span: span.update_name(name), TEXT),
    st.builds(_set, st.sampled_from(END_KEYS), VALUE),
    st.builds(
        lambda status: lambda span: span.set_status(status),
        st.sampled_from([StatusCode.OK, StatusCode.ERROR, StatusCode.UNSET]),
    ),
    st.builds(lambda text: lambda span: span.record_exception(OSError(text)), TEXT),
    st.builds(_event, st.integers(0, 3), st.sampled_from(["completed", "failed", "maybe"])),
)
ANY_STEP = st.one_of(
    STEP, st.builds(_set, st.sampled_from([*START_KEYS, names.RECORD_TYPE]), VALUE)
)


def seen(events: list[Envelope | Refused]) -> list[tuple[str, object]]:
    """What became of each event id, comparable whoever folded; order of arrival does not count."""
    return sorted(
        (
            (event.event_id, digest(event).hex())
            if isinstance(event, Envelope)
            else (event.event_id, event.message)
        )
        for event in events
    )


@given(st.one_of(GIVEN, PROPER), CONTEXT, TEXT, st.lists(STEP, max_size=6))
def test_processor_and_next_party_fold_alike(
    attributes: dict[str, Any], context: Context, name: str, steps: list[Step]
) -> None:
    """A8, E1: start and end from the processor are what a stock exporter's span folds into.

    Whatever is done to the span in between (renames, end attributes, exceptions, status,
    reported tries): the same ids, the same digests, the same refusals.
    """
    kept = capturing()
    span = kept.tracer.start_span(name, context=context, attributes=attributes)
    for step in steps:
        step(span)
    span.end()
    assert seen(kept.sink.events) == seen(as_exported(kept.exporter.get_finished_spans()))
    assert kept.sink.diagnostics == []
    kept.sink.check()


@given(st.one_of(GIVEN, PROPER), CONTEXT, st.lists(ANY_STEP, max_size=6))
def test_a_difference_is_always_reported(
    attributes: dict[str, Any], context: Context, steps: list[Step]
) -> None:
    """Contract, section 2: where another party folds otherwise, metadata_changed was reported.

    And whatever was changed, start and end of one record carry equal start fields (A7).
    """
    kept = capturing()
    span = kept.tracer.start_span("push", context=context, attributes=attributes)
    for step in steps:
        step(span)
    span.end()
    theirs = seen(as_exported(kept.exporter.get_finished_spans()))
    codes = {diagnostic.code for diagnostic in kept.sink.diagnostics}
    assert codes <= {names.DIAGNOSTIC_METADATA_CHANGED}
    if not codes:
        assert seen(kept.sink.events) == theirs
    ids = [event.event_id for event in kept.sink.events if event.event_id]
    starts = {e.event_id: e for e in kept.sink.envelopes if e.event_id.endswith("-start")}
    assert len([one for one in ids if one.endswith(("-start", "-end"))]) == len(
        {one for one in ids if one.endswith(("-start", "-end"))}
    )
    for end in kept.sink.envelopes:
        start = starts.get(end.event_id.replace("-end", "-start"))
        if start is not None and end is not start:
            carried = {key: end.attributes.get(key) for key in START_KEYS}
            assert {key: start.attributes.get(key) for key in START_KEYS} == carried
    kept.sink.check()


@pytest.mark.parametrize("name", ["push", "", " ", " " * 200 + "x", "x" * 300, "a\0b", "é" * 300])
@pytest.mark.parametrize("run", [True, False])
def test_a_defaulted_name_is_folded_as_it_is_written(name: str, *, run: bool) -> None:
    """A8: a name that an early start defaults to folds as the next party finds it on the span."""
    kept = capturing()
    attributes = PAIR | (
        {"flowmark.retry_of.workflow.name": "w", "flowmark.retry_of.run.id": "r"} if run else {}
    )
    kept.tracer.start_span(name, attributes=attributes).end()
    assert seen(kept.sink.events) == seen(as_exported(kept.exporter.get_finished_spans()))
    assert not any(event.characters_replaced for event in kept.sink.envelopes)
    kept.sink.check()
