"""The transports that come with the package; their libraries are imported on first use."""

from __future__ import annotations

import importlib

from flowmark_otel.config.client import GRPC, ClientOptions
from flowmark_otel.deliver.transport import Transport


def load(protocol: str) -> None:
    """Import what a protocol's transport needs, on the thread that calls.

    Two threads that enter one package by different modules can meet it half made, so this is not
    left to the sending thread where others import at the same moment.
    """
    importlib.import_module(f"{__name__}.{'grpc' if protocol == GRPC else 'http'}")


def open_transport(options: ClientOptions) -> Transport:
    """The transport that the options describe; connects on its first request."""
    if options.protocol == GRPC:
        from flowmark_otel.deliver.transports.grpc import GrpcTransport  # noqa: PLC0415 - grpcio

        return GrpcTransport(options)
    from flowmark_otel.deliver.transports.http import HttpTransport  # noqa: PLC0415 - requests

    return HttpTransport(options)
