"""Whether requests can be taken now: one answer for ``/readyz``, gRPC health and metrics.

Whoever asks causes one small read and one small durable write, at most one of each a second; idle
servers that nobody asks write nothing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from sqlalchemy import Connection, delete, insert, select

from flowmark_otel.backend.batch import Verdict
from flowmark_otel.backend.meter import Unmetered
from flowmark_otel.backend.store import Store, schema
from flowmark_otel.backend.store.reading import snapshot
from flowmark_otel.errors import Unavailable
from flowmark_otel.listen.logs import say

REMEMBERED_SECONDS: Final = 1.0
PROBE_SECONDS: Final = 5.0
CALM_SECONDS: Final = 10.0
"""So long no request must have failed before the store is said to be back."""

_PROBED: Final = "probed_at"
_DRAINING: Final = "the server is stopping"
_LATE: Final = "the store did not answer in time"

_log = logging.getLogger(__name__)


class Readiness:
    """Knows whether the store takes and gives; owned by the event loop.

    What is wrong with the store is logged once when it begins and once when it is over, however
    many requests fail between.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.clock = store.clock
        self._asking = asyncio.Lock()
        self._reason = ""
        self._asked_at: float | None = None
        self._failed_at: float | None = None  # None while all is well, as far as the log says
        self._draining = False

    async def reason(self) -> str:
        """Why requests cannot be taken now; empty where they can."""
        if self._draining:
            return _DRAINING
        async with self._asking:
            now = self.clock.monotonic()
            if self._asked_at is None or now - self._asked_at >= REMEMBERED_SECONDS:
                self._reason, detail = await self._probe()
                self._asked_at = self.clock.monotonic()
                if self._reason:
                    self.failed(detail)
                else:
                    self.succeeded()
            return self._reason

    def drain(self) -> None:
        """Not ready from now on."""
        self._draining = True

    def failed(self, reason: str) -> None:
        """A request could not be taken: what was found before no longer counts."""
        if self._failed_at is None:
            say(_log, logging.ERROR, "store_unavailable", reason=reason)
        self._failed_at = self.clock.monotonic()
        if not self._reason:
            self._asked_at = None

    def succeeded(self) -> None:
        """A request was taken."""
        calm = self._failed_at is not None and (
            self.clock.monotonic() - self._failed_at >= CALM_SECONDS
        )
        if calm:
            self._failed_at = None
            say(_log, logging.WARNING, "store_available")

    async def _probe(self) -> tuple[str, str]:
        """What anybody may be told, and what the log is: a database names its host and user."""
        reason = "the store cannot be read"
        try:
            await asyncio.to_thread(self._read)
            reason = "the store cannot be written"
            written = asyncio.wrap_future(self._store.write(self._write))
            await asyncio.wait_for(written, PROBE_SECONDS)
        except Unavailable as error:
            return reason, str(error)
        except asyncio.TimeoutError:
            return _LATE, _LATE
        return "", ""

    def _read(self) -> None:
        with snapshot(self._store.engine) as connection:
            connection.execute(select(schema.meta).limit(1)).all()

    def _write(self, connection: Connection) -> None:
        """A value that differs each time, for a row that stays the same is not written."""
        meta = schema.meta
        row = {"name": _PROBED, "value": str(self.clock.now_ns())}
        connection.execute(delete(meta).where(meta.c.name == _PROBED))
        connection.execute(insert(meta).values(row))


class Watch(Unmetered):
    """Tells readiness what requests show of the store."""

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness

    def judged(self, verdict: Verdict, seconds: float) -> None:
        """The store took a request."""
        del verdict, seconds
        self._readiness.succeeded()

    def unavailable(self, error: Unavailable) -> None:
        """The store did not take a request."""
        self._readiness.failed(str(error))
