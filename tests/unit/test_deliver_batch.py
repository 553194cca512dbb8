"""Events that nobody has looked at: queued, sent and judged as any other, and named when asked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given, strategies as st

from flowmark_otel import names
from flowmark_otel.config.client import ClientOptions
from flowmark_otel.deliver import Delivery, Queue
from flowmark_otel.deliver.limits import Limits
from flowmark_otel.deliver.pace import Pace
from flowmark_otel.deliver.transport import Answer, NoAnswer
from flowmark_otel.errors import DeliveryError
from flowmark_otel.fast import Unfolded
from flowmark_otel.model import Envelope, Receipt, Rejection, Unacknowledged
from flowmark_otel.testing.transport import RecordingTransport, Request
from flowmark_otel.wire import receipt
from tests.support.envelopes import started
from tests.support.unfolded import unfolded

ONE = {"service.name": "one"}
OTHER = {"service.name": "other"}


def flat(every: list[Unfolded]) -> list[Envelope]:
    """Their envelopes, in order."""
    return [event for events in every for event in events]


def answered(events: int, rejections: Sequence[Rejection] = ()) -> Answer:
    """A success: all are stored but these."""
    rejected = len(rejections)
    found = Receipt(
        stored=events - rejected, received=events, rejected=rejected, rejections=tuple(rejections)
    )
    body = receipt.encode(found, "protobuf", "logs")
    return Answer(200, body, {"content-type": "application/x-protobuf"})


class Folding(Exception):
    """Somebody looked at events."""


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks at events of the fast path fails."""

    def refuse(events: Unfolded) -> list[Envelope]:
        raise Folding(events)

    monkeypatch.setattr(Unfolded, "folded", refuse)


@pytest.mark.usefixtures("unseen")
def test_what_is_acknowledged_is_never_looked_at() -> None:
    """A22: events that all arrive are counted, sent and settled without being folded."""
    every = unfolded(1, 5)
    transport = RecordingTransport()
    delivery = Delivery(ClientOptions(), transport=transport)
    for events in every:
        delivery.put(events, ONE)
    delivery.flush()
    assert delivery.counts() == {(names.STORED, ""): 10}
    assert len(transport.events) == 10
    delivery.shutdown()


@pytest.mark.usefixtures("unseen")
def test_what_is_lost_is_named_without_being_looked_at() -> None:
    """A22: an outage costs the thread that sends no folding, and each event has its name."""
    every = unfolded(1, 5)
    delivery = Delivery(
        ClientOptions(),
        transport=RecordingTransport(*[NoAnswer("nobody is there")] * 99),
        pace=Pace(limits=Limits(budget=0.05, first_wait=0.01, longest_wait=0.01)),
    )
    for events in every:
        delivery.put(events, ONE)
    with pytest.raises(DeliveryError) as raised:
        delivery.flush()
    named = [each.event_id for each in raised.value.failures if isinstance(each, Unacknowledged)]
    assert named == [each for events in every for each in events.event_ids()]
    delivery.shutdown()


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
def test_what_arrives_is_what_they_fold_into(encoding: str) -> None:
    """D1: in both encodings, among others, in the order recorded."""
    every = unfolded(1, 3)
    transport = RecordingTransport(encoding=encoding)
    delivery = Delivery(ClientOptions(), transport=transport)
    delivery.put(every[0], ONE)
    delivery.put([started(9, ("g", 9))], ONE)
    for events in every[1:]:
        delivery.put(events, ONE)
    delivery.flush()
    assert [each.event_id for each in flat(every)] == [
        each for events in every for each in events.event_ids()
    ]
    expected = [*every[0], started(9, ("g", 9)), *flat(every[1:])]
    assert transport.events == expected
    delivery.shutdown()


def test_a_refused_one_is_named() -> None:
    """A23: where a receipt rejects one event of many, the error says which."""
    every = unfolded(1, 3)
    bad = flat(every)[3]

    def judge(request: Request) -> Answer:
        ids = [event.event_id for event in request.events]
        found = [Rejection(bad.event_id, names.CONFLICT, "another")] if bad.event_id in ids else []
        return answered(len(ids), found)

    delivery = Delivery(ClientOptions(), transport=RecordingTransport(*[judge] * 9))
    for events in every:
        delivery.put(events, ONE)
    with pytest.raises(DeliveryError, match=bad.event_id):
        delivery.flush()
    assert delivery.counts() == {(names.STORED, ""): 5, (names.CONFLICT, names.REASON_REJECTED): 1}
    delivery.shutdown()


def test_a_batch_is_halved_by_events() -> None:
    """A23: what spoils a batch is found in halves, also where it came together with another."""
    every = unfolded(1, 2)
    bad = flat(every)[1].event_id

    def refuse(request: Request) -> Answer:
        if bad not in [event.event_id for event in request.events]:
            return answered(len(request.events))
        return Answer(400, b"", {"content-type": "application/x-protobuf"})

    delivery = Delivery(ClientOptions(), transport=RecordingTransport(*[refuse] * 9))
    for events in every:
        delivery.put(events, ONE)
    with pytest.raises(DeliveryError, match=bad):
        delivery.flush()
    assert delivery.counts()[names.STORED, ""] == 3
    delivery.shutdown()


def test_the_bound_counts_events() -> None:
    """A22: the queue is bounded in events; of a pair the first alone may find room."""
    queue = Queue(5)
    every = unfolded(1, 3)
    assert [queue.put(events, ONE) for events in every] == [2, 2, 1]
    assert queue.waiting() == queue.in_memory() == 5
    assert queue.ids(9) == [event.event_id for event in flat(every)[:5]]
    handout = queue.take(9)
    assert handout is not None
    assert list(handout.events) == flat(every)[:5]
    assert queue.in_memory() == 5
    assert queue.put(every[0], ONE) == 0
    handout.done(range(5))
    assert queue.in_memory() == 0


def test_a_batch_of_them_is_of_one_resource() -> None:
    """A22: events of two providers go in batches of their own; a pair is not divided."""
    queue = Queue(20)
    for events, resource in zip(unfolded(1, 4), (ONE, ONE, OTHER, ONE), strict=True):
        queue.put(events, resource)
    taken = []
    while (handout := queue.take(3)) is not None:
        taken.append((len(handout.events), handout.resource is ONE))
        handout.done(range(len(handout.events)))
    assert taken == [(4, True), (2, False), (2, True)]


@cache
def six() -> list[Unfolded]:
    """Some that all examples share."""
    return unfolded(1, 6)


@given(st.lists(st.tuples(st.integers(1, 5), st.sets(st.integers(0, 5))), max_size=12))
def test_each_is_handed_out_until_it_is_done(steps: list[tuple[int, set[int]]]) -> None:
    """A22: whatever was done and put back, what is left is what is not done, in order."""
    queue = Queue(100)
    every = six()
    for number, events in enumerate(every):
        queue.put(events if number % 3 else list(events), ONE)
    left = [event.event_id for event in flat(every)]
    for limit, done in steps:
        handout = queue.take(limit)
        if handout is None:
            break
        found = [event.event_id for event in handout.events]
        assert found == left[: len(found)]
        settled = {each for each in done if each < len(found)}
        handout.done(settled)
        assert queue.ids(100) == [each for at, each in enumerate(left) if at not in settled]
        handout.again()
        left = [each for at, each in enumerate(left) if at not in settled]
    assert queue.in_memory() == len(left)
