"""Whether the other side acknowledges attempts: asked at start, and again until it does (A24).

Who cannot acknowledge attempts must not be sent any: they are refused while that is so, and their
senders keep them. An answer without the acknowledgement says that it was lost (fault row 23).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from flowmark_otel import names
from flowmark_otel.collector.exporters.peer import Peers
from flowmark_otel.collector.meter import NodeMeter, NodeState
from flowmark_otel.deliver.transport import NoAnswer
from flowmark_otel.listen.logs import say

ASK_AGAIN_SECONDS: Final = 2.0
_ASK_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)


class Watch:
    """What is known of the other side; on the loop, but for ``lost``, which any thread may call.

    Owns the task that asks. ``interval``: seconds between two questions while the answer is no.
    """

    def __init__(self, peers: Peers, meter: NodeMeter, interval: float = ASK_AGAIN_SECONDS) -> None:
        self._peers = peers
        self._meter = meter
        self._interval = interval
        self._task: asyncio.Task[None] | None = None
        self._ask = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.capable = False
        self.backend_id = ""
        self.why = "nobody was asked yet"

    async def start(self) -> None:
        """Ask once, then in the background; an other side that is not there yet is no fault."""
        self._loop = asyncio.get_running_loop()
        await self._look()
        self._task = asyncio.create_task(self._keep())

    async def close(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def lost(self, why: str) -> None:
        """An answer did not acknowledge attempts that were sent."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._lose, why)

    def _lose(self, why: str) -> None:
        if self.capable:
            self._now(capable=False, why=why)
        self._ask.set()

    async def _keep(self) -> None:
        while True:
            if self.capable:
                await self._ask.wait()
            self._ask.clear()
            await asyncio.sleep(self._interval)
            if not self.capable:
                await self._look()

    async def _look(self) -> None:
        try:
            found, backend_id = await asyncio.to_thread(self._asked)
        except NoAnswer as error:
            self._now(capable=False, why=str(error))
            return
        self.backend_id = backend_id or self.backend_id
        has = names.CAPABILITY in found
        self._now(capable=has, why="" if has else f"it does not acknowledge {names.CAPABILITY}")

    def _asked(self) -> tuple[tuple[str, ...], str]:
        with self._peers.borrowed() as transport:
            return transport.capabilities(_ASK_SECONDS)

    def _now(self, *, capable: bool, why: str) -> None:
        before = self._meter.state
        self.capable, self.why = capable, why
        if capable:
            if self._meter.now(NodeState.OK) and before is NodeState.WAITING:
                say(_log, logging.INFO, "attempts_acknowledged", node=self._meter.id)
        elif self._meter.now(NodeState.WAITING, why):
            say(_log, logging.WARNING, "attempts_refused", node=self._meter.id, why=why)
