"""The three kinds of node: what carries telemetry, what folds, what delivers envelopes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Final

from flowmark_otel import names
from flowmark_otel.collector.element import (
    INVALID_ENVELOPE,
    Alike,
    Element,
    ElementError,
    Fate,
    Outcome,
    error_name,
)
from flowmark_otel.collector.events import Event, Row
from flowmark_otel.collector.letters import Failures, Fault
from flowmark_otel.collector.node import Guard, Message, Taking, Undone
from flowmark_otel.collector.payload import Events, Letters, Payload, Telemetry, size_of
from flowmark_otel.collector.reading import TRACES, Read, read, woven
from flowmark_otel.collector.together import together
from flowmark_otel.signals import NO_SIGNALS, Signals

_REFUSED: Final = frozenset((names.CONFLICT, names.INVALID, names.LIMIT))
"""What the other side refuses by judging it."""
_TAKEN: Final = frozenset((names.STORED, names.DUPLICATE, names.CUSTODY))


class PlainNode:
    """An exporter that carries what comes as it is, and answers for no event."""

    def __init__(self, guard: Guard, element: Element) -> None:
        self._guard = guard
        self._element = element

    async def take(self, payload: Payload) -> Outcome:
        """Take all of it, or do about it what ``on_error`` says."""
        guard = self._guard
        async with guard.message() as message:
            done = await guard.attempt(
                lambda seconds: self._element.take(payload, seconds), guard.now()
            )
            items = size_of(payload)  # by now whoever folds it has counted, mostly
            guard.meter.received(items)
            if isinstance(done, Undone):
                return await _lost(guard, message, done, _source(payload), items)
            guard.meter.forwarded(items)
            return done.made


class Reader:
    """Reads requests in threads of its own, so that the loop stays free.

    ``prepare``: what the elements that come next do there as well.
    """

    def __init__(
        self,
        threads: Executor,
        signals: Signals = NO_SIGNALS,
        prepare: Sequence[Callable[[Row], None]] = (),
    ) -> None:
        self._threads = threads
        self._signals = signals
        self._prepare = prepare

    def _read(self, source: Telemetry) -> Read:
        found = read(source, self._signals)
        if found.events:
            for prepare in self._prepare:
                prepare(found.events)
        return found

    async def read(self, guard: Guard, message: Message, source: Telemetry) -> Read | Undone:
        """The events of a request; those that break a rule are tried again where that is listed.

        Raises Unparsable, TooLarge.
        """
        last: Read | None = None
        listed = INVALID_ENVELOPE in guard.rules.retry_on

        async def work(_: float) -> Read:
            nonlocal last
            last = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._read, source
            )
            if listed and last.unfit:
                raise ElementError(names.INVALID, last.unfit[0].message, permanent=True)
            return last

        done = await guard.attempt(work, guard.now())
        if not isinstance(done, Undone):
            return done.made
        if done.error.reason == names.INVALID and last is not None:
            message.tries = done.tries
            return last
        return done


class FoldNode:
    """The ``flowmark`` connector: the same traces to pipelines of traces, envelopes to logs."""

    def __init__(self, guard: Guard, reader: Reader) -> None:
        self._guard = guard
        self._reader = reader
        self.traces: Sequence[Taking] = ()
        self.logs: Sequence[Taking] = ()

    async def take(self, payload: Payload) -> Outcome:
        """Fold a request and hand it on; the answer is that of who comes next."""
        guard = self._guard
        if not isinstance(payload, Telemetry):
            return await together([each.take(payload) for each in self.logs])
        async with guard.message() as message:
            found = await self._reader.read(guard, message, payload)
            if isinstance(found, Undone):
                return await _lost(guard, message, found, payload, size_of(payload))
            if payload.size is not None:
                payload.size.items = found.items
            guard.meter.received(found.items)
            guard.meter.folded(len(found.events))
            unfit: list[tuple[int, Fate]] = []
            if found.unfit:
                message.failed = True
                unfit = await guard.refuse(found, message.tries)
        outcome = await self._forward(payload, found, told=bool(unfit))
        guard.meter.forwarded(found.items)
        if not unfit:
            return outcome
        return outcome._replace(fates=woven(outcome.fates, unfit))

    async def _forward(self, payload: Telemetry, found: Read, *, told: bool) -> Outcome:
        """``told``: the branch to the backend is asked to speak even where it has no event."""
        ways: list[tuple[Taking, Payload]] = []
        if payload.signal == TRACES:
            ways += [(each, payload) for each in self.traces]
        if found.events or told:
            ways += [(each, found.payload) for each in self.logs]
        return await together([way.take(each) for way, each in ways])


class EnvelopeNode:
    """The ``flowmark`` exporter: envelopes to a backend, or into custody.

    What failed only for the moment raises, whatever ``on_error`` says: the sender still has it.
    """

    def __init__(self, guard: Guard, element: Element, reader: Reader) -> None:
        self._guard = guard
        self._element = element
        self._reader = reader

    async def take(self, payload: Payload) -> Outcome:
        """Deliver the envelopes, from whoever folded them or as SDKs send them."""
        if isinstance(payload, Letters):
            return Outcome()  # dead letters are not evidence; ``replay`` makes it of them
        guard = self._guard
        async with guard.message() as message:
            unfit: list[tuple[int, Fate]] = []
            if isinstance(payload, Telemetry):
                found = await self._reader.read(guard, message, payload)
                if isinstance(found, Undone):
                    raise found.error
                if found.unfit:
                    message.failed = True
                    unfit = await guard.refuse(found, message.tries)
                payload = found.payload
                if found.source.size is not None:
                    found.source.size.items = found.items
                if not payload.events and not unfit:
                    return Outcome()
            guard.meter.received(len(payload.events))
            outcome = await self._deliver(payload, message)
            return outcome._replace(fates=woven(outcome.fates, unfit)) if unfit else outcome

    async def _deliver(self, payload: Events, message: Message) -> Outcome:
        guard = self._guard
        done = await guard.attempt(
            lambda seconds: self._element.take(payload, seconds), guard.now()
        )
        if isinstance(done, Undone):
            message.failed = True
            error = done.error
            faults = [Fault(each.item, error.name, str(error)) for each in payload.events]
            failures = Failures(payload.source, len(faults), faults)
            routed = await guard.give_up(error, done.tries, failures)
            state = names.DEAD_LETTERED if routed else names.DROPPED
            return Outcome(_same_fate(payload.events, state, str(error)), acknowledged=False)
        fates = done.made.fates
        if isinstance(fates, Alike) and fates.told and fates.state in _TAKEN:  # as nearly always
            guard.meter.forwarded(len(fates))
            return done.made
        fates = await self._refused(payload, fates, done.tries, message)
        told = tuple(each for each in fates if each.told)
        return done.made._replace(fates=told)

    async def _refused(
        self, payload: Events, fates: Sequence[Fate], tries: int, message: Message
    ) -> Sequence[Fate]:
        """Be done with the events that the other side refused; theirs are the codes it gave."""
        guard = self._guard
        refused = [each for each in fates if each.state not in _TAKEN]
        guard.meter.forwarded(len(payload.events) - len(refused))
        if not refused:
            return fates
        for each in refused:
            guard.meter.refused(each.state, 1)
        wordless = [each for each in refused if each.state == names.STATE_REJECTED]
        then = guard.rules.on_error
        if wordless and then == "fail":
            raise ElementError(names.REASON_REJECTED, wordless[0].message, permanent=True)
        if then == "route":
            message.failed = True
            lost = [each for each in refused if each.state in _REFUSED or each in wordless]
            name = error_name(names.REASON_REJECTED)
            faults = [Fault(each.item, name, f"{each.state}: {each.message}") for each in lost]
            if faults:
                guard.meter.failed(name, faults[0].message)
                await guard.route(Failures(payload.source, len(faults), faults), tries)
        if not wordless:
            return fates
        message.failed = True
        if then == "continue":
            guard.meter.dropped(len(wordless))
        state = names.DEAD_LETTERED if then == "route" else names.DROPPED
        return [
            each._replace(state=state) if each.state == names.STATE_REJECTED else each
            for each in fates
        ]


async def _lost(
    guard: Guard, message: Message, undone: Undone, source: Telemetry, items: int
) -> Outcome:
    """Be done with a message of which nothing got through. Raises where ``on_error`` says so."""
    message.failed = True
    whole = Fault(0, undone.error.name, str(undone.error))
    await guard.give_up(undone.error, undone.tries, Failures(source, items, whole=whole))
    return Outcome()


def _same_fate(events: Sequence[Event], state: str, message: str) -> tuple[Fate, ...]:
    return tuple(Fate(each.item, each.event_id, state, message) for each in events if each.told)


def _source(payload: Payload) -> Telemetry:
    if isinstance(payload, Telemetry):
        return payload
    return payload.source if isinstance(payload, Events) else payload.letters[0].input
