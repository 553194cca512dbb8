"""The failure policy around one node: tries, waits, budget, and what becomes of failures (C1-C5).

``policy`` and ``budget`` decide; here it is done. Used on one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from flowmark_otel import names
from flowmark_otel.clock import Clock
from flowmark_otel.collector import budget as budgets, policy
from flowmark_otel.collector.budget import Budget, Enter
from flowmark_otel.collector.element import INVALID_ENVELOPE, ElementError, Fate, Outcome
from flowmark_otel.collector.letters import Failures, Fault
from flowmark_otel.collector.meter import NodeMeter, NodeState
from flowmark_otel.collector.payload import Letters, Payload
from flowmark_otel.collector.policy import Failed, Rules
from flowmark_otel.collector.reading import Read, Unfit
from flowmark_otel.errors import RequestError
from flowmark_otel.listen.logs import say

_log = logging.getLogger(__name__)

_Made = TypeVar("_Made")


class Taking(Protocol):
    """Where a payload goes: a node with its policy, or a pipeline."""

    async def take(self, payload: Payload) -> Outcome:
        """Take all of it. Raises ElementError, or RequestError for what is no request at all."""
        ...


@dataclass(frozen=True, slots=True)  # a generic named tuple needs Python 3.11
class Done(Generic[_Made]):
    """What some tries made in the end."""

    made: _Made
    tries: int


class Undone(NamedTuple):
    """No try succeeded; the error of the last."""

    error: ElementError
    tries: int


class Guard:
    """What all nodes do about failures.

    ``port`` takes letters; it is there where ``on_error`` is ``route``. Owns the budget.
    """

    def __init__(
        self,
        rules: Rules,
        budget: Budget | None,
        meter: NodeMeter,
        clock: Clock,
        port: Taking | None = None,
    ) -> None:
        self.rules = rules
        self.meter = meter
        self._budget = budget
        self._clock = clock
        self._port = port
        self._jitter: Callable[[], float] = random.random

    # -- tries ----------------------------------------------------------------------------------
    async def attempt(
        self, work: Callable[[float], Awaitable[_Made]], began: float
    ) -> Done[_Made] | Undone:
        """Try until it is done or no other try is worth it; ``work`` is given its seconds."""
        tries = 0
        while True:
            seconds = policy.try_seconds(self._clock.monotonic() - began, self.rules)
            tries += 1
            try:
                if seconds <= 0:
                    raise _timeout(self.rules.deadline)
                return Done(await asyncio.wait_for(work(seconds), seconds), tries)
            except asyncio.TimeoutError:
                error = _timeout(seconds)
            except ElementError as raised:
                error = raised
            failed = Failed(error.name, error.permanent, error.paused, error.retry_after)
            elapsed = self._clock.monotonic() - began
            decision = policy.after(failed, tries, elapsed, self._jitter(), self.rules)
            if isinstance(decision, policy.Over):
                return Undone(error, tries)
            self.meter.retried()
            await asyncio.sleep(decision.seconds)

    # -- budget ---------------------------------------------------------------------------------
    @asynccontextmanager
    async def message(self) -> AsyncIterator[Message]:
        """One message at the node, counted by the budget. Raises ElementError where it is spent."""
        probe = self._enter()
        message = Message()
        try:
            yield message
        except RequestError:  # no fault of the node's
            self._count(probe=probe, failed=False)
            raise
        except ElementError:
            self._count(probe=probe, failed=True)
            raise
        except BaseException:
            if self._budget is not None:
                self._budget = budgets.abandoned(self._budget, probe=probe)
            raise
        self._count(probe=probe, failed=message.failed)

    def _enter(self) -> bool:
        if self._budget is None:
            return False
        now = self._clock.monotonic()
        answer, self._budget = budgets.enter(self._budget, now)
        if answer is Enter.NO:
            message = f"{self.meter.id} refuses: its failure budget is spent"
            wait = budgets.wait(self._budget, now)
            raise ElementError(names.REASON_UNAVAILABLE, message, retry_after=max(wait, 1.0))
        return answer is Enter.PROBE

    def _count(self, *, probe: bool, failed: bool) -> None:
        if self._budget is not None:
            now = self._clock.monotonic()
            if failed:
                self._budget = budgets.failed(self._budget, now, probe=probe)
            else:
                self._budget = budgets.completed(self._budget, probe=probe)
        if self._budget is not None and self._budget.spent:
            seconds = self._budget.window
            self.stand(NodeState.REFUSING, f"its failure budget is spent, for {seconds:g} s")
        elif not failed:
            self.stand(NodeState.OK)
        elif self.meter.state is not NodeState.PAUSED:
            self.stand(NodeState.FAILING)

    def now(self) -> float:
        """The clock's seconds, from which a message's time counts."""
        return self._clock.monotonic()

    def stand(self, state: NodeState, why: str = "") -> None:
        """Say where the node stands; the log has a line where that is news worth one."""
        before = self.meter.state
        if before is NodeState.WAITING and state is not NodeState.REFUSING:
            return  # until whoever asks for capabilities has them
        if self.meter.now(state, why) and not _TOLD.isdisjoint((before, state)):
            level = logging.INFO if state is NodeState.OK else logging.WARNING
            say(_log, level, "node", node=self.meter.id, state=state.value, why=why)

    # -- failures -------------------------------------------------------------------------------
    async def give_up(self, error: ElementError, tries: int, failures: Failures) -> bool:
        """Be done with a message that failed: raises, or it was dropped or written to letters.

        ``failures``: what of it. Returns whether it was routed.
        """
        failed = Failed(error.name, error.permanent, error.paused, error.retry_after)
        then = policy.fate_of(failed, self.rules)
        self.meter.failed(error.name, str(error))
        self.meter.refused(error.reason, failures.items)
        if error.paused:
            self.stand(NodeState.PAUSED, str(error))
        if then == "fail":
            raise error
        if then == "continue":
            self.meter.dropped(failures.items)
            return False
        await self.route(failures, tries)
        return True

    async def refuse(self, read: Read, tries: int) -> list[tuple[int, Fate]]:
        """Be done with the unfit events of a request, each alone; with their fates those told.

        Raises ElementError, permanent, where ``on_error`` is ``fail`` and the sender is told.
        """
        unfit = read.unfit
        said = f"{len(unfit)} events break a rule; the first: {unfit[0].message}"
        told = [each for each in unfit if each.told]
        self.meter.refused(names.INVALID, len(unfit))
        self.meter.failed(INVALID_ENVELOPE, said)
        then = self.rules.on_error
        if then == "fail" and told:
            alone = not any(each.told for each in read.events)
            fates = tuple(_fate(each, names.INVALID) for each in told) if alone else ()
            raise ElementError(names.INVALID, said, permanent=True, fates=fates)
        if then == "route":
            faults = [Fault(each.item, INVALID_ENVELOPE, each.message) for each in unfit]
            await self.route(Failures(read.source, len(unfit), faults), tries)
            return [(each.after, _fate(each, names.DEAD_LETTERED)) for each in told]
        self.meter.dropped(len(unfit))
        return [(each.after, _fate(each, names.DROPPED)) for each in told]

    async def route(self, failures: Failures, tries: int) -> None:
        """Write letters. Raises ElementError where they could not be taken: nothing is lost."""
        if self._port is None:
            msg = f"{self.meter.id} has no error port"
            raise ElementError(names.REASON_UNAVAILABLE, msg)
        letters = failures.letters(tries, self.meter.id, self._clock.now_ns())
        await self._port.take(Letters(letters))
        self.meter.letters(failures.items)


_TOLD: Final = {NodeState.PAUSED, NodeState.REFUSING}
"""States that have a line in the log when they begin and when they end."""


class Message:
    """One message at a node; ``failed`` is set where some of it did, though it went on.

    ``tries``: how often it was read.
    """

    __slots__ = ("failed", "tries")

    def __init__(self) -> None:
        self.failed = False
        self.tries = 1


def _fate(unfit: Unfit, state: str) -> Fate:
    return Fate(unfit.item, unfit.event_id, state, unfit.message)


def _timeout(seconds: float) -> ElementError:
    return ElementError(names.REASON_TIMEOUT, f"not done within {seconds:g} s")
