"""Fault row 1: ``serve`` killed with SIGKILL under traffic, over and over, on one store."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable
from functools import partial

import pytest
import requests

from flowmark_otel.wire import receipt
from tests.support.killing import SPANS, TYPE, Ledger, over_grpc, over_http, sending
from tests.support.otlp import traces_protobuf
from tests.support.serving import Serving

KILLS = {"sqlite": (20, 200), "postgresql": (5, 50)}
"""How often, by kind of store: in CI, and in a long campaign."""
SENDERS = 4


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
