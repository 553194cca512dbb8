"""The backend as a whole: start, keys, both transports, restart, orderly stop."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import requests
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (
    OTLPSpanExporter as GrpcExporter,
)
from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
    OTLPSpanExporter as HttpExporter,
)
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.util.types import AttributeValue

from flowmark_otel import names
from flowmark_otel.errors import ConfigurationError
from flowmark_otel.listen.grpc import ACCEPTANCE, TRACES
from flowmark_otel.server import Server
from flowmark_otel.wire import receipt
from flowmark_otel.wire.pb import acceptance_pb2
from tests.support import certificates
from tests.support.loop import loop_thread
from tests.support.server import Running, options, running
from tests.support.serving import Serving
from tests.support.spans import finished_spans

PROTOBUF = "application/x-protobuf"


def attempt(number: int, group: str = "g") -> bytes:
    """A request with one annotated span: two events."""
    attributes: dict[str, AttributeValue] = {
        names.RUN_ID: "run-1",
        names.OPERATION_NAME: "push",
        names.ATTEMPT_GROUP_ID: group,
        names.ATTEMPT_NUMBER: number,
    }
    spans = finished_spans("push", attributes=attributes)
    return encode_spans(spans).SerializeToString()


def post(address: str, key: str, body: bytes) -> requests.Response:
    """One export of traces over HTTP."""
    headers = {"authorization": f"Bearer {key}", "content-type": PROTOBUF}
    return requests.post(f"http://{address}/v1/traces", data=body, headers=headers, timeout=30)


def export(backend: Running, body: bytes) -> bytes:
    """One export of traces over gRPC."""
    with grpc.insecure_channel(backend.grpc) as channel:
        method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            f"/{TRACES}/Export"
        )
        return method(body, metadata=(("authorization", backend.ingest),), timeout=30)


def test_an_attempt_is_acknowledged_and_known_again(tmp_path: Path) -> None:
    """A8, A23: stored by one transport, a duplicate by the other, also after a restart."""
    body = attempt(1)
    with running(options(tmp_path / "s.db")) as backend:
        answer = post(backend.http, backend.ingest_key, body)
        first = receipt.decode(answer.content, "protobuf")
        assert (first.received, first.stored, first.capabilities) == (2, 2, ("attempts-v1",))
        again = receipt.decode(export(backend, body), "protobuf")
        assert (again.received, again.duplicate) == (2, 2)
    with running(options(tmp_path / "s.db")) as restarted:
        assert (restarted.ingest_key, restarted.read_key) == ("", "")
        same = replace_keys(restarted, backend)
        once_more = receipt.decode(export(same, body), "protobuf")
        assert (once_more.duplicate, once_more.backend_id) == (2, first.backend_id)


def http_exporter(backend: Running) -> SpanExporter:
    """The stock exporter over HTTP."""
    return HttpExporter(
        f"http://{backend.http}/v1/traces", headers={"authorization": backend.ingest}
    )


def grpc_exporter(backend: Running) -> SpanExporter:
    """The stock exporter over gRPC."""
    return GrpcExporter(f"http://{backend.grpc}", headers=(("authorization", backend.ingest),))


@pytest.mark.parametrize("made", [http_exporter, grpc_exporter])
def test_stock_exporters_deliver(tmp_path: Path, made: Callable[[Running], SpanExporter]) -> None:
    """D1, D4: plain attributes and a stock exporter are enough; the run can be read."""
    attributes: dict[str, AttributeValue] = {names.ATTEMPT_GROUP_ID: "g", names.ATTEMPT_NUMBER: 2}
    with running(options(tmp_path / "s.db")) as backend:
        exporter = made(backend)
        spans = finished_spans("push", attributes=attributes)
        assert exporter.export(spans) is SpanExportResult.SUCCESS
        exporter.shutdown()
        url = f"http://{backend.http}/api/v1/runs"
        found = requests.get(url, headers={"authorization": backend.read}, timeout=30).json()
        assert [each["workflow"] for each in found["items"]] == ["tests"]


def test_status_and_capabilities_by_both_transports(tmp_path: Path) -> None:
    """Contract, section 4: what became of an event is told alike over HTTP and gRPC."""
    spans = finished_spans(
        "push", attributes={names.ATTEMPT_GROUP_ID: "g", names.ATTEMPT_NUMBER: 1}
    )
    context = spans[0].context
    assert context is not None
    known = f"op-{context.trace_id:032x}-{context.span_id:016x}-end"
    with running(options(tmp_path / "s.db")) as backend:
        body = encode_spans(spans).SerializeToString()
        assert post(backend.http, backend.ingest_key, body).status_code == 200
        told = requests.post(
            f"http://{backend.http}/v1/flowmark/status",
            json={"eventIds": [known, "op-x"]},
            headers={"authorization": backend.ingest},
            timeout=30,
        ).json()["events"]
        with grpc.insecure_channel(backend.grpc) as channel:
            method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                f"/{ACCEPTANCE}/Status"
            )
            request = acceptance_pb2.StatusRequest(event_ids=[known, "op-x"])
            metadata = (("authorization", backend.ingest),)
            raw = method(request.SerializeToString(), metadata=metadata, timeout=30)
        events = acceptance_pb2.StatusResponse.FromString(raw).events
        assert [each["state"] for each in told] == ["stored", "unknown"]
        assert [each.state for each in events] == ["stored", "unknown"]
        assert told[0]["digest"] == events[0].digest
        assert len(events[0].digest) == 64


def test_without_the_capability_nothing_is_acknowledged(tmp_path: Path) -> None:
    """A21: ``--without attempts-v1`` stores as ever and acknowledges no attempts."""
    with running(options(tmp_path / "s.db", without=(names.CAPABILITY,))) as backend:
        found = receipt.decode(export(backend, attempt(1)), "protobuf")
        assert found.capabilities == ()
        assert receipt.fault(found, 2) == names.REASON_UNACKNOWLEDGED


def test_without_keys_on_loopback_everybody_is_served(tmp_path: Path) -> None:
    """Contract, section 4: ``--insecure-no-auth`` serves project ``default`` without keys."""
    with running(options(tmp_path / "s.db", insecure_no_auth=True)) as backend:
        assert (backend.ingest_key, backend.read_key) == ("", "")
        headers = {"content-type": PROTOBUF}
        url = f"http://{backend.http}"
        answer = requests.post(f"{url}/v1/traces", data=attempt(1), headers=headers, timeout=30)
        assert answer.status_code == 200
        assert len(requests.get(f"{url}/api/v1/runs", timeout=30).json()["items"]) == 1


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"insecure_no_auth": True, "http": "0.0.0.0:0"}, "loopback"),
        ({"insecure_no_auth": True, "grpc": "[::]:0"}, "loopback"),
        ({"tls_cert": Path("x")}, "tls_key"),
    ],
)
def test_options_that_cannot_be_served_are_refused(
    tmp_path: Path, changes: dict[str, object], named: str
) -> None:
    """Security, "exposure": no keys on an open address, and no option is silently ignored."""
    with pytest.raises(ConfigurationError, match=named):
        Server(options(tmp_path / "s.db", **changes))


def test_taken_addresses_are_named_together(tmp_path: Path) -> None:
    """Contract, section 7: every address that cannot be bound is named, with the mend."""
    with running(options(tmp_path / "a.db")) as backend, loop_thread() as loop:
        second = options(tmp_path / "b.db", grpc=backend.grpc, http=backend.http)
        server = Server(second)
        with pytest.raises(ConfigurationError) as found:
            loop.run(server.start())
        assert len(found.value.faults) == 2
        assert backend.grpc in found.value.faults[0]
        assert backend.http in found.value.faults[1]
        server = Server(replace(second, grpc="127.0.0.1:0", http="127.0.0.1:0"))
        loop.run(server.start())
        loop.run(server.stop())


def test_health_is_told_without_a_key(tmp_path: Path) -> None:
    """Contract, section 7: ``/healthz`` and ``/readyz`` answer, and give nothing away."""
    with running(options(tmp_path / "s.db")) as backend:
        for path in ("/healthz", "/readyz"):
            answer = requests.get(f"http://{backend.http}{path}", timeout=30)
            assert (answer.status_code, len(answer.content) < 20) == (200, True)


@pytest.mark.parametrize("path", ["/nowhere", "/v2/traces", "/api/v2/runs"])
def test_an_unknown_path_is_404(tmp_path: Path, path: str) -> None:
    """Contract, section 4: unknown path 404, whatever is mounted beside."""
    with running(options(tmp_path / "s.db")) as backend:
        answer = requests.post(f"http://{backend.http}{path}", data=b"", timeout=30)
        assert answer.status_code == 404


@pytest.mark.needs("openssl")
def test_tls_serves_both_transports(tmp_path: Path) -> None:
    """Contract, section 7: ``--tls-cert`` and ``--tls-key`` hold for HTTP and gRPC."""
    cert, key = certificates.make(tmp_path)
    with running(options(tmp_path / "s.db", tls_cert=cert, tls_key=key)) as backend:
        url = f"https://localhost:{backend.http.rpartition(':')[2]}/healthz"
        assert requests.get(url, verify=str(cert), timeout=30).text == "ok\n"
        credentials = grpc.ssl_channel_credentials(cert.read_bytes())
        target = f"localhost:{backend.grpc.rpartition(':')[2]}"
        with grpc.secure_channel(target, credentials) as channel:
            method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                f"/{TRACES}/Export"
            )
            assert method(b"", metadata=(("authorization", backend.ingest),), timeout=30)


def test_a_bad_certificate_is_named(tmp_path: Path) -> None:
    """Contract, section 7: a certificate that cannot be used is a configuration fault."""
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    server = Server(options(tmp_path / "s.db", tls_cert=bad, tls_key=bad))
    with loop_thread() as loop, pytest.raises(ConfigurationError, match="tls_cert"):
        loop.run(server.start())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_and_nothing_acknowledged_is_lost(tmp_path: Path, number: int) -> None:
    """I1, fault row 26: stopped under traffic it ends with 0; all it acknowledged is there."""
    store = tmp_path / "s.db"
    acknowledged: list[int] = []
    busy = threading.Event()

    def send(address: str, ingest_key: str, start: int) -> None:
        for attempt_number in range(start, start + 500):
            try:
                answer = post(address, ingest_key, attempt(attempt_number))
            except requests.ConnectionError:
                return
            if answer.status_code == 200:
                acknowledged.append(attempt_number)
            if len(acknowledged) > 20:
                busy.set()

    with Serving(store) as serving, ThreadPoolExecutor(2) as pool:
        ingest_key, _ = serving.keys
        sending = [pool.submit(send, serving.http, ingest_key, start) for start in (1, 1000)]
        assert busy.wait(30)
        os.kill(serving.process.pid, number)
        assert serving.process.wait(15) == 0
        for each in sending:
            each.result()
    with running(options(store, insecure_no_auth=True)) as backend:
        url = f"http://{backend.http}/api/v1/runs"
        key = requests.get(url, timeout=30).json()["items"][0]["key"]
        found: set[int] = set()
        answer = requests.get(f"{url}/{key}/attempts?limit=500", timeout=30).json()
        for group in answer["items"]:
            found |= {each["number"] for each in group["attempts"]}
        assert set(acknowledged) <= found


STUCK = """
import sys, threading
from flowmark_otel import config
from flowmark_otel.backend import accept
from flowmark_otel.server import running

def stuck(*_):
    print("stuck", flush=True)
    threading.Event().wait()

accept.decode.decode_traces = stuck
running.STOP_SECONDS = 0.5
options = config.ServeOptions(
    db=sys.argv[1], grpc="127.0.0.1:0", http="127.0.0.1:0", insecure_no_auth=True
)
running.run(options, lambda started: None)
"""


def test_a_request_that_never_ends_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    """Fault row 26, I7: after its bound a stop ends the process, and says why."""
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK, f"sqlite:///{tmp_path / 's.db'}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    address = process.stdout.readline().split()[2].removeprefix("http=")
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(post, address, "", attempt(1))
        assert process.stdout.readline() == "stuck\n"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
        with pytest.raises(requests.ConnectionError):
            sending.result()
    assert process.returncode == 1
    assert json.loads(said)["event"] == "stopped_with_requests_in_flight"


def test_a_second_stop_and_an_idle_connection_do_no_harm(tmp_path: Path) -> None:
    """Fault row 26: a stop waits for requests, never for connections that send nothing."""
    server = Server(options(tmp_path / "s.db"))
    with loop_thread() as loop:
        started = loop.run(server.start())
        host, _, port = started.http.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=20) as idle:
            idle.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            answered = idle.recv(65536)
            while not answered.endswith(b"ok\n"):
                answered += idle.recv(65536)
            loop.run(server.stop())
            assert idle.recv(65536) == b""
        loop.run(server.stop())


def replace_keys(backend: Running, known: Running) -> Running:
    """A restarted backend with the keys of its first start."""
    return Running(backend.grpc, backend.http, known.ingest_key, known.read_key)
