"""The cap of an attempt stops a task of asyncio, and nothing else is mistaken for it (B5)."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

import flowmark_otel as flowmark
from flowmark_otel import Attempt, AttemptTimeoutError, current_attempt, names
from flowmark_otel.clock import SystemClock
from flowmark_otel.testing import FakeClock
from tests.support.recorders import Recorder, recorder

FAR = 3_600_000
"""Milliseconds that no test waits for."""

TYPE = "flowmark_otel.errors.AttemptTimeoutError"


@pytest.fixture
def clock() -> FakeClock:
    """A clock that stands still."""
    return FakeClock()


@pytest.fixture
def made(clock: FakeClock) -> Iterator[Recorder]:
    """A client in memory, by that clock."""
    with recorder(clock=clock) as found:
        yield found
    assert clock._heard_by == []  # no alarm is left behind


def operation(**options: Any) -> flowmark.Operation:
    """One attempt, with a cap that only the fake clock reaches."""
    given = {"timeout": FAR, **options}
    return flowmark.workflow("w").operation("o", attempt=Attempt("g", 1), **given)


async def never() -> None:
    """Wait for what does not come."""
    await asyncio.Event().wait()


def end_of(made: Recorder) -> tuple[str, object]:
    """How the last operation ended: its event and the type of its error."""
    last = made.sink.envelopes[-1]
    return last.event.rpartition(".")[2], last.attributes.get(names.ERROR_TYPE)


def cancelling() -> int:
    """The cancellations asked of this task that nobody took back; not counted before 3.11."""
    if sys.version_info >= (3, 11):
        task = asyncio.current_task()
        return 0 if task is None else task.cancelling()
    return 0


async def by_acall() -> None:
    """An awaited function."""
    flow = flowmark.workflow("w")
    await flow.acall("o", never, attempt=Attempt("g", 1), timeout=FAR)


async def by_call() -> None:
    """A coroutine that a called function gives."""
    flow = flowmark.workflow("w")
    await flow.call("o", never, attempt=Attempt("g", 1), timeout=FAR)


async def by_a_decorator() -> None:
    """A decorated coroutine function."""
    await operation()(never)()


async def by_a_block() -> None:
    """An ``async with`` block."""
    async with operation():
        await never()


async def by_a_generator() -> None:
    """An asynchronous generator, stopped in a step after its first."""

    @operation()
    async def items() -> AsyncIterator[int]:
        yield 1
        await never()

    assert [item async for item in items()] == []


WAYS = [by_acall, by_call, by_a_decorator, by_a_block, by_a_generator]


async def after(clock: FakeClock, way: Callable[[], Awaitable[object]]) -> None:
    """Begin, and let the cap be reached."""
    asyncio.get_running_loop().call_soon(clock.advance, FAR / 1000)
    await way()


@pytest.mark.parametrize("way", WAYS)
async def test_the_cap_stops_what_can_be_stopped(
    made: Recorder, clock: FakeClock, way: Callable[[], Awaitable[None]]
) -> None:
    """B5: at the cap AttemptTimeoutError is raised and recorded, and the task goes on."""
    with pytest.raises(AttemptTimeoutError, match=f"^attempt 1, with {FAR} ms, was stopped"):
        await after(clock, way)
    assert end_of(made) == ("failed", TYPE)
    assert cancelling() == 0
    await asyncio.sleep(0)


async def test_it_is_a_timeout_and_names_the_cause(made: Recorder, clock: FakeClock) -> None:
    """B5: it is a TimeoutError, another try may help, and map_error is asked about it."""
    flow = flowmark.workflow("w")
    given: Any = {"timeout": FAR, "map_error": lambda error: flowmark.Failure(type(error).__name__)}
    with pytest.raises(TimeoutError) as caught:
        await after(clock, lambda: flow.acall("o", never, **given))
    assert isinstance(caught.value, AttemptTimeoutError)
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    assert not caught.value.permanent
    assert made.sink.envelopes[-1].attributes[names.ERROR_CODE] == "AttemptTimeoutError"


async def test_a_plain_block_is_only_told(made: Recorder, clock: FakeClock) -> None:
    """B5: a ``with`` block and a plain function are not stopped; their signal is set."""
    with operation():
        clock.advance(FAR / 1000)
        await asyncio.sleep(0)
        assert current_attempt().signal.reason == "timeout"
    assert end_of(made) == ("completed", None)


async def test_by_the_clock_of_the_system() -> None:
    """B5: the same without a clock of the test's own, whose wait is a millisecond."""
    with recorder(clock=SystemClock()):
        for timeout in (0, 1):
            with pytest.raises(AttemptTimeoutError):
                await flowmark.workflow("w").acall("o", never, timeout=timeout)
        await flowmark.workflow("w").acall("o", asyncio.sleep, 0, timeout=FAR)


def test_without_asyncio_it_is_only_told(made: Recorder) -> None:
    """B5: under another event loop nothing is stopped and nothing raises; the signal tells."""

    async def work() -> bool:
        return current_attempt().signal.is_set()

    coroutine = flowmark.workflow("w").acall("o", work, timeout=0)
    with pytest.raises(StopIteration) as ended:
        coroutine.send(None)
    assert ended.value.value is True
    assert made.sink.codes() == []


@pytest.mark.parametrize("way", WAYS)
async def test_a_cancellation_passes_through(
    made: Recorder, way: Callable[[], Awaitable[None]]
) -> None:
    """B5: a cancellation of the application's own is a CancelledError, and recorded as one."""
    task = asyncio.ensure_future(way())
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel("told so")
    with pytest.raises(asyncio.CancelledError):
        await task
    assert end_of(made)[0] == "failed"
    assert str(end_of(made)[1]).endswith("CancelledError")


ORDERS = [
    order
    for size in (1, 2, 3)
    for events in itertools.combinations(("cap", "cancel", "result"), size)
    for order in itertools.permutations(events)
]


@pytest.mark.parametrize("turns", range(3))
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
async def test_races(made: Recorder, clock: FakeClock, order: tuple[str, ...], turns: int) -> None:
    """B5: whatever comes first, a cancellation that was accepted is never lost to the cap.

    The cap, a cancellation of the application's and the function's result, in every order, in one
    turn of the loop or some turns apart.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[str] = loop.create_future()
    signals: list[flowmark.AttemptSignal] = []

    async def work() -> str:
        signals.append(current_attempt().signal)
        return await result

    task = loop.create_task(flowmark.workflow("w").acall("o", work, timeout=FAR))
    await asyncio.sleep(0)
    accepted: list[bool] = []
    events: dict[str, Callable[[], object]] = {
        "cap": lambda: clock.advance(FAR / 1000),
        "cancel": lambda: accepted.append(task.cancel()),
        "result": lambda: None if result.done() else result.set_result("done"),
    }
    for name in order:
        loop.call_soon(events[name])
        for _ in range(turns):
            await asyncio.sleep(0)
    [outcome] = await asyncio.gather(task, return_exceptions=True)
    if accepted == [True]:
        assert isinstance(outcome, asyncio.CancelledError)
        assert signals[0].reason in {"timeout", "cancelled"}
    elif isinstance(outcome, AttemptTimeoutError):
        assert "cap" in order
        assert signals[0].reason == "timeout"
    else:
        assert outcome == "done"
        assert "result" in order
    ended = "completed" if outcome == "done" else "failed"
    assert end_of(made)[0] == ended


async def test_a_cancellation_during_the_clean_up(made: Recorder, clock: FakeClock) -> None:
    """B5: one that comes while the function cleans up after its cap is the application's."""
    cleaning = asyncio.Event()

    async def work() -> None:
        try:
            await never()
        finally:
            cleaning.set()
            await never()

    task = asyncio.ensure_future(flowmark.workflow("w").acall("o", work, timeout=FAR))
    await asyncio.sleep(0)
    clock.advance(FAR / 1000)
    await cleaning.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert str(end_of(made)[1]).endswith("CancelledError")


async def test_a_function_may_end_in_its_own_way(made: Recorder, clock: FakeClock) -> None:
    """B5: what a function makes of its cap passes through: a result, or an error of its own."""

    async def partial() -> str:
        try:
            await never()
        except asyncio.CancelledError:
            return "partial"
        return "whole"

    async def failing() -> None:
        try:
            await never()
        except asyncio.CancelledError:
            raise LookupError from None

    flow = flowmark.workflow("w")
    loop = asyncio.get_running_loop()
    loop.call_soon(clock.advance, FAR / 1000)
    assert await flow.acall("o", partial, timeout=FAR) == "partial"
    assert end_of(made) == ("completed", None)
    loop.call_soon(clock.advance, FAR / 1000)
    with pytest.raises(LookupError):
        await flow.acall("o", failing, timeout=FAR)
    assert end_of(made) == ("failed", "LookupError")
    assert cancelling() == 0
    await asyncio.sleep(0)


@pytest.mark.parametrize(("inner", "outer"), [(1, 2), (2, 1), (1, 1)])
async def test_caps_inside_caps(made: Recorder, clock: FakeClock, inner: int, outer: int) -> None:
    """B5: the cap that is reached first stops its attempt; the outer one has failed as well."""
    asyncio.get_running_loop().call_soon(clock.advance, FAR / 1000)
    stopped: list[str] = []
    caught: list[BaseException] = []
    around = operation(timeout=outer * FAR)
    within = operation(timeout=inner * FAR)

    async def inside() -> None:
        try:
            async with within:
                await never()
        except AttemptTimeoutError:
            stopped.append("inner")
            raise

    try:
        async with around:
            await inside()
    except AttemptTimeoutError as error:
        caught.append(error)
    assert len(caught) == 1
    if inner != outer:  # reached in one turn, either may be told first
        assert ("inner" in stopped) == (inner < outer)
    assert within.attempt.signal.is_set()
    assert (around.attempt.signal.reason == "timeout") == (outer <= inner)
    assert cancelling() == 0
    assert made.sink.told().count("operation.failed") == 2


async def test_shielded_work_goes_on_and_reads_why(made: Recorder, clock: FakeClock) -> None:
    """B5: what is shielded is not stopped with the attempt; its signal is set."""
    going, end = asyncio.Event(), asyncio.Event()

    async def shielded() -> str | None:
        going.set()
        await end.wait()
        return current_attempt().signal.reason

    left: list[asyncio.Task[str | None]] = []

    async def work() -> None:
        left.append(asyncio.ensure_future(shielded()))
        await asyncio.shield(left[0])

    task = asyncio.ensure_future(flowmark.workflow("w").acall("o", work, timeout=FAR))
    await going.wait()
    clock.advance(FAR / 1000)
    with pytest.raises(AttemptTimeoutError):
        await task
    assert not left[0].done()
    end.set()
    assert await left[0] == "timeout"
    assert end_of(made) == ("failed", TYPE)


async def test_inside_and_around_wait_for(made: Recorder, clock: FakeClock) -> None:
    """B5: a time limit of the standard library's beside the cap: each raises its own error."""
    flow = flowmark.workflow("w")
    with pytest.raises(asyncio.TimeoutError) as limited:
        await asyncio.wait_for(flow.acall("o", never, timeout=FAR), 0.001)
    assert not isinstance(limited.value, AttemptTimeoutError)

    async def patient() -> None:
        await asyncio.wait_for(never(), FAR)

    with pytest.raises(AttemptTimeoutError):
        await after(clock, lambda: flow.acall("o", patient, timeout=FAR))
    assert end_of(made) == ("failed", TYPE)


async def test_a_wrong_operation_is_stopped_all_the_same(made: Recorder, clock: FakeClock) -> None:
    """Contract, section 6: an operation that is refused for another option keeps its cap."""
    given: Any = {"limit": 0, "timeout": FAR}
    with pytest.raises(AttemptTimeoutError):
        await after(clock, lambda: flowmark.workflow("w").acall("o", never, **given))
    assert len(made.sink.refused) == 2
