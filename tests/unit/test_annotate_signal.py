"""The signal of an attempt: set at its cap, at its deadline and on cancellation (B5)."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flowmark_otel as flowmark
from flowmark_otel import Attempt, AttemptSignal, current_attempt, names
from flowmark_otel.clock import SystemClock
from flowmark_otel.testing import FakeClock
from flowmark_otel.testing.clock import START_NS
from tests.support.recorders import Recorder, recorder

FAR = 3_600_000
"""Milliseconds that no test waits for."""

NOW_MS = START_NS // 1_000_000


@pytest.fixture
def clock() -> FakeClock:
    """A clock that stands still."""
    return FakeClock()


@pytest.fixture
def made(clock: FakeClock) -> Iterator[Recorder]:
    """A client in memory, by that clock."""
    with recorder(clock=clock) as found:
        yield found


def operation(**options: Any) -> flowmark.Operation:
    """One attempt."""
    return flowmark.workflow("w").operation("o", attempt=Attempt("g", 1), **options)


def in_a_block(act: Callable[[], object], **options: Any) -> None:
    """Act inside a block."""
    with operation(**options):
        act()


def in_a_call(act: Callable[[], object], **options: Any) -> None:
    """Act inside a called function."""
    flowmark.workflow("w").call("o", act, **options)


def in_a_thread(act: Callable[[], object], **options: Any) -> None:
    """Act in a thread that was handed the attempt's block."""
    flow = flowmark.workflow("w")
    raised: list[BaseException] = []

    def run() -> None:
        try:
            flow.operation("o", **options)(act)()
        except BaseException as error:  # noqa: BLE001 - raised again on the thread of the test
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    for error in raised:
        raise error


def in_a_task(act: Callable[[], object], **options: Any) -> None:
    """Act inside an awaited function that never gives the loop a turn."""

    async def function() -> None:
        act()

    asyncio.run(flowmark.workflow("w").acall("o", function, **options))


MODES = [in_a_block, in_a_call, in_a_thread, in_a_task]


@pytest.mark.parametrize("mode", MODES)
def test_it_is_set_at_the_cap_and_not_before(
    made: Recorder, clock: FakeClock, mode: Callable[..., None]
) -> None:
    """B5, B7: set at the cap of the attempt, which its handle tells; the function goes on."""

    def act() -> None:
        handle = current_attempt()
        assert (handle.timeout, handle.signal.is_set()) == (50, False)
        clock.advance(0.049)
        assert not handle.signal.is_set()
        clock.advance(0.001)
        assert (handle.signal.is_set(), handle.signal.reason) == (True, "timeout")

    mode(act, timeout=50)
    assert made.sink.told()[-1] == "operation.completed"


@pytest.mark.parametrize("mode", MODES)
def test_it_is_set_at_the_deadline(
    made: Recorder, clock: FakeClock, mode: Callable[..., None]
) -> None:
    """B5, B2: set at the deadline by the wall clock; asking it is not reading time."""

    def act() -> None:
        signal = current_attempt().signal
        assert not signal.wait(0.019)
        assert signal.wait(5)
        assert (clock.monotonic(), signal.reason) == (0.02, "deadline")

    mode(act, deadline=NOW_MS + 20)
    assert names.ATTEMPT_TIME_READ not in made.sink.envelopes[-1].attributes


@pytest.mark.parametrize("mode", MODES)
def test_a_deadline_that_has_passed_decides_nothing(
    made: Recorder, mode: Callable[..., None]
) -> None:
    """A1, B5: after its deadline a function is run all the same; its signal is set from the start.

    So it is with a cap of 0.
    """
    ran: list[str | None] = []
    for options in ({"deadline": NOW_MS - 1}, {"timeout": 0}):
        mode(lambda: ran.append(current_attempt().signal.reason), **options)
    assert ran == ["deadline", "timeout"]
    assert made.sink.told().count("operation.completed") == 2


def test_a_wait_ends_where_time_sets_it(made: Recorder, clock: FakeClock) -> None:
    """B5: wait() is bounded by what is left of cap and deadline, and by its own timeout."""
    with operation(timeout=50, deadline=NOW_MS + FAR):
        signal = current_attempt().signal
        assert not signal.wait(0.02)
        assert clock.monotonic() == 0.02
        assert not signal.wait(0)
        assert signal.wait()
        assert clock.monotonic() == 0.05
        assert signal.wait()
    assert made.sink.codes() == []


def test_the_first_reason_stands(made: Recorder, clock: FakeClock) -> None:
    """B5: set is set, also when the wall clock is put back or the cap comes after the deadline."""
    with operation(timeout=50, deadline=NOW_MS + 20):
        signal = current_attempt().signal
        clock.advance(0.03)
        assert signal.reason == "deadline"
        clock.set_wall(START_NS)
        clock.advance(0.03)
        assert (signal.is_set(), signal.reason) == (True, "deadline")
    assert made.sink.codes() == []


def test_the_cap_counts_from_where_the_work_begins(made: Recorder, clock: FakeClock) -> None:
    """B5: from the block or function, or from where a manually ended operation was made."""
    early = operation(timeout=50)
    decorated = operation(timeout=50)(_set_already)
    manual = operation(timeout=50)
    clock.advance(1)
    assert manual.attempt.signal.is_set()
    with early:
        assert not current_attempt().signal.is_set()
    assert not decorated()

    @operation(timeout=50)
    def generator() -> Iterator[bool]:
        for _ in range(3):
            yield current_attempt().signal.is_set()

    stepped = generator()
    assert not next(stepped)
    clock.advance(0.05)  # in its consumer: one cap for all its steps
    assert list(stepped) == [True, True]
    assert "invalid" not in made.sink.codes()


def _set_already() -> bool:
    return current_attempt().signal.is_set()


def test_each_attempt_has_one_signal_of_its_own(made: Recorder, clock: FakeClock) -> None:
    """B5: all handles of an attempt share it; those of others and of nobody are not set by it."""
    outer = operation(timeout=FAR)
    with outer:
        with operation(timeout=10) as inner:
            assert current_attempt().signal is inner.attempt.signal
            clock.advance(0.01)
            assert current_attempt().signal.is_set()
        assert current_attempt().signal is outer.attempt.signal
        assert not current_attempt().signal.is_set()
    assert not current_attempt().signal.is_set()
    assert not current_attempt().signal.wait(1)
    assert made.sink.codes() == []


@pytest.mark.parametrize(
    "interruption", [KeyboardInterrupt(), SystemExit(1), asyncio.CancelledError()], ids=repr
)
def test_a_thread_is_told_of_a_cancellation(interruption: BaseException) -> None:
    """B5: what an attempt left to other threads hears at once that it was interrupted."""
    heard: list[bool] = []
    with recorder(clock=SystemClock()) as made:
        with (  # noqa: PT012 - the story
            pytest.raises(type(interruption)),
            operation(deadline=time.time_ns() // 1_000_000 + FAR) as cancelled,
        ):
            signal = current_attempt().signal
            thread = threading.Thread(target=lambda: heard.append(signal.wait()))
            thread.start()
            raise interruption
        thread.join()
        assert heard == [True]
        assert (signal.reason, cancelled.attempt.signal) == ("cancelled", signal)
        assert made.sink.told()[-1] == "operation.failed"


@pytest.mark.parametrize("error", [None, ValueError, GeneratorExit])
def test_an_end_is_no_cancellation(made: Recorder, error: type[BaseException] | None) -> None:
    """B5: an attempt that completed, failed or was closed has not been cancelled."""
    flow = flowmark.workflow("w")
    try:
        with flow.operation("o") as ended:
            if error is not None:
                raise error
    except (ValueError, GeneratorExit):
        pass
    assert not ended.attempt.signal.is_set()
    assert made.sink.codes() == []


async def test_it_can_be_awaited(made: Recorder, clock: FakeClock) -> None:
    """B5: awaiting it ends when the injected clock says so, whatever moves it."""
    for options in ({"timeout": FAR}, {"deadline": NOW_MS + FAR}):
        with operation(**options):
            signal = current_attempt().signal
            waiting = asyncio.ensure_future(_awaited(signal))
            await asyncio.sleep(0)
            clock.advance(FAR / 1000 - 1)
            for _ in range(3):
                await asyncio.sleep(0)
            assert not waiting.done()
            await asyncio.to_thread(clock.advance, 1)
            assert await waiting
            assert await signal
        clock.set_wall(START_NS)
    assert clock._heard_by == []
    assert made.sink.codes() == []


async def _awaited(signal: AttemptSignal) -> bool:
    return await signal


async def test_awaiting_it_hears_a_cancellation(made: Recorder) -> None:
    """B5: another task or thread that ends the attempt by a cancellation wakes who awaits it."""
    begun = asyncio.Event()
    handles: list[flowmark.AttemptHandle] = []

    async def work() -> None:
        handles.append(current_attempt())
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(flowmark.workflow("w").acall("o", work))
    await begun.wait()
    waiting = asyncio.ensure_future(_awaited(handles[0].signal))
    await asyncio.sleep(0)
    task.cancel()
    assert await waiting
    assert handles[0].signal.reason == "cancelled"
    given_up = asyncio.ensure_future(_awaited(operation().attempt.signal))
    await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    assert made.sink.told().count("operation.failed") == 1


async def test_a_thread_of_a_task_stops_at_its_cancellation() -> None:
    """B5: work in a thread waits for the signal by the system's clock, and stops when told."""
    with recorder(clock=SystemClock()):
        stopped, begun = threading.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def work() -> None:
            loop.call_soon_threadsafe(begun.set)
            if current_attempt().signal.wait():
                stopped.set()

        flow = flowmark.workflow("w")
        task = asyncio.ensure_future(flow.acall("o", asyncio.to_thread, work, timeout=FAR))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(stopped.wait, 30)


def test_by_the_clock_of_the_system() -> None:
    """B5: the same without a clock of the test's own."""
    with recorder(clock=SystemClock()), operation(timeout=1):
        assert not operation(timeout=FAR).attempt.signal.wait(0.001)
        assert current_attempt().signal.wait()
        assert current_attempt().signal.reason == "timeout"


def test_it_is_never_serialised(made: Recorder) -> None:
    """B9: pickling or copying it raises, as with the handle."""
    signal = operation().attempt.signal
    for act in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="bound to its process"):
            act(signal)
    assert repr(signal) == "<signal, not set>"
    assert made.sink.codes() == []


def test_a_wrong_timeout_is_reported(made: Recorder, clock: FakeClock) -> None:
    """Contract, section 6: a wrong wait is a diagnostic, and waits for nothing."""
    given: Any = "soon"
    assert not operation(timeout=FAR).attempt.signal.wait(given)
    assert clock.monotonic() == 0
    assert made.sink.codes() == [names.DIAGNOSTIC_INVALID]
