"""Several branches at once: each to its end, then one answer or one failure (C4)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeAlias

from flowmark_otel.collector.element import ElementError, Outcome
from flowmark_otel.collector.joining import failure_of, joined
from flowmark_otel.collector.plan import Trigger

Work: TypeAlias = Coroutine[Any, Any, Outcome]


async def together(works: Sequence[Work]) -> Outcome:
    """What all of them answered. Raises ElementError where one failed, whatever else one raises."""
    if len(works) == 1:
        return await works[0]
    return joined(await ended(works, Trigger.ALL_SUCCESS))


async def ended(works: Sequence[Work], trigger: Trigger) -> list[Outcome]:
    """The answers of those that succeeded, when all have ended. Raises as the trigger has it."""
    tasks = [asyncio.ensure_future(each) for each in works]
    try:
        await asyncio.gather(*tasks, return_exceptions=True)
    except asyncio.CancelledError:
        for each in tasks:
            each.cancel()
        raise
    return answers(tasks, trigger)


def answers(tasks: Sequence[asyncio.Task[Outcome]], trigger: Trigger) -> list[Outcome]:
    """As ``ended``, of tasks that have ended."""
    found: list[Outcome] = []
    failed: list[ElementError] = []
    for each in tasks:
        error = each.exception()
        if error is None:
            found.append(each.result())
        elif isinstance(error, ElementError):
            failed.append(error)
        else:
            raise error
    failure = failure_of(trigger, failed, len(tasks))
    if failure is not None:
        raise failure
    return found


class Left:
    """What goes on after its sender was answered; drained before the end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Outcome]] = set()

    def keep(self, task: asyncio.Task[Outcome]) -> None:
        """Let it end by itself; how it ended is counted where it failed."""
        self._tasks.add(task)
        task.add_done_callback(self._let_go)

    def _let_go(self, task: asyncio.Task[Outcome]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, so that nobody calls it lost

    async def drain(self, seconds: float) -> None:
        """Wait for all of it, so long at most; then end it."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for each in self._tasks:
            each.cancel()


async def first(works: Sequence[Work], left: Left) -> Outcome:
    """The first success; the others go on. Raises ElementError where all failed."""
    tasks = [asyncio.ensure_future(each) for each in works]
    waiting = set(tasks)
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            good = [each for each in tasks if each in done and each.exception() is None]
            if good:
                for each in waiting:
                    left.keep(each)
                return joined([each.result() for each in good])
    except asyncio.CancelledError:
        for each in tasks:
            each.cancel()
        raise
    return joined(answers(tasks, Trigger.ONE_SUCCESS))
