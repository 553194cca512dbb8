"""The queue in memory: nothing leaves it before its acknowledgement."""

from __future__ import annotations

from hypothesis import given, strategies as st

from flowmark_otel.deliver import Queue
from flowmark_otel.model import Envelope
from tests.support.envelopes import started

ONE = {"service.name": "one"}
OTHER = {"service.name": "one"}


def events(first: int, last: int) -> list[Envelope]:
    """Starts of these numbers."""
    return [started(number, ("g", number)) for number in range(first, last + 1)]


def numbers(found: list[Envelope]) -> list[object]:
    """Their numbers."""
    return [each.attributes["flowmark.attempt.number"] for each in found]


def test_what_was_handed_out_comes_back_in_front() -> None:
    """A22: what is not done is handed out again, in its order, before all that came later."""
    queue = Queue(10)
    queue.put(events(1, 4), ONE)
    handout = queue.take(3)
    assert handout is not None
    queue.put(events(5, 5), ONE)
    handout.done([1])
    assert queue.ids(2) == [each.event_id for each in (*events(1, 1), *events(3, 3))]
    handout.again()
    again = queue.take(10)
    assert again is not None
    assert numbers(list(again.events)) == [1, 3, 4, 5]
    assert queue.take(10) is None


def test_it_is_bounded_by_what_is_not_done() -> None:
    """A22: events that are handed out take room until they are done."""
    queue = Queue(4)
    assert queue.put(events(1, 6), ONE) == 4
    handout = queue.take(4)
    assert handout is not None
    assert queue.put(events(7, 7), ONE) == 0
    assert queue.in_memory() == 4
    handout.done([0, 0])
    handout.done([0])
    assert queue.put(events(7, 8), ONE) == 1


def test_a_batch_is_of_one_resource() -> None:
    """A22: events of two providers go in batches of their own, in the order recorded."""
    queue = Queue(10)
    for resource, number in ((ONE, 1), (ONE, 2), (OTHER, 3), (ONE, 4)):
        queue.put(events(number, number), resource)
    taken = []
    while (handout := queue.take(10)) is not None:
        taken.append(numbers(list(handout.events)))
        handout.done(range(len(handout.events)))
    assert taken == [[1, 2], [3], [4]]


def test_a_child_starts_empty() -> None:
    """A22: after a fork the parent alone delivers; what the child still holds has no effect."""
    queue = Queue(3)
    queue.put(events(1, 3), ONE)
    handout = queue.take(2)
    assert handout is not None
    queue.after_fork()
    handout.done([0])
    handout.again()
    assert queue.take(9) is None
    assert queue.put(events(4, 6), ONE) == 3


@given(st.lists(st.tuples(st.integers(1, 5), st.sets(st.integers(0, 4))), max_size=12))
def test_every_event_is_handed_out_until_it_is_done(steps: list[tuple[int, set[int]]]) -> None:
    """A22: whatever was done and put back, what is left is exactly what is not done, in order."""
    queue = Queue(100)
    queue.put(events(1, 20), ONE)
    left: list[object] = list(range(1, 21))
    for limit, done in steps:
        handout = queue.take(limit)
        if handout is None:
            break
        found = numbers(list(handout.events))
        assert found == left[: len(found)]
        settled = {each for each in done if each < len(found)}
        handout.done(settled)
        handout.again()
        left = [each for at, each in enumerate(left) if at not in settled]
    assert queue.in_memory() == len(left)
