"""The same-origin proxy under uvicorn and under wsgiref, in front of real and scripted backends."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExportResult

from flowmark_otel import names
from flowmark_otel.fold import events_of as backend_events_of
from flowmark_otel.listen.protocol import Reply, Signal
from flowmark_otel.model import Envelope, Receipt, Rejection
from flowmark_otel.proxy.decide import TRACES, events_of
from flowmark_otel.signals import ANY, NO_SIGNALS, Signals, signals_of
from flowmark_otel.wire import outcome, receipt
from flowmark_otel.wire.decode import decode_traces
from flowmark_otel.wire.encode import encode_logs
from flowmark_otel.wire.status import decode_status
from tests.support import payloads
from tests.support.accepting import Call, Double, Listening, listening
from tests.support.api import Api
from tests.support.history import attempt, run_of
from tests.support.payloads import JSON, PROTOBUF
from tests.support.proxying import PAGE, Said, Sent, asgi, scripted, wsgi
from tests.support.server import options, running
from tests.support.spans import finished_spans

WAIT = 30
LIMIT = 4096
SERVERS: dict[str, Callable[..., AbstractContextManager[str]]] = {"asgi": asgi, "wsgi": wsgi}
SHOP = {"workflows": ["crm.sync", "shop.checkout"], "max_request_bytes": LIMIT}


@pytest.fixture(params=list(SERVERS))
def server(request: pytest.FixtureRequest) -> Callable[..., AbstractContextManager[str]]:
    """How the proxy is served: under an ASGI or a WSGI server."""
    return SERVERS[request.param]


class Site(NamedTuple):
    """A site whose proxy forwards to a double that keeps what arrives."""

    address: str
    double: Double

    def post(
        self,
        body: bytes,
        kind: str | None = JSON,
        path: str = "/v1/traces",
        **headers: str,
    ) -> requests.Response:
        """The answer to one request as a page sends it."""
        return post(self.address, body, kind, path, **headers)


def post(
    address: str, body: bytes, kind: str | None = JSON, path: str = "/v1/traces", **headers: str
) -> requests.Response:
    """The answer to one request; underscores in names of headers are hyphens."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if kind is not None:
        sent["content-type"] = kind
    return requests.post(f"http://{address}{path}", data=body, headers=sent, timeout=WAIT)


@pytest.fixture(scope="module")
def backend() -> Iterator[Listening]:
    """One listener for all tests of this module."""
    with listening() as found:
        yield found


@pytest.fixture
def site(server: Callable[..., AbstractContextManager[str]], backend: Listening) -> Iterator[Site]:
    """A site with two workflows on its list."""
    backend.double.calls.clear()
    backend.double.answer = None
    endpoint = f"http://{backend.http}"
    with server(endpoint=endpoint, api_key="ingest", **SHOP) as address:
        yield Site(address, backend.double)


def body_of(*given: dict[str, Any], service: str = "shop-web") -> bytes:
    """A request in JSON with one span for each set of attributes."""
    spans = [payloads.span(number, each) for number, each in enumerate(given, 1)]
    return payloads.as_json(payloads.request(spans, service))


def test_what_a_page_sends_is_kept_as_the_servers(
    server: Callable[..., AbstractContextManager[str]], tmp_path: Path
) -> None:
    """A20, A24: stock exporter, real backend: stored once, origin `server`, workflow as sent."""
    with running(options(tmp_path / "store.db")) as stored:
        where = {"endpoint": f"http://{stored.http}", "api_key": stored.ingest_key}
        with server(**where, workflows=["crm.sync"]) as address:
            spans = finished_spans("push-to-crm", attributes={**attempt("batch-42", 1)})
            for compression in Compression.NoCompression, Compression.Gzip:
                exporter = OTLPSpanExporter(
                    f"http://{address}/v1/traces", compression=compression, timeout=WAIT
                )
                assert exporter.export(spans) is SpanExportResult.SUCCESS
                exporter.shutdown()  # type: ignore[no-untyped-call]
            [run] = Api(stored).get("/runs")["items"]
            assert (run["workflow"], run["origin"]) == ("crm.sync", "server")
            assert run["counts"]["attempts"] == 1


LONG = Receipt(
    backend_id="b" * 32,
    received=40,
    rejected=40,
    rejections=tuple(
        Rejection(f"op-{number:032x}-{number:016x}-end", names.CONFLICT, "n" * 128)
        for number in range(16)
    ),
    rejected_items=40,
)


@pytest.mark.parametrize("kind", [JSON, PROTOBUF])
@pytest.mark.parametrize("signal", list(Signal))
def test_the_receipt_is_passed_on_unchanged(site: Site, kind: str, signal: Signal) -> None:
    """A24: the backend's answer arrives byte for byte, long rejections too, in its own type."""
    said = {
        HTTPStatus.OK: receipt.encode(
            LONG, {JSON: "json", PROTOBUF: "protobuf"}[kind], signal.value
        ),
        HTTPStatus.CONFLICT: b"the status",
    }
    for status, row in ((HTTPStatus.OK, outcome.OK), (HTTPStatus.CONFLICT, outcome.CONFLICT)):

        async def answer(_call: Call, row: str = row, status: HTTPStatus = status) -> Reply:
            return Reply(row, said[status])

        site.double.answer = answer
        sent = b"{}" if kind == JSON else b""
        answered = site.post(sent, kind, f"/v1/{signal.value}")
        assert answered.status_code == status
        assert answered.content == said[status]
        assert answered.headers["content-type"] == kind
        assert site.double.calls[-1][:3] == (signal, site.double.calls[-1].encoding, sent)


NAMED_OTHERWISE = {
    "its own": ({names.WORKFLOW_NAME: "payroll", names.RUN_OUTCOME: "complete"}, "shop-web"),
    "by default its service": ({names.RUN_OUTCOME: "complete"}, "payroll"),
    "no service": ({names.RUN_OUTCOME: "complete"}, ""),
    "the run it retries": (run_of("r2", retry_of=("payroll", "r1")), "shop-web"),
    "of an event that is invalid": (
        {names.WORKFLOW_NAME: "payroll", **attempt("g", 1), names.ATTEMPT_NUMBER: "one"}
        | {names.WORKFLOW_NAME: "payroll"},
        "shop-web",
    ),
    "with a space": (run_of(workflow="crm.sync "), "shop-web"),
}


@pytest.mark.parametrize(("given", "service"), NAMED_OTHERWISE.values(), ids=NAMED_OTHERWISE)
def test_a_request_that_names_another_workflow_is_refused_whole(
    site: Site, given: dict[str, Any], service: str
) -> None:
    """Contract, section 4, Origin: 400, a receipt of its own, all `invalid`, none forwarded."""
    for body, kind in (
        (body_of(attempt("g", 1), given, service=service), JSON),
        (
            payloads.as_protobuf(
                payloads.request(
                    [payloads.span(1, attempt("g", 1)), payloads.span(2, given)], service
                )
            ),
            PROTOBUF,
        ),
    ):
        answer = site.post(body, kind)
        assert answer.status_code == HTTPStatus.BAD_REQUEST
        assert answer.headers["content-type"] == kind
        found = decode_status(answer.content, {JSON: "json", PROTOBUF: "protobuf"}[kind]).receipt
        assert found is not None
        assert receipt.fault(found, found.received) is None
        assert found.rejected == found.received > 2
        assert {each.code for each in found.rejections} == {names.INVALID}
        assert len({each.event_id for each in found.rejections}) == found.received
        assert any("does not let through" in each.message for each in found.rejections)
    assert site.double.calls == []


def test_envelopes_are_held_to_the_list_as_well(site: Site) -> None:
    """Contract, section 4, Origin: `/v1/logs` is no way around the list."""
    folded = [each for each in folded_of(run_of(workflow="payroll")) if isinstance(each, Envelope)]
    body = encode_logs(folded, {}, encoding="json")
    answer = site.post(body, path="/v1/logs")
    assert answer.status_code == HTTPStatus.BAD_REQUEST
    assert answer.json()["details"][0]["rejected"] == str(len(folded))
    assert site.double.calls == []


def folded_of(given: dict[str, Any]) -> list[Any]:
    """The events of one span with these attributes."""
    [item] = decode_traces(body_of(given), "json").marked
    return list(backend_events_of(item.record, NO_SIGNALS)[0])


def test_nothing_is_let_through_by_default(
    server: Callable[..., AbstractContextManager[str]], backend: Listening
) -> None:
    """Contract, section 4, Origin: none by default; what has no annotation concerns no list."""
    backend.double.calls.clear()
    with server(endpoint=f"http://{backend.http}", api_key="ingest") as address:
        assert post(address, body_of(attempt("g", 1))).status_code == HTTPStatus.BAD_REQUEST
        assert post(address, body_of({"http.method": "GET"})).status_code == HTTPStatus.OK
    assert len(backend.double.calls) == 1


SAMPLES = sorted((Path(__file__).parents[1] / "samples").glob("*.json"))


@pytest.mark.parametrize("signals", [ANY, signals_of((names.SIGNALS_SAFE,)), NO_SIGNALS])
@pytest.mark.parametrize("sample", SAMPLES, ids=[each.stem for each in SAMPLES])
def test_the_proxy_reads_what_the_backend_reads(sample: Path, signals: Signals) -> None:
    """A20: what is an event to the backend is one to the proxy, else the list has a hole.

    Whatever signals the backend reads: the proxy does not know, and so reads all of them.
    """
    body = sample.read_bytes()
    theirs = [
        (each.event_id, mapped)
        for _, _, record, *_ in decode_traces(body, "json", signals).marked
        for events, mapped in (backend_events_of(record, signals),)
        for each in events
    ]
    read = [(each.event_id, each.signalled) for each in events_of(TRACES, "json", body)]
    assert read == theirs if signals is ANY else set(read) >= set(theirs)


def test_no_signal_gets_past_the_list(
    server: Callable[..., AbstractContextManager[str]], backend: Listening
) -> None:
    """A20: a span that the backend would map names its workflow too, by its service.

    Events that signals make are in no receipt, and their request is refused all the same.
    """
    backend.double.calls.clear()
    task = {"celery.action": "run", "celery.state": "RETRY", "messaging.message.id": "1"}
    where = {"endpoint": f"http://{backend.http}", "api_key": "ingest"}
    with server(**where, workflows=["crm.sync"]) as address:
        answer = post(address, body_of(task))
        assert answer.status_code == HTTPStatus.BAD_REQUEST
        assert "names workflow 'shop-web'" in answer.json()["message"]
        receipt_of = answer.json()["details"][0]
        assert not int(receipt_of.get("received", 0))
        named = {**task, "flowmark.workflow.name": "crm.sync"}
        assert post(address, body_of(named)).status_code == HTTPStatus.OK
    assert len(backend.double.calls) == 1


def test_of_the_visitor_only_the_body_goes_on(
    server: Callable[..., AbstractContextManager[str]],
) -> None:
    """Security: no cookie, key or header of the visitor reaches the backend, nor the key a page."""
    got: list[Sent] = []

    def say(sent: Sent) -> Said:
        got.append(sent)
        kept = {"set-cookie": "a=b", "server": "secret", "www-authenticate": "Bearer"}
        return Said(200, {"content-type": JSON, **kept}, b"{}")

    with scripted(say) as endpoint, server(endpoint=endpoint, api_key="fmk_a_b") as address:
        answer = post(
            address,
            gzip.compress(body_of({})),
            content_encoding="gzip",
            cookie="session=1",
            authorization="Bearer fmk_mine",
            origin="https://shop.example",
            traceparent="00-1",
            x_forwarded_for="10.0.0.1",
        )
    [sent] = got
    assert answer.content == b"{}"
    assert sent.body == body_of({})
    assert set(sent.headers) <= {
        *("host", "accept-encoding", "content-length", "content-type"),
        *("user-agent", "authorization"),
    }
    assert sent.headers["authorization"] == "Bearer fmk_a_b"
    assert not {"set-cookie", "www-authenticate"} & {name.lower() for name in answer.headers}
    assert "secret" not in str(answer.headers)
    assert "fmk_a_b" not in str(answer.headers) + answer.text


REFUSED: dict[str, tuple[dict[str, Any], HTTPStatus]] = {
    "type": ({"kind": "text/plain"}, HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
    "form": ({"kind": "application/x-www-form-urlencoded"}, HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
    "no type": ({"kind": None}, HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
    "encoding": ({"content_encoding": "br"}, HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
    "another site": ({"sec_fetch_site": "cross-site"}, HTTPStatus.FORBIDDEN),
    "a sister": ({"sec_fetch_site": "same-site"}, HTTPStatus.FORBIDDEN),
    "too large": ({"body": b" " * (LIMIT + 1)}, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    "gzip bomb": (
        {"body": gzip.compress(b" " * (LIMIT + 1)), "content_encoding": "gzip"},
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    ),
    "corrupt": ({"body": b"\x1f\x8b1", "content_encoding": "gzip"}, HTTPStatus.BAD_REQUEST),
    "no JSON": ({"body": b"[]"}, HTTPStatus.BAD_REQUEST),
}


@pytest.mark.parametrize(("given", "status"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_otlp_of_a_page_is_refused(
    site: Site, given: dict[str, Any], status: HTTPStatus
) -> None:
    """Rows 16 to 19: refused with a status in OTLP's form, and none of it forwarded."""
    answer = site.post(**{"body": b"{}", **given})
    assert answer.status_code == status
    assert decode_status(answer.content, "json").message
    assert answer.headers["cache-control"] == "no-store"
    assert site.double.calls == []


def test_other_paths_and_methods(site: Site) -> None:
    """Row 19: the site keeps its paths; status and capabilities are not forwarded; POST alone."""
    for path in ("/", "/v1/flowmark/status", "/v1/traces/"):
        assert requests.get(f"http://{site.address}{path}", timeout=WAIT).content == PAGE
    answer = requests.get(f"http://{site.address}/v1/traces", timeout=WAIT)
    assert answer.status_code == HTTPStatus.METHOD_NOT_ALLOWED
    assert answer.headers["allow"] == "POST"
    preflight = requests.options(
        f"http://{site.address}/v1/traces", headers={"origin": "https://a.example"}, timeout=WAIT
    )
    assert "access-control-allow-origin" not in preflight.headers


SAID = {
    "key refused": Said(401, {"content-type": JSON, "www-authenticate": "Bearer"}, b"{}"),
    "kind refused": Said(403, {"content-type": JSON}, b"{}"),
    "wrong address": Said(404, {"content-type": JSON}, b"{}"),
    "redirect": Said(302, {"location": "https://evil.example/", "content-type": JSON}),
    "a page": Said(200, {"content-type": "text/html"}, b"<script>alert(1)</script>"),
    "other form": Said(200, {"content-type": PROTOBUF}, b""),
    "too long": Said(200, {"content-type": JSON}, b" " * 70_000),
    "broken": Said(502, {"content-type": "text/html"}, b"<h1>Bad gateway</h1>"),
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
def test_what_is_no_answer_of_a_backend_reads_unavailable(
    server: Callable[..., AbstractContextManager[str]],
    said: Said,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Row 24: a wrong key, redirect or page of a middlebox is never passed on as an answer."""
    with scripted(lambda _: said) as endpoint, server(endpoint=endpoint, api_key="k") as address:
        for _ in range(2):
            answer = post(address, b"{}")
            assert answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE
            assert int(answer.headers["retry-after"]) > 0
            assert decode_status(answer.content, "json").message
            assert "location" not in answer.headers
    warned = [each for each in caplog.records if each.name == "flowmark_otel.proxy"]
    assert len(warned) == 1
    assert str(said.status) in warned[0].getMessage() or "no receipt" in warned[0].getMessage()


def test_retry_after_of_the_backend_is_kept(
    server: Callable[..., AbstractContextManager[str]],
) -> None:
    """A24: 503 goes through with the time to wait; 413 of a hop reads 413 in OTLP's form."""
    said = [
        Said(503, {"content-type": JSON, "retry-after": "7"}, b'{"code": 14}'),
        Said(413, {"content-type": "text/html"}, b"<h1>413</h1>"),
    ]
    with scripted(lambda _: said.pop(0)) as endpoint, server(endpoint=endpoint) as address:
        first, second = post(address, b"{}"), post(address, b"{}")
    assert (first.status_code, first.headers["retry-after"]) == (503, "7")
    assert first.content == b'{"code": 14}'
    assert second.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    assert decode_status(second.content, "json").code == 8


def test_a_backend_that_is_not_there(server: Callable[..., AbstractContextManager[str]]) -> None:
    """Row 6: a stopped backend is 503, which a sender tries again."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with server(endpoint=f"http://127.0.0.1:{port}") as address:
        assert post(address, b"{}").status_code == HTTPStatus.SERVICE_UNAVAILABLE


def test_a_backend_that_stalls_blocks_nobody(
    server: Callable[..., AbstractContextManager[str]],
) -> None:
    """Row 15: a bounded number waits for the backend; the site itself answers meanwhile."""
    released, arrived = threading.Event(), threading.Event()

    def say(_sent: Sent) -> Said:
        arrived.set()
        released.wait(WAIT)
        return Said(200, {"content-type": JSON}, b"{}")

    answers: list[requests.Response] = []
    with scripted(say) as endpoint, server(endpoint=endpoint, max_in_flight=1) as address:
        waiting = threading.Thread(target=lambda: answers.append(post(address, b"{}")))
        waiting.start()
        assert arrived.wait(WAIT)
        assert requests.get(f"http://{address}/", timeout=WAIT).content == PAGE
        full = post(address, b"{}")
        released.set()
        waiting.join(WAIT)
        after = post(address, b"{}")
    assert full.status_code == HTTPStatus.SERVICE_UNAVAILABLE
    assert "too many" in full.json()["message"]
    assert [each.status_code for each in (*answers, after)] == [HTTPStatus.OK] * 2


def test_a_backend_that_never_answers_is_not_waited_for(
    server: Callable[..., AbstractContextManager[str]],
) -> None:
    """Row 10: after its time a request is answered 503, whatever the backend does."""
    released = threading.Event()

    def say(_sent: Sent) -> Said:
        released.wait(WAIT)
        return Said(200, {"content-type": JSON}, b"{}")

    with scripted(say) as endpoint, server(endpoint=endpoint, timeout=200) as address:
        answer = post(address, b"{}")
        assert not released.is_set()
        released.set()
    assert answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE


def test_a_body_that_is_cut_is_not_forwarded(site: Site) -> None:
    """Row 9: what parses as a shorter request is refused, or answered to nobody."""
    whole = payloads.as_protobuf(payloads.request([payloads.span(1, attempt("g", 1))]))
    host, port = site.address.split(":")
    head = (
        f"POST /v1/traces HTTP/1.1\r\nhost: {site.address}\r\ncontent-type: {PROTOBUF}\r\n"
        f"content-length: {2 * len(whole)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), WAIT) as connection:
        connection.sendall(head.encode() + whole)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65536)
    assert answer == b"" or b" 400 " in answer.splitlines()[0]
    assert site.double.calls == []


def test_a_body_that_stalls_is_not_waited_for(backend: Listening) -> None:
    """Row 15: under ASGI a body has its time to arrive; then it is 503 and nothing is forwarded."""
    backend.double.calls.clear()
    head = f"POST /v1/traces HTTP/1.1\r\nhost: shop\r\ncontent-type: {JSON}\r\n"
    with asgi(endpoint=f"http://{backend.http}", timeout=200) as address:
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), WAIT) as connection:
            connection.sendall(f"{head}content-length: 100\r\n\r\n{{".encode())
            assert b" 503 " in connection.recv(65536).splitlines()[0]
    assert backend.double.calls == []


def test_a_body_of_unknown_length(site: Site) -> None:
    """Row 19: chunked bodies are read to their end, or refused where WSGI cannot tell it."""
    chunks = iter([b"{", b'"resourceSpans": []}'])
    answer = requests.post(
        f"http://{site.address}/v1/traces",
        data=chunks,
        headers={"content-type": JSON},
        timeout=WAIT,
    )
    if answer.status_code == HTTPStatus.LENGTH_REQUIRED:
        assert site.double.calls == []
    else:
        assert answer.status_code == HTTPStatus.OK
        assert json.loads(site.double.calls[0].body) == {"resourceSpans": []}


def test_a_prefix_moves_the_paths(
    server: Callable[..., AbstractContextManager[str]], backend: Listening
) -> None:
    """A24: below another path the backend's own path is still asked."""
    backend.double.calls.clear()
    where = {"endpoint": f"http://{backend.http}", "api_key": "ingest"}
    with server(**where, prefix_path="/telemetry/") as address:
        assert post(address, b"{}", path="/telemetry/v1/logs").status_code == HTTPStatus.OK
        assert requests.get(f"http://{address}/v1/logs", timeout=WAIT).content == PAGE
    assert [each.signal for each in backend.double.calls] == [Signal.LOGS]
