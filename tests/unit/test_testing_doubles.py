"""Fake clock, id sequence and recording transport: strict doubles that ship (habits 10 and 11)."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from opentelemetry.sdk.trace import TracerProvider

from flowmark_otel import names
from flowmark_otel.config.client import ClientOptions
from flowmark_otel.deliver import Answer, Delivery, NoAnswer
from flowmark_otel.deliver.pace import Pace
from flowmark_otel.errors import DeliveryError
from flowmark_otel.testing import FakeClock, IdSequence, RecordingTransport, Request
from flowmark_otel.wire import receipt
from flowmark_otel.wire.encode import encode_logs
from tests.support.envelopes import completed, started

RESOURCE = {"service.name": "crm-sync"}


def test_clock_moves_only_when_told() -> None:
    """A25: both clocks stand still, advance together, and the monotonic one never goes back."""
    clock = FakeClock(start_ns=5)
    assert (clock.now_ns(), clock.monotonic()) == (5, 0.0)
    clock.advance(1.5)
    assert (clock.now_ns(), clock.monotonic()) == (1_500_000_005, 1.5)
    clock.set_wall(1)
    assert (clock.now_ns(), clock.monotonic()) == (1, 1.5)
    with pytest.raises(ValueError, match="0 seconds or more"):
        clock.advance(-1)


def test_clock_waits_without_waiting() -> None:
    """A25: a wait that would end by itself moves the clock; one that is over does not."""
    clock, event = FakeClock(), threading.Event()
    assert not clock.wait(event, 2.0)
    assert clock.monotonic() == 2.0
    event.set()
    assert clock.wait(event, 2.0)
    assert clock.wait(event, None)
    assert clock.monotonic() == 2.0


def test_ids_come_in_order() -> None:
    """A25: the ids of spans are known before they are made; each provider has its own sequence."""
    tracer = TracerProvider(id_generator=IdSequence()).get_tracer("t")
    contexts = [tracer.start_span("s").get_span_context() for _ in range(2)]
    assert [(each.trace_id, each.span_id) for each in contexts] == [(1, 1), (2, 2)]
    with pytest.raises(ValueError, match="from 1"):
        IdSequence(0)


@pytest.mark.parametrize("encoding", ["protobuf", "json"])
def test_transport_keeps_what_it_was_given(encoding: str) -> None:
    """A25: a recorded request can be read back as the events that were recorded."""
    transport = RecordingTransport(encoding=encoding)
    delivery = Delivery(ClientOptions(), transport=transport)
    events = [started(1, ("g", 1)), completed(1, ("g", 1))]
    delivery.put(events, RESOURCE)
    delivery.shutdown(10)
    assert [event.event_id for event in transport.events] == [each.event_id for each in events]
    assert delivery.counts() == {(names.STORED, ""): 2}
    assert transport.closed


def test_transport_answers_in_the_order_given() -> None:
    """A25: an answer, no answer, and an answer that is made of the request; then all is stored."""
    kind = "application/x-protobuf"
    stock = Answer(200, b"", {"content-type": kind})
    transport = RecordingTransport(NoAnswer("lost"), stock, _size)
    body = encode_logs([started(1, ("g", 1))], RESOURCE)
    with pytest.raises(NoAnswer, match="lost"):
        transport.send(body, kind, 1)
    assert transport.send(body, kind, 1) is stock
    assert transport.send(body, kind, 1).message == f"{len(body)} bytes"
    event_id = started(1).event_id
    assert [each.state for each in transport.status([event_id], 1)] == [names.STATE_UNKNOWN]
    assert receipt.decode(transport.send(body, kind, 1).body, "protobuf").stored == 1
    assert [each.state for each in transport.status([event_id], 1)] == [names.STORED]


def _size(request: Request) -> Answer:
    return Answer(200, message=f"{len(request.body)} bytes")


def test_transport_is_strict() -> None:
    """A25: what breaks the protocol raises, and again where the test reads, though swallowed."""
    transport = RecordingTransport()
    with pytest.raises(AssertionError, match="application/json"):
        transport.send(b"{}", "application/json", 1)
    with pytest.raises(AssertionError, match="timeout of 0"):
        transport.send(b"", "application/x-protobuf", 0)
    with pytest.raises(AssertionError, match="1001 events"):
        transport.status(["x"] * 1001, 1)
    transport.close()
    with pytest.raises(AssertionError, match="after close"):
        transport.send(b"", "application/x-protobuf", 1)
    with pytest.raises(AssertionError, match=r"application/json.*timeout.*1001.*after close"):
        _ = transport.requests


def test_transport_takes_one_call_at_a_time() -> None:
    """A25: two threads in one transport are a fault of who calls it."""
    inside, leave = threading.Event(), threading.Event()

    def held(_: object) -> Answer:
        inside.set()
        assert leave.wait(10)
        return Answer(200)

    transport = RecordingTransport(held)
    arguments = (b"", "application/x-protobuf", 1.0)
    first = threading.Thread(target=transport.send, args=arguments)
    first.start()
    assert inside.wait(10)
    with pytest.raises(AssertionError, match="two threads"):
        transport.send(*arguments)
    leave.set()
    first.join(10)


def test_a_delivery_error_names_what_a_double_refused() -> None:
    """A22: with a transport that never answers, shutdown raises and says how much was lost."""
    lost = [NoAnswer("lost") for _ in range(100)]
    delivery = Delivery(ClientOptions(), transport=RecordingTransport(*lost))
    delivery.put([started(1, ("g", 1))], RESOURCE)
    with pytest.raises(DeliveryError) as raised:
        delivery.shutdown(0.2)
    assert sum(raised.value.counts.values()) == 1


def test_pytest_is_imported_by_the_plugin_alone() -> None:
    """A26: neither the package nor its testing half needs pytest, nor any server dependency."""
    program = (
        "import sys, flowmark_otel\n"
        "print(sorted({'pytest', 'sqlalchemy', 'orjson'} & sys.modules.keys()))\n"
        "import flowmark_otel.testing\n"
        "print(sorted({'pytest', 'sqlalchemy', 'starlette'} & sys.modules.keys()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True
    )
    assert done.stdout == "[]\n[]\n"


def test_delivery_can_run_on_a_fake_clock() -> None:
    """A25: with a pace that waits on a fake clock, minutes of trying again take no time."""
    clock, answered = FakeClock(), threading.Event()

    def stored(request: Request) -> Answer:
        answered.set()
        return transport.stored(request)

    transport = RecordingTransport(*(NoAnswer("lost") for _ in range(5)), stored)
    pace = Pace(wait=clock.wait)
    delivery = Delivery(ClientOptions(), clock=clock, transport=transport, pace=pace)
    delivery.put([started(1, ("g", 1))], RESOURCE)
    assert answered.wait(10)
    delivery.shutdown(10)
    assert delivery.counts() == {(names.STORED, ""): 1}
    assert clock.monotonic() > 1
