"""Laws of reading: the order in which evidence comes cannot matter (fault row 12)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from flowmark_otel import names
from flowmark_otel.backend.views import GroupView, OccurrenceView, RunView, Time
from flowmark_otel.fold import fold_span
from flowmark_otel.fold.groups import gaps
from flowmark_otel.model import Envelope, Span, SpanEvent, Value
from tests.support.history import ZERO, Ingested, ingested, span

Place: TypeAlias = tuple[str, str, str, int]

PROJECTS: Final = itertools.count(1)
NO_TIME: Final = Time(0)
LIGHT: Final = settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ingested]:
    """One store; every history is a project of its own."""
    with ingested(tmp_path_factory.mktemp("laws") / "store.db") as found:
        yield found


@st.composite
def operations(draw: st.DrawFn, *, clashing: bool) -> Span:
    """The span of one operation; if ``clashing``, ids, names and places meet by chance."""
    number = draw(st.integers(1, 4 if clashing else 10_000))
    run_id = draw(st.sampled_from(["r1", "r2"]))
    attributes: dict[str, Value] = {
        names.WORKFLOW_NAME: "wf",
        names.RUN_ID: run_id,
        names.OPERATION_NAME: draw(st.sampled_from(["load", "push"])),
        names.OPERATION_ID: f"op-{number}",
    }
    if clashing:
        attributes[names.OPERATION_ID] = draw(st.sampled_from(["o1", "o2", "o3"]))
    if draw(st.booleans()):
        attributes[names.ATTEMPT_GROUP_ID] = draw(st.sampled_from(["g1", "g2"]))
        attributes[names.ATTEMPT_NUMBER] = draw(st.integers(1, 3)) if clashing else number
    start = ZERO + draw(st.integers(0, 5))
    failed = draw(st.booleans())
    made = span(number, attributes, failed=failed, start=start, end=start + draw(st.integers(0, 3)))
    if draw(st.integers(0, 3)):
        return made
    tried = {names.OBSERVED_NUMBER: draw(st.integers(1, 2)), names.OBSERVED_OUTCOME: "failed"}
    return made._replace(events=[SpanEvent(names.ATTEMPT_OBSERVED, start, tried)])


@st.composite
def runs(draw: st.DrawFn) -> Span:
    """The span of a run; ends of one run differ in outcome and time."""
    number = draw(st.integers(20_000, 30_000))
    attributes: dict[str, Value] = {
        names.WORKFLOW_NAME: "wf",
        names.RUN_ID: draw(st.sampled_from(["r1", "r2"])),
        names.RUN_OUTCOME: draw(st.sampled_from(["complete", "partial"])),
    }
    end = ZERO + draw(st.integers(0, 3))
    return span(number, attributes, failed=draw(st.booleans()), start=ZERO, end=end)


def folded(spans: list[Span], *, once: bool) -> list[Envelope]:
    """The events of spans; ``once``: one start a run, as the law about whole states asks."""
    events = [e for one in spans for e in fold_span(one) if isinstance(e, Envelope)]
    if not once:
        return events
    kept: dict[Any, Envelope] = {}
    for event in events:
        is_start = event.event == names.RUN_STARTED
        name = event.attributes[names.RUN_ID] if is_start else event.event_id
        kept.setdefault((is_start, name), event)
    return list(kept.values())


def peaceful(spans: list[Span]) -> list[Span]:
    """Spans that contradict nothing: of those with one span id the first."""
    return list({one.span_id: one for one in reversed(spans)}.values())


def sent(store: Ingested, events: list[Envelope], cuts: list[int]) -> int:
    """Send events in requests that end at the cuts; the project that holds them."""
    project = next(PROJECTS)
    bounds = sorted({0, len(events), *(cut for cut in cuts if cut < len(events))})
    for begin, end in itertools.pairwise(bounds):
        store.put(events[begin:end], project)
    return project


def groups_of(store: Ingested, project: int) -> dict[tuple[str, str, str], GroupView]:
    """Every group of a project."""
    return {
        (run.run_id, group.operation, group.group_id): group
        for run in store.reader.runs(project).items
        for group in store.reader.attempts(project, run.key).items
    }


def whole_state(store: Ingested, project: int) -> dict[str, tuple[RunView, Any, Any]]:
    """All that is read of a project but arrival, and keys, which name the project."""
    found = {}
    for run in store.reader.runs(project).items:
        shown = replace(
            run,
            key="",
            first_received_at=NO_TIME,
            ends=tuple(replace(end, received_at=NO_TIME) for end in run.ends),
        )
        attempts = {
            (group.operation, group.group_id): replace(
                group, elsewhere=(), attempts=tuple(_settled(one) for one in group.attempts)
            )
            for group in store.reader.attempts(project, run.key).items
        }
        occurrences = {
            one.operation_id: _settled(one)
            for one in store.reader.operations(project, run.key).items
        }
        found[run.run_id] = (shown, attempts, occurrences)
    return found


def _settled(one: Any) -> Any:
    assert isinstance(one, OccurrenceView) or one.number
    observed = sorted(one.observed, key=lambda tried: tried.event_id)
    return replace(one, observed=tuple(observed))


def evidence(store: Ingested, project: int) -> set[tuple[str, str]]:
    """Event id and digest of everything that is kept, accepted or rejected."""
    return {
        (event.event_id, event.digest)
        for run in store.reader.runs(project).items
        for event in store.reader.events(project, run.key, 500).items
    }


@LIGHT
@given(data=st.data())
def test_without_conflicts_the_state_is_the_same(store: Ingested, data: st.DataObject) -> None:
    """Fault row 12, A10: any order, any batching, any repetition: one and the same state."""
    spans = peaceful(
        data.draw(st.lists(operations(clashing=False), max_size=6))
        + data.draw(st.lists(runs(), max_size=3))
    )
    events = folded(spans, once=True)
    repeated = events + data.draw(
        st.lists(st.sampled_from(events), max_size=3) if events else st.just([])
    )
    shuffled = data.draw(st.permutations(repeated))
    cuts = data.draw(st.lists(st.integers(1, 10), max_size=4))
    first, second = sent(store, events, []), sent(store, shuffled, cuts)
    assert whole_state(store, first) == whole_state(store, second)
    assert evidence(store, first) == evidence(store, second)


@LIGHT
@given(data=st.data())
def test_with_conflicts_marks_and_verdicts_are_the_same(
    store: Ingested, data: st.DataObject
) -> None:
    """Fault row 12, A6: the same events, the same places in conflict, the same verdicts."""
    spans = data.draw(st.lists(operations(clashing=True), min_size=1, max_size=6))
    events = folded(spans, once=False)
    shuffled = data.draw(st.permutations(events))
    cuts = data.draw(st.lists(st.integers(1, 10), max_size=4))
    first, second = sent(store, events, []), sent(store, shuffled, cuts)
    assert evidence(store, first) == evidence(store, second)
    one, other = groups_of(store, first), groups_of(store, second)
    assert {key: (group.conflicts, group.verdict) for key, group in one.items()} == {
        key: (group.conflicts, group.verdict) for key, group in other.items()
    }


@LIGHT
@given(data=st.data())
def test_pages_read_what_the_whole_reads(store: Ingested, data: st.DataObject) -> None:
    """D5: a page decides from its own evidence what the whole run's evidence would say."""
    spans = data.draw(st.lists(operations(clashing=True), min_size=1, max_size=6))
    project = sent(store, folded(spans, once=False), [])
    for run in store.reader.runs(project).items:
        whole = store.reader.attempts(project, run.key).items
        joined: list[GroupView] = []
        cursor = None
        while len(joined) <= len(whole):
            page = store.reader.attempts(project, run.key, 1, cursor)
            joined += page.items
            cursor = page.next
            if cursor is None:
                break
        assert tuple(joined) == whole
        assert run.counts.groups == len(whole)
        assert run.counts.attempts == sum(len(group.attempts) for group in whole)


@given(st.sets(st.integers(1, 60), max_size=12))
def test_gaps_are_what_is_missing(known: set[int]) -> None:
    """A10: known numbers and gaps together are every number up to the highest, each once."""
    listed = [number for first, last in gaps(known) for number in range(first, last + 1)]
    assert sorted([*known, *listed]) == list(range(1, max(known, default=0) + 1))
