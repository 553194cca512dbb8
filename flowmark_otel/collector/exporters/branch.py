"""What a ``flowmark`` exporter says of events when it is asked: its other side's answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from flowmark_otel import names
from flowmark_otel.collector.accepting import State
from flowmark_otel.collector.exporters.peer import Peers
from flowmark_otel.collector.exporters.watch import Watch
from flowmark_otel.deliver.transport import EventStatus, NoAnswer
from flowmark_otel.errors import Unavailable

_SECONDS: Final = 10.0


class PeerBranch:
    """Implements ``accepting.Branch``, end to end."""

    def __init__(self, peers: Peers, watch: Watch) -> None:
        self._peers = peers
        self._watch = watch

    def capabilities(self) -> tuple[tuple[str, ...], str]:
        """What the other side acknowledges, as far as is known, and its id."""
        capable = (names.CAPABILITY,) if self._watch.capable else ()
        return capable, self._watch.backend_id

    async def status(self, event_ids: Sequence[str]) -> list[State]:
        """What the other side says; raises Unavailable where it cannot be asked."""
        try:
            found = await asyncio.to_thread(self._asked, event_ids)
        except NoAnswer as error:
            raise Unavailable(str(error)) from error
        return [
            (
                each.event_id,
                each.state or names.STATE_UNKNOWN,
                each.digest or None,
                each.code or None,
            )
            for each in found
        ]

    def _asked(self, event_ids: Sequence[str]) -> list[EventStatus]:
        with self._peers.borrowed() as transport:
            return transport.status(event_ids, _SECONDS)
