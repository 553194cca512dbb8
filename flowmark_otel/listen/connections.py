"""HTTP connections that are bounded: their number, the time and size of a head, stalled peers.

uvicorn itself waits for ever for the first byte of a request, for the rest of a head or body, and
for a peer that reads no more (fault rows 10 and 15).
"""

from __future__ import annotations

import asyncio
import http
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from flowmark_otel.wire.outcome import ANSWERS, UNAVAILABLE, UNPARSABLE
from flowmark_otel.wire.status import encode_status

HEAD_SECONDS: Final = 10.0
"""From the connection, or a request's first byte, to the end of its head."""
MESSAGE_SECONDS: Final = 90.0
"""From there to the end of its body; what takes telemetry answers sooner."""
WRITE_SECONDS: Final = 60.0
"""How long an answer may wait for its peer to read."""
MAX_HEAD_BYTES: Final = 64 * 1024

try:
    import resource
except ImportError:  # pragma: no cover - systems without limits on files
    _FILES = 4096
else:
    _FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
MAX_CONNECTIONS: Final = max(64, min(1024, _FILES // 3))
"""Of each transport; a third of the files this process may open."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection. Beyond ``MAX_CONNECTIONS`` the one goes that has waited longest for a head.

    So whoever sends a request at once is served, however many connections stand idle.
    """

    head_seconds: float = HEAD_SECONDS
    message_seconds: float = MESSAGE_SECONDS
    write_seconds: float = WRITE_SECONDS
    max_connections: int = MAX_CONNECTIONS

    def __init__(self, **given: Any) -> None:  # noqa: ANN401  what uvicorn gives
        super().__init__(**given)
        self.idle_since: float | None = None
        self._head_bytes = 0
        self._in_head = False
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock of the first head, and make room."""
        super().connection_made(transport)
        self.idle_since = self.loop.time()
        self._wait(self.head_seconds, self._head_late)
        if len(self.connections) > self.max_connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all clocks."""
        self._stop_reading()
        self._stop_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what belongs to a head that is not complete."""
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.send_400_response(f"the head is over the limit of {MAX_HEAD_BYTES} bytes")

    def on_message_begin(self) -> None:
        """Start the clock of a head."""
        self._in_head = True
        self._head_bytes = 0
        self._wait(self.head_seconds, self._head_late)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Start the clock of a body."""
        self._in_head = False
        self.idle_since = None
        self._wait(self.message_seconds, self._abort)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Stop the clock: what follows is ours to do."""
        self._stop_reading()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """From here the connection is idle, unless its sender still has a body to send."""
        super().on_response_complete()
        if self._reading is None:
            self.idle_since = self.loop.time()

    def pause_writing(self) -> None:
        """Start the clock of a peer that does not read."""
        super().pause_writing()
        self._writing = self.loop.call_later(self.write_seconds, self._abort)

    def resume_writing(self) -> None:
        """Stop it."""
        self._stop_writing()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or none that is taken."""
        self._refuse(*ANSWERS[UNPARSABLE], msg, None)

    @property
    def _answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _wait(self, seconds: float, then: Any) -> None:  # noqa: ANN401  a method without arguments
        self._stop_reading()
        self._reading = self.loop.call_later(seconds, then)

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _stop_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _head_late(self) -> None:
        if self._answering:
            # An answer is on its way, and reading may stand still because of it.
            self._wait(self.head_seconds, self._head_late)
        elif self._in_head:
            said = f"the head did not arrive within {self.head_seconds:g} seconds"
            self._refuse(*ANSWERS[UNAVAILABLE], said, 1.0)
        else:
            self._abort()

    def _refuse(self, status: int, code: int, said: str, retry_after: float | None) -> None:
        body = encode_status(code, said, "json", None, retry_after)
        head = [
            f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "connection: close",
        ]
        if retry_after is not None:
            head.append(f"retry-after: {retry_after:.0f}")
        if not self.transport.is_closing():
            self.transport.write("\r\n".join([*head, "", ""]).encode() + body)
            self.transport.close()

    def _abort(self) -> None:
        self.transport.abort()

    def _make_room(self) -> None:
        idle = [
            (each.idle_since, each)
            for each in self.connections
            if isinstance(each, BoundedProtocol) and each.idle_since is not None
        ]
        longest = min(idle, key=lambda pair: pair[0])[1]
        if longest is self:
            self._refuse(*ANSWERS[UNAVAILABLE], "too many connections", 1.0)
        else:
            # Now, since its end is told only when the loop comes round.
            self.connections.discard(longest)
            longest.transport.abort()
