"""Laws of the fast path: what it writes is, byte for byte, what folding and encoding write."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any, TypeAlias

import pytest
from hypothesis import given, strategies as st
from opentelemetry.context import Context
from opentelemetry.sdk.trace import SpanLimits
from opentelemetry.trace import Span, StatusCode

from flowmark_otel import names
from flowmark_otel.annotate.context import with_identity
from flowmark_otel.capture.freeze import START_KEYS
from flowmark_otel.fast import SHAPES
from flowmark_otel.fold import digest
from flowmark_otel.model import Envelope, Refused
from tests.support.capturing import PAIR, Captured, as_exported, capturing

Attributes: TypeAlias = dict[str, Any]


class _Text(str, Enum):
    """A text as applications write it."""

    ONE = "one"


class _Number(IntEnum):
    """A number as applications write it."""

    ONE = 1


WORD = st.sampled_from(
    ["one", "two", "", " ", "é", "a\0b", "x" * 200, "x" * 300, "Bearer abcdefgh"]
)
TEXT = st.one_of(WORD, st.text(st.characters(codec="utf-8"), max_size=9), st.just(_Text.ONE))
NUMBER = st.one_of(
    st.integers(0, 3),
    st.sampled_from([True, False, 1.0, 2.5, _Number.ONE, 2**53, 2**63 - 1, 300, 20_000, 3_000_000]),
)
FLAG = st.sampled_from([True, False, 1, "true"])
NUMBERS = (
    names.ATTEMPT_NUMBER,
    names.ATTEMPT_LIMIT,
    names.ATTEMPT_TIMEOUT_MS,
    names.ATTEMPT_DEADLINE_MS,
)
FLAGS = (names.ATTEMPT_TIME_READ, names.ERROR_RETRYABLE)
KEYS = (
    *START_KEYS,
    *FLAGS,
    names.ERROR_CODE,
    names.ERROR_TYPE,
    names.RUN_OUTCOME,
    names.RECORD_TYPE,
    names.DEFAULTED,
    names.DURATION_NS,
    names.EVENT_ID,
    "flowmark.unknown",
    "http.request.method",
)


def _value(key: str) -> st.SearchStrategy[Any]:
    """Values that a key may be given: right, of a like type, wrong, or empty."""
    right = NUMBER if key in NUMBERS else FLAG if key in FLAGS else TEXT
    kind = st.sampled_from(["reported", "observed", "other"])
    return st.one_of(kind if key == names.ATTEMPT_KIND else right, right, st.none())


@st.composite
def several(draw: st.DrawFn) -> list[Attributes]:
    """Attributes of spans that carry the same keys in the same order, each with its values."""
    keys = [names.ATTEMPT_GROUP_ID, names.ATTEMPT_NUMBER]
    keys += draw(st.lists(st.sampled_from(KEYS), max_size=6))
    keys = draw(st.permutations(list(dict.fromkeys(keys))))
    usual = {names.ATTEMPT_GROUP_ID: st.sampled_from(["g", "h"]), names.ATTEMPT_NUMBER: NUMBER}
    values = st.fixed_dictionaries(
        {key: usual[key] if key in usual else _value(key) for key in keys}
    )
    return draw(st.lists(values, min_size=3, max_size=5))


CONTEXTS = st.sampled_from([Context(), with_identity(Context(), "crm.sync", "run-1", send=False)])
TIMES = st.sampled_from(
    [(5, 4), (0, 9), (9, 9), *((9, 9 + 2**bits) for bits in (6, 7, 13, 14, 20, 21, 28, 35, 62))]
)


def told(events: list[Envelope | Refused]) -> list[tuple[str, object]]:
    """What became of each event, whoever folded it."""
    return sorted(
        (event.event_id, digest(event).hex() if isinstance(event, Envelope) else event.message)
        for event in events
    )


def agreed(kept: Captured) -> None:
    """Assert that the sink got what the next party folds, and that both paths write the same."""
    assert told(kept.sink.events) == told(as_exported(kept.exporter.get_finished_spans()))
    kept.sink.check()


def _ended(
    span: Span, attributes: Attributes, end_time: int = 2**62, status: StatusCode = StatusCode.OK
) -> None:
    span.set_attributes(attributes)
    span.set_status(status)
    span.end(end_time)


@given(several(), CONTEXTS, TIMES, TEXT, st.sampled_from([StatusCode.OK, StatusCode.ERROR]))
def test_spans_of_one_shape_are_written_as_they_fold(
    every: list[Attributes], context: Context, times: tuple[int, int], name: str, status: StatusCode
) -> None:
    """A8, D1: whatever the values, ids, digests, refusals and bytes are those of the plain path."""
    kept = capturing()
    start, end = times
    for attributes in every:
        span = kept.tracer.start_span(name, context=context, start_time=start)
        _ended(span, attributes, end, status)
    agreed(kept)


@given(several(), CONTEXTS, TEXT, st.data())
def test_ends_after_early_starts_are_written_as_they_fold(
    every: list[Attributes], context: Context, name: str, data: st.DataObject
) -> None:
    """E1: the same for spans whose start was sent, and whose start fields cannot change any more.

    Where one did change the next party folds something else, and that was reported.
    """
    kept = capturing()
    for attributes in every:
        span = kept.tracer.start_span(name, context=context, attributes=attributes)
        changes = data.draw(st.lists(st.sampled_from(KEYS), max_size=2))
        _ended(span, {key: data.draw(_value(key)) for key in changes})
    kept.sink.check()
    if not kept.sink.diagnostics:
        agreed(kept)
    starts = {event.event_id: event for event in kept.sink.envelopes}
    for event in kept.sink.envelopes:
        start = starts.get(event.event_id.replace("-end", "-start"))
        if start is not None:
            carried = {key: event.attributes.get(key) for key in START_KEYS}
            assert {key: start.attributes.get(key) for key in START_KEYS} == carried


@pytest.fixture
def unknown() -> None:
    """No shape was learned before."""
    for shapes in SHAPES:
        shapes.clear()


COMPLETE: Attributes = {
    names.WORKFLOW_NAME: "crm.sync",
    names.RUN_ID: "run-1",
    **PAIR,
    names.ATTEMPT_LIMIT: 3,
}


@pytest.mark.parametrize(
    "attributes",
    [
        PAIR,
        COMPLETE,
        {names.OPERATION_NAME: "push"},
        {names.OPERATION_ID: "own", names.OPERATION_NAME: "push", **COMPLETE},
        {**COMPLETE, names.ATTEMPT_IDEMPOTENCY_KEY: "order-7"},
        {**COMPLETE, names.ERROR_CODE: "DOWN Bearer abcdefgh", names.ERROR_RETRYABLE: True},
        {**COMPLETE, names.ERROR_TYPE: "OSError", names.ATTEMPT_TIME_READ: True},
        {**COMPLETE, "http.request.method": "POST", names.CORRELATION_ID: 7},
        {**COMPLETE, names.EVENT_ID: "of another"},
    ],
)
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.usefixtures("unknown")
def test_the_usual_span_takes_the_fast_path(attributes: Attributes, *, early: bool) -> None:
    """D1: the first span of a shape is folded, those that follow are not; all say the same."""
    kept = capturing()
    for _ in range(3):
        span = kept.tracer.start_span("push", attributes=attributes if early else None)
        _ended(span, {} if early else attributes)
    # Start fields of a run are kept of an open span as well: such a start is folded.
    assert kept.sink.quick == (2 if early and names.CORRELATION_ID in attributes else 4)
    agreed(kept)


@pytest.mark.parametrize(
    "odd",
    [
        {names.ATTEMPT_NUMBER: True},
        {names.ATTEMPT_NUMBER: 1.0},
        {names.ATTEMPT_NUMBER: _Number.ONE},
        {names.ATTEMPT_GROUP_ID: _Text.ONE},
        {names.ATTEMPT_GROUP_ID: ["g"]},
        {names.ATTEMPT_GROUP_ID: {"g": 1}},
        {names.ATTEMPT_GROUP_ID: ""},
        {names.ATTEMPT_LIMIT: 0},
        {names.ATTEMPT_LIMIT: None},
    ],
)
@pytest.mark.usefixtures("unknown")
def test_a_value_of_another_kind_takes_the_plain_path(odd: Attributes) -> None:
    """A5: 1 and True are equal and are not the same; what breaks a rule is refused by name."""
    kept = capturing()
    for attributes in (COMPLETE, COMPLETE, COMPLETE | odd, COMPLETE):
        _ended(kept.tracer.start_span("push"), attributes)
    assert kept.sink.quick == 4
    agreed(kept)


@pytest.mark.parametrize("key", [names.DEFAULTED, names.DURATION_NS])
def test_names_of_what_events_carry_are_no_keys_of_spans(key: str) -> None:
    """Contract, section 1: what stands there is not carried, and hinders nothing."""
    kept = capturing()
    for _ in range(3):
        _ended(kept.tracer.start_span("push"), {**PAIR, key: "x"})
        _ended(kept.tracer.start_span("push"), {**PAIR, key: 7})
    assert len(kept.sink.envelopes) == 12
    agreed(kept)


@pytest.mark.usefixtures("unknown")
def test_a_defect_of_learning_costs_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """E1: what the fast path cannot learn is recorded by the plain one."""

    def refuse(key: str) -> None:
        raise KeyError(key)

    monkeypatch.setattr("flowmark_otel.fast.shapes.column_of", refuse)
    kept = capturing()
    for _ in range(2):
        _ended(kept.tracer.start_span("push"), COMPLETE)
    assert kept.sink.quick == 0
    agreed(kept)


def test_lost_attributes_take_the_plain_path() -> None:
    """Contract, section 1: what a limit took is counted on both events."""
    learned = capturing()
    for _ in range(2):
        _ended(learned.tracer.start_span("push"), {"other.2": 2, **COMPLETE})
    assert learned.sink.quick
    kept = capturing(limits=SpanLimits(max_span_attributes=6))
    _ended(kept.tracer.start_span("push"), {"other.1": 1, "other.2": 2, **COMPLETE})
    assert kept.sink.quick == 0
    assert [event.dropped_attributes_count for event in kept.sink.envelopes] == [1, 1]
    agreed(kept)


@pytest.mark.parametrize(
    "limits",
    [
        SpanLimits(max_span_attributes=len(COMPLETE)),
        SpanLimits(max_span_attribute_length=8),
    ],
)
def test_limits_at_the_start_take_the_plain_path(limits: SpanLimits) -> None:
    """Contract, section 1: what our own writing pushes out, or a limit cuts, is folded as kept."""
    learned = capturing()
    for _ in range(2):
        _ended(learned.tracer.start_span("push-to-crm", attributes=COMPLETE), {})
    assert learned.sink.quick
    kept = capturing(limits=limits)
    _ended(kept.tracer.start_span("push-to-crm", attributes=COMPLETE), {})
    start, end = kept.sink.envelopes
    assert start.attributes[names.OPERATION_NAME] == "push-to-crm"
    for key in start.attributes:
        assert (
            start.attributes[key] == end.attributes[key] == COMPLETE.get(key, end.attributes[key])
        )
    kept.sink.check()


@pytest.mark.parametrize(
    ("name", "carried"), [("", "unknown"), (" ", "unknown"), ("x" * 300, "x" * 200), ("a\0", "a�")]
)
@pytest.mark.parametrize("early", [True, False])
def test_a_default_never_causes_a_refusal(name: str, carried: str, *, early: bool) -> None:
    """Contract, section 1: a name that no rule accepts is mended, whatever was learned before."""
    kept = capturing()
    for each in ("push", "push", name):
        span = kept.tracer.start_span(each, attributes=COMPLETE if early else None)
        _ended(span, {} if early else COMPLETE)
    assert [event.attributes[names.OPERATION_NAME] for event in kept.sink.envelopes[4:]] == [
        carried,
        carried,
    ]
    agreed(kept)


NAMED: Attributes = {**PAIR, names.OPERATION_NAME: "push"}


@pytest.mark.usefixtures("unknown")
@pytest.mark.parametrize(
    ("started", "later"),
    [
        ({**NAMED, names.ATTEMPT_LIMIT: 3}, {names.ATTEMPT_LIMIT: 4}),
        (NAMED, {names.ATTEMPT_LIMIT: 3}),
    ],
)
def test_what_an_early_start_settled_stays_so(started: Attributes, later: Attributes) -> None:
    """Contract, section 2: a start field changed or added after an early start is left out."""
    kept = capturing()
    for _ in range(2):
        span = kept.tracer.start_span("push", attributes={**NAMED, names.ATTEMPT_LIMIT: 3})
        _ended(span, {})
    assert kept.sink.parts == ["op-start", "op-end"] * 2
    assert kept.sink.quick == 2
    span = kept.tracer.start_span("push", attributes=started)
    quick = kept.sink.quick
    _ended(span, later)
    assert kept.sink.quick == quick  # folded, since it changed
    [diagnostic] = kept.sink.diagnostics
    assert diagnostic.message.startswith(names.ATTEMPT_LIMIT)
    start, end = kept.sink.envelopes[-2:]
    limit = started.get(names.ATTEMPT_LIMIT)
    assert [event.attributes.get(names.ATTEMPT_LIMIT) for event in (start, end)] == [limit, limit]
    kept.sink.check()


@pytest.mark.usefixtures("unknown")
@pytest.mark.parametrize(
    ("usual", "other"),
    [
        ({names.RECORD_TYPE: "operation"}, {names.RECORD_TYPE: "run"}),
        ({names.RUN_OUTCOME: None}, {names.RUN_OUTCOME: "partial"}),
        ({names.ERROR_TYPE: " "}, {names.ERROR_TYPE: "OSError"}),
        ({names.ATTEMPT_TIME_READ: None}, {names.ATTEMPT_TIME_READ: True}),
    ],
)
def test_what_depends_on_a_value_is_not_learned_from_one(
    usual: Attributes, other: Attributes
) -> None:
    """Contract, section 1: a value can settle what the span is, or that a key is absent."""
    kept = capturing()
    for extra in (usual, usual, other):
        _ended(kept.tracer.start_span("push"), COMPLETE | extra)
    agreed(kept)
