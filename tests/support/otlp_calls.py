"""OTLP requests of traces to a server over either transport; gives the receipt of any answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc
import requests

from flowmark_otel.model import Receipt, Span
from flowmark_otel.wire import receipt, status
from tests.support.otlp import traces_protobuf
from tests.support.serving import Serving

MOST_TRIES: Final = 100
MOST_SECONDS: Final = 0.5
_PAUSE: Final = threading.Event()  # never set

Send = Callable[[Sequence[Span]], Receipt]
"""Sends one request; raises AssertionError where the answer carries no receipt."""

_Once = Callable[[Sequence[Span]], "Receipt | status.Status"]

_EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_DETAILS: Final = "grpc-status-details-bin"
_WAIT: Final = 60


def sender(serving: Serving, transport: str) -> Send:
    """A connection of its own to a server; asks again, like any sender, where it is told to."""
    once = _http(serving.endpoint) if transport == "http" else _grpc(serving.grpc)

    def send(spans: Sequence[Span]) -> Receipt:
        for _ in range(MOST_TRIES):
            found = once(spans)
            if isinstance(found, Receipt):
                return found
            assert found.receipt is not None or found.retry_after is not None, found
            if found.receipt is not None:
                return found.receipt
            _PAUSE.wait(min(found.retry_after or 0, MOST_SECONDS))
        raise AssertionError(found)

    return send


def _http(endpoint: str) -> _Once:
    session = requests.Session()
    session.headers["content-type"] = "application/x-protobuf"

    def send(spans: Sequence[Span]) -> Receipt | status.Status:
        answer = session.post(f"{endpoint}/v1/traces", traces_protobuf(spans), timeout=_WAIT)
        if answer.status_code == requests.codes.ok:
            return receipt.decode(answer.content, "protobuf")
        return status.decode_status(answer.content, "protobuf")

    return send


def _grpc(address: str) -> _Once:
    options = [("grpc.use_local_subchannel_pool", 1)]
    call: Any = grpc.insecure_channel(address, options=options).unary_unary(_EXPORT)

    def send(spans: Sequence[Span]) -> Receipt | status.Status:
        try:
            return receipt.decode(bytes(call(traces_protobuf(spans), timeout=_WAIT)), "protobuf")
        except grpc.RpcError as error:
            pairs: Any = error.trailing_metadata() or ()
            return status.decode_status(dict(pairs).get(_DETAILS, b""), "protobuf")

    return send
