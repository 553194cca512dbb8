"""``otlp_http`` and ``otlp_grpc``: telemetry as it came, to whoever draws traces or keeps logs.

The body is sent byte for byte, in the encoding it came in; gRPC knows protobuf alone, so JSON is
made that. What the other side takes only in part is logged and counted: no other try would help.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from flowmark_otel import names
from flowmark_otel.clock import Clock
from flowmark_otel.collector.config.options import OtlpExporter
from flowmark_otel.collector.element import ElementError, Outcome
from flowmark_otel.collector.exporters.answers import fault_of, partial_of
from flowmark_otel.collector.exporters.forms import request_of
from flowmark_otel.collector.exporters.sending import sender_of, start
from flowmark_otel.collector.meter import NodeMeter
from flowmark_otel.collector.payload import Payload, Telemetry
from flowmark_otel.deliver.transport import Answer, NoAnswer
from flowmark_otel.errors import RequestError
from flowmark_otel.listen.logs import say
from flowmark_otel.wire.transcode import to_protobuf

_log = logging.getLogger(__name__)

_SAID_EVERY: Final = 60.0


class OtlpElement:
    """One endpoint. Owns its connections; used on one event loop."""

    def __init__(self, options: OtlpExporter, meter: NodeMeter, clock: Clock) -> None:
        self._meter = meter
        self._clock = clock
        self._sender = sender_of(options, gzip=options.compression == "gzip")
        self._said_at: float | None = None

    async def start(self) -> None:
        """Make ready to connect. Raises ConfigurationError where certificates cannot be read."""
        start(self._sender)

    async def take(self, payload: Payload, seconds: float) -> Outcome:
        """Send it once. Raises ElementError."""
        request = request_of(payload)
        try:
            answer = await self._send(request, seconds)
        except NoAnswer as error:
            fault = fault_of(error, self._clock.now_ns())
        else:
            fault = fault_of(answer, self._clock.now_ns())
            if fault is None:
                self._look_at(answer)
                return Outcome()
        assert fault is not None  # noqa: S101 - what is no answer is always a fault
        raise fault

    async def close(self) -> None:
        """Let go of the connections."""
        await self._sender.close()

    async def _send(self, request: Telemetry, seconds: float) -> Answer:
        signal, encoding, body = request.signal, request.encoding, request.body
        if encoding == "json" and not self._sender.json:
            body = await self._as_protobuf(request)
        return await self._sender.export(signal, encoding, body, seconds)

    async def _as_protobuf(self, request: Telemetry) -> bytes:
        try:
            found = await asyncio.to_thread(to_protobuf, request.body, request.signal)
        except RequestError as error:
            raise ElementError(names.INVALID, str(error), permanent=True) from error
        if found.unread:
            self._meter.refused(names.INVALID, found.unread)
        return found.body

    def _look_at(self, answer: Answer) -> None:
        """Count and, now and then, log what the other side did not take."""
        partial = partial_of(answer)
        if partial is None:
            return
        if partial.rejected:
            self._meter.refused(names.REASON_REJECTED, partial.rejected)
        now = self._clock.monotonic()
        if self._said_at is None or now - self._said_at >= _SAID_EVERY:
            self._said_at = now
            rejected, message = partial
            fields = {"node": self._meter.id, "rejected": rejected, "message": message}
            say(_log, logging.WARNING, "partial_success", **fields)
