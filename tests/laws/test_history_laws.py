"""Fault row 12, on the real store: any order, any duplication, any batching of one history."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import count, pairwise
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from sqlalchemy import select

from flowmark_otel import names
from flowmark_otel.backend.keys import Keys
from flowmark_otel.backend.read import Reader
from flowmark_otel.backend.store import Arrival, Batch, Store, open_store
from flowmark_otel.backend.store.schema import events, rejections
from flowmark_otel.backend.views import jsonable
from flowmark_otel.fold import fold_span
from flowmark_otel.model import Envelope, Sender, Span, event_id
from tests.conftest import STORES

SENDER = Sender(service_name="svc")
RUNS = ["run-a", "run-b"]
OPERATIONS = ["push", "pull"]


class Stores(NamedTuple):
    """One real store for all examples; each delivery of a history gets a project of its own."""

    store: Store
    reader: Reader
    keys: Keys
    serial: Iterator[int]

    def project(self) -> int:
        """A project that holds nothing yet."""
        return self.keys.ensure_project(f"p{next(self.serial)}")


@pytest.fixture(scope="module", params=STORES)
def stores(request: pytest.FixtureRequest, new_store: Callable[[str], str]) -> Iterator[Stores]:
    """The store, closed after the module."""
    store = open_store(new_store(request.param))
    try:
        yield Stores(store, Reader(store), Keys(store), count())
    finally:
        store.close()


def span(number: int, attributes: dict[str, object], *, failed: bool, at: int) -> Span:
    """A span whose ids follow from its number; a number seen before is the same span id again."""
    return Span(
        (number % 3 + 1).to_bytes(16, "big"),
        (number + 1).to_bytes(8, "big"),
        "name",
        1000 + at,
        1000 + at + 50,
        failed=failed,
        attributes=attributes,
        service_name="svc",
    )


@st.composite
def consistent(draw: st.DrawFn) -> list[Envelope]:
    """A history without conflicts and with at most one start a run; evidence may be missing."""
    found: list[Envelope] = []
    number = 0
    for run in RUNS:
        places = draw(
            st.lists(
                st.tuples(
                    st.sampled_from(OPERATIONS),
                    st.sampled_from(["g", "h", None]),
                    st.integers(1, 5),
                ),
                unique=True,
                max_size=6,
            )
        )
        for operation, group, ordinal in places:
            number += 1
            attributes: dict[str, object] = {names.RUN_ID: run, names.OPERATION_NAME: operation}
            if group is not None:
                attributes[names.ATTEMPT_GROUP_ID] = group
                attributes[names.ATTEMPT_NUMBER] = ordinal
                attributes[names.ATTEMPT_LIMIT] = 3
            found += _some(draw, span(number, attributes, failed=draw(st.booleans()), at=number))
        if draw(st.booleans()):
            number += 1
            attributes = {
                names.RUN_ID: run,
                names.RUN_OUTCOME: "complete",
                names.RETRY_OF_WORKFLOW_NAME: "svc",
                names.RETRY_OF_RUN_ID: RUNS[0] if run == RUNS[1] else "elsewhere",
            }
            found += _some(draw, span(number, attributes, failed=draw(st.booleans()), at=0))
    return found


@st.composite
def wild(draw: st.DrawFn) -> list[Envelope]:
    """A history with conflicts and continuations of every kind the contract knows."""
    found: list[Envelope] = []
    for _ in range(draw(st.integers(1, 7))):
        attributes: dict[str, object] = {names.RUN_ID: draw(st.sampled_from(RUNS))}
        if draw(st.integers(0, 3)) == 0:
            attributes[names.RUN_OUTCOME] = draw(st.sampled_from(["complete", "partial"]))
        else:
            attributes[names.OPERATION_NAME] = draw(st.sampled_from(OPERATIONS))
            attributes[names.OPERATION_ID] = draw(st.sampled_from(["o1", "o2", "o3"]))
            if draw(st.integers(0, 3)):
                attributes[names.ATTEMPT_GROUP_ID] = draw(st.sampled_from(["g", "h"]))
                attributes[names.ATTEMPT_NUMBER] = draw(st.integers(1, 3))
        number, at = draw(st.integers(1, 5)), draw(st.integers(0, 3))
        found += _some(draw, span(number, attributes, failed=draw(st.booleans()), at=at))
    return found


def _some(draw: st.DrawFn, given_span: Span) -> list[Envelope]:
    """Start, end or both of a span: the other may never have arrived."""
    folded = [event for event in fold_span(given_span) if isinstance(event, Envelope)]
    keep = draw(st.sampled_from(["both", "start", "end"]))
    return [event for event in folded if keep == "both" or event.part.endswith(keep)]


def deliver(stores: Stores, order: Sequence[Envelope], cuts: Sequence[int]) -> int:
    """Deliver a history to a new project, cut into requests; the project."""
    project = stores.project()
    bounds = sorted({0, len(order), *(cut % (len(order) + 1) for cut in cuts)})
    for begin, end in pairwise(bounds):
        arrivals = [Arrival(item, SENDER, event) for item, event in enumerate(order[begin:end])]
        verdict = stores.store.submit(Batch(project, names.ORIGIN_SERVER, arrivals)).result(20)
        assert verdict.stored + verdict.duplicate + len(verdict.rejections) == len(arrivals)
    return project


ARRIVAL = {"key", "first_received_at", "received_at", "sender"}


def state(stores: Stores, project: int) -> list[Any]:
    """All that is read of a project, without what only tells when or as what it arrived."""
    found = []
    for run in stores.reader.runs(project).items:
        groups = stores.reader.attempts(project, run.key, 500).items
        occurrences = stores.reader.operations(project, run.key, 500).items
        found.append(
            [
                plain(jsonable(run)),
                sorted((plain(jsonable(group)) for group in groups), key=str),
                sorted((plain(jsonable(one)) for one in occurrences), key=str),
            ]
        )
    return sorted(found, key=str)


def plain(value: object) -> object:
    """Data without arrival times and keys; lists as sets, since some go by arrival."""
    if isinstance(value, dict):
        kept = {name: held for name, held in value.items() if name not in ARRIVAL}
        if "elsewhere" in kept:  # keys of runs: how many must agree
            kept["elsewhere"] = len(kept["elsewhere"])
        return {name: plain(held) for name, held in kept.items()}
    if isinstance(value, list):
        return sorted((plain(held) for held in value), key=str)
    return value


def evidence(stores: Stores, project: int) -> set[tuple[object, ...]]:
    """Every event, accepted or rejected, by id and payload."""
    with stores.store.engine.connect() as connection:
        accepted = connection.execute(
            select(
                events.c.trace_id,
                events.c.span_id,
                events.c.part,
                events.c.event,
                events.c.sent_at,
                events.c.attributes,
            ).where(events.c.project_id == project)
        )
        found: set[tuple[object, ...]] = {
            (event_id(row[0], row[1], row[2]), row[3], row[4], _canonical(row[5]))
            for row in accepted
        }
        rejected = connection.execute(
            select(
                rejections.c.event_id,
                rejections.c.event,
                rejections.c.sent_at,
                rejections.c.attributes,
            ).where(rejections.c.project_id == project)
        )
        found |= {(row[0], row[1], row[2], _canonical(row[3])) for row in rejected}
    return found


def _canonical(attributes: bytes) -> bytes:
    return orjson.dumps(orjson.loads(attributes), option=orjson.OPT_SORT_KEYS)


def verdicts(stores: Stores, project: int) -> set[tuple[object, ...]]:
    """Verdict and places in conflict of every group."""
    found: set[tuple[object, ...]] = set()
    for run in stores.reader.runs(project).items:
        for group in stores.reader.attempts(project, run.key, 500).items:
            found.add(
                (run.run_id, group.operation, group.group_id, group.verdict, str(group.conflicts))
            )
    return found


ORDERS = st.tuples(st.randoms(use_true_random=False), st.lists(st.integers(0, 50), max_size=4))
ON_A_STORE = settings(
    max_examples=40,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def shuffled(history: Sequence[Envelope], order: random.Random) -> list[Envelope]:
    """The history in another order, some of it twice."""
    twice = [event for event in history if order.random() < 0.4]
    found = [*history, *twice]
    order.shuffle(found)
    return found


@given(consistent(), ORDERS)
@ON_A_STORE
def test_a_history_without_conflicts_reads_alike_in_any_order(
    stores: Stores, history: list[Envelope], order: tuple[random.Random, list[int]]
) -> None:
    """A10, A8 (row 12): same state for every permutation, duplication and batching."""
    chance, cuts = order
    one = deliver(stores, history, [])
    other = deliver(stores, shuffled(history, chance), cuts)
    assert state(stores, one) == state(stores, other)
    assert evidence(stores, one) == evidence(stores, other)


@given(wild(), ORDERS)
@ON_A_STORE
def test_conflicts_are_marked_alike_in_any_order(
    stores: Stores, history: list[Envelope], order: tuple[random.Random, list[int]]
) -> None:
    """A6, A10 (row 12): the same evidence, places in conflict and verdicts, whoever came first."""
    chance, cuts = order
    one = deliver(stores, history, [])
    other = deliver(stores, shuffled(history, chance), cuts)
    assert evidence(stores, one) == evidence(stores, other)
    assert verdicts(stores, one) == verdicts(stores, other)
