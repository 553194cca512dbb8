"""The collector end to end: the backend's receipt through it, and what comes where none is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import requests
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExportResult

from flowmark_otel import names
from flowmark_otel.collector.meter import NodeState
from tests.support.answers import Received, Reply, acknowledging, answering, free_port, stock
from tests.support.chaos import Fault, chaos
from tests.support.collecting import Collecting, capable, collecting, configuration, node
from tests.support.delivering import attempts, delivering, ids, ordinary, reasons
from tests.support.envelopes import completed
from tests.support.fleet import until
from tests.support.payloads import JSON, as_json, as_protobuf, request, span
from tests.support.server import Running, options, running
from tests.support.serving import Asking
from tests.support.spans import finished_spans

OWN: Final[dict[str, Any]] = {names.ATTEMPT_GROUP_ID: "g", names.ATTEMPT_NUMBER: 1}


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Running]:
    """A backend with keys."""
    with running(options(tmp_path / "s.db")) as found:
        yield found


def to(backend: Running, protocol: str = "http/protobuf", **more: Any) -> dict[str, Any]:
    """A collector's file that delivers there."""
    address = backend.grpc if protocol == "grpc" else backend.http
    headers = {"authorization": backend.ingest}
    return configuration(f"http://{address}", protocol=protocol, headers=headers, **more)


def stored(backend: Running) -> int:
    """How many events a backend stored."""
    rows = Asking(backend.http).get("/ingest", backend.read_key)["events"]
    return sum(row["count"] for row in rows if row["state"] == names.STORED)


def traces(collector: Collecting, *spans: Any, content_type: str = JSON) -> requests.Response:
    """The answer to spans."""
    body = as_json(request(spans)) if content_type == JSON else as_protobuf(request(spans))
    return Asking(collector.http).post("traces", body, content_type)


@pytest.mark.parametrize("onward", ["http/protobuf", "grpc"])
@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json", "grpc"])
def test_every_event_gets_its_own_state(backend: Running, protocol: str, onward: str) -> None:
    """A24: new, known, other and too many rejected events of an SDK: each is told right.

    More are rejected than a receipt names: the SDK learns the rest by asking the collector.
    """
    with collecting(to(backend, onward)) as found:
        endpoint = f"http://{found.grpc if protocol == 'grpc' else found.http}"
        with delivering(endpoint, protocol=protocol) as delivery:
            delivery.record(*attempts(1, 40), *ordinary(101, 110))
            delivery.flush(20)
            changed = [completed(n, ("g", n), at=5) for n in range(1, 41)]
            delivery.record(*attempts(41, 50), *attempts(1, 5), *changed)
            error = delivery.lost()
            assert error.counts == {(names.CONFLICT, names.REASON_REJECTED): 40}
            assert {each.event_id for each in delivery.seen} == set(ids(changed))
            assert delivery.counts() == {
                (names.STORED, ""): 120,
                (names.DUPLICATE, ""): 10,
                (names.CONFLICT, names.REASON_REJECTED): 40,
            }
    assert stored(backend) == 120


def test_collectors_can_be_chained(backend: Running) -> None:
    """A24: a receipt passes two collectors, and so do the questions about events."""
    with (
        collecting(to(backend)) as near,
        collecting(configuration(f"http://{near.grpc}", protocol="grpc")) as far,
        delivering(f"http://{far.http}") as delivery,
    ):
        delivery.record(*attempts(1, 3))
        delivery.flush(20)
        assert delivery.counts() == {(names.STORED, ""): 6}
        asked = requests.post(
            f"http://{far.http}/v1/flowmark/status",
            json={"eventIds": [*ids(attempts(1, 1)), "op-nothing"]},
            timeout=20,
        )
        states = [each["state"] for each in asked.json()["events"]]
        assert states == [names.STORED, names.STORED, names.STATE_UNKNOWN]
        told = requests.get(f"http://{far.http}/v1/flowmark/capabilities", timeout=20).json()
        assert told["capabilities"] == [names.CAPABILITY]
        direct = requests.get(
            f"http://{backend.http}/v1/flowmark/capabilities",
            headers={"authorization": backend.ingest},
            timeout=20,
        ).json()
        assert told["backendId"] == direct["backendId"]


def test_stock_exporters_are_answered(backend: Running) -> None:
    """D3: unmodified services send spans by HTTP and gRPC, and what they annotate is stored."""
    with collecting(to(backend)) as found:
        spans = finished_spans("push", attributes=OWN)
        web = OTLPSpanExporter(endpoint=f"http://{found.http}/v1/traces")
        assert web.export(spans) is SpanExportResult.SUCCESS
        rpc = GrpcExporter(endpoint=f"http://{found.grpc}", insecure=True)
        assert rpc.export(spans) is SpanExportResult.SUCCESS
        rpc.shutdown()
    assert stored(backend) == 2


def test_a_backend_that_is_away_leaves_it_to_the_sender() -> None:
    """C1: 503 with a time to wait while the backend is away; stored once it is back."""
    port = free_port()
    with (
        answering(capable(acknowledging()), port=port) as server,
        collecting(configuration(server.endpoint, on_error="continue")) as found,
    ):
        server.close()
        answer = traces(found, span(1, OWN))
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert node(found, "flowmark").refused == {names.REASON_UNAVAILABLE: 2}
        assert node(found, "flowmark").state is NodeState.FAILING
        with answering(capable(acknowledging()), port=port):
            assert traces(found, span(1, OWN)).json()["stored"] == "2"
        assert node(found, "flowmark").state is NodeState.OK


@pytest.mark.parametrize("place", [50, 350, 700])
def test_a_request_cut_anywhere_is_tried_again(backend: Running, place: int) -> None:
    """C2, row 9: within its tries a node hides a connection that breaks; all is stored once."""
    with chaos(backend.http) as proxy:
        file = to(backend, retry={"backoff_ms": 1})
        file["exporters"]["flowmark"]["endpoint"] = f"http://{proxy.address}"
        with collecting(file) as found:
            proxy.faults += [Fault(request_bytes=place)]  # of the next connection
            assert traces(found, span(1, OWN)).json()["received"] == "2"
            assert node(found, "flowmark").retries == 1
    assert stored(backend) == 2


def test_an_answer_that_is_lost_makes_duplicates() -> None:
    """Row 9: the commit whose answer was cut is known again by its ids, in the next try."""
    calls: list[Received] = []

    def cut_once(asked: Received) -> Reply:
        calls.append(asked)
        whole = acknowledging(stored=0, duplicate=2)(asked)
        return Reply(body=whole.body, cut=20, reset=True) if len(calls) == 1 else whole

    with (
        answering(capable(cut_once)) as server,
        collecting(configuration(server.endpoint, retry={"backoff_ms": 1})) as found,
    ):
        assert traces(found, span(1, OWN)).json()["duplicate"] == "2"
        assert node(found, "flowmark").retries == 1
    assert calls[0].event_ids == calls[1].event_ids


def test_a_slow_peer_is_waited_for() -> None:
    """Row 8: an answer that comes byte by byte within its time is waited for, and asked once."""

    def dripping(asked: Received) -> Reply:
        return replace(acknowledging()(asked), drip_seconds=0.003)

    with (
        answering(capable(dripping)) as server,
        collecting(configuration(server.endpoint, retry={"backoff_ms": 1})) as found,
    ):
        for number in range(1, 6):
            assert traces(found, span(number, OWN)).json()["stored"] == "2"
        assert node(found, "flowmark").retries == 0
        assert len(server.exports) == 5


@pytest.mark.parametrize(
    ("retry", "answer", "tries"),
    [
        ({}, Reply(503), 3),
        ({"max_attempts": 5}, Reply(503), 5),
        ({"retry_on": ["Timeout"]}, Reply(503), 1),
        ({"retry_on": ["Unavailable"]}, Reply(503), 3),
        ({"no_retry_on": ["Unavailable"]}, Reply(503), 1),
        ({}, Reply(401), 1),
        ({"retry_on": ["Unauthorized"]}, Reply(401), 3),
        ({}, Reply(200, b"<html>", "text/html"), 1),
        ({"retry_on": ["MalformedReceipt"]}, Reply(200, b"<html>", "text/html"), 3),
        ({}, Reply(503, headers={"retry-after": "7"}), 1),
    ],
)
def test_tries_are_counted_narrowed_and_bounded(
    retry: dict[str, Any], answer: Reply, tries: int
) -> None:
    """C2, C5: how often a message is tried; a wait that the deadline does not hold is the sender's.

    The sender is told to come after what the other side asked for.
    """
    given = {"backoff_ms": 1, "max_backoff_ms": 2, **retry}
    with (
        answering(capable(answer)) as server,
        collecting(configuration(server.endpoint, retry=given, deadline_ms=5000)) as found,
    ):
        refused = traces(found, span(1, OWN))
        assert refused.status_code == 503
        assert len(server.exports) == tries
        assert node(found, "flowmark").retries == tries - 1
        asked = answer.headers.get("retry-after", "1")
        assert refused.headers["retry-after"] == asked


def test_a_receiver_with_tokens_lets_nobody_else_send(backend: Running) -> None:
    """Row 22: 401 without a token of the receiver, over HTTP and gRPC, before a body is read."""
    file = to(backend)
    file["extensions"] = {"bearertokenauth": {"token": "let-me-in-please"}}
    file["service"]["extensions"] = ["bearertokenauth"]
    auth = {"auth": {"authenticator": "bearertokenauth"}, "endpoint": "127.0.0.1:0"}
    file["receivers"] = {"otlp": {"protocols": {"grpc": auth, "http": auth}}}
    with collecting(file) as found:
        assert traces(found, span(1, OWN)).status_code == 401
        for protocol, address in (("http/protobuf", found.http), ("grpc", found.grpc)):
            where = f"http://{address}"
            with delivering(where, protocol=protocol) as delivery:
                delivery.record(*attempts(1, 1))
                assert reasons(delivery.lost()) == {(names.QUEUED, names.REASON_UNAUTHORIZED)}
            with delivering(where, protocol=protocol, api_key="let-me-in-please") as delivery:
                delivery.record(*attempts(1, 1))
                delivery.flush(20)
    assert stored(backend) == 2


def test_a_peer_that_is_silent_is_given_up_in_time() -> None:
    """C5, row 10: a stopped peer costs one try its time, and the sender is told to come again."""
    silent = threading.Event()
    with (
        answering(capable(Reply(after=silent))) as server,
        collecting(
            configuration(server.endpoint, element_timeout_ms=200, deadline_ms=600)
        ) as found,
    ):
        answer = traces(found, span(1, OWN))
        silent.set()
        assert answer.status_code == 503
        assert node(found, "flowmark").refused == {names.REASON_TIMEOUT: 2}


def test_without_the_capability_attempts_are_refused_and_the_rest_is_not(tmp_path: Path) -> None:
    """A24, row 23: until its downstream acknowledges attempts a collector takes none of them."""
    served = options(tmp_path / "s.db", without=(names.CAPABILITY,), insecure_no_auth=True)
    with running(served) as old, collecting(configuration(f"http://{old.http}")) as found:
        answer = traces(found, span(1, OWN))
        assert answer.status_code == 503
        assert names.CAPABILITY in answer.json()["message"]
        assert traces(found, span(2, {"http.method": "GET"})).json() == {}
        with delivering(f"http://{found.http}") as delivery:
            delivery.record(*ordinary(1, 2))
            delivery.flush(20)
            assert delivery.counts() == {(names.ACCEPTED, ""): 4}
        ready = requests.get(f"http://{found.http}/readyz", timeout=20)
        assert ready.status_code == 503
        assert "waiting" in ready.text


def test_a_downgrade_reads_unacknowledged_and_an_upgrade_resumes() -> None:
    """A22, row 23: what was sent when the receipt is gone is not sent again; then none is taken.

    Once the other side acknowledges again, so does the collector.
    """
    with (
        answering(capable(acknowledging())) as server,
        collecting(configuration(server.endpoint)) as found,
        delivering(f"http://{found.http}") as delivery,
    ):
        server.script(lambda asked: Reply(404) if "capab" in asked.path else stock(asked))
        before = len(server.exports)
        delivery.record(*attempts(1, 1))
        assert reasons(delivery.lost()) == {(names.UNACKNOWLEDGED, names.REASON_UNACKNOWLEDGED)}
        assert len(server.exports) == before + 1
        until(lambda: node(found, "flowmark").state is NodeState.WAITING)
        assert traces(found, span(2, OWN)).status_code == 503
        assert len(server.exports) == before + 1
        server.script(capable(acknowledging()))
        until(lambda: node(found, "flowmark").state is NodeState.OK)
        assert traces(found, span(2, OWN)).json()["stored"] == "2"


HTML = Reply(200, b"<html>welcome</html>", "text/html")
ELSEWHERE = Reply(302, b"", "text/html", {"location": "http://127.0.0.1:9/"})
WRONG = Reply(body=b"\xff\xff\xff")


@pytest.mark.parametrize(
    "answer",
    [HTML, ELSEWHERE, WRONG, acknowledging(stored=1), Reply(401), Reply(404)],
    ids=["html", "302", "no-protobuf", "sum", "401", "404"],
)
def test_an_answer_that_is_none_leaves_it_to_the_sender(answer: Any) -> None:
    """Row 24: a page, a redirect, a wrong sum: nothing is claimed, and the sender has it still."""
    with (
        answering(capable(answer)) as server,
        collecting(configuration(server.endpoint, on_error="continue")) as found,
    ):
        refused = traces(found, span(1, OWN))
        assert refused.status_code == 503
        assert len(server.exports) == 1
        assert not node(found, "flowmark").dropped


def test_a_poison_event_is_halved_out(tmp_path: Path) -> None:
    """Row 18: where a batch is refused as a whole only the event that spoils it is lost."""
    poison = ids(attempts(3, 3))[1]

    def strict(asked: Received) -> Reply:
        return Reply(400) if poison in asked.event_ids else acknowledging()(asked)

    letters = tmp_path / "letters.jsonl"
    with (
        answering(capable(strict)) as server,
        collecting(configuration(server.endpoint, letters=letters)) as found,
        delivering(f"http://{found.http}") as delivery,
    ):
        delivery.record(*attempts(1, 8))
        error = delivery.lost()
        assert reasons(error) == {(names.DEAD_LETTERED, names.REASON_REJECTED)}
        assert [each.event_id for each in error.failures] == [poison]
        assert delivery.counts()[names.STORED, ""] == 15
    (line,) = letters.read_text().splitlines()
    assert poison in line
    assert ids(attempts(2, 2))[0] not in line
