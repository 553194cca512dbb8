"""``otlp_http`` and ``otlp_grpc``: what leaves the collector, and what answers mean (section 9)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from flowmark_otel.collector.exporters.http import MAX_ANSWER_BYTES, MAX_CONNECTIONS
from flowmark_otel.collector.payload import Letter, Letters, Telemetry
from flowmark_otel.deliver.policy import RETRY_TRAILER
from flowmark_otel.errors import ConfigurationError
from flowmark_otel.model import Receipt
from flowmark_otel.wire import receipt
from flowmark_otel.wire.status import retry_info
from flowmark_otel.wire.transcode import to_json
from tests.support import certificates
from tests.support.answers import (
    Failure,
    Received,
    Reply,
    answering,
    free_port,
    grpc_answering,
)
from tests.support.elements import SECONDS, otlp, refused
from tests.support.serving import Serving
from tests.support.signals import SAMPLES

BODY: Final = next(p for p in SAMPLES if p.name == "real_celery_retry.pb").read_bytes()
TRACES: Final = Telemetry("traces", "protobuf", BODY)
JSON_TRACES: Final = Telemetry("traces", "json", b" " + to_json(BODY, "traces").body)
PARTIAL: Final = receipt.encode(
    Receipt((), rejected_items=3, error_message="3 are too old"), "protobuf", "traces"
)


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("request_", [TRACES, JSON_TRACES], ids=["protobuf", "json"])
async def test_http_carries_the_body_as_it_came(request_: Telemetry, compression: str) -> None:
    """Section 9: untouched spans are forwarded byte-identical, in the encoding they came in."""
    with answering(Reply()) as server:
        headers = {"X-Tenant": "a"}
        async with otlp(server.endpoint, headers=headers, compression=compression) as node:
            for _ in range(2):
                await node.element.take(request_, SECONDS)
        first, second = server.received
    assert first.body == second.body == request_.body
    assert first.path == "/v1/traces"
    assert first.headers["x-tenant"] == "a"
    assert first.headers["content-type"].endswith(request_.encoding)
    assert ("content-encoding" in first.headers) is (compression == "gzip")


async def test_grpc_carries_the_body_as_it_came_and_json_as_protobuf() -> None:
    """Section 9: raw bytes over gRPC; JSON, which gRPC does not know, is made protobuf."""
    with grpc_answering(lambda _: b"") as server:
        async with otlp(server.endpoint, grpc=True, headers={"X-Tenant": "a"}) as node:
            await node.element.take(TRACES, SECONDS)
            await node.element.take(JSON_TRACES, SECONDS)
        same, transcoded = server.bodies
    assert same == BODY
    assert ExportTraceServiceRequest.FromString(transcoded) == (
        ExportTraceServiceRequest.FromString(BODY)
    )
    assert server.metadata[0]["x-tenant"] == "a"


async def test_connections_are_kept_and_bounded() -> None:
    """C5, overload: one connection serves many requests, and no more than so many are opened."""
    go = threading.Event()
    arrived = threading.Semaphore(0)

    def hold(_: Received) -> Reply:
        arrived.release()
        return Reply(after=go)

    with answering(hold) as server:
        async with otlp(server.endpoint) as node:
            takes = [
                asyncio.create_task(node.element.take(TRACES, SECONDS))
                for _ in range(MAX_CONNECTIONS + 8)
            ]
            for _ in range(MAX_CONNECTIONS):
                await asyncio.to_thread(arrived.acquire)
            assert len(server.received) == MAX_CONNECTIONS
            go.set()
            await asyncio.gather(*takes)
    assert len(server.received) == MAX_CONNECTIONS + 8


@pytest.mark.parametrize("over_grpc", [False, True], ids=["http", "grpc"])
async def test_a_peer_that_is_away_or_silent_is_unavailable_or_late(*, over_grpc: bool) -> None:
    """Rows 9 and 10: no whole answer in time is a failure that another try may mend."""
    async with otlp(f"http://127.0.0.1:{free_port()}", grpc=over_grpc) as node:
        error = await refused(node.element, TRACES, 2.0)
        assert (error.name, error.permanent) in {("Unavailable", False), ("Timeout", False)}
        assert "127.0.0.1" in str(error) or over_grpc
    never = threading.Event()
    with answering(Reply(after=never)) as server, grpc_answering(_waits_for(never)) as upstream:
        endpoint = upstream.endpoint if over_grpc else server.endpoint
        async with otlp(endpoint, grpc=over_grpc) as node:
            error = await refused(node.element, TRACES, 0.2)
        never.set()
    assert (error.name, error.permanent) == ("Timeout", False)


def _waits_for(event: threading.Event) -> Callable[[bytes], bytes]:
    def answer(_: bytes) -> bytes:
        event.wait(SECONDS)
        return b""

    return answer


@pytest.mark.parametrize(
    "reply",
    [Reply(cut=20), Reply(body=b"x" * 50, cut=90, reset=True), Reply(body=b"x" * 50, cut=100)],
    ids=["head", "reset", "body"],
)
async def test_an_answer_that_is_cut_is_none(reply: Reply) -> None:
    """Rows 9 and 24: a success is a whole answer."""
    with answering(reply) as server:
        async with otlp(server.endpoint) as node:
            error = await refused(node.element, TRACES)
    assert (error.name, error.permanent) == ("Unavailable", False)


async def test_an_endless_answer_is_not_kept() -> None:
    """Row 17: an answer has a bound."""
    with answering(Reply(body=bytes(MAX_ANSWER_BYTES + 1))) as server:
        async with otlp(server.endpoint) as node:
            error = await refused(node.element, TRACES)
    assert "longer than" in str(error)


async def test_what_the_server_asks_for_is_passed_on() -> None:
    """C2: Retry-After and RetryInfo reach the node's policy; no redirect is followed."""
    with answering(Reply(503, headers={"retry-after": "9"}), Reply(307)) as server:
        server.script(
            Reply(503, headers={"retry-after": "9"}),
            Reply(307, headers={"location": server.endpoint}),
        )
        async with otlp(server.endpoint) as node:
            assert (await refused(node.element, TRACES)).retry_after == 9.0
            moved = await refused(node.element, TRACES)
        assert moved.paused
        assert len(server.received) == 2
    trailers = ((RETRY_TRAILER, retry_info(4)),)
    failure = Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "slow down", trailers)
    with grpc_answering(failure) as upstream:
        async with otlp(upstream.endpoint, grpc=True) as node:
            error = await refused(node.element, TRACES)
    assert (error.retry_after, error.permanent) == (4.0, False)


@pytest.mark.parametrize("over_grpc", [False, True], ids=["http", "grpc"])
async def test_a_partial_success_is_counted_and_logged_once(
    *, over_grpc: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Section 9: what a tracing backend takes only in part is no failure, and is not silent."""
    with answering(Reply(body=PARTIAL)) as server, grpc_answering(lambda _: PARTIAL) as upstream:
        endpoint = upstream.endpoint if over_grpc else server.endpoint
        async with otlp(endpoint, grpc=over_grpc) as node:
            for _ in range(3):
                await node.element.take(TRACES, SECONDS)
    assert node.meter.read().refused == {"rejected": 9}
    assert [each.getMessage() for each in caplog.records if "flowmark" in each.name] == [
        "partial_success"
    ]


async def test_letters_reach_a_backend_of_logs() -> None:
    """C6: dead letters can go to an OTLP endpoint, as log records."""
    letter = Letter(1, "Unavailable", "gone", "flowmark", 1, TRACES)
    with answering(Reply()) as server:
        async with otlp(server.endpoint) as node:
            await node.element.take(Letters((letter,)), SECONDS)
    [request] = server.received
    assert request.path == "/v1/logs"
    assert b"failure.exception" in request.body


@pytest.mark.needs("openssl")
@pytest.mark.parametrize("over_grpc", [False, True], ids=["http", "grpc"])
async def test_tls_is_checked(*, over_grpc: bool, tmp_path: Path) -> None:
    """Section 9, TLS: the authority of ``ca_file`` is trusted, no other is."""
    pair = certificates.make(tmp_path)
    other = certificates.make(tmp_path, "other")
    with Serving(tmp_path / "s.db", "--insecure-no-auth", *pair.options) as serving:
        host = serving.grpc if over_grpc else serving.http
        url = f"https://{host}"
        async with otlp(url, grpc=over_grpc, tls={"ca_file": pair.certificate}) as node:
            await node.element.take(TRACES, SECONDS)
        async with otlp(url, grpc=over_grpc, tls={"ca_file": other.certificate}) as node:
            assert (await refused(node.element, TRACES, 2.0)).permanent is False


async def test_certificates_that_cannot_be_read_are_a_fault_of_the_file(tmp_path: Path) -> None:
    """Section 9: what can never work is said at the start, by name."""
    path = tmp_path / "ca.pem"
    path.write_text("no certificate")
    with pytest.raises(ConfigurationError, match=r"^tls: "):
        async with otlp("https://127.0.0.1:1", tls={"ca_file": path}):
            pass
