"""Requests over gRPC on the loop, by ``grpc.aio``: raw bytes, over one channel."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import grpc
from grpc import aio

from flowmark_otel import names
from flowmark_otel.collector.config.options import Remote
from flowmark_otel.deliver.transport import Answer, NoAnswer
from flowmark_otel.deliver.transports.grpc import CHANNEL_OPTIONS, answer_of, target_of

MAX_CALLS: Final = 64
_METHODS: Final = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}


class GrpcSender:
    """Calls of one endpoint, at most ``MAX_CALLS`` at a time. Owns its channel."""

    json = False

    def __init__(self, options: Remote, *, gzip: bool = False) -> None:
        self._options = options
        self._metadata = tuple((name.lower(), value) for name, value in options.headers.items())
        self._compression = grpc.Compression.Gzip if gzip else grpc.Compression.NoCompression
        self._channel: aio.Channel | None = None
        self._calls: dict[str, Any] = {}
        self._room = asyncio.Semaphore(MAX_CALLS)

    def start(self) -> None:
        """Make the channel, which connects on its first call. Needs a running loop."""
        options, target = self._options, target_of(self._options.url)
        if not options.secure:
            self._channel = aio.insecure_channel(target, CHANNEL_OPTIONS)
            return
        tls = options.tls
        read = [
            None if path is None else path.read_bytes()
            for path in (tls.ca_file, tls.key_file, tls.cert_file)
        ]
        credentials = grpc.ssl_channel_credentials(*read)
        self._channel = aio.secure_channel(target, credentials, CHANNEL_OPTIONS)

    async def export(self, signal: str, encoding: str, body: bytes, seconds: float) -> Answer:
        """The answer to one call, any code. Raises NoAnswer if none came in time."""
        del encoding  # gRPC has but one
        assert self._channel is not None, "start comes before export"  # noqa: S101 - its caller's part
        call = self._calls.get(signal)
        if call is None:
            call = self._calls[signal] = self._channel.unary_unary(_METHODS[signal])
        try:
            async with self._room:
                found = await call(
                    body, timeout=seconds, metadata=self._metadata, compression=self._compression
                )
        except aio.AioRpcError as error:
            return answer_of(error, seconds)
        except aio.UsageError as error:  # the channel was closed meanwhile
            raise NoAnswer(str(error), names.REASON_UNAVAILABLE) from error
        return Answer(0, found, grpc=True)

    async def close(self) -> None:
        """Close the channel, which ends calls under way."""
        if self._channel is not None:
            await self._channel.close()
