"""The ``flowmark`` exporter, end to end: one request a message, its receipt checked (A24).

The client's policy and judge, once a message instead of once a batch of a backlog; on the loop, for
a thread a request costs more than the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby
from typing import Final, TypeVar

from flowmark_otel import names
from flowmark_otel.clock import Clock
from flowmark_otel.collector.element import Alike, ElementError, Fate, Outcome
from flowmark_otel.collector.events import Envelopes, Event, Row
from flowmark_otel.collector.exporters.peer import Peers
from flowmark_otel.collector.exporters.sending import Sender, start
from flowmark_otel.collector.exporters.watch import Watch
from flowmark_otel.collector.meter import NodeMeter
from flowmark_otel.collector.payload import Events, Payload
from flowmark_otel.deliver import policy
from flowmark_otel.deliver.judge import Judgement, judge, opts_in, resolve
from flowmark_otel.deliver.limits import Limits
from flowmark_otel.deliver.transport import Answer, NoAnswer
from flowmark_otel.deliver.transports.headers import installed_version
from flowmark_otel.model import Envelope
from flowmark_otel.wire.encode import encode_framed
from flowmark_otel.wire.records import FRAMES, encode_record

_THREADS: Final = 2
"""They write what is sent, and ask what became of it."""

_INLINE: Final = 64
"""Events that are written on the loop: a thread would cost more."""

_LOGS: Final = "logs"
_PROTOBUF: Final = "protobuf"
_LEAST_SECONDS: Final = 0.001
_TAKEN: Final = (names.STORED, names.DUPLICATE, names.CUSTODY)

_Made = TypeVar("_Made")


class BackendElement:
    """Implements ``Element``. Owns its threads and connections; ``peers`` are asked about events.

    All events of a message that the sender is told of go in one request, so that they are judged
    together; what only signal mappings made goes in one after it, for no receipt says which of the
    events of a request were known before.
    """

    def __init__(
        self, sender: Sender, peers: Peers, watch: Watch, meter: NodeMeter, clock: Clock
    ) -> None:
        self._sender = sender
        self._peers = peers
        self._watch = watch
        self._meter = meter
        self._clock = clock
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="flowmark-deliver")

    async def start(self) -> None:
        """Ask for the capabilities of the other side."""
        start(self._sender)
        await self._watch.start()

    def prepare(self, events: Row) -> None:
        """Write what will be sent; what cannot be written is found when it is sent."""
        if events.told in (0, len(events)):
            with suppress(*_UNWRITABLE):
                events.made(encoded)

    async def take(self, payload: Payload, seconds: float) -> Outcome:
        """Deliver all events; raises ElementError."""
        if not isinstance(payload, Events):
            msg = "only envelopes can be delivered"
            raise ElementError(names.INVALID, msg, permanent=True)
        events = payload.events
        attempts = any(opts_in(each.given) for each in events)
        if attempts and not self._watch.capable:
            msg = f"attempts are refused until they are acknowledged: {self._watch.why}"
            raise ElementError(names.REASON_UNAVAILABLE, msg, paused=True)
        if not events:
            return Outcome((), self._watch.capable, self._watch.backend_id)
        deadline = self._clock.monotonic() + seconds
        if events.told in (0, len(events)):
            return await self._deliver(events, deadline)
        own = await self._deliver(events.of_told(told=True), deadline)
        more = await self._deliver(events.of_told(told=False), deadline)
        return own._replace(fates=(*own.fates, *more.fates))

    async def close(self) -> None:
        """Finish what is in flight, close the connections."""
        await self._watch.close()
        await asyncio.to_thread(self._threads.shutdown)
        await self._sender.close()
        self._peers.close()

    async def _in_thread(self, work: Callable[..., _Made], *given: object) -> _Made:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)

    async def _deliver(self, events: Row, deadline: float) -> Outcome:
        """Send events, in halves where something spoils them."""
        whole = await self._send(events, deadline)
        if whole is not None:
            return whole
        fates: list[Fate] = []
        acknowledged = True
        backend_id = ""
        middle = len(events) // 2
        parts = [events[middle:], events[:middle]]
        while parts:
            part = parts.pop()
            found = await self._send(part, deadline)
            if found is None:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
                continue
            fates += found.fates
            acknowledged = acknowledged and bool(found.acknowledged)
            backend_id = found.backend_id or backend_id
        # Part of a receipt is none: where a half was answered without one nothing is claimed.
        return Outcome(tuple(fates) if acknowledged else (), acknowledged, backend_id)

    async def _send(self, events: Row, deadline: float) -> Outcome | None:
        """What became of these; None if they have to be halved. Raises ElementError."""
        try:
            if len(events) <= _INLINE or events.was_made(encoded):
                body = events.made(encoded)
            else:
                body = await self._in_thread(encoded, events)
        except _UNWRITABLE as error:
            if len(events) > 1:
                return None
            return _refused(events[0], f"it cannot be encoded: {error}")
        left = self._left(deadline)
        outcome: Answer | NoAnswer
        try:
            outcome = await self._sender.export(_LOGS, _PROTOBUF, body, left)
        except NoAnswer as error:
            outcome = error
        tried = policy.Try(1, 0.0, len(events), 0.0)
        decision = policy.decide(outcome, tried, _LIMITS, self._clock.now_ns())
        if isinstance(decision, policy.Judge):
            return await self._judged(decision.answer, events, deadline)
        if isinstance(decision, policy.Halve):
            return None
        if isinstance(decision, policy.Wait):
            asked = decision.seconds if decision.told else None
            raise ElementError(
                decision.reason, decision.detail, retry_after=asked, paused=decision.paused
            )
        if decision.reason in _FOR_ITSELF:
            return _refused(events[0], decision.detail)
        raise ElementError(decision.reason, decision.detail)

    async def _judged(self, answer: Answer, events: Row, deadline: float) -> Outcome:
        envelopes = Envelopes(events)
        judgement = judge(answer, _PROTOBUF, envelopes)
        if judgement.unnamed:
            judgement = await self._in_thread(self._resolved, judgement, envelopes, deadline)
        if judgement.receipt is not None:
            fates = _fates(judgement, events)
            return Outcome(fates, acknowledged=True, backend_id=judgement.receipt.backend_id)
        if judgement.reason != names.REASON_UNACKNOWLEDGED:
            # It may have been taken: no reason to send again at once, unless that is asked for.
            raise ElementError(judgement.reason, judgement.detail, paused=True)
        # OTLP's plain success: no reason to send again (A22), and none to claim anything.
        lost = len(judgement.failures)
        if lost:
            self._meter.refused(names.REASON_UNACKNOWLEDGED, lost)
            self._watch.lost(judgement.detail)
        return Outcome((), acknowledged=False)

    def _resolved(
        self, judgement: Judgement, envelopes: Sequence[Envelope], deadline: float
    ) -> Judgement:
        """What the receipt had no room to say. Raises ElementError where it is not to be had."""
        ids = list(dict.fromkeys(envelopes[each].event_id for each in judgement.unnamed))
        try:
            with self._peers.borrowed() as transport:
                statuses = [
                    status
                    for at in range(0, len(ids), _MOST_IDS)
                    for status in transport.status(ids[at : at + _MOST_IDS], self._left(deadline))
                ]
        except NoAnswer as error:
            msg = f"what became of {len(ids)} events cannot be learnt: {error}"
            raise ElementError(names.REASON_UNAVAILABLE, msg) from error
        found = resolve(judgement, envelopes, statuses)
        unknown = [each for each in found.failures if each.state == names.UNACKNOWLEDGED]
        if unknown:
            raise ElementError(names.REASON_UNAVAILABLE, unknown[0].message)
        return found

    def _left(self, deadline: float) -> float:
        left = deadline - self._clock.monotonic()
        if left <= 0:
            msg = "not done in time"
            raise ElementError(names.REASON_TIMEOUT, msg)
        return max(left, _LEAST_SECONDS)


_UNWRITABLE: Final = (ValueError, TypeError, OverflowError, RecursionError)
_LIMITS: Final = Limits(budget=None)
_MOST_IDS: Final = 1000
_FOR_ITSELF: Final = frozenset((names.REASON_REJECTED, names.REASON_TOO_LARGE))


def encoded(events: Row) -> bytes:
    """One request in protobuf for events of several resources, in their order.

    It is the row of its resource groups, so they are made one by one.
    """
    version = installed_version()
    made = []
    for _, group in groupby(events.parts, key=lambda part: id(part.resource)):
        into: list[bytes] = []
        resource: Mapping[str, object] = {}
        for part in group:
            resource = part.resource
            if type(part) is Event:
                record = encode_record(part.envelope)
                into += (FRAMES[len(record)], record)
            else:
                part.write(into)
        made.append(encode_framed(into, resource, scope_version=version))
    return b"".join(made)


def _refused(event: Event, message: str) -> Outcome:
    """One event that is refused for itself, without a receipt."""
    event_id = event.event_id
    fate = Fate(event.item, event_id, names.STATE_REJECTED, message, event.told)
    return Outcome((fate,), acknowledged=True)


def _fates(judgement: Judgement, events: Row) -> Sequence[Fate]:
    """The fate of each; all of a request are told to the sender, or none."""
    states = [state for state in _TAKEN if judgement.states[state]]
    if not judgement.failures and len(states) == 1:  # as nearly always
        return Alike(events, states[0], told=bool(events.told))
    return tuple(_each(judgement, events))


def _each(judgement: Judgement, events: Sequence[Event]) -> Iterator[Fate]:
    """The fate of each; which of those taken were known before no receipt says."""
    failed = {each.position: each for each in judgement.failures}
    taken = (state for state in _TAKEN for _ in range(judgement.states[state]))
    for position, event in enumerate(events):
        given = failed.get(position)
        if given is None:
            yield Fate(event.item, "", next(taken), "", event.told)
        else:
            yield Fate(event.item, event.event_id, given.state, given.message, event.told)
