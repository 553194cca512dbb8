"""Senders over real connections to something that is killed, and what it said it has."""

from __future__ import annotations

import http.client
import random
import threading
from collections.abc import Callable
from typing import Any, Final

import grpc

from flowmark_otel import names
from flowmark_otel.fold import fold_span
from flowmark_otel.model import Envelope, Span
from flowmark_otel.wire import receipt
from tests.support.otlp import traces_protobuf

SPANS: Final = 20
"""Of one request; each has two events."""

EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
TYPE: Final = {"content-type": "application/x-protobuf"}


class Ledger:
    """What was acknowledged as ``state``, by event id; ``enough`` is set after so many requests."""

    def __init__(self, state: str = names.STORED) -> None:
        self.state = state
        self.lock = threading.Lock()
        self.acknowledged: list[str] = []
        self.unanswered: list[list[Span]] = []
        self.enough = threading.Event()
        self.stopping = threading.Event()
        self.left = 0

    def expect(self, answers: int) -> None:
        """Begin a round that is over after so many answers."""
        self.enough.clear()
        self.left = answers

    def answered(self, ids: list[str]) -> None:
        """Write down one acknowledged request."""
        with self.lock:
            self.acknowledged += ids
            self.left -= 1
            if self.left == 0:
                self.enough.set()


def batch(chance: random.Random) -> list[Span]:
    """Attempts with ids of their own, in runs that other requests name too."""
    return [
        Span(
            chance.randbytes(16),
            chance.randbytes(8),
            "push",
            1000,
            2000,
            failed=chance.random() < 0.5,
            attributes={
                names.RUN_ID: f"run-{chance.randrange(50)}",
                names.ATTEMPT_GROUP_ID: f"group-{chance.getrandbits(60)}",
                names.ATTEMPT_NUMBER: 1,
            },
            service_name="killed",
        )
        for _ in range(SPANS)
    ]


def ids_of(spans: list[Span]) -> list[str]:
    """The ids of all events of spans."""
    return [
        event.event_id for span in spans for event in fold_span(span) if isinstance(event, Envelope)
    ]


def over_http(address: str) -> Callable[[bytes], bytes]:
    """One connection over HTTP."""
    connection = http.client.HTTPConnection(address, timeout=20)

    def send(body: bytes) -> bytes:
        connection.request("POST", "/v1/traces", body, TYPE)
        answer = connection.getresponse()
        found = answer.read()
        assert answer.status == http.client.OK, found
        return found

    return send


def over_grpc(address: str) -> Callable[[bytes], bytes]:
    """One connection over gRPC."""
    channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
    call: Any = channel.unary_unary(EXPORT)
    return lambda body: bytes(call(body, timeout=20))


def sending(ledger: Ledger, connect: Callable[[], Callable[[bytes], bytes]], seed: int) -> None:
    """Send until the server is gone, or told to stop.

    An unanswered request stays for the next round.
    """
    chance = random.Random(seed)
    send = connect()
    while not ledger.stopping.is_set():
        spans = batch(chance)
        try:
            answer = receipt.decode(send(traces_protobuf(spans)), "protobuf")
        except (OSError, http.client.HTTPException, grpc.RpcError):
            ledger.unanswered.append(spans)
            return
        assert getattr(answer, ledger.state) == answer.received == 2 * SPANS
        ledger.answered(ids_of(spans))
