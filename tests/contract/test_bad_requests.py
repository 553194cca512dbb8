"""Requests that are bad as a whole, sent to the real backend over both transports.

Every one is refused as the contract says, none of them with 500 or INTERNAL, and the request
after it is taken.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import requests
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.util.types import AttributeValue

from flowmark_otel import names
from flowmark_otel.listen.grpc import LOGS, RETRY_TRAILER, TRACES
from flowmark_otel.model import Receipt
from flowmark_otel.wire import receipt
from flowmark_otel.wire.status import decode_status
from tests.support import http2
from tests.support.memory import peak_mib
from tests.support.server import Running, options, running
from tests.support.serving import Serving
from tests.support.spans import finished_spans

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
MIB = 1 << 20
LIMIT = 4 * MIB
PATHS = ("/v1/traces", "/v1/logs")
METHODS = (f"/{TRACES}/Export", f"/{LOGS}/Export")
Code = grpc.StatusCode

ATTEMPT: dict[str, AttributeValue] = {names.ATTEMPT_GROUP_ID: "g", names.ATTEMPT_NUMBER: 1}
GOOD = encode_spans(finished_spans("push", attributes=ATTEMPT)).SerializeToString()


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One backend for all tests of this module."""
    store = tmp_path_factory.mktemp("backend") / "flowmark.db"
    with running(options(store, max_request_bytes=LIMIT)) as found:
        yield found


@pytest.fixture(autouse=True)
def _stands(backend: Running) -> Iterator[None]:
    """After every test of this module the backend takes a good request."""
    yield
    assert post(backend, body=GOOD).status_code == 200


def post(
    backend: Running,
    path: str = "/v1/traces",
    body: bytes = b"",
    kind: str = PROTOBUF,
    **headers: str,
) -> requests.Response:
    """One OTLP request over HTTP, with a key."""
    sent = {"authorization": backend.ingest, "content-type": kind} | headers
    return requests.post(f"http://{backend.http}{path}", data=body, headers=sent, timeout=30)


def call(backend: Running, path: str, body: bytes) -> bytes:
    """One OTLP request over gRPC, with a key."""
    metadata = (("authorization", backend.ingest),)
    with grpc.insecure_channel(
        backend.grpc, options=[("grpc.max_send_message_length", -1)]
    ) as channel:
        method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
        return method(body, metadata=metadata, timeout=30)


def failed(backend: Running, path: str, body: bytes) -> grpc.Call:
    """The error of a gRPC request that must fail."""
    with pytest.raises(grpc.RpcError) as found:
        call(backend, path, body)
    error: object = found.value
    assert isinstance(error, grpc.Call)
    return error


MALFORMED = [
    b"\xff",
    b"\x0a",
    b"\x0a\x7f",
    GOOD[:-1],
    GOOD[: len(GOOD) // 2],
    b"\x0b" * 200,
    b"<html></html>",
]


@pytest.mark.parametrize("body", MALFORMED)
@pytest.mark.parametrize("path", PATHS)
def test_malformed_protobuf_is_400(backend: Running, path: str, body: bytes) -> None:
    """Fault row 18: malformed and truncated protobuf is 400 with a status in protobuf."""
    answer = post(backend, path, body)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == PROTOBUF
    status = decode_status(answer.content, "protobuf")
    assert (status.code, status.receipt) == (3, None)
    assert status.message


@pytest.mark.parametrize("body", MALFORMED)
@pytest.mark.parametrize("path", METHODS)
def test_malformed_protobuf_is_invalid_argument(backend: Running, path: str, body: bytes) -> None:
    """Fault row 18: malformed and truncated protobuf is INVALID_ARGUMENT."""
    assert failed(backend, path, body).code() is Code.INVALID_ARGUMENT


def test_noise_is_refused_or_ignored(backend: Running) -> None:
    """Fault row 18: bytes of chance, and good requests with flipped bytes, are never a crash."""
    chance = random.Random(7)
    for _ in range(60):
        noise = chance.randbytes(chance.randrange(1, 200))
        broken = bytearray(GOOD)
        for _ in range(3):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        for body in (noise, bytes(broken)):
            for path in PATHS:
                assert post(backend, path, body).status_code in {200, 400, 409}
                assert post(backend, path, body, JSON).status_code == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'"text"',
        b"{",
        b"{}{}",
        b"\xff\xfe{}",
        b'{"resourceSpans": {}, "resourceLogs": {}}',
        b'{"resourceSpans": 1, "resourceLogs": 1}',
        b"[" * 100_000,
        b'{"resourceSpans":' * 100_000,
        b'{"resourceSpans": [], "resourceLogs": [], "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"resourceSpans": [], "resourceLogs": [], "x": ' + b"9" * 100_000 + b"",
    ],
)
@pytest.mark.parametrize("path", PATHS)
def test_malformed_json_is_400(backend: Running, path: str, body: bytes) -> None:
    """Fault row 21: no object, a wrong top level, or a depth of 10^5: 400 with a status in JSON."""
    answer = post(backend, path, body, JSON)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == JSON
    status = decode_status(answer.content, "json")
    assert (status.code, status.receipt) == (3, None)
    assert status.message


@pytest.mark.parametrize(("kind", "body"), [(PROTOBUF, b""), (JSON, b"{}")])
@pytest.mark.parametrize("path", PATHS)
def test_an_empty_request_succeeds(backend: Running, path: str, kind: str, body: bytes) -> None:
    """A23: an empty request is acknowledged, with nothing received."""
    answer = post(backend, path, body, kind)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == kind
    found = receipt.decode(answer.content, "json" if kind == JSON else "protobuf")
    assert found == Receipt(backend_id=found.backend_id)
    assert found.backend_id


@pytest.mark.parametrize("path", METHODS)
def test_an_empty_message_succeeds(backend: Running, path: str) -> None:
    """A23: the same over gRPC."""
    found = receipt.decode(call(backend, path, b""), "protobuf")
    assert found == Receipt(backend_id=found.backend_id)
    assert found.backend_id


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_bad_gzip_is_400(backend: Running, kind: str) -> None:
    """Fault row 16: corrupt and truncated gzip is 400."""
    packed = gzip.compress(GOOD)
    for body in (b"", GOOD, packed[:-4], packed[: len(packed) // 2], packed + GOOD):
        assert (
            post(backend, body=body, kind=kind, **{"content-encoding": "gzip"}).status_code == 400
        )


def test_bad_gzip_is_invalid_argument(backend: Running) -> None:
    """Fault row 16: the same over gRPC, never INTERNAL."""
    packed = gzip.compress(GOOD)
    for body in (packed[:-4], packed[: len(packed) // 2], packed + GOOD):
        frames = http2.call(
            backend.grpc, METHODS[0], body, compressed=True, authorization=backend.ingest
        )
        assert http2.status_of(frames) == Code.INVALID_ARGUMENT.value[0]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/html"}, 415),
        ({"content-type": "application/grpc"}, 415),
        ({"content-encoding": "br"}, 415),
        ({"authorization": "Bearer fmk_x_y"}, 401),
        ({"authorization": ""}, 401),
    ],
)
def test_wrong_headers_are_refused(backend: Running, headers: dict[str, str], status: int) -> None:
    """Fault rows 19 and 22: wrong type or encoding 415, wrong or no key 401."""
    assert post(backend, body=GOOD, **headers).status_code == status


def test_a_read_key_may_not_send(backend: Running) -> None:
    """Fault row 22: a key of the wrong kind is 403."""
    assert post(backend, body=GOOD, authorization=backend.read).status_code == 403


def test_other_records_are_no_fault(backend: Running) -> None:
    """D5: log records that are no envelopes are taken and ignored."""
    other = ExportLogsServiceRequest(
        resource_logs=[ResourceLogs(scope_logs=[ScopeLogs(log_records=[LogRecord()] * 3)])]
    )
    answer = post(backend, "/v1/logs", other.SerializeToString())
    assert answer.status_code == 200
    assert receipt.decode(answer.content, "protobuf").received == 0


def test_over_the_limit_is_refused(backend: Running) -> None:
    """Fault row 16: one byte over the limit, plain and gzipped, on both transports."""
    over = bytes(LIMIT + 1)
    bomb = gzip.compress(bytes(512 * MIB), 1)
    assert post(backend, body=over).status_code == 413
    for packed in (gzip.compress(over), bomb):
        answer = post(backend, body=packed, **{"content-encoding": "gzip"})
        assert answer.status_code == 413
    error = failed(backend, METHODS[0], over)
    assert error.code() is Code.RESOURCE_EXHAUSTED
    assert RETRY_TRAILER not in dict(error.trailing_metadata() or ())


def test_65_mib_and_a_bomb_cost_a_bounded_memory(tmp_path: Path) -> None:
    """I6: 65 MiB, plain and gzipped, are refused by a backend of default limits in 400 MB."""
    with Serving(tmp_path / "flowmark.db") as backend:
        served = Running(backend.grpc, backend.http, *backend.keys)
        for body, coding in ((bytes(65 * MIB), "identity"), (_bomb(), "gzip")):
            answer = post(served, body=body, **{"content-encoding": coding})
            assert answer.status_code == 413
            assert decode_status(answer.content, "protobuf").code == 8
        assert failed(served, METHODS[0], bytes(65 * MIB)).code() is Code.RESOURCE_EXHAUSTED
        assert post(served, body=GOOD).status_code == 200
        assert peak_mib(backend.process.pid) < 400


def _bomb() -> bytes:
    return gzip.compress(bytes(256 * MIB), 1)
