"""What the client's transports are told of a ``flowmark`` exporter."""

from __future__ import annotations

from flowmark_otel.collector.config.options import FlowmarkExporter
from flowmark_otel.config.client import ClientOptions


def client_options(options: FlowmarkExporter) -> ClientOptions:
    """The settings of a transport to its endpoint."""
    return ClientOptions(
        endpoint=options.url.rstrip("/"),
        protocol=options.protocol,
        headers=tuple((name.lower(), value) for name, value in options.headers.items()),
        certificate=options.tls.ca_file,
        client_certificate=options.tls.cert_file,
        client_key=options.tls.key_file,
    )
