"""What carries requests on the loop, whatever the protocol: one try, the answer as it came."""

from __future__ import annotations

from typing import Protocol

from flowmark_otel.collector.config.options import Remote
from flowmark_otel.deliver.transport import Answer
from flowmark_otel.errors import ConfigurationError


class Sender(Protocol):
    """Carries requests to one endpoint. Owns its connections; ``start`` comes first.

    ``json``: whether it carries JSON too, not protobuf alone.
    """

    json: bool

    def start(self) -> None:
        """Make ready to connect. Raises OSError where certificates cannot be read."""
        ...

    async def export(self, signal: str, encoding: str, body: bytes, seconds: float) -> Answer:
        """The answer to one OTLP export. Raises NoAnswer if no whole one came in time."""
        ...

    async def close(self) -> None:
        """Let go of the connections."""
        ...


def sender_of(options: Remote, *, gzip: bool = False) -> Sender:
    """What speaks the protocol of an exporter; its library is imported here."""
    if options.over_grpc:
        from flowmark_otel.collector.exporters.grpc import GrpcSender  # noqa: PLC0415 - grpc.aio

        return GrpcSender(options, gzip=gzip)
    from flowmark_otel.collector.exporters.http import HttpSender  # noqa: PLC0415 - aiohttp

    return HttpSender(options, gzip=gzip)


def start(sender: Sender) -> None:
    """Start the sender of a node. Raises ConfigurationError."""
    try:
        sender.start()
    except OSError as error:  # ssl.SSLError among them
        msg = f"tls: {error.strerror or error}"
        raise ConfigurationError([msg]) from error
