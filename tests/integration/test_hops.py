"""Real nginx and HAProxy between senders and backend: the receipt arrives, whole and once (A24)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
import requests
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace.export import SpanExportResult

from flowmark_otel import names
from flowmark_otel.deliver.pace import Pace
from flowmark_otel.listen.grpc import STATUS_TRAILER, TRACES
from flowmark_otel.wire import receipt
from flowmark_otel.wire.encode import encode_logs
from flowmark_otel.wire.status import decode_status
from tests.support import payloads
from tests.support.delivering import LIMITS, attempts, delivering, ids, reasons
from tests.support.envelopes import completed
from tests.support.history import attempt
from tests.support.hops import Hop, haproxy, nginx
from tests.support.server import Running, options, running
from tests.support.spans import finished_spans

WAIT = 30
PROTOCOLS = ("http/protobuf", "http/json", "grpc")
HOPS = {"nginx": nginx, "haproxy": haproxy}


class Behind(NamedTuple):
    """A backend, its store, and the hop that stands in front of it."""

    backend: Running
    store: Path
    hop: Hop

    def to(self, protocol: str) -> dict[str, str]:
        """How a delivery reaches the backend through the hop."""
        address = self.hop.grpc if protocol == "grpc" else self.hop.http
        return {
            "endpoint": f"http://{address}",
            "protocol": protocol,
            "api_key": self.backend.ingest_key,
        }

    def events(self) -> int:
        """How many events the store holds."""
        with sqlite3.connect(f"file:{self.store}?mode=ro", uri=True) as connection:
            return int(connection.execute("select count(*) from events").fetchone()[0])


@pytest.fixture(
    params=[pytest.param(name, marks=pytest.mark.needs(name)) for name in HOPS],
)
def behind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Behind]:
    """A backend behind each of the hops, as they are configured for people."""
    store = tmp_path / "s.db"
    with running(options(store)) as backend, HOPS[request.param](backend) as hop:
        yield Behind(backend, store, hop)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_event_gets_its_own_state(behind: Behind, protocol: str) -> None:
    """A24, A23: stored, known, and more rejected than a receipt has room for, each told right."""
    with delivering(**behind.to(protocol)) as delivery:
        delivery.record(*attempts(1, 40))
        delivery.flush(WAIT)
        changed = [completed(n, ("g", n), at=5) for n in range(1, 41)]
        delivery.record(*attempts(41, 50), *attempts(1, 5), *changed)
        error = delivery.lost()
        assert {each.event_id for each in delivery.seen} == set(ids(changed))
        assert error.counts == {(names.CONFLICT, names.REASON_REJECTED): 40}
        assert delivery.counts() == {
            (names.STORED, ""): 100,
            (names.DUPLICATE, ""): 10,
            (names.CONFLICT, names.REASON_REJECTED): 40,
        }
    assert behind.events() == 100


def test_stock_exporters_are_answered(behind: Behind) -> None:
    """A24: what stock exporters send through a hop is stored once, and they are told so."""
    authorization = {"authorization": behind.backend.ingest}
    spans = finished_spans("push-to-crm", attributes={**attempt("g", 1)})
    exporters = (
        HttpExporter(f"http://{behind.hop.http}/v1/traces", headers=authorization),
        GrpcExporter(behind.hop.grpc, insecure=True, headers=authorization),
    )
    for exporter in exporters:
        assert exporter.export(spans) is SpanExportResult.SUCCESS
        exporter.shutdown()
    assert behind.events() == 2


def long_refusal() -> bytes:
    """A request of which every event is refused, at length."""
    wrong = {names.ATTEMPT_GROUP_ID: [1], names.ATTEMPT_NUMBER: "one", names.ATTEMPT_LIMIT: "two"}
    return payloads.as_protobuf(
        payloads.request(payloads.span(number, wrong) for number in range(1, 60))
    )


def test_long_refusals_arrive_as_the_backend_wrote_them(behind: Behind) -> None:
    """A24: an error with a receipt near its 3 KiB is the same with and without the hop."""
    body = long_refusal()
    headers = {"authorization": behind.backend.ingest, "content-type": payloads.PROTOBUF}
    answers = [
        requests.post(f"http://{address}/v1/traces", data=body, headers=headers, timeout=WAIT)
        for address in (behind.backend.http, behind.hop.http)
    ]
    assert answers[0].content == answers[1].content
    assert [each.status_code for each in answers] == [400, 400]
    trailers = [
        refused(address, body, behind) for address in (behind.backend.grpc, behind.hop.grpc)
    ]
    assert trailers[0] == trailers[1]
    for found in (answers[1].content, trailers[1]):
        assert len(found) > 2500
        said = decode_status(found, "protobuf").receipt
        assert said is not None
        assert said.rejected == said.received == 118
        assert receipt.fault(said) is None


def refused(address: str, body: bytes, behind: Behind) -> bytes:
    """The status that a refused call of gRPC ends with."""
    with grpc.insecure_channel(address) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{TRACES}/Export")
        with pytest.raises(grpc.RpcError) as error:
            call(body, metadata=(("authorization", behind.backend.ingest),), timeout=WAIT)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    trailers: Any = error.value.trailing_metadata()
    found = dict(trailers)[STATUS_TRAILER]
    assert isinstance(found, bytes)
    return found


def stock_limit(config: str) -> str:
    """The configuration without what it says about the size of bodies."""
    return config.replace("client_max_body_size 64m;", "")


def tiny_limit(config: str) -> str:
    """The configuration with room for hardly anything."""
    return config.replace("client_max_body_size 64m;", "client_max_body_size 100;")


@pytest.fixture
def limited(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Behind]:
    """A backend behind an nginx whose limit is another."""
    store = tmp_path / "s.db"
    with running(options(store)) as backend, nginx(backend, request.param) as hop:
        yield Behind(backend, store, hop)


@pytest.mark.needs("nginx")
@pytest.mark.parametrize("limited", [stock_limit], indirect=True)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_batch_over_the_limit_of_a_hop_is_halved(limited: Behind, protocol: str) -> None:
    """A24: a batch over nginx's 1 MB goes in halves, and all of it is acknowledged."""
    many = attempts(1, 2400)
    assert len(encode_logs(many, {})) > 1 << 20
    with delivering(**limited.to(protocol), pace=Pace(limits=LIMITS, batch=8000)) as delivery:
        delivery.record(*many)
        delivery.flush(WAIT)
        assert delivery.counts() == {(names.STORED, ""): len(many)}
    assert limited.events() == len(many)


@pytest.mark.needs("nginx")
@pytest.mark.parametrize("limited", [tiny_limit], indirect=True)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_event_over_the_limit_of_a_hop_is_named_so(limited: Behind, protocol: str) -> None:
    """A24: an event that no hop lets through alone is `too_large`, not unavailable for ever."""
    with delivering(**limited.to(protocol)) as delivery:
        delivery.record(*attempts(1, 1))
        error = delivery.lost()
        assert {reason for _, reason in reasons(error)} == {names.REASON_TOO_LARGE}
