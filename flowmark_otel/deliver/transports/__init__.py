"""The transports that come with the package; their libraries are imported on first use."""

from __future__ import annotations

from collections.abc import Callable

from flowmark_otel.config.client import GRPC, ClientOptions
from flowmark_otel.deliver.transport import Transport


def transport_of(protocol: str) -> Callable[[ClientOptions], Transport]:
    """What makes a protocol's transport, which connects on its first request.

    Its library is imported on the thread that calls. Two threads that enter one package by
    different modules can meet it half made, so this is not left to the sending thread where
    others import at the same moment.
    """
    if protocol == GRPC:
        from flowmark_otel.deliver.transports.grpc import GrpcTransport  # noqa: PLC0415 - grpcio

        return GrpcTransport
    from flowmark_otel.deliver.transports.http import HttpTransport  # noqa: PLC0415 - requests

    return HttpTransport


def open_transport(options: ClientOptions) -> Transport:
    """The transport that the options describe; connects on its first request."""
    return transport_of(options.protocol)(options)
