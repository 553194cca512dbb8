"""The conformance test for transports, one's own included (A25)."""

from flowmark_otel.testing.conformance.checks import assert_transport_conforms
from flowmark_otel.testing.conformance.peer import Export, Peer
from flowmark_otel.testing.conformance.serving import serve_grpc, serve_http

__all__ = ["Export", "Peer", "assert_transport_conforms", "serve_grpc", "serve_http"]
