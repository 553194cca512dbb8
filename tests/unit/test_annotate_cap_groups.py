"""The cap of an attempt beside the task groups and time limits of Python 3.11 (B5)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

import pytest

import flowmark_otel as flowmark
from flowmark_otel import AttemptTimeoutError, names
from flowmark_otel.testing import FakeClock
from tests.support.recorders import Recorder, recorder
from tests.unit.test_annotate_cap import FAR, TYPE, cancelling, end_of, never, operation


@pytest.fixture
def clock() -> FakeClock:
    """A clock that stands still."""
    return FakeClock()


@pytest.fixture
def made(clock: FakeClock) -> Iterator[Recorder]:
    """A client in memory, by that clock."""
    with recorder(clock=clock) as found:
        yield found


if sys.version_info >= (3, 11):

    async def test_a_group_of_tasks_inside(made: Recorder, clock: FakeClock) -> None:
        """B5: the cap ends a group of tasks and all of its tasks."""
        ended = []

        async def one(name: str) -> None:
            try:
                await never()
            finally:
                ended.append(name)

        async def work() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(one("a"))
                group.create_task(one("b"))

        task = asyncio.ensure_future(flowmark.workflow("w").acall("o", work, timeout=FAR))
        for _ in range(3):
            await asyncio.sleep(0)
        clock.advance(FAR / 1000)
        with pytest.raises(AttemptTimeoutError):
            await task
        assert sorted(ended) == ["a", "b"]
        assert end_of(made) == ("failed", TYPE)

    @pytest.mark.parametrize("late", [False, True])
    async def test_a_group_of_tasks_around(made: Recorder, clock: FakeClock, *, late: bool) -> None:
        """B5: a sibling's failure cancels the attempt, also in the turn in which its cap is due."""

        async def sibling() -> None:
            if late:
                clock.advance(FAR / 1000)
            raise LookupError

        with pytest.raises(BaseExceptionGroup) as caught:  # noqa: F821, PT012 - the story
            async with asyncio.TaskGroup() as group:
                group.create_task(sibling())
                async with operation():
                    await never()
        [only] = caught.value.exceptions
        assert isinstance(only, LookupError)
        assert end_of(made)[0] == "failed"
        assert cancelling() == 0

    async def test_attempts_in_a_group_of_tasks(made: Recorder, clock: FakeClock) -> None:
        """B5: an attempt that is stopped in a group of tasks fails its group, as any error does."""
        flow = flowmark.workflow("w")

        async def both_begun() -> None:
            clock.advance(FAR / 1000)

        with pytest.raises(BaseExceptionGroup) as caught:  # noqa: F821, PT012 - the story
            async with asyncio.TaskGroup() as group:
                group.create_task(flow.acall("o", never, timeout=FAR))
                group.create_task(flow.acall("p", never, timeout=2 * FAR))
                group.create_task(both_begun())
        [only] = caught.value.exceptions
        assert isinstance(only, AttemptTimeoutError)
        types = [
            str(event.attributes[names.ERROR_TYPE])
            for event in made.sink.envelopes
            if event.event == names.OPERATION_FAILED
        ]
        assert (types[0], types[1].rpartition(".")[2]) == (TYPE, "CancelledError")

    @pytest.mark.parametrize("shorter", ["cap", "limit"])
    async def test_beside_the_timeout_of_asyncio(
        made: Recorder, clock: FakeClock, shorter: str
    ) -> None:
        """B5: inside and around ``asyncio.timeout`` each knows its own."""
        expected = AttemptTimeoutError if shorter == "cap" else TimeoutError
        limit = 0.001 if shorter == "limit" else FAR
        if shorter == "cap":
            asyncio.get_running_loop().call_soon(clock.advance, FAR / 1000)
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(limit), operation():
                await never()
        assert type(caught.value) is expected
        assert cancelling() == 0
        assert end_of(made)[0] == "failed"
