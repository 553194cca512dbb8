"""More than a listener may hold at once: shed with the time to wait, on both transports, and over.

A double stands behind it that judges nothing before it is told to.
"""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
import requests
from google.rpc.error_details_pb2 import RetryInfo
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
    OTLPSpanExporter as GrpcExporter,
)
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from flowmark_otel.errors import Unavailable
from flowmark_otel.listen.admission import Admission, Ticket
from flowmark_otel.listen.grpc import RETRY_TRAILER, STATUS_TRAILER, TRACES
from flowmark_otel.listen.protocol import Reply
from flowmark_otel.wire import outcome
from flowmark_otel.wire.status import decode_status
from tests.support.accepting import KEY, Call, Listening, listening
from tests.support.spans import finished_spans

BUDGET = 100_000
HALF = bytes(50_000)
WAIT = 20
EXPORT = f"/{TRACES}/Export"


class Door(Admission):
    """The real one, which also says when it has refused."""

    def __init__(self, max_bytes: int = BUDGET, max_lag: float = 3600.0) -> None:
        super().__init__(max_bytes, max_lag)
        self.refused = threading.Event()

    def enter(self, announced: int = 0) -> Ticket:
        """Take in one request."""
        try:
            return super().enter(announced)
        except Unavailable:
            self.refused.set()
            raise


class Held:
    """Requests that are being judged until ``release``."""

    def __init__(self, served: Listening) -> None:
        self._served = served
        self._pool = ThreadPoolExecutor(8)
        self._judged = threading.Semaphore(0)
        self._released = threading.Event()
        served.double.answer = self._answer

    async def _answer(self, _call: Call) -> Reply:
        self._judged.release()
        await asyncio.get_running_loop().run_in_executor(None, self._released.wait, WAIT)
        return Reply(outcome.OK, b"")

    def hold(self, send: Callable[[Listening, bytes], str], body: bytes) -> Future[str]:
        """Send a request and wait until it is being judged."""
        sending = self._pool.submit(send, self._served, body)
        assert self._judged.acquire(timeout=WAIT)
        return sending

    def release(self) -> None:
        """Answer all."""
        self._released.set()

    def close(self) -> None:
        """Answer all, and wait for them."""
        self.release()
        self._pool.shutdown()


@contextmanager
def holding(door: Door) -> Iterator[tuple[Listening, Held]]:
    """A listener behind this door, whose judge holds what comes."""
    with listening(admission=door, max_request_bytes=1 << 21) as served:
        held = Held(served)
        try:
            yield served, held
        finally:
            held.close()


def post(served: Listening, body: bytes, coding: str = "identity") -> requests.Response:
    """One request over HTTP."""
    headers = {"authorization": KEY, "content-type": "application/x-protobuf"}
    headers["content-encoding"] = coding
    url = f"http://{served.http}/v1/traces"
    return requests.post(url, data=body, headers=headers, timeout=WAIT)


def by_http(served: Listening, body: bytes) -> str:
    """OK, or UNAVAILABLE with all that belongs to it."""
    answer = post(served, body)
    if answer.status_code == 200:
        return "OK"
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    status = decode_status(answer.content, "protobuf")
    assert status.retry_after is not None
    assert status.retry_after >= 1
    return "UNAVAILABLE"


def by_grpc(served: Listening, body: bytes) -> str:
    """The same over gRPC."""
    with grpc.insecure_channel(served.grpc) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(EXPORT)
        try:
            call(body, metadata=(("authorization", KEY),), timeout=WAIT)
        except grpc.RpcError as error:
            found: object = error
            assert isinstance(found, grpc.Call)
            trailers = dict(found.trailing_metadata() or ())
            retry, details = trailers[RETRY_TRAILER], trailers[STATUS_TRAILER]
            assert isinstance(retry, bytes)
            assert isinstance(details, bytes)
            told = RetryInfo.FromString(retry).retry_delay
            status = decode_status(details, "protobuf")
            assert told.seconds >= 1
            assert status.retry_after == told.seconds + told.nanos / 1e9
            return found.code().name
        return "OK"


BOTH = pytest.mark.parametrize("send", [by_http, by_grpc])


@BOTH
def test_bytes_in_flight_are_shared_by_both_transports(
    send: Callable[[Listening, bytes], str],
) -> None:
    """Fault row 25: what both hold fills one budget; what is shed is told when to come again."""
    with holding(Door()) as (served, held):
        holders = [held.hold(by_http, HALF), held.hold(by_grpc, HALF)]
        assert send(served, b"x") == "UNAVAILABLE"
        assert len(served.double.calls) == 2
        held.release()
        assert [each.result(WAIT) for each in holders] == ["OK", "OK"]
        assert send(served, b"x") == "OK"


def test_what_a_body_becomes_counts() -> None:
    """Fault rows 16 and 25: a body counts as it came and decompressed."""
    door = Door()
    with holding(door) as (served, held):
        held.release()
        assert post(served, gzip.compress(bytes(90_000)), "gzip").status_code == 200
        assert post(served, gzip.compress(bytes(100_000)), "gzip").status_code == 503
        assert door.held == 0


@BOTH
def test_lag_sheds_and_is_over(send: Callable[[Listening, bytes], str]) -> None:
    """Fault row 25: while judging lags, requests are shed unread; then they are taken again."""
    with holding(Door(max_lag=0)) as (served, held):
        holder = held.hold(by_http, b"x")
        assert send(served, HALF) == "UNAVAILABLE"
        held.release()
        assert holder.result(WAIT) == "OK"
        assert send(served, HALF) == "OK"


@BOTH
def test_a_large_request_passes_a_full_house(send: Callable[[Listening, bytes], str]) -> None:
    """Fault row 25: small requests that hold everything do not shut a large one out."""
    with holding(Door()) as (served, held):
        holders = [held.hold(by_http, HALF), held.hold(by_http, HALF)]
        large = held.hold(send, bytes(1_500_000))
        assert by_grpc(served, b"x") == "UNAVAILABLE"
        held.release()
        assert [each.result(WAIT) for each in (*holders, large)] == ["OK"] * 3


@pytest.mark.parametrize("kind", [OTLPSpanExporter, GrpcExporter])
def test_a_stock_exporter_comes_again(kind: type[SpanExporter]) -> None:
    """Fault row 25: stock exporters obey the refusal, and lose nothing by it."""
    door = Door(max_lag=0)
    with holding(door) as (served, held), ThreadPoolExecutor(1) as pool:
        holder = held.hold(by_http, b"x")
        if kind is GrpcExporter:
            exporter: SpanExporter = GrpcExporter(
                served.grpc, insecure=True, headers={"authorization": KEY}, timeout=WAIT
            )
        else:
            url = f"http://{served.http}/v1/traces"
            exporter = OTLPSpanExporter(url, headers={"authorization": KEY}, timeout=WAIT)
        exported = pool.submit(exporter.export, finished_spans("op"))
        assert door.refused.wait(WAIT)
        held.release()
        assert exported.result(WAIT) is SpanExportResult.SUCCESS
        assert holder.result(WAIT) == "OK"
        exporter.shutdown()
