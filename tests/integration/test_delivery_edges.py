"""Delivery at its edges: TLS, proxies, instrumented clients, a full queue, own transports."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from opentelemetry.instrumentation.requests import RequestsInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from flowmark_otel import names
from flowmark_otel.config.client import ClientOptions
from flowmark_otel.deliver import Answer, Delivery, EventStatus, NoAnswer
from flowmark_otel.deliver.pace import Pace
from flowmark_otel.errors import DeliveryError
from flowmark_otel.model import Diagnostic
from tests.support.answers import (
    Received,
    Reply,
    acknowledging,
    answering,
    grpc_acknowledging,
)
from tests.support.delivering import (
    LIMITS,
    RESOURCE,
    attempts,
    delivering,
    ids,
    named,
    ordinary,
    reasons,
)
from tests.support.server import options, running


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_certificates_are_checked(tmp_path: Path, protocol: str) -> None:
    """D1: over TLS the configured authority is trusted, and nobody else is."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", str(key), "-out", str(cert), "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
        ],
        check=True,
        capture_output=True,
    )
    with running(options(tmp_path / "s.db", tls_cert=cert, tls_key=key)) as backend:
        address = backend.grpc if protocol == "grpc" else backend.http
        endpoint = f"https://localhost:{address.rpartition(':')[2]}"
        known = {"protocol": protocol, "api_key": backend.ingest_key}
        with delivering(endpoint, **known) as delivery:
            delivery.record(*attempts(1, 1))
            assert reasons(delivery.lost(0.5)) == {(names.QUEUED, names.REASON_UNAVAILABLE)}
        with delivering(endpoint, **known, certificate=cert) as delivery:
            delivery.record(*attempts(1, 1))
            delivery.flush(20)
            assert delivery.counts() == {(names.STORED, ""): 2}


@contextmanager
def instrumented() -> Iterator[InMemorySpanExporter]:
    """``requests`` as an application has it instrumented, and the spans of that."""
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    RequestsInstrumentor().instrument(tracer_provider=provider)
    try:
        yield spans
    finally:
        RequestsInstrumentor().uninstrument()


def test_our_own_requests_make_no_spans() -> None:
    """D2: an instrumented HTTP client records nothing of our requests, whoever sends them."""
    with (
        instrumented() as spans,
        answering(acknowledging()) as server,
        delivering(server.endpoint) as delivery,
        pytest.MonkeyPatch.context() as patched,
    ):
        delivery.record(*attempts(1, 1))
        delivery.flush(10)
        with delivering(server.endpoint) as inline:
            patched.setattr(inline, "_start", lambda: False)
            inline.record(*attempts(2, 2))
            inline.flush(10)
        assert spans.get_finished_spans() == ()
    assert len(server.exports) == 2


def test_a_proxy_of_the_environment_is_not_used_for_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D1: what goes to loopback is shown to no proxy, and no .netrc replaces the key."""
    with (
        answering(Reply(502)) as proxy,
        answering(acknowledging()) as server,
        delivering(server.endpoint, api_key="fmk_k_s") as delivery,
    ):
        monkeypatch.setenv("HTTP_PROXY", proxy.endpoint)
        monkeypatch.setenv("http_proxy", proxy.endpoint)
        delivery.record(*attempts(1, 1))
        delivery.flush(10)
        assert proxy.received == []
        assert server.exports[0].headers["authorization"] == "Bearer fmk_k_s"


def test_a_full_queue_drops_the_newest_and_says_so() -> None:
    """A22: what finds no room is counted dropped, said once, and what was there is delivered."""
    release = threading.Event()

    def held(request: Received) -> Reply:
        whole = acknowledging()(request)
        return Reply(body=whole.body, after=release)

    pace = Pace(limits=LIMITS, queue=6, linger=0.0)
    with (
        answering(held) as server,
        delivering(server.endpoint, pace=pace) as delivery,
    ):
        delivery.record(*attempts(1, 1))
        assert server.arrived.wait(10)
        for number in range(2, 7):
            delivery.record(*attempts(number, number))  # returns, though nothing is answered
        assert delivery.counts() == {
            (names.QUEUED, ""): 6,
            (names.DROPPED, names.REASON_QUEUE_FULL): 6,
        }
        release.set()
        error = delivery.lost()
        assert error.counts == {(names.DROPPED, names.REASON_QUEUE_FULL): 6}
        assert "6 of 12 events were not acknowledged: 6 dropped, queue_full" in str(error)
        assert delivery.counts()[names.STORED, ""] == 6
        assert delivery.codes == [names.REASON_QUEUE_FULL, names.DIAGNOSTIC_RESUMED]


def test_two_resources_go_in_requests_of_their_own() -> None:
    """D1: events of two providers are sent under their own resources."""
    with answering(acknowledging()) as server, delivering(server.endpoint) as delivery:
        delivery.put(attempts(1, 1), {"service.name": "alpha"})
        delivery.put(attempts(2, 2), {"service.name": "beta"})
        delivery.flush(10)
        assert [(b"alpha" in each.body, b"beta" in each.body) for each in server.exports] == [
            (True, False),
            (False, True),
        ]


class Own:
    """A transport of the application's, without a status question."""

    encoding = "protobuf"

    def __init__(self) -> None:
        self.closed = 0
        self.fails = 2

    def send(self, body: bytes, content_type: str, timeout: float) -> Answer:
        """Raise twice, then acknowledge."""
        assert content_type == "application/x-protobuf"
        assert timeout > 0
        self.fails -= 1
        if self.fails >= 0:
            msg = "a defect of the application's"
            raise KeyError(msg)
        return Answer(0, grpc_acknowledging(body), grpc=True)

    def status(self, event_ids: Sequence[str], timeout: float) -> list[EventStatus]:
        """Not to be had."""
        msg = f"no status of {len(event_ids)} events within {timeout}"
        raise NoAnswer(msg)

    def after_fork(self) -> None:
        """Shares nothing."""

    def close(self) -> None:
        """Count."""
        self.closed += 1


def test_a_transport_of_ones_own() -> None:
    """A25: an own transport carries the bytes; what it raises is tried again and judged alike."""
    own = Own()
    delivery = Delivery(
        ClientOptions(), transport=own, pace=Pace(limits=LIMITS, linger=0.0, jitter=lambda: 0.0)
    )
    delivery.put([*attempts(1, 2), *ordinary(3, 3)], RESOURCE)
    delivery.flush(10)
    assert delivery.counts() == {(names.STORED, ""): 6}
    delivery.shutdown(5)
    delivery.shutdown(5)
    assert own.closed == 1


def test_flushing_from_a_callback_does_not_wait_for_itself() -> None:
    """A22: a callback that flushes gets the truth of the moment instead of a deadlock."""
    told: list[DeliveryError | None] = []

    def callback(_: object) -> None:
        try:
            delivery.flush(20)
        except DeliveryError as error:
            told.append(error)

    with answering(Reply(503), Reply(503), acknowledging()) as server:
        delivery = Delivery(
            ClientOptions(endpoint=server.endpoint),
            on_diagnostic=callback,
            pace=Pace(limits=LIMITS, linger=0.0, jitter=lambda: 0.0),
        )
        delivery.put(attempts(1, 1), RESOURCE)
        delivery.try_flush(10)
        assert delivery.counts() == {(names.STORED, ""): 2}
        delivery.shutdown(5)
    [error] = [each for each in told if each is not None]
    assert error.counts == {(names.QUEUED, names.REASON_UNAVAILABLE): 2}
    assert set(ids(attempts(1, 1))) == {each.event_id for each in named(error)}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_callback_that_exits_its_thread_loses_nothing() -> None:
    """A22: if the sending thread is ended from outside, the next event starts another."""
    seen: list[str] = []

    def callback(diagnostic: Diagnostic) -> None:
        seen.append(diagnostic.code)
        if len(seen) == 1:
            sys.exit(3)

    with answering(Reply(503), Reply(503), acknowledging()) as server:
        delivery = Delivery(
            ClientOptions(endpoint=server.endpoint),
            on_diagnostic=callback,
            pace=Pace(limits=LIMITS, linger=0.0, jitter=lambda: 0.0),
        )
        delivery.put(attempts(1, 1), RESOURCE)
        thread = delivery._thread
        assert thread is not None
        thread.join(20)
        delivery.put(attempts(2, 2), RESOURCE)
        delivery.flush(10)
        assert delivery.counts() == {(names.STORED, ""): 4}
        delivery.shutdown(5)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_callback_that_ends_the_thread_while_a_flush_waits(kind: type[BaseException]) -> None:
    """A22: a flush that waits does not wait for a thread that a callback has ended."""
    seen: list[str] = []

    def callback(diagnostic: Diagnostic) -> None:
        seen.append(diagnostic.code)
        if len(seen) == 1:
            raise kind

    with answering(Reply(503), Reply(503), acknowledging()) as server:
        delivery = Delivery(
            ClientOptions(endpoint=server.endpoint),
            on_diagnostic=callback,
            pace=Pace(limits=LIMITS, linger=0.0, jitter=lambda: 0.0),
        )
        with suppress(kind):  # the flush itself may be who calls back
            delivery.put(attempts(1, 1), RESOURCE)
            delivery.flush(600)
        delivery.flush(600)
        assert delivery.counts() == {(names.STORED, ""): 2}
        delivery.shutdown(5)
