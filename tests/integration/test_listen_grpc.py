"""The gRPC listener, asked by real clients over loopback; a double stands behind it."""

from __future__ import annotations

import asyncio
import gzip
import logging
import threading
from collections.abc import Callable, Iterator

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExportResult

from flowmark_otel import names
from flowmark_otel.errors import Unavailable, Unparsable
from flowmark_otel.listen.grpc import ACCEPTANCE, LOGS, RETRY_TRAILER, STATUS_TRAILER, TRACES
from flowmark_otel.listen.protocol import Encoding, Reply, Signal
from flowmark_otel.model import Receipt
from flowmark_otel.wire import outcome, receipt
from flowmark_otel.wire.pb import acceptance_pb2
from flowmark_otel.wire.status import decode_status, encode_status
from tests.support import http2
from tests.support.accepting import BACKEND_ID, KEY, Call, Double, Listening, listening
from tests.support.spans import finished_spans

LIMIT = 1 << 20
MIB = 1 << 20
EXPORT = f"/{TRACES}/Export"
CAPABILITIES = f"/{ACCEPTANCE}/Capabilities"
STATUS = f"/{ACCEPTANCE}/Status"
Code = grpc.StatusCode
Export = Callable[..., bytes]


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


@pytest.fixture(scope="module")
def channel(served: Listening) -> Iterator[grpc.Channel]:
    """A channel that sends messages of any size."""
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(served.grpc, options=options) as found:
        yield found


@pytest.fixture
def call(channel: grpc.Channel) -> Export:
    """One unary call with a key, raw bytes in and out."""

    def made(
        path: str = EXPORT,
        body: bytes = b"",
        key: str | None = KEY,
        compression: grpc.Compression = grpc.Compression.NoCompression,
    ) -> bytes:
        metadata = () if key is None else (("authorization", key),)
        method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
        return method(body, metadata=metadata, timeout=20, compression=compression)

    return made


def failed(call: Callable[[], object]) -> grpc.Call:
    """The error of a call that must fail."""
    with pytest.raises(grpc.RpcError) as found:
        call()
    error: object = found.value
    assert isinstance(error, grpc.Call)
    return error


def trailers_of(error: grpc.Call) -> dict[str, bytes]:
    """The binary trailers, none of them twice."""
    found = [(key, value) for key, value in error.trailing_metadata() or () if key[-4:] == "-bin"]
    assert len(found) == len(dict(found))
    return {key: value for key, value in found if isinstance(value, bytes)}


@pytest.mark.parametrize("signal", list(Signal))
@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_messages_arrive_as_they_were_sent(
    call: Export, double: Double, signal: Signal, compression: grpc.Compression
) -> None:
    """D5: both signals, plain and gzipped, with key and user agent."""
    path = f"/{TRACES if signal is Signal.TRACES else LOGS}/Export"
    body = b"\x0a\x00" * 5000
    found = receipt.decode(call(path, body, compression=compression), "protobuf")
    assert found.backend_id == BACKEND_ID
    (made,) = double.calls
    assert made[:3] == (signal, Encoding.PROTOBUF, body)
    assert made.principal.kind == names.KEY_INGEST
    assert made.user_agent is not None
    assert made.user_agent.startswith("grpc-python/")


def test_an_empty_message_succeeds(call: Export, double: Double) -> None:
    """Contract, section 4: an empty request is a request."""
    assert call(body=b"")
    assert double.calls[0].body == b""


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_stock_exporter_succeeds(
    served: Listening, double: Double, compression: grpc.Compression
) -> None:
    """D1: the stock OTLP/gRPC exporter delivers."""
    exporter = OTLPSpanExporter(
        endpoint=f"http://{served.grpc}",
        headers=(("authorization", KEY),),
        compression=compression,
    )
    assert exporter.export(finished_spans("looked at")) is SpanExportResult.SUCCESS
    assert b"looked at" in double.calls[0].body
    exporter.shutdown()


def test_a_stock_exporter_tries_again(served: Listening, double: Double) -> None:
    """Contract, section 4: the second trailer is the one the stock exporter obeys."""
    answers = iter([Unavailable("busy", retry_after=0.01)])

    async def once(call: Call) -> Reply:
        for error in answers:
            raise error
        double.answer = None
        double.calls.pop()
        return await double.accept(*call)

    double.answer = once
    exporter = OTLPSpanExporter(endpoint=f"http://{served.grpc}", headers=(("authorization", KEY),))
    assert exporter.export(finished_spans("looked at")) is SpanExportResult.SUCCESS
    assert len(double.calls) == 2
    exporter.shutdown()


@pytest.mark.parametrize("path", [EXPORT, CAPABILITIES, STATUS])
@pytest.mark.parametrize("key", [None, "Bearer wrong", "Basic eDp5", "Bearer read", ""])
def test_who_has_no_key_is_refused(
    call: Export, double: Double, path: str, key: str | None
) -> None:
    """Contract, section 4: UNAUTHENTICATED without a key, PERMISSION_DENIED with a wrong one."""
    error = failed(lambda: call(path, b"\xff", key))
    expected = Code.PERMISSION_DENIED if key == "Bearer read" else Code.UNAUTHENTICATED
    assert error.code() is expected
    assert not double.calls


@pytest.mark.parametrize("path", [CAPABILITIES, STATUS])
def test_questions_are_closed_to_browsers(call: Export, path: str) -> None:
    """Contract, section 4: capabilities and status are closed to browser keys."""
    assert failed(lambda: call(path, key="Bearer browser")).code() is Code.PERMISSION_DENIED


def test_a_caller_without_key_is_answered_before_its_message(channel: grpc.Channel) -> None:
    """Reliability: authentication comes before the message; none need have been sent."""
    method: grpc.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(EXPORT)

    def nothing() -> Iterator[bytes]:
        asked.wait(20)
        yield b""

    asked = threading.Event()
    error = failed(lambda: method(nothing(), timeout=20))
    asked.set()
    assert error.code() is Code.UNAUTHENTICATED


@pytest.mark.parametrize("messages", [[], [b"", b""]])
def test_a_call_carries_one_message(
    channel: grpc.Channel, double: Double, messages: list[bytes]
) -> None:
    """Fault row 18: none or two messages where one belongs are INVALID_ARGUMENT."""
    method: grpc.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(EXPORT)
    metadata = (("authorization", KEY),)
    error = failed(lambda: method(iter(messages), timeout=20, metadata=metadata))
    assert error.code() is Code.INVALID_ARGUMENT
    assert not double.calls


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
@pytest.mark.parametrize(
    ("size", "code"),
    [(LIMIT, None), (LIMIT + 1, Code.RESOURCE_EXHAUSTED), (65 * MIB, Code.RESOURCE_EXHAUSTED)],
)
def test_the_limit_holds_to_the_byte(
    call: Export, double: Double, compression: grpc.Compression, size: int, code: Code | None
) -> None:
    """Fault row 16: over the limit, also after gunzipping: RESOURCE_EXHAUSTED, no RetryInfo."""
    if code is None:
        assert call(body=bytes(size), compression=compression)
        assert len(double.calls[0].body) == LIMIT
        return
    error = failed(lambda: call(body=bytes(size), compression=compression))
    assert error.code() is code
    assert RETRY_TRAILER not in trailers_of(error)
    assert not double.calls


def test_another_compression_is_unimplemented(call: Export, double: Double) -> None:
    """Fault row 16: gzip and identity only."""
    error = failed(lambda: call(body=bytes(99), compression=grpc.Compression.Deflate))
    assert error.code() is Code.UNIMPLEMENTED
    assert not double.calls


@pytest.mark.parametrize(
    "body",
    [
        gzip.compress(b"x" * 999, mtime=0)[:-3],
        gzip.compress(b"x" * 999, mtime=0)[:20],
        gzip.compress(b"x", mtime=0) + b"trailing",
        gzip.compress(b"x" * 999, mtime=0)[:-6] + b"\0\0\0\0\0\0",
    ],
)
def test_bad_gzip_is_invalid_argument(served: Listening, double: Double, body: bytes) -> None:
    """Fault row 16: gzip that is corrupt, cut short, or followed by garbage: never INTERNAL."""
    frames = http2.call(served.grpc, EXPORT, body, compressed=True, authorization=KEY)
    assert http2.status_of(frames) == Code.INVALID_ARGUMENT.value[0]
    assert not double.calls


def test_good_gzip_written_by_hand_succeeds(served: Listening, double: Double) -> None:
    """Fault row 16: the frames of the test above are right but for their gzip."""
    body = gzip.compress(b"x" * 999)
    frames = http2.call(served.grpc, EXPORT, body, compressed=True, authorization=KEY)
    assert http2.status_of(frames) == 0
    assert double.calls[0].body == b"x" * 999


@pytest.mark.parametrize(
    ("kind", "code"),
    [(outcome.CONFLICT, Code.ALREADY_EXISTS), (outcome.REFUSED, Code.INVALID_ARGUMENT)],
)
def test_a_judged_answer_is_in_the_trailer(
    call: Export, double: Double, kind: str, code: Code
) -> None:
    """Contract, section 4: the status bytes, receipt included, are ``grpc-status-details-bin``."""
    judged = Receipt(received=1, rejected=1)
    body = encode_status(code.value[0], "1 of 1 events rejected", "protobuf", judged)

    async def answer(_call: Call) -> Reply:
        return Reply(kind, body)

    double.answer = answer
    error = failed(call)
    assert (error.code(), error.details()) == (code, "1 of 1 events rejected")
    assert trailers_of(error) == {STATUS_TRAILER: body}
    assert decode_status(body, "protobuf").receipt == judged


def test_unavailable_says_when_to_try_again(call: Export, double: Double) -> None:
    """Contract, section 4: UNAVAILABLE carries RetryInfo in both trailers."""

    async def answer(_call: Call) -> Reply:
        msg = "the store is read-only: é\r\n"
        raise Unavailable(msg, retry_after=1.5)

    double.answer = answer
    error = failed(call)
    assert (error.code(), error.details()) == (Code.UNAVAILABLE, "the store is read-only: ???")
    trailers = trailers_of(error)
    assert decode_status(trailers[STATUS_TRAILER], "protobuf").retry_after == 1.5
    info = RetryInfo.FromString(trailers[RETRY_TRAILER])
    assert info.retry_delay.ToTimedelta().total_seconds() == 1.5


def test_unparsable_is_invalid_argument(call: Export, double: Double) -> None:
    """Contract, section 4: a message the judge cannot parse is INVALID_ARGUMENT."""

    async def answer(_call: Call) -> Reply:
        msg = "the body is no ExportTraceServiceRequest"
        raise Unparsable(msg)

    double.answer = answer
    error = failed(call)
    assert error.code() is Code.INVALID_ARGUMENT
    assert RETRY_TRAILER not in trailers_of(error)


def test_an_unforeseen_error_is_unavailable_and_quotes_nothing(
    call: Export, double: Double, caplog: pytest.LogCaptureFixture
) -> None:
    """Reliability: never INTERNAL or UNKNOWN; answer and log quote nothing that was sent."""

    async def answer(call: Call) -> Reply:
        msg = f"driver says {call.body!r}"
        raise KeyError(msg)

    double.answer = answer
    with caplog.at_level(logging.ERROR):
        error = failed(lambda: call(body=b"secret"))
    assert error.code() is Code.UNAVAILABLE
    assert "secret" not in str(error)
    assert "KeyError" in caplog.text
    assert "secret" not in caplog.text


def test_what_stalls_is_unavailable() -> None:
    """I7, fault rows 7 and 15: a stalled message and a judge that never answers are bounded."""

    async def never(_call: Call) -> Reply:
        await asyncio.Event().wait()
        raise AssertionError

    with (
        listening(judge_timeout=0.05, read_timeout=0.05) as served,
        grpc.insecure_channel(served.grpc) as channel,
    ):
        served.double.answer = never
        unary: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(EXPORT)
        metadata = (("authorization", KEY),)
        assert failed(lambda: unary(b"", timeout=20, metadata=metadata)).code() is Code.UNAVAILABLE
        stream: grpc.StreamUnaryMultiCallable[bytes, bytes] = channel.stream_unary(EXPORT)
        released = threading.Event()

        def stalled() -> Iterator[bytes]:
            released.wait(20)
            yield b""

        error = failed(lambda: stream(stalled(), timeout=20, metadata=metadata))
        released.set()
        assert error.code() is Code.UNAVAILABLE


def test_capabilities_are_told(call: Export) -> None:
    """A23: the Acceptance service gives the capabilities and the backend's id."""
    found = acceptance_pb2.CapabilitiesResponse.FromString(call(CAPABILITIES))
    assert (list(found.capabilities), found.backend_id) == (["attempts-v1"], BACKEND_ID)


def test_status_is_told_in_the_order_asked(call: Export) -> None:
    """Contract, section 4: each id's state in the order asked; unknown is empty."""
    request = acceptance_pb2.StatusRequest(event_ids=["x", "op-1", "x"])
    found = acceptance_pb2.StatusResponse.FromString(call(STATUS, request.SerializeToString()))
    assert [(each.event_id, each.state, each.digest, each.code) for each in found.events] == [
        ("x", "unknown", "", ""),
        ("op-1", "stored", "00" * 32, ""),
        ("x", "unknown", "", ""),
    ]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (STATUS, acceptance_pb2.StatusRequest(event_ids=["x"] * 1001).SerializeToString()),
        (STATUS, b"\x0a\x01\xff"),
        (STATUS, b"\xff"),
        (CAPABILITIES, b"\xff"),
    ],
)
def test_a_malformed_question_is_invalid_argument(call: Export, path: str, body: bytes) -> None:
    """Contract, section 4: too many ids, ids that are no text, no message at all."""
    assert failed(lambda: call(path, body)).code() is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("path", [STATUS, CAPABILITIES])
@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_question_is_bounded_before_it_is_parsed(
    path: str, compression: grpc.Compression
) -> None:
    """Fault row 17: millions of empty ids are refused by their size, never made into objects."""
    with (
        listening(max_request_bytes=8 * MIB) as served,
        grpc.insecure_channel(
            served.grpc, options=[("grpc.max_send_message_length", -1)]
        ) as channel,
    ):
        unary: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path)
        error = failed(
            lambda: unary(
                b"\x0a\0" * (3 * MIB),
                metadata=(("authorization", KEY),),
                compression=compression,
                timeout=20,
            )
        )
        assert error.code() is Code.RESOURCE_EXHAUSTED
        assert RETRY_TRAILER not in trailers_of(error)


@pytest.mark.parametrize(
    "path",
    [
        f"/{TRACES}/Import",
        "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ],
)
def test_what_is_not_offered_is_unimplemented(call: Export, path: str) -> None:
    """Contract, section 4: no metrics, and reflection is off."""
    assert failed(lambda: call(path)).code() is Code.UNIMPLEMENTED


@pytest.mark.parametrize("service", ["", TRACES, LOGS, ACCEPTANCE])
def test_the_health_service_needs_no_key(channel: grpc.Channel, service: str) -> None:
    """Contract, section 4: the standard health service, without data and without a key."""
    stub = health_pb2_grpc.HealthStub(channel)
    found = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=20)
    assert found.status == health_pb2.HealthCheckResponse.SERVING
