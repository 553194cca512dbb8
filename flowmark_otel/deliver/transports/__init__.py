"""The transports that come with the package; their libraries are imported on first use."""

from __future__ import annotations

from flowmark_otel.config.client import GRPC, ClientOptions
from flowmark_otel.deliver.transport import Transport


def open_transport(options: ClientOptions) -> Transport:
    """The transport that the options describe; connects on its first request."""
    if options.protocol == GRPC:
        from flowmark_otel.deliver.transports.grpc import GrpcTransport  # noqa: PLC0415 - grpcio

        return GrpcTransport(options)
    from flowmark_otel.deliver.transports.http import HttpTransport  # noqa: PLC0415 - requests

    return HttpTransport(options)
