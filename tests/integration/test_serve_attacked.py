"""``serve`` as a person runs it, attacked over the wire: it answers, refuses, and stays small."""

from __future__ import annotations

import contextlib
import gzip
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.util.types import AttributeValue

from flowmark_otel import names
from flowmark_otel.listen.grpc import TRACES
from tests.support import bombs
from tests.support.memory import forget_peak, peak_mib
from tests.support.serving import Serving
from tests.support.spans import finished_spans

PROTOBUF = "application/x-protobuf"
MOST_MIB = 300
MOST_MIB_AT_ONCE = 800
LARGE = 60 * bombs.MIB
AT_ONCE = 12


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A backend in a process of its own."""
    store = tmp_path_factory.mktemp("backend") / "flowmark.db"
    with Serving(store, "--insecure-no-auth") as found:
        yield found


@pytest.fixture
def served(backend: Serving) -> Iterator[Serving]:
    """The backend; after the attack it takes what a stock exporter sends."""
    forget_peak(backend.process.pid)
    yield backend
    exporter = OTLPSpanExporter(f"{backend.endpoint}/v1/traces")
    attempt: dict[str, AttributeValue] = {names.ATTEMPT_GROUP_ID: "g", names.ATTEMPT_NUMBER: 1}
    spans = finished_spans("after", attributes=attempt)
    assert exporter.export(spans) is SpanExportResult.SUCCESS


def by_http(served: Serving, body: bytes) -> str:
    """What became of a body over HTTP."""
    return str(served.post("traces", body, PROTOBUF).status_code)


def by_grpc(served: Serving, body: bytes) -> str:
    """And over gRPC."""
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(served.grpc, options=options) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes]
        call = channel.unary_unary(f"/{TRACES}/Export")
        try:
            call(body, timeout=60)
        except grpc.RpcError as error:
            found: object = error
            assert isinstance(found, grpc.Call)
            return found.code().name
        return "OK"


BOTH = pytest.mark.parametrize("send", [by_http, by_grpc])
TOO_LARGE = {"413", "RESOURCE_EXHAUSTED"}
WORST = (
    "tiny annotated spans",
    "empty attributes",
    "observed attempts of many spans",
    "attributes of an event",
)


@BOTH
def test_structural_bombs(served: Serving, send: Callable[[Serving, bytes], str]) -> None:
    """Fault row 17, I6: 64 MiB of very small parts are refused within 300 MiB.

    These four cost the most; ``make bench`` has them all.
    """
    for name, body in bombs.protobuf_bombs(64 * bombs.MIB):
        if name in WORST:
            assert send(served, body) in TOO_LARGE, name
    assert peak_mib(served.process.pid) < MOST_MIB


def test_json_bombs(served: Serving) -> None:
    """Fault rows 17 and 21, I6: the same in JSON."""
    for name, body in bombs.json_bombs(64 * bombs.MIB):
        assert served.post("traces", body, "application/json").status_code == 413, name
    assert peak_mib(served.process.pid) < MOST_MIB


def test_many_slow_connections(served: Serving) -> None:
    """I6, fault row 15: hundreds of unfinished requests cost little, and shut nobody out."""
    head = b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\n"
    begun = [head, head + b"content-length: 1000000\r\n\r\n" + bytes(10_000), b""]
    with contextlib.ExitStack() as stack:
        for number in range(300):
            address = served.grpc if number % 3 == 2 else served.http
            host, _, port = address.rpartition(":")
            slow = stack.enter_context(socket.create_connection((host, int(port)), timeout=20))
            slow.sendall(begun[number % 3])
        assert by_http(served, b"") == "200"
        assert by_grpc(served, b"") == "OK"
        assert peak_mib(served.process.pid) < MOST_MIB


@BOTH
def test_large_bodies_at_once(served: Serving, send: Callable[[Serving, bytes], str]) -> None:
    """I6, fault row 25: what cannot be held is shed; one at a time is always taken."""
    body = bombs.request(bombs.annotated(bombs.text(b"large", bytes(LARGE))))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = Counter(pool.map(lambda _: send(served, body), range(AT_ONCE)))
    # Judged, and refused for its ids: the span has none.
    judged = found.pop("400", 0) + found.pop("INVALID_ARGUMENT", 0)
    assert judged >= 1
    assert set(found) <= {"503", "UNAVAILABLE"}
    assert peak_mib(served.process.pid) < MOST_MIB_AT_ONCE


def test_gzip_bombs_at_once(served: Serving) -> None:
    """I6, fault row 16: bombs of gzip are stopped at the limit, or shed, whoever else sends one."""
    bomb = gzip.compress(bytes(256 * bombs.MIB), 1)
    headers = {"content-type": PROTOBUF, "content-encoding": "gzip"}

    def send(_: int) -> int:
        url = f"{served.endpoint}/v1/traces"
        return requests.post(url, data=bomb, headers=headers, timeout=60).status_code

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = Counter(pool.map(send, range(AT_ONCE)))
    assert found[413] >= 1
    assert set(found) <= {413, 503}
    assert peak_mib(served.process.pid) < MOST_MIB_AT_ONCE


def test_a_million_attributes_and_groups(served: Serving) -> None:
    """I6, fault row 17: 10^6 attributes, groups and workflows, as large as the budgets let them."""
    crowd = b"".join(bombs.text(b"k%d" % number, b"v") for number in range(130_000))
    body = bombs.request(bombs.annotated(crowd) * 7)
    assert by_http(served, body) == "400"
    ids = bombs.field(b"\x0a", b"\1" * 16)
    for start in range(0, 2 * 8192, 8192):
        spans = [
            ids
            + bombs.field(b"\x12", number.to_bytes(8, "big"))
            + bombs.text(names.WORKFLOW_NAME.encode(), b"w%d" % number)
            + bombs.text(names.ATTEMPT_GROUP_ID.encode(), b"g%d" % number)
            + bombs.field(
                bombs.ATTRIBUTE,
                bombs.field(b"\x0a", names.ATTEMPT_NUMBER.encode()) + b"\x12\x02\x18\x01",
            )
            for number in range(start + 1, start + 8193)
        ]
        body = bombs.request(b"".join(bombs.field(bombs.SPAN, span) for span in spans))
        assert by_http(served, body) == "200"
    assert peak_mib(served.process.pid) < MOST_MIB_AT_ONCE
