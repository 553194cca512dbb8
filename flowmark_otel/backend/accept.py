"""The accepting backend behind a listener: decode, fold, judge, answer (contract, section 4)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.backend.browsers import Quota
from flowmark_otel.backend.keys import SENDING_KINDS, Keys, bearer
from flowmark_otel.backend.measured import Measured
from flowmark_otel.backend.meter import Meter, Unmetered
from flowmark_otel.backend.payload import payload_of
from flowmark_otel.backend.status import states
from flowmark_otel.backend.store import Arrival, Batch, Store, Verdict
from flowmark_otel.errors import Forbidden, Unavailable
from flowmark_otel.fold import events_of
from flowmark_otel.listen.protocol import Encoding, Reply, Signal
from flowmark_otel.model import (
    Principal,
    Receipt,
    Refused,
    Rejection,
    Resource,
    Sender,
)
from flowmark_otel.signals import NO_SIGNALS, Signals
from flowmark_otel.wire import decode
from flowmark_otel.wire.reply import judged

INSECURE_PROJECT: Final = "default"
DEADLINE_SECONDS: Final = 10.0
SECONDS_PER_EVENT: Final = 0.0005
"""What a large request may take beside that: one that is within the limit must not be turned away
each time for its size."""
_AT_ONCE: Final = 256 * 1024
"""A request of so few bytes that holds nothing of ours is answered on the event loop: to search it
takes a fraction of a millisecond, and to hand it to a thread and back as long again."""
_THREADS: Final = 2
_MAX_SENDER_TEXT: Final = 200
_MAX_SENDER_BYTES: Final = 600
_OVER: Final = "the browser key has sent its events of this minute; send fewer"
_BAD: Final = re.compile("[\0\ud800-\udfff]")


class Acceptor:
    """Implements ``listen.protocol.Accepting`` on a store.

    Decoding and folding run in two threads of its own, so the event loop stays free; ``close``
    ends them. Close the listeners first, then this, then the store.
    """

    def __init__(
        self,
        store: Store,
        keys: Keys,
        *,
        insecure: bool = False,
        capabilities: Sequence[str] = (names.CAPABILITY,),
        meter: Meter | None = None,
        signals: Signals = NO_SIGNALS,
    ) -> None:
        self._store = store
        self._signals = signals
        self._meter = meter or Unmetered()
        self._keys = keys
        self._quota = Quota(store.clock)
        self._capabilities = tuple(capabilities)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="flowmark-accept")
        self._nothings: dict[tuple[Signal, Encoding], Reply] = {}
        self._anyone: Principal | None = None
        if insecure:
            project_id = keys.ensure_project(INSECURE_PROJECT)
            self._anyone = Principal(project_id, INSECURE_PROJECT, names.KEY_INGEST)

    def authenticate(self, authorization: str | None) -> Principal:
        """Who is calling; raises Unauthenticated, Forbidden, or Unavailable."""
        if self._anyone is not None:
            return self._anyone
        principal = self._keys.authenticate(bearer(authorization))
        if principal.kind not in SENDING_KINDS:
            msg = f"a key of kind {principal.kind} may not send; use one of kind ingest"
            raise Forbidden(msg)
        return principal

    async def accept(
        self,
        signal: Signal,
        encoding: Encoding,
        body: bytes,
        principal: Principal,
        user_agent: str | None,
    ) -> Reply:
        """Judge one request; the reply is made after its transaction is durable.

        Raises Unparsable, or Unavailable where the store cannot take it within 10 seconds and half
        a millisecond an event.
        """
        signals = self._signals if signal is Signal.TRACES else NO_SIGNALS
        if len(body) <= _AT_ONCE and decode.bare_items(body, encoding.wire, signals) is not None:
            return self._nothing(signal, encoding)
        self._meter.body(len(body))
        try:
            read = await asyncio.get_running_loop().run_in_executor(
                self._threads, self._read, signal, encoding, body, principal, user_agent
            )
            verdict = await self._stored(read)
        except Unavailable as error:
            self._meter.unavailable(error)
            raise
        finally:
            self._meter.body(-len(body))
        verdict = verdict.told or verdict
        if read.over:
            verdict = _with_limited(
                verdict, [item for item in read.over if item.item not in read.signalled]
            )
            self._meter.limited(len(read.over))
        return self._reply(signal, encoding, verdict, bare=read.bare)

    async def _stored(self, read: _Read) -> Verdict:
        """The verdict on what was read, once it is durable."""
        if read.submitted is None:
            return _NOTHING
        clock = self._store.clock
        began = clock.monotonic()
        seconds = DEADLINE_SECONDS + SECONDS_PER_EVENT * read.events
        self._meter.waiting(read.events)
        try:
            verdict = await asyncio.wait_for(asyncio.wrap_future(read.submitted), seconds)
        except asyncio.TimeoutError as error:
            self._meter.unacknowledged(read.events)
            msg = "the store did not answer in time"
            raise Unavailable(msg) from error
        except Unavailable:
            self._meter.unacknowledged(read.events)
            raise
        finally:
            self._meter.waiting(-read.events)
        self._meter.judged(verdict, clock.monotonic() - began)
        return verdict

    def capabilities(self) -> tuple[tuple[str, ...], str]:
        """The capabilities and the stable id of this backend."""
        return self._capabilities, self._store.backend_id

    async def status(
        self, event_ids: list[str], principal: Principal
    ) -> list[tuple[str, str, str | None, str | None]]:
        """``(event id, state, digest in hex, code)`` of each id, in the order asked."""
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, states, self._store, principal.project_id, principal.origin, event_ids
        )

    def close(self) -> None:
        """Wait for what is being read, then end the threads."""
        self._threads.shutdown()

    def _read(
        self,
        signal: Signal,
        encoding: Encoding,
        body: bytes,
        principal: Principal,
        user_agent: str | None,
    ) -> _Read:
        if signal is Signal.TRACES:
            request = decode.decode_traces(body, encoding.wire, self._signals)
        else:
            request = decode.decode_logs(body, encoding.wire)
        arrivals: list[Arrival] = []
        annotated = 0
        signalled: set[int] = set()
        senders: dict[int, Sender] = {}  # by identity: items of one resource share the object
        for position, resource, record, _ in request.marked:
            sender = senders.get(id(resource))
            if sender is None:
                sender = senders[id(resource)] = _sender(user_agent, resource)
            events, mapped = events_of(record, self._signals)
            if mapped:
                signalled.add(position)
            else:
                annotated += bool(events)
            for event in events:
                payload = None
                if isinstance(event, Refused) and not isinstance(record, Refused):
                    payload = payload_of(record.attributes)
                arrivals.append(Arrival(position, sender, event, payload))
        over: list[Arrival] = []
        if principal.events_per_minute is not None:
            ends = [end for end in range(1, len(arrivals) + 1) if _ends_item(arrivals, end)]
            taken = self._quota.take(principal.key_id, principal.events_per_minute, ends)
            arrivals, over = arrivals[:taken], arrivals[taken:]
        submitted = None
        if arrivals:
            quiet = frozenset(signalled)
            measured = self._meter.measure(principal.origin)
            batch = Batch(principal.project_id, principal.origin, arrivals, quiet, measured)
            submitted = self._store.submit(batch)
            if measured is not None:
                # Of what becomes durable after its sender was told to try again, too: the second
                # time it is a duplicate.
                submitted.add_done_callback(partial(self._count, measured))
        bare = max(request.items - annotated, 0)
        return _Read(submitted, len(arrivals), bare, over, signalled)

    def _nothing(self, signal: Signal, encoding: Encoding) -> Reply:
        """The answer where no item is ours: always the same."""
        found = self._nothings.get((signal, encoding))
        if found is None:
            found = self._reply(signal, encoding, _NOTHING, bare=0)
            self._nothings[signal, encoding] = found
        return found

    def _count(self, measured: Measured, submitted: Future[Verdict]) -> None:
        if not submitted.cancelled() and submitted.exception() is None:
            self._meter.measured(measured)

    def _reply(self, signal: Signal, encoding: Encoding, verdict: Verdict, *, bare: int) -> Reply:
        rejected = len(verdict.rejections)
        received = verdict.stored + verdict.duplicate + rejected
        told = Receipt(
            capabilities=self._capabilities,
            backend_id=self._store.backend_id,
            stored=verdict.stored,
            duplicate=verdict.duplicate,
            received=received,
            rejected=rejected,
            rejected_items=verdict.rejected_items,
        )
        row, body = judged(told, verdict.rejections, encoding.wire, signal.value, bare=bare)
        return Reply(row, body)


class _Read(NamedTuple):
    """A request that was read: its events on their way, and how many items have no annotation.

    ``over``: what is over a browser key's quota. It is told its sender and not kept: a quota that
    is spent by writing bounds nothing. ``signalled``: the positions of items without annotation.
    """

    submitted: Future[Verdict] | None
    events: int
    bare: int
    over: Sequence[Arrival]
    signalled: Collection[int]


_NOTHING: Final = Verdict(0, 0, [], 0)


def _ends_item(arrivals: Sequence[Arrival], end: int) -> bool:
    return end == len(arrivals) or arrivals[end].item != arrivals[end - 1].item


def _with_limited(verdict: Verdict, over: Sequence[Arrival]) -> Verdict:
    """The verdict of a request of which some items were over the quota."""
    rejections = [
        Rejection(item.event.event_id, names.LIMIT, _OVER, -1 if item.event.event_id else item.item)
        for item in over
    ]
    return verdict._replace(
        rejections=[*verdict.rejections, *rejections],
        rejected_items=verdict.rejected_items + len({item.item for item in over}),
    )


def _sender(user_agent: str | None, resource: Resource) -> Sender:
    return Sender(
        _kept(user_agent),
        _kept(resource.service_name),
        _kept(resource.service_version),
        _kept(resource.service_instance_id),
    )


def _kept(value: object) -> str | None:
    """A text as it may be stored; None where there is none."""
    if not isinstance(value, str) or not value:
        return None
    kept = _BAD.sub("\ufffd", value[:_MAX_SENDER_TEXT])
    # All four of a sender have to fit into one entry of an index.
    return kept.encode()[:_MAX_SENDER_BYTES].decode(errors="ignore")
