"""Fault row 1: ``serve`` killed with SIGKILL under traffic, over and over, on one store."""

from __future__ import annotations

import http.client
import random
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
import pytest
import requests

from flowmark_otel import names
from flowmark_otel.fold import fold_span
from flowmark_otel.model import Envelope, Span
from flowmark_otel.wire import receipt
from tests.support.otlp import traces_protobuf
from tests.support.serving import Serving

KILLS = {"sqlite": (20, 200), "postgresql": (5, 50)}
"""How often, by kind of store: in CI, and in a long campaign."""
SENDERS = 4
SPANS = 20
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
TYPE = {"content-type": "application/x-protobuf"}


class Ledger:
    """What was acknowledged as stored, by event id; ``enough`` is set after so many requests."""

    def __init__(self) -> None:
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
        assert answer.stored == answer.received == 2 * SPANS
        ledger.answered(ids_of(spans))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("psql"))]
)
def test_nothing_acknowledged_is_lost(
    kind: str, new_store: Callable[[str], str], campaign: Callable[[int, int], int]
) -> None:
    """A8, D5 (row 1): kills under traffic; I1 acknowledged is readable, I2 once each."""
    ledger = Ledger()
    chance = random.Random(20)
    store = new_store(kind)
    kills = campaign(*KILLS[kind])
    for turn in range(kills):
        with Serving(store, "--insecure-no-auth") as serving:
            ledger.expect(chance.randrange(4, 40))
            doors = {over_http: serving.http, over_grpc: serving.grpc}
            threads = [
                threading.Thread(
                    target=sending,
                    args=(ledger, partial(door, doors[door]), turn * SENDERS + number),
                )
                for number, door in enumerate([over_http, over_grpc] * (SENDERS // 2))
            ]
            for thread in threads:
                thread.start()
            assert ledger.enough.wait(60)
            serving.process.send_signal(signal.SIGKILL)
            for thread in threads:
                thread.join(60)
    with Serving(store, "--insecure-no-auth") as serving:
        assert len(ledger.acknowledged) == len(set(ledger.acknowledged)) > kills * SPANS
        for start in range(0, len(ledger.acknowledged), 1000):
            asked = ledger.acknowledged[start : start + 1000]
            answer = requests.post(
                f"{serving.endpoint}/v1/flowmark/status", json={"eventIds": asked}, timeout=30
            )
            assert {event["state"] for event in answer.json()["events"]} == {"stored"}
        for spans in ledger.unanswered:  # the same ids again: stored now, or known already
            answer = serving.post("traces", traces_protobuf(spans), TYPE["content-type"])
            found = receipt.decode(answer.content, "protobuf")
            assert found.stored + found.duplicate == found.received == 2 * SPANS
