"""The ``flowmark`` exporter, end to end: one request a message, its receipt checked (A24).

The client's transports, policy and judge, once a message instead of once a batch of a backlog.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Final

from flowmark_otel import names
from flowmark_otel.clock import Clock
from flowmark_otel.collector.element import ElementError, Fate, Outcome
from flowmark_otel.collector.exporters.peer import Peers, PeerTransport
from flowmark_otel.collector.exporters.watch import Watch
from flowmark_otel.collector.meter import NodeMeter
from flowmark_otel.collector.payload import Envelopes, Event, Events, Payload
from flowmark_otel.deliver import policy
from flowmark_otel.deliver.judge import CONTENT_TYPES, Judgement, judge, opts_in, resolve
from flowmark_otel.deliver.limits import Limits
from flowmark_otel.deliver.transport import Answer, NoAnswer
from flowmark_otel.deliver.transports.headers import installed_version
from flowmark_otel.model import Envelope
from flowmark_otel.wire.encode import encode_framed, encode_logs
from flowmark_otel.wire.records import FRAMES, encode_record

MOST_CALLS: Final = 16
"""Requests to the other side at once."""

_LEAST_SECONDS: Final = 0.001
_TAKEN: Final = (names.STORED, names.DUPLICATE, names.CUSTODY)


class BackendElement:
    """Implements ``Element``. Owns its threads and connections.

    All events of a message that the sender is told of go in one request, so that they are judged
    together; what only signal mappings made goes in one after it, for no receipt says which of the
    events of a request were known before.
    """

    def __init__(self, peers: Peers, watch: Watch, meter: NodeMeter, clock: Clock) -> None:
        self._peers = peers
        self._watch = watch
        self._meter = meter
        self._clock = clock
        self._threads = ThreadPoolExecutor(MOST_CALLS, thread_name_prefix="flowmark-deliver")

    async def start(self) -> None:
        """Ask for the capabilities of the other side."""
        await self._watch.start()

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
        told = tuple(each for each in events if each.told)
        if len(told) in (0, len(events)):
            return await self._in_thread(events, deadline)
        own = await self._in_thread(told, deadline)
        signalled = tuple(each for each in events if not each.told)
        more = await self._in_thread(signalled, deadline)
        return own._replace(fates=own.fates + more.fates)

    async def close(self) -> None:
        """Finish what is in flight, close the connections."""
        await self._watch.close()
        await asyncio.to_thread(self._threads.shutdown)
        self._peers.close()

    async def _in_thread(self, events: Sequence[Event], deadline: float) -> Outcome:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._deliver, events, deadline)

    # -- in a thread ----------------------------------------------------------------------------
    def _deliver(self, events: Sequence[Event], deadline: float) -> Outcome:
        """Send events, in halves where something spoils them."""
        fates: list[Fate] = []
        acknowledged = True
        backend_id = ""
        parts = [events]
        with self._peers.borrowed() as transport:
            while parts:
                part = parts.pop()
                found = self._send(transport, part, deadline)
                if found is None:
                    middle = len(part) // 2
                    parts += [part[middle:], part[:middle]]
                    continue
                fates += found.fates
                acknowledged = acknowledged and bool(found.acknowledged)
                backend_id = found.backend_id or backend_id
        # Part of a receipt is none: where a half was answered without one nothing is claimed.
        return Outcome(tuple(fates) if acknowledged else (), acknowledged, backend_id)

    def _send(
        self, transport: PeerTransport, events: Sequence[Event], deadline: float
    ) -> Outcome | None:
        """What became of these; None if they have to be halved. Raises ElementError."""
        try:
            body = encoded(events, transport.encoding)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            if len(events) > 1:
                return None
            return _refused(events[0], f"it cannot be encoded: {error}")
        left = self._left(deadline)
        outcome: Answer | NoAnswer
        try:
            outcome = transport.send(body, CONTENT_TYPES[transport.encoding], left)
        except NoAnswer as error:
            outcome = error
        tried = policy.Try(1, 0.0, len(events), 0.0)
        decision = policy.decide(outcome, tried, _LIMITS, self._clock.now_ns())
        if isinstance(decision, policy.Judge):
            return self._judged(transport, decision.answer, events, deadline)
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

    def _judged(
        self,
        transport: PeerTransport,
        answer: Answer,
        events: Sequence[Event],
        deadline: float,
    ) -> Outcome:
        envelopes = Envelopes(events)
        judgement = judge(answer, transport.encoding, envelopes)
        if judgement.unnamed:
            judgement = self._resolved(transport, judgement, envelopes, deadline)
        if judgement.receipt is not None:
            fates = tuple(_fates(judgement, events))
            return Outcome(fates, acknowledged=True, backend_id=judgement.receipt.backend_id)
        if judgement.reason != names.REASON_UNACKNOWLEDGED:
            raise ElementError(judgement.reason, judgement.detail)
        # OTLP's plain success: no reason to send again (A22), and none to claim anything.
        lost = len(judgement.failures)
        if lost:
            self._meter.refused(names.REASON_UNACKNOWLEDGED, lost)
            self._watch.lost(judgement.detail)
        return Outcome((), acknowledged=False)

    def _resolved(
        self,
        transport: PeerTransport,
        judgement: Judgement,
        envelopes: Sequence[Envelope],
        deadline: float,
    ) -> Judgement:
        """What the receipt had no room to say. Raises ElementError where it is not to be had."""
        ids = list(dict.fromkeys(envelopes[each].event_id for each in judgement.unnamed))
        try:
            statuses = [
                status
                for start in range(0, len(ids), _MOST_IDS)
                for status in transport.status(ids[start : start + _MOST_IDS], self._left(deadline))
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


_LIMITS: Final = Limits(budget=None)
_MOST_IDS: Final = 1000
_FOR_ITSELF: Final = frozenset((names.REASON_REJECTED, names.REASON_TOO_LARGE))


def encoded(events: Sequence[Event], encoding: str) -> bytes:
    """One request for events of several resources, in their order.

    A request in protobuf is the row of its resource groups, so they are made one by one.
    """
    version = installed_version()
    groups = groupby(events, key=lambda each: id(each.resource))
    made = []
    for _, group in groups:
        same = list(group)
        resource = same[0].resource
        if encoding == "protobuf":
            made.append(encode_framed(_framed(same), resource, scope_version=version))
        else:
            made.append(
                encode_logs(Envelopes(same), resource, encoding=encoding, scope_version=version)
            )
    return b"".join(made)


def _framed(events: Sequence[Event]) -> list[bytes]:
    """The records, each behind its frame; both events of a span are written at once."""
    into: list[bytes] = []
    following = iter([*events[1:], None])
    written: Event | None = None
    for event, after in zip(events, following, strict=True):
        if event is written:
            continue
        unfolded = event.unfolded
        if (
            unfolded is not None
            and after is not None
            and after.unfolded is unfolded
            and after.place == event.place + 1 == unfolded.size - 1
        ):
            unfolded.write(into)
            written = after
            continue
        record = encode_record(event.envelope)
        into += (FRAMES[len(record)], record)
    return into


def _refused(event: Event, message: str) -> Outcome:
    """One event that is refused for itself, without a receipt."""
    event_id = event.event_id
    fate = Fate(event.item, event_id, names.STATE_REJECTED, message, event.told)
    return Outcome((fate,), acknowledged=True)


def _fates(judgement: Judgement, events: Sequence[Event]) -> Iterator[Fate]:
    """The fate of each; which of those taken were known before no receipt says."""
    failed = {each.position: each for each in judgement.failures}
    taken = (state for state in _TAKEN for _ in range(judgement.states[state]))
    for position, event in enumerate(events):
        given = failed.get(position)
        if given is None:
            yield Fate(event.item, "", next(taken), "", event.told)
        else:
            yield Fate(event.item, event.event_id, given.state, given.message, event.told)
