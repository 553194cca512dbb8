"""A collector behind its listeners: one request in, the joined answer of its pipelines out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from flowmark_otel import names
from flowmark_otel.collector.element import ElementError, Outcome
from flowmark_otel.collector.joining import receipt_of
from flowmark_otel.collector.meter import NodeMeter
from flowmark_otel.collector.node import Taking
from flowmark_otel.collector.payload import Size, Telemetry, size_of
from flowmark_otel.errors import NotServed, NotTaken, Unavailable
from flowmark_otel.listen.protocol import Encoding, Reply, Signal
from flowmark_otel.model import Principal
from flowmark_otel.wire import cut, outcome as outcomes, receipt as receipts
from flowmark_otel.wire.reply import judged

State: TypeAlias = tuple[str, str, str | None, str | None]
"""Event id, state, digest in hex, code."""


class Branch(Protocol):
    """A way to a backend, as far as questions about events go."""

    def capabilities(self) -> tuple[tuple[str, ...], str]:
        """What it acknowledges now, and whose receipts it gives."""
        ...

    async def status(self, event_ids: Sequence[str]) -> list[State]:
        """What became of events, in the order asked. Raises Unavailable."""
        ...


class Door:
    """Implements ``listen.protocol.Accepting`` for one receiver.

    ``entries``: by signal, what takes a request; ``branches``: the ways to backends;
    ``authenticate``: as the protocol has it; ``meter`` is the receiver's.
    """

    def __init__(
        self,
        entries: Mapping[str, Taking],
        branches: Sequence[Branch],
        authenticate: Callable[[str | None], Principal],
        meter: NodeMeter,
    ) -> None:
        self._entries = entries
        self._branches = branches
        self._authenticate = authenticate
        self._meter = meter

    def authenticate(self, authorization: str | None) -> Principal:
        """Who is calling; raises Unauthenticated."""
        return self._authenticate(authorization)

    async def accept(
        self,
        signal: Signal,
        encoding: Encoding,
        body: bytes,
        principal: Principal,
        user_agent: str | None,
    ) -> Reply:
        """Hand one request to its pipelines; raises RequestError where it failed."""
        del principal, user_agent
        entry = self._entries.get(signal.value)
        if entry is None:
            msg = f"no pipeline takes {signal.value} here"
            raise NotServed(msg)
        source = Telemetry(signal.value, encoding.wire, body, Size())
        try:
            reply = _reply(source, await entry.take(source))
        except ElementError as error:
            items = size_of(source)
            self._meter.received(items)
            self._meter.refused(error.reason, items)
            self._meter.failed(error.name, str(error))
            return _failed(source, error)
        items = size_of(source)
        self._meter.received(items)
        self._meter.forwarded(items)
        return reply

    def capabilities(self) -> tuple[tuple[str, ...], str]:
        """What all ways to backends acknowledge, and the id of the first."""
        found = [each.capabilities() for each in self._branches]
        capable = bool(found) and all(names.CAPABILITY in listed for listed, _ in found)
        backend_id = next((known for _, known in found if known), "")
        return ((names.CAPABILITY,) if capable else ()), backend_id

    async def status(self, event_ids: list[str], principal: Principal) -> list[State]:
        """What the ways to backends say; of several that know an event the first."""
        del principal
        unknown: State
        told: dict[str, State] = {}
        for found in await asyncio.gather(*(each.status(event_ids) for each in self._branches)):
            for each in found:
                if each[1] != names.STATE_UNKNOWN:
                    told.setdefault(each[0], each)
        found = []
        for event_id in event_ids:
            unknown = (event_id, names.STATE_UNKNOWN, None, None)
            found.append(told.get(event_id, unknown))
        return found


def _reply(source: Telemetry, outcome: Outcome) -> Reply:
    """A receipt where a branch to a backend spoke, else OTLP's plain success."""
    if outcome.acknowledged is None and not outcome.fates:
        return Reply(outcomes.OK, b"{}" if source.encoding == receipts.JSON else b"")
    receipt, rejections = receipt_of(outcome)
    bare = 0
    if rejections and receipt.rejected == receipt.received:
        bare = _bare(source, outcome)
    row, body = judged(receipt, rejections, source.encoding, source.signal, bare=bare)
    return Reply(row, body)


def _failed(source: Telemetry, error: ElementError) -> Reply:
    """The answer to a request that failed; raises RequestError but where a receipt says it all."""
    if not error.permanent:
        raise Unavailable(str(error), retry_after=error.retry_after or 1.0) from error
    whole = Outcome(error.fates, acknowledged=True)
    if error.fates and not _bare(source, whole):
        return _reply(source, whole)
    raise NotTaken(str(error)) from error


def _bare(source: Telemetry, outcome: Outcome) -> int:
    """How many items have no event that its sender knows of."""
    items = cut.count(source.body, encoding=source.encoding, signal=source.signal)
    return items - len({each.item for each in outcome.fates})
