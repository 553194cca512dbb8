"""What ``serve`` says of itself: metrics on their own address, health on all, a quiet log."""

from __future__ import annotations

import random
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import requests
from grpc_health.v1 import health_pb2, health_pb2_grpc
from starlette.applications import Starlette

from flowmark_otel import names
from flowmark_otel.listen import health as listen_health
from flowmark_otel.listen.grpc import ACCEPTANCE, LOGS, TRACES
from flowmark_otel.listen.intake import Intake
from flowmark_otel.listen.serving import Listeners
from flowmark_otel.server.attempts import MAX_NAMES
from flowmark_otel.server.naming import prometheus_name
from tests.support.accepting import Double
from tests.support.fleet import Fleet, until
from tests.support.killing import SPANS, batch
from tests.support.loop import loop_thread
from tests.support.otlp import traces_protobuf
from tests.support.payloads import JSON, PROTOBUF, as_json, request, span
from tests.support.serving import run_cli

REQUESTS = "flowmark_server_requests_total"
EVENTS = "flowmark_delivery_events_total"
STATUS = health_pb2.HealthCheckResponse


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One process with keys, that counts."""
    with Fleet(tmp_path_factory.mktemp("telemetry") / "s.db") as found:
        yield found


def post(fleet: Fleet, body: bytes, kind: str = PROTOBUF, key: str | None = None) -> int:
    """The status of one export over HTTP."""
    headers = {"authorization": f"Bearer {key or fleet.keys[0]}", "content-type": kind}
    url = f"{fleet.endpoint}/v1/traces"
    return requests.post(url, data=body, headers=headers, timeout=30).status_code


def export(fleet: Fleet, body: bytes, key: str) -> grpc.StatusCode:
    """The code of one export over gRPC."""
    with grpc.insecure_channel(fleet.grpc) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{TRACES}/Export")
        try:
            call(body, metadata=(("authorization", f"Bearer {key}"),), timeout=30)
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code
    return grpc.StatusCode.OK


@pytest.mark.needs("promtool")
def test_the_page_is_valid_for_prometheus(fleet: Fleet) -> None:
    """Contract, section 10: promtool reads the page and has nothing to say against it."""
    assert post(fleet, traces_protobuf(batch(random.Random(1)))) == 200
    answer = fleet.asked("/metrics", metrics=True)
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=answer.content, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_the_page_is_the_table(fleet: Fleet) -> None:
    """Contract, section 10: what is declared is on the page, and nothing else of ours."""
    families = {line.split()[2] for line in fleet.page().splitlines() if line.startswith("# TYPE")}
    declared = {prometheus_name(metric) for metric in names.SERVER_METRICS}
    ours = {name.removesuffix("_total") for name in families if name.startswith("flowmark_")}
    assert ours == declared
    assert {name for name in families if not name.startswith("flowmark_")} == {
        *("process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds")
    }


def test_events_are_counted_by_state_and_requests_by_outcome(fleet: Fleet) -> None:
    """Contract, section 10: each event once in its state, each request once in its outcome."""
    before = fleet.samples()
    body = traces_protobuf(batch(random.Random(2)))
    wrong = fleet.keys[1]
    bad = as_json(request([span(1, {"flowmark.attempt.group_id": "half"})]))
    asked = [
        (post(fleet, body), 200),
        (post(fleet, body), 200),
        (post(fleet, bad, JSON), 400),
        (post(fleet, body, key="fmk_no_no"), 401),
        (post(fleet, body, key=wrong), 403),
        (post(fleet, body, "text/plain"), 415),
    ]
    codes = [
        (export(fleet, body, fleet.keys[0]), grpc.StatusCode.OK),
        (export(fleet, b"\xff", fleet.keys[0]), grpc.StatusCode.INVALID_ARGUMENT),
        (export(fleet, body, wrong), grpc.StatusCode.PERMISSION_DENIED),
    ]
    assert [found for found, _ in (*asked, *codes)] == [meant for _, meant in (*asked, *codes)]

    def risen() -> dict[tuple[str, tuple[str, ...]], int]:
        return {
            key: int(value - before.get(key, 0))
            for key, value in fleet.samples().items()
            if key[0] in {REQUESTS, EVENTS} and value != before.get(key, 0)
        }

    # A request is counted when it has ended, a moment after its sender has the answer.
    until(lambda: sum(n for (name, _), n in risen().items() if name == REQUESTS) == 9)
    assert risen() == {
        (EVENTS, ("", "stored")): 2 * SPANS,
        (EVENTS, ("", "duplicate")): 4 * SPANS,
        (EVENTS, ("rejected", "invalid")): 2,
        (REQUESTS, ("traces", "ok", "http")): 2,
        (REQUESTS, ("traces", "refused", "http")): 1,
        (REQUESTS, ("traces", "unauthenticated", "http")): 1,
        (REQUESTS, ("traces", "forbidden", "http")): 1,
        (REQUESTS, ("traces", "unsupported", "http")): 1,
        (REQUESTS, ("traces", "ok", "grpc")): 1,
        (REQUESTS, ("traces", "refused", "grpc")): 1,
        (REQUESTS, ("traces", "forbidden", "grpc")): 1,
    }
    after = fleet.samples()
    for gauge in ("flowmark_server_in_flight_bytes", "flowmark_queue_size"):
        assert after[gauge, ()] == 0
    assert after["flowmark_store_size_bytes", ()] > 0
    count = ("flowmark_store_write_duration_seconds_count", ())
    assert after[count] - before[count] == 4


def test_attempts_are_counted_under_the_names_that_rules_give(fleet: Fleet) -> None:
    """Contract, section 10, E7: attempts, operations, durations and lost time, each event once."""
    named = {
        "flowmark.workflow.name": "storm",
        "flowmark.run.id": "metrics",
        "flowmark.operation.name": "push",
        "flowmark.attempt.group_id": "metrics",
        "flowmark.attempt.limit": 2,
    }
    tries = [
        span(9_000 + n, {**named, "flowmark.attempt.number": n}, status={"code": 2}) for n in (1, 2)
    ]
    for _ in range(2):
        assert post(fleet, as_json(request(tries)), JSON) == 200
    page = fleet.samples()
    of = ("push", "storm")
    assert page["flowmark_attempts_total", ("failed", *of)] == 2
    assert page["flowmark_operations_total", ("push", "failed", "storm")] == 1
    assert ("flowmark_operations_total", ("push", "first_try", "storm")) not in page
    assert page["flowmark_attempt_duration_seconds_count", ("failed", *of)] == 2
    assert page["flowmark_operation_time_lost_seconds_total", of] > 0


def test_what_is_sent_makes_no_more_series_than_the_bound(fleet: Fleet) -> None:
    """Fault row 17: paths, names, methods and agents of any number leave the page its size.

    Names of workflows and operations are told apart up to their limit only.
    """

    def storm(start: int) -> int:
        for number in range(start, start + 30):
            requests.get(f"{fleet.endpoint}/p{number}", timeout=30)
            requests.request(f"M{number}", f"{fleet.endpoint}/v1/traces", timeout=30)
            named = {
                "flowmark.workflow.name": f"w{number}",
                "flowmark.operation.name": f"o{number}",
            }
            assert post(fleet, as_json(request([span(number + 9, named)])), JSON) == 200
        return len(fleet.samples())

    many = [
        span(2_000 + n, {"flowmark.workflow.name": "many", "flowmark.operation.name": f"o{n}"})
        for n in range(MAX_NAMES + 9)
    ]
    assert post(fleet, as_json(request(many)), JSON) == 200
    assert storm(0) == storm(1000)
    assert fleet.samples()["flowmark_operations_total", ("_other", "first_try", "_other")] >= 60


def test_metrics_are_not_on_the_address_of_the_api(fleet: Fleet) -> None:
    """Security, "exposure": who may send or read is told no figures of others."""
    assert fleet.asked("/metrics").status_code == 404
    assert fleet.asked("/v1/traces", metrics=True).status_code == 404


@pytest.mark.parametrize("metrics", [False, True])
def test_health_is_on_both_addresses(fleet: Fleet, metrics: bool) -> None:  # noqa: FBT001
    """Contract, section 7: ``/healthz`` and ``/readyz`` answer wherever there is HTTP."""
    assert fleet.asked("/healthz", metrics=metrics).text == "ok\n"
    assert fleet.asked("/readyz", metrics=metrics).text == "ready\n"


def test_a_taken_metrics_address_is_named(fleet: Fleet, tmp_path: Path) -> None:
    """Contract, section 7: nothing starts, and no keys are spent, without its metrics."""
    taken = fleet.metrics
    ports = ("--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics", taken)
    for workers in ("1", "2"):
        store = f"sqlite:///{tmp_path}/s.db"
        answer = run_cli("serve", "--db", store, *ports, "--workers", workers)
        assert answer.returncode == 2
        assert f"metrics {taken} cannot be bound (Address already in use)" in answer.stderr
    listed = run_cli("keys", "list", "--db", f"sqlite:///{tmp_path}/s.db")
    assert listed.stdout.startswith("no keys")


def test_the_log_is_empty_when_nothing_is_wrong(tmp_path: Path) -> None:
    """D5: quiet by default: requests good and bad, garbage and disconnects write no line."""
    with Fleet(tmp_path / "s.db", errors=tmp_path / "log") as fleet:
        key = fleet.keys[0]
        assert post(fleet, traces_protobuf(batch(random.Random(1)))) == 200
        assert post(fleet, b"\xff") == 400
        assert post(fleet, b"", key="fmk_no_no") == 401
        assert export(fleet, b"\xff", key) is grpc.StatusCode.INVALID_ARGUMENT
        for address in (fleet.http, fleet.grpc, fleet.metrics):
            host, _, port = address.rpartition(":")
            for sent in (
                b"\x16\x03\x01\x02\x00",
                b"GET / HTTP/9\r\n\r\n",
                b"POST /v1/traces HTTP/1.1",
            ):
                with socket.create_connection((host, int(port)), timeout=20) as peer:
                    peer.sendall(sent)
        assert fleet.asked("/readyz").status_code == 200
    assert fleet.stop() == 0
    assert list(fleet.log()) == []


def test_keys_in_clear_on_an_open_address_are_warned_of(tmp_path: Path) -> None:
    """Security, "exposure": without TLS on an address that others reach, serve says so."""
    with Fleet(tmp_path / "s.db", "--http", "0.0.0.0:0") as fleet:
        [said] = fleet.said("keys_in_clear")
        assert (said["level"], said["address"]) == ("warning", "0.0.0.0:0")
        assert "--tls-cert" in said["message"]


def test_an_open_address_without_keys_is_refused(tmp_path: Path) -> None:
    """Security, "exposure": ``--insecure-no-auth`` off loopback starts nothing, makes no store."""
    store = tmp_path / "s.db"
    arguments = ("--db", f"sqlite:///{store}", "--workers", "2", "--insecure-no-auth")
    answer = run_cli("serve", *arguments, "--grpc", "0.0.0.0:0", "--http", "[::]:0")
    assert answer.returncode == 2
    words = " ".join(answer.stderr.split())
    for name, address in (("grpc", "0.0.0.0:0"), ("http", "[::]:0")):
        assert f"insecure_no_auth needs a loopback address, found {name} {address}" in words
    assert not store.exists()


def test_the_grpc_health_service_is_in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract, section 4: Check and Watch answer what readiness says now, each service alike."""
    monkeypatch.setattr(listen_health, "WATCH_SECONDS", 0.01)
    reason = ""

    async def ready() -> str:
        return reason

    listeners = Listeners(
        Intake(Double()),
        Starlette(routes=listen_health.routes(ready)),
        grpc_address="127.0.0.1:0",
        http_address="127.0.0.1:0",
        ready=ready,
    )
    with loop_thread() as loop:
        loop.run(listeners.start())
        with grpc.insecure_channel(listeners.grpc_address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            watching = stub.Watch(health_pb2.HealthCheckRequest(service=TRACES), timeout=30)
            for reason, meant, http in (
                ("", STATUS.SERVING, 200),
                ("the store cannot write: full", STATUS.NOT_SERVING, 503),
                ("", STATUS.SERVING, 200),
            ):
                assert next(watching).status == meant
                for service in ("", TRACES, LOGS, ACCEPTANCE):
                    asked = health_pb2.HealthCheckRequest(service=service)
                    assert stub.Check(asked, timeout=30).status == meant
                answer = requests.get(f"http://{listeners.http_address}/readyz", timeout=30)
                assert answer.status_code == http
                assert reason in answer.text
            with pytest.raises(grpc.RpcError, match="NOT_FOUND"):
                stub.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=30)
            with ThreadPoolExecutor(1) as pool:
                stopping = pool.submit(loop.run, listeners.stop())
                assert next(watching).status == STATUS.NOT_SERVING
                watching.cancel()
                stopping.result()
