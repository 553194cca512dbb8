"""What is taken in at once: bytes in flight, lag, and messages of unknown size."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from flowmark_otel.errors import Unavailable
from flowmark_otel.listen import reads as places
from flowmark_otel.listen.admission import LARGE, SMALL, Admission, Pace
from flowmark_otel.listen.reads import Reads
from flowmark_otel.testing import FakeClock

BUDGET = 8 * SMALL


def test_what_fits_is_counted_and_given_back() -> None:
    """I6: the bytes of all requests in flight are counted, and gone when these end."""
    door = Admission(BUDGET)
    with door.enter(10) as first, door.enter() as second:
        first.grow(10)
        second.grow(20)
        second.grow(5)
        assert door.held == 35
    assert door.held == 0


def test_small_requests_are_refused_beyond_the_budget() -> None:
    """Fault row 25: the byte over the budget is refused for now, with a time to wait."""
    door = Admission(BUDGET)
    tickets = [door.enter() for _ in range(8)]
    for each in tickets:
        each.grow(SMALL)
    with door.enter() as late:
        late.grow(0)
        with pytest.raises(Unavailable) as found:
            late.grow(1)
        assert found.value.retry_after
    with pytest.raises(Unavailable):
        door.enter(1)
    door.leave(tickets[0])
    door.enter(SMALL)


def test_one_large_request_is_outside_of_the_budget() -> None:
    """Fault row 25: small requests that fill the budget do not shut a large one out.

    Whether its size is announced or shows when it has been read.
    """
    door = Admission(BUDGET)
    for _ in range(8):
        door.enter().grow(SMALL)
    with door.enter(50 * SMALL) as large:
        for _ in range(50):
            large.grow(SMALL)
        with pytest.raises(Unavailable), door.enter() as second:
            second.grow(2 * SMALL)
    with door.enter() as third:
        third.grow(50 * SMALL)


def test_large_requests_leave_room_for_small_ones() -> None:
    """Fault row 25: further large requests stop at three quarters, the rest is for small ones."""
    door = Admission(BUDGET)
    door.enter().grow(100 * SMALL)
    second = door.enter(6 * SMALL)
    second.grow(6 * SMALL)
    with pytest.raises(Unavailable):
        second.grow(1)
    with pytest.raises(Unavailable):
        door.enter(SMALL + 1)
    for _ in range(2):
        door.enter(SMALL).grow(SMALL)
    with pytest.raises(Unavailable):
        door.enter(SMALL)


def test_who_announces_too_much_is_refused_unread() -> None:
    """Fault row 25: nothing of a body is read that could not be held."""
    door = Admission(BUDGET)
    door.enter().grow(2 * SMALL)
    door.enter(6 * SMALL)
    with pytest.raises(Unavailable):
        door.enter(6 * SMALL + 1)
    assert door.held == 2 * SMALL


def test_lag_refuses_and_says_how_long() -> None:
    """Fault row 25: while the oldest small request is judged too long, none is added."""
    clock = FakeClock()
    door = Admission(BUDGET, 3.0, clock.monotonic)
    with door.enter() as oldest, door.enter() as younger:
        oldest.judge()
        clock.advance(2)
        younger.judge()
        clock.advance(1)
        with door.enter() as third:
            third.grow(1)
        clock.advance(1.5)
        with pytest.raises(Unavailable, match="behind") as found:
            door.enter()
        assert found.value.retry_after == 4.5
        door.leave(oldest)
        door.enter()


def test_a_burst_is_refused_before_it_waits() -> None:
    """Fault row 25: who would have to wait too long is refused at once, by the pace of others."""
    clock = FakeClock()
    door = Admission(BUDGET, 3.0, clock.monotonic)
    for _ in range(20):  # a thousand bytes a second
        with door.enter() as each:
            each.grow(500)
            each.judge()
            clock.advance(0.5)
    taken = []
    for _ in range(7):
        ticket = door.enter()
        ticket.grow(499)
        ticket.judge()
        taken.append(ticket)
    with pytest.raises(Unavailable, match=r"3\.5 seconds") as found:
        door.enter()
    assert found.value.retry_after == pytest.approx(3.5, rel=0.1)
    for each in taken:
        clock.advance(0.01)
        door.leave(each)
    door.enter()


def test_answers_given_together_share_their_time() -> None:
    """Fault row 25: the pace is that of all, whether answers come one by one or at once."""
    pace = Pace()
    assert pace.seconds(1000) == 0
    for turn in range(50):
        for _ in range(4):
            pace.done(100, float(turn), turn + 1.0)
    assert pace.seconds(400) == pytest.approx(1, rel=0.1)


def test_a_large_request_is_no_lag() -> None:
    """Fault row 25: what takes long for its size does not turn the others away."""
    clock = FakeClock()
    door = Admission(BUDGET, 3.0, clock.monotonic)
    with door.enter() as large:
        large.grow(2 * SMALL)
        large.judge()
        clock.advance(60)
        door.enter()


@pytest.mark.parametrize(("size", "calls"), [(LARGE, 0), (LARGE + 1, 1)])
def test_the_end_of_a_large_request_is_told(size: int, calls: int) -> None:
    """I6: memory is given back after what was large, and only then."""
    told: list[int] = []
    door = Admission(BUDGET, after_large=lambda: told.append(1))
    with door.enter() as ticket:
        ticket.grow(size)
    assert len(told) == calls


def _stalling(release: asyncio.Event, began: list[int]) -> Callable[[], Awaitable[str]]:
    async def reading() -> str:
        began.append(1)
        await release.wait()
        return "late"

    return reading


async def _promptly() -> str:
    return "prompt"


async def _stall(reads: Reads) -> None:
    release = asyncio.Event()
    began: list[int] = []
    slow = [
        asyncio.create_task(reads.read(_stalling(release, began)))
        for _ in range(places.SLOW_READS + 3)
    ]
    # The prompt one waits its turn behind all of them.
    assert await reads.read(_promptly) == "prompt"
    while sum(each.done() for each in slow) < 3:
        still = [each for each in slow if not each.done()]
        await asyncio.wait(still, return_when=asyncio.FIRST_COMPLETED)
    refused = [each.exception() for each in slow if each.done()]
    assert [type(each) for each in refused] == [Unavailable] * 3
    release.set()
    found = await asyncio.gather(*slow, return_exceptions=True)
    assert found.count("late") == places.SLOW_READS
    assert len(began) == len(slow)
    assert await reads.read(_promptly) == "prompt"


def test_what_stalls_gives_its_place_up() -> None:
    """Fault row 15: stalled messages take the slow places, no others; prompt ones go on."""
    asyncio.run(_stall(Reads(prompt_seconds=0.01)))


async def _crowd(reads: Reads) -> None:
    release = asyncio.Event()
    began: list[int] = []
    count = places.PROMPT_READS + places.MAX_WAITING_READS
    crowd = [asyncio.create_task(reads.read(_stalling(release, began))) for _ in range(count)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="in flight"):
        await reads.read(_promptly)
    assert len(began) == places.PROMPT_READS
    crowd[0].cancel()
    crowd[-1].cancel()
    release.set()
    found = await asyncio.gather(*crowd, return_exceptions=True)
    assert found.count("late") == count - 2
    assert await reads.read(_promptly) == "prompt"


def test_a_queue_of_messages_is_bounded() -> None:
    """Fault row 25: who would wait too far behind is refused; who leaves frees the place."""
    asyncio.run(_crowd(Reads(prompt_seconds=20)))


def test_an_error_of_reading_is_its_callers() -> None:
    """Fault row 18: a place is given back whatever reading came to."""

    async def fail() -> str:
        raise ValueError

    async def both() -> None:
        reads = Reads()
        for _ in range(places.PROMPT_READS + 1):
            with pytest.raises(ValueError):  # noqa: PT011  it has no message
                await reads.read(fail)
        assert await reads.read(_promptly) == "prompt"

    asyncio.run(both())
