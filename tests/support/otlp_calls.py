"""OTLP requests of traces to a server over either transport; gives the receipt of any answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc
import requests

from flowmark_otel.model import Receipt, Span
from flowmark_otel.wire import receipt, status
from tests.support.otlp import traces_protobuf
from tests.support.serving import Serving

Send = Callable[[Sequence[Span]], Receipt]
"""Sends one request; raises AssertionError where the answer carries no receipt."""

_EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_DETAILS: Final = "grpc-status-details-bin"
_WAIT: Final = 60


def sender(serving: Serving, transport: str) -> Send:
    """A connection of its own to a server."""
    return _http(serving.endpoint) if transport == "http" else _grpc(serving.grpc)


def _http(endpoint: str) -> Send:
    session = requests.Session()
    session.headers["content-type"] = "application/x-protobuf"

    def send(spans: Sequence[Span]) -> Receipt:
        answer = session.post(f"{endpoint}/v1/traces", traces_protobuf(spans), timeout=_WAIT)
        if answer.status_code == requests.codes.ok:
            return receipt.decode(answer.content, "protobuf")
        return _of_status(answer.content)

    return send


def _grpc(address: str) -> Send:
    options = [("grpc.use_local_subchannel_pool", 1)]
    call: Any = grpc.insecure_channel(address, options=options).unary_unary(_EXPORT)

    def send(spans: Sequence[Span]) -> Receipt:
        try:
            return receipt.decode(bytes(call(traces_protobuf(spans), timeout=_WAIT)), "protobuf")
        except grpc.RpcError as error:
            pairs: Any = error.trailing_metadata() or ()
            return _of_status(dict(pairs).get(_DETAILS, b""))

    return send


def _of_status(body: bytes) -> Receipt:
    found = status.decode_status(body, "protobuf")
    assert found.receipt is not None, found
    return found.receipt
