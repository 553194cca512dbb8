"""The HTTP listener, asked by real clients over loopback; a double stands behind it."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExportResult

from flowmark_otel import names
from flowmark_otel.errors import Unavailable, Unparsable
from flowmark_otel.listen.protocol import Encoding, Reply, Signal
from flowmark_otel.model import Receipt
from flowmark_otel.wire import outcome, receipt
from flowmark_otel.wire.status import decode_status, encode_status
from tests.support.accepting import BACKEND_ID, KEY, Call, Double, Listening, listening
from tests.support.spans import finished_spans

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
LIMIT = 1 << 20
MIB = 1 << 20


@pytest.fixture(scope="module")
def served() -> Iterator[Listening]:
    """One listener for all tests of this module."""
    with listening(max_request_bytes=LIMIT) as found:
        yield found


@pytest.fixture
def double(served: Listening) -> Double:
    """Its double, with an empty memory."""
    served.double.calls.clear()
    served.double.answer = None
    return served.double


def post(
    served: Listening,
    path: str = "/v1/traces",
    body: object = b"",
    kind: str | None = PROTOBUF,
    **headers: str | None,
) -> requests.Response:
    """One request with a key; a header set to None is left out."""
    sent = {"authorization": KEY, "content-type": kind} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    kept = {name: value for name, value in sent.items() if value is not None}
    return requests.post(f"http://{served.http}{path}", data=body, headers=kept, timeout=20)  # type: ignore[arg-type]


def status_of(answer: requests.Response) -> str:
    """The message of the error body, which must be in the content type it claims."""
    kinds = {PROTOBUF: "protobuf", JSON: "json"}
    return decode_status(answer.content, kinds[answer.headers["content-type"]]).message


@pytest.mark.parametrize("signal", list(Signal))
@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize("coding", [None, "identity", "gzip", "GZIP"])
def test_bodies_arrive_as_they_were_sent(
    served: Listening, double: Double, signal: Signal, encoding: Encoding, coding: str | None
) -> None:
    """D5: both signals, encodings and codings; success has the request's content type."""
    raw = b'{"resourceSpans": []}'
    body = gzip.compress(raw) if coding and "gzip" in coding.lower() else raw
    kind = f"{encoding.value.title()}; charset=utf-8"
    answer = post(
        served, f"/v1/{signal.value}", body, kind, content_encoding=coding, user_agent="ua/1"
    )
    assert answer.status_code == 200
    assert answer.headers["content-type"] == encoding.value
    assert receipt.decode(answer.content, encoding.wire).backend_id == BACKEND_ID
    (call,) = double.calls
    assert call == Call(signal, encoding, raw, call.principal, "ua/1")
    assert call.principal.kind == names.KEY_INGEST


@pytest.mark.parametrize("compression", list(Compression))
def test_a_stock_exporter_succeeds(
    served: Listening, double: Double, compression: Compression
) -> None:
    """D1: the stock OTLP/HTTP exporter delivers, whatever its compression, but deflate."""
    exporter = OTLPSpanExporter(
        endpoint=f"http://{served.http}/v1/traces",
        headers={"authorization": KEY},
        compression=compression,
    )
    found = exporter.export(finished_spans("looked at"))
    if compression is Compression.Deflate:
        assert found is SpanExportResult.FAILURE
    else:
        assert found is SpanExportResult.SUCCESS
        assert b"looked at" in double.calls[0].body


@pytest.mark.parametrize(
    ("kind", "answered"), [(PROTOBUF, PROTOBUF), (JSON, JSON), ("text/plain", JSON), (None, JSON)]
)
@pytest.mark.parametrize("key", [None, "Bearer wrong", "Basic eDp5", "Bearer read", ""])
def test_who_has_no_key_is_refused(
    served: Listening, double: Double, kind: str | None, answered: str, key: str | None
) -> None:
    """Contract, section 4: no or bad key 401, wrong kind 403, told in the request's type."""
    answer = post(served, kind=kind, body=b"\xff", authorization=key)
    assert answer.status_code == (403 if key == "Bearer read" else 401)
    assert answer.headers.get("www-authenticate") == (None if key == "Bearer read" else "Bearer")
    assert answer.headers["content-type"] == answered
    assert status_of(answer)
    assert not double.calls


def test_a_caller_without_key_is_answered_before_its_body(served: Listening) -> None:
    """Reliability: authentication comes before the body; nothing of it need have been sent."""
    with socket.create_connection(_address(served), timeout=20) as client:
        client.sendall(
            b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"content-length: 1000\r\n\r\n"
        )
        assert client.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_two_keys_are_none(served: Listening) -> None:
    """Contract, "Projects": a request that names two keys is nobody's."""
    connection = http.client.HTTPConnection(*_address(served), timeout=20)
    connection.putrequest("POST", "/v1/traces")
    connection.putheader("content-type", PROTOBUF)
    connection.putheader("authorization", KEY)
    connection.putheader("authorization", "Bearer browser")
    connection.putheader("content-length", "0")
    connection.endheaders()
    assert connection.getresponse().status == 401
    connection.close()


@pytest.mark.parametrize("kind", ["text/plain", "application/protobuf", "", None])
def test_a_wrong_content_type_is_415(served: Listening, double: Double, kind: str | None) -> None:
    """Contract, section 4: wrong content type 415, told in JSON."""
    answer = post(served, body=b"x", kind=kind)
    assert answer.status_code == 415
    assert "content type" in status_of(answer)
    assert not double.calls


@pytest.mark.parametrize("coding", ["deflate", "br", "gzip, gzip", "zstd"])
def test_a_wrong_encoding_is_415(served: Listening, double: Double, coding: str) -> None:
    """Contract, section 4: unknown content encoding 415."""
    answer = post(served, body=b"x", content_encoding=coding)
    assert answer.status_code == 415
    assert "encoding" in status_of(answer)
    assert not double.calls


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no gzip",
        gzip.compress(b"x" * 999, mtime=0)[:-3],
        gzip.compress(b"x" * 999, mtime=0)[:20],
        gzip.compress(b"x", mtime=0) + b"trailing",
        gzip.compress(b"x", mtime=0) + b"\0",
        gzip.compress(b"x" * 999, mtime=0)[:-6] + b"\0\0\0\0\0\0",
    ],
)
def test_bad_gzip_is_400(served: Listening, double: Double, body: bytes) -> None:
    """Fault row 16: corrupt, cut short, or followed by garbage: 400."""
    answer = post(served, body=body, content_encoding="gzip")
    assert answer.status_code == 400
    assert "gzip" in status_of(answer)
    assert not double.calls


def test_gzip_of_several_members_is_one_body(served: Listening, double: Double) -> None:
    """Fault row 16: a gzip stream may have several members."""
    body = gzip.compress(b"ab") + gzip.compress(b"") + gzip.compress(b"cd")
    assert post(served, body=body, content_encoding="gzip").status_code == 200
    assert double.calls[0].body == b"abcd"


def test_the_limit_holds_to_the_byte(served: Listening, double: Double) -> None:
    """Fault row 16: exactly the limit passes, one byte more is 413, plain, chunked and gzipped."""
    for extra, expected in ((0, 200), (1, 413)):
        raw = bytes(LIMIT + extra)
        assert post(served, body=raw).status_code == expected
        assert post(served, body=iter([raw[:7], raw[7:]])).status_code == expected
        packed = gzip.compress(raw)
        assert post(served, body=packed, content_encoding="gzip").status_code == expected
    assert [len(each.body) for each in double.calls] == [LIMIT] * 3


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_a_bomb_is_413(served: Listening, double: Double, kind: str) -> None:
    """Fault row 16: a body that decompresses beyond the limit is 413 in the request's type."""
    answer = post(served, body=gzip.compress(bytes(64 * MIB)), kind=kind, content_encoding="gzip")
    assert answer.status_code == 413
    assert answer.headers["content-type"] == kind
    assert str(LIMIT) in status_of(answer)
    assert not double.calls


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
@pytest.mark.parametrize("chunked", [False, True])
def test_too_large_a_body_is_answered(served: Listening, connection: str, *, chunked: bool) -> None:
    """Contract, section 4: over the limit 413, and its sender sees that answer, not a reset."""
    raw = bytes(8 * MIB)
    body = iter([raw[:MIB]] * 8) if chunked else raw
    assert post(served, body=body, connection=connection).status_code == 413


def test_an_announced_size_is_refused_before_the_body(served: Listening) -> None:
    """Contract, section 4: a content length over the limit is refused unread."""
    with socket.create_connection(_address(served), timeout=20) as client:
        client.sendall(
            b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"authorization: Bearer ingest\r\nexpect: 100-continue\r\n"
            b"content-length: 99999999\r\n\r\n"
        )
        assert client.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_a_sender_that_waits_is_told_to_continue(served: Listening) -> None:
    """Fault row 19: ``Expect: 100-continue`` is honoured."""
    with socket.create_connection(_address(served), timeout=20) as client:
        client.sendall(
            b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"authorization: Bearer ingest\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
        )
        assert client.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"{}")
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/metrics", "/v1/traces/", "/v1/flowmark"])
@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_an_unknown_path_is_404(served: Listening, path: str, kind: str) -> None:
    """Contract, section 4: unknown path 404, a status in the request's type."""
    answer = post(served, path, b"{}", kind)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == kind
    assert status_of(answer)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/traces", {"POST"}),
        ("PUT", "/v1/logs", {"POST"}),
        ("POST", "/v1/flowmark/capabilities", {"GET", "HEAD"}),
        ("GET", "/v1/flowmark/status", {"POST"}),
    ],
)
def test_a_wrong_method_is_405(
    served: Listening, method: str, path: str, allowed: set[str]
) -> None:
    """Contract, section 4: wrong method 405, naming those that are allowed."""
    answer = requests.request(method, f"http://{served.http}{path}", timeout=20)
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == allowed
    assert status_of(answer)


@pytest.mark.parametrize(
    ("kind", "status"),
    [(outcome.CONFLICT, 409), (outcome.REFUSED, 400), (outcome.UNAVAILABLE, 503)],
)
def test_a_judged_answer_is_passed_on(
    served: Listening, double: Double, kind: str, status: int
) -> None:
    """Contract, section 4: the outcome decides the status, the body is the judge's."""
    code = outcome.ANSWERS[kind].grpc
    body = encode_status(code, kind, "json", Receipt(received=1, rejected=1))

    async def answer(_call: Call) -> Reply:
        return Reply(kind, body)

    double.answer = answer
    found = post(served, body=b"{}", kind=JSON)
    assert (found.status_code, found.content) == (status, body)
    assert found.headers.get("retry-after") == ("1" if status == 503 else None)


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
@pytest.mark.parametrize(("seconds", "header"), [(0.01, "1"), (1.0, "1"), (2.1, "3")])
def test_unavailable_says_when_to_try_again(
    served: Listening, double: Double, kind: str, seconds: float, header: str
) -> None:
    """Contract, section 4: 503 with ``Retry-After`` in whole seconds, RetryInfo in the body."""

    async def answer(_call: Call) -> Reply:
        msg = "the store is read-only"
        raise Unavailable(msg, retry_after=seconds)

    double.answer = answer
    found = post(served, kind=kind)
    assert found.status_code == 503
    assert found.headers["retry-after"] == header
    status = decode_status(found.content, "json" if kind == JSON else "protobuf")
    assert (status.code, status.message) == (14, "the store is read-only")
    assert status.retry_after == pytest.approx(seconds)


def test_unparsable_is_400(served: Listening, double: Double) -> None:
    """Contract, section 4: a body the judge cannot parse is 400 with a status."""

    async def answer(_call: Call) -> Reply:
        msg = "the body is no ExportTraceServiceRequest"
        raise Unparsable(msg)

    double.answer = answer
    found = post(served)
    assert found.status_code == 400
    assert status_of(found) == "the body is no ExportTraceServiceRequest"


def test_an_unforeseen_error_is_503_and_quotes_nothing(
    served: Listening, double: Double, caplog: pytest.LogCaptureFixture
) -> None:
    """Reliability: never 500; neither the answer nor the log quotes what was sent."""

    async def answer(call: Call) -> Reply:
        msg = f"driver says {call.body!r}"
        raise KeyError(msg)

    double.answer = answer
    with caplog.at_level(logging.ERROR):
        found = post(served, body=b"secret")
    assert found.status_code == 503
    assert found.headers["retry-after"] == "1"
    assert "secret" not in found.text
    assert "KeyError" in caplog.text
    assert "secret" not in caplog.text


def test_what_is_not_judged_in_time_is_503() -> None:
    """I7, fault row 7: a judge that never answers costs the caller a bounded wait."""

    async def never(_call: Call) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError

    with listening(judge_timeout=0.05) as served:
        served.double.answer = never
        assert post(served).status_code == 503


def test_what_does_not_arrive_in_time_is_503() -> None:
    """I7, fault row 15: a body that stalls is answered, and holds up nobody else."""
    with (
        listening(read_timeout=0.2) as served,
        socket.create_connection(_address(served), timeout=20) as client,
    ):
        client.sendall(
            b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"authorization: Bearer ingest\r\ncontent-length: 9\r\n\r\n{"
        )
        assert post(served).status_code == 200
        assert client.recv(65536).startswith(b"HTTP/1.1 503 ")


def test_a_caller_that_leaves_harms_nobody(served: Listening, double: Double) -> None:
    """Fault row 9: a connection that ends inside a body is forgotten."""
    with socket.create_connection(_address(served), timeout=20) as client:
        client.sendall(
            b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            b"authorization: Bearer ingest\r\ncontent-length: 9\r\n\r\n{"
        )
    assert post(served).status_code == 200
    assert len(double.calls) == 1


def test_requests_are_judged_side_by_side(served: Listening, double: Double) -> None:
    """Fault row 15: one slow request does not hold up the others."""
    barrier = threading.Barrier(4)

    async def together(_call: Call) -> Reply:
        await asyncio.get_running_loop().run_in_executor(None, barrier.wait, 20)
        return Reply(outcome.OK, b"")

    double.answer = together
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: post(served).status_code, range(4)))
    assert answers == [200] * 4


def test_capabilities_are_told(served: Listening) -> None:
    """A23: ``GET /v1/flowmark/capabilities`` gives the capabilities and the backend's id."""
    url = f"http://{served.http}/v1/flowmark/capabilities"
    answer = requests.get(url, headers={"authorization": KEY}, timeout=20)
    assert answer.json() == {"capabilities": ["attempts-v1"], "backendId": BACKEND_ID}
    assert answer.headers["content-type"] == JSON
    assert requests.get(url, timeout=20).status_code == 401
    browser = requests.get(url, headers={"authorization": "Bearer browser"}, timeout=20)
    assert browser.status_code == 403


@pytest.mark.parametrize("coding", [None, "gzip"])
def test_status_is_told_in_the_order_asked(served: Listening, coding: str | None) -> None:
    """Contract, section 4: each id's state in the order asked; unknown is null."""
    body = json.dumps({"eventIds": ["x", "op-1", "x"]}).encode()
    body = gzip.compress(body) if coding else body
    answer = post(served, "/v1/flowmark/status", body, JSON, content_encoding=coding)
    unknown = {"eventId": "x", "state": "unknown", "digest": None, "code": None}
    stored = {"eventId": "op-1", "state": "stored", "digest": "00" * 32, "code": None}
    assert answer.json() == {"events": [unknown, stored, unknown]}


@pytest.mark.parametrize(
    ("found", "status"),
    [
        ({"eventIds": ["x"] * 1000}, 200),
        ({"eventIds": []}, 200),
        ({"eventIds": ["x"] * 1001}, 400),
        ({"eventIds": "x"}, 400),
        ({"eventIds": [1]}, 400),
        ({"eventIds": ["\ud800"]}, 400),
        ({}, 400),
        ([], 400),
    ],
)
def test_a_status_question_has_a_form(served: Listening, found: object, status: int) -> None:
    """Contract, section 4: at most 1,000 ids, each a string; anything else is 400."""
    answer = post(served, "/v1/flowmark/status", json.dumps(found).encode(), JSON)
    assert answer.status_code == status


@pytest.mark.parametrize(
    ("body", "kind", "key", "status"),
    [
        (b"{}", PROTOBUF, KEY, 415),
        (b"{}", JSON, None, 401),
        (b"{}", JSON, "Bearer browser", 403),
        (b"[" * 100_000, JSON, KEY, 400),
        (b"\xff", JSON, KEY, 400),
        (b'{"eventIds": []}' + b" " * (4 * MIB), JSON, KEY, 413),
    ],
)
def test_a_status_question_is_refused_like_an_export(
    served: Listening, body: bytes, kind: str, key: str | None, status: int
) -> None:
    """Contract, section 4: the same refusals, whatever is asked."""
    answer = post(served, "/v1/flowmark/status", body, kind, authorization=key)
    assert answer.status_code == status
    assert status_of(answer)


def _address(served: Listening) -> tuple[str, int]:
    host, _, port = served.http.rpartition(":")
    return host, int(port)
