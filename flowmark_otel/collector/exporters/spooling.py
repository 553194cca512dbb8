"""The ``flowmark`` exporter on a spool: custody first, delivery after (A24, contract "Hops")."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from flowmark_otel import names
from flowmark_otel.collector.accepting import State
from flowmark_otel.collector.element import ElementError, Fate, Outcome
from flowmark_otel.collector.exporters.branch import PeerBranch
from flowmark_otel.collector.exporters.custody import Custody
from flowmark_otel.collector.exporters.peer import PeerTransport
from flowmark_otel.collector.exporters.watch import Watch
from flowmark_otel.collector.meter import NodeMeter, NodeState
from flowmark_otel.collector.payload import Events, Payload
from flowmark_otel.deliver.judge import opts_in
from flowmark_otel.deliver.transport import Answer, EventStatus, NoAnswer
from flowmark_otel.errors import Unavailable
from flowmark_otel.model import Diagnostic


class SpoolElement:
    """Implements ``Element``: what it takes is synced, whatever becomes of its delivery."""

    def __init__(self, custody: Custody, watch: Watch, meter: NodeMeter) -> None:
        self._custody = custody
        self._watch = watch
        meter.watch_spool(custody.reading)

    async def start(self) -> None:
        """Ask for the capabilities of the other side, and deliver what was left behind."""
        await self._watch.start()
        await asyncio.to_thread(self._custody.start)

    async def take(self, payload: Payload, seconds: float) -> Outcome:
        """Take custody of all events; raises ElementError where none was taken."""
        del seconds  # a sync that is under way cannot be called back
        if not isinstance(payload, Events):
            msg = "only envelopes can be delivered"
            raise ElementError(names.INVALID, msg, permanent=True)
        events = payload.events
        if not self._watch.capable and any(opts_in(each.given) for each in events):
            msg = f"attempts are refused until they are acknowledged: {self._watch.why}"
            raise ElementError(names.REASON_UNAVAILABLE, msg, paused=True)
        if events:
            await self._custody.take(events)
        fates = tuple(
            Fate(each.item, each.event_id, names.CUSTODY, "", each.told) for each in events
        )
        return Outcome(fates, acknowledged=True, backend_id=self._custody.custodian)

    async def close(self) -> None:
        """Stop delivering; what is not delivered stays in the folder."""
        await self._watch.close()
        await asyncio.to_thread(self._custody.close)


class SpoolBranch:
    """Implements ``accepting.Branch``: an event in the spool is in custody."""

    def __init__(self, custody: Custody, peer: PeerBranch) -> None:
        self._custody = custody
        self._peer = peer

    def capabilities(self) -> tuple[tuple[str, ...], str]:
        """What the other side acknowledges; the id is that of this custodian."""
        return self._peer.capabilities()[0], self._custody.custodian

    async def status(self, event_ids: Sequence[str]) -> list[State]:
        """What the other side knows, else what is in the spool.

        Raises Unavailable where an event is not in the spool and the other side cannot be asked.
        """
        held = await asyncio.to_thread(self._custody.held, event_ids)
        told: dict[str, State] = {}
        try:
            found = await self._peer.status(event_ids)
            told = {each[0]: each for each in found if each[1] != names.STATE_UNKNOWN}
        except Unavailable:
            if any(each not in held for each in event_ids):
                raise
        return [
            told.get(each)
            or (
                (each, names.CUSTODY, held[each], None)
                if each in held
                else (each, names.STATE_UNKNOWN, None, None)
            )
            for each in event_ids
        ]


class Watched:
    """Implements ``Transport``: sends nothing while the other side does not acknowledge attempts.

    What is in the spool then waits, instead of going to quarantine entry by entry.
    """

    def __init__(self, transport: PeerTransport, watch: Watch) -> None:
        self._transport = transport
        self._watch = watch
        self.encoding = transport.encoding

    def send(self, body: bytes, content_type: str, timeout: float) -> Answer:
        """The answer to one export; raises NoAnswer."""
        if not self._watch.capable:
            raise NoAnswer(self._watch.why)
        return self._transport.send(body, content_type, timeout)

    def status(self, event_ids: Sequence[str], timeout: float) -> list[EventStatus]:
        """What became of events; raises NoAnswer."""
        return self._transport.status(event_ids, timeout)

    def capabilities(self, timeout: float) -> tuple[tuple[str, ...], str]:
        """What the other side acknowledges; raises NoAnswer."""
        return self._transport.capabilities(timeout)

    def after_fork(self) -> None:
        """As the transport."""
        self._transport.after_fork()

    def close(self) -> None:
        """As the transport."""
        self._transport.close()


def reported(meter: NodeMeter) -> Callable[[Diagnostic], None]:
    """Has the state of a node follow what its delivery reports."""

    def report(diagnostic: Diagnostic) -> None:
        if diagnostic.code == names.REASON_UNAUTHORIZED:
            meter.now(NodeState.PAUSED, diagnostic.message)
        elif diagnostic.code == names.DIAGNOSTIC_RESUMED and meter.state is NodeState.PAUSED:
            meter.now(NodeState.OK)

    return report
