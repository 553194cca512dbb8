"""Keys that stand in web pages: what they may do, and what becomes of what they send (A20)."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
import requests

from flowmark_otel import names
from flowmark_otel.backend.browsers import Quota
from flowmark_otel.fold import digest, fold_span
from flowmark_otel.listen.grpc import ACCEPTANCE, LOGS, TRACES
from flowmark_otel.model import Envelope
from flowmark_otel.testing import FakeClock
from flowmark_otel.wire.decode import decode_traces
from tests.support import payloads
from tests.support.api import Api
from tests.support.browser_keys import PAGE, WAIT, browser_key, send
from tests.support.history import attempt, run_of
from tests.support.server import options, running

OTHER = "https://evil.example"


class Shop(NamedTuple):
    """A backend, its API, and a key for the pages of the shop."""

    api: Api
    key: str
    url: str

    @property
    def http(self) -> str:
        """Where it listens."""
        return self.api.running.http

    def runs(self, **query: object) -> list[dict[str, Any]]:
        """The runs that match, oldest first."""
        found: list[dict[str, Any]] = self.api.get("/runs", **query)["items"]
        return found[::-1]


@pytest.fixture
def shop(store_url: str) -> Iterator[Shop]:
    """A backend with one browser key, on a store of each kind."""
    with running(options(Path(), db=store_url)) as backend:
        yield Shop(Api(backend), browser_key(store_url), store_url)


def test_what_a_page_sends_never_meets_what_a_server_sent(shop: Shop) -> None:
    """A20: an id, a place and a run of both are two of each; whoever comes first, no conflict."""
    for number, page_first in ((1, False), (2, True)):
        given = payloads.span(number, attempt("batch-42", number))
        failed = given | {"status": {"code": 2}}  # under one origin this would be a conflict
        answers = [
            send(shop.http, shop.key, failed) if by_page else shop.api.send(given)
            for by_page in (page_first, not page_first)
        ]
        assert [answer.json()["stored"] for answer in answers] == ["2", "2"]
    server, browser = shop.runs()
    assert (server["workflow"], server["origin"]) == ("crm.sync", "server")
    assert (browser["workflow"], browser["origin"]) == ("browser.crm.sync", "browser")
    assert server["counts"]["attempts"] == browser["counts"]["attempts"] == 2
    assert shop.runs(workflow="browser.crm.sync") == [browser]
    assert shop.runs(origin="browser") == [browser]


def test_retry_references_of_pages_stay_among_pages(shop: Shop) -> None:
    """A20, A17: a reference is qualified as well: it resolves to a page's run, never a server's."""
    shop.api.send(payloads.span(1, run_of("r0")))
    reference = payloads.span(2, run_of("r1", retry_of=("crm.sync", "r0")))
    send(shop.http, shop.key, reference)
    server, browser = shop.runs()
    assert browser["retry_of"] == {
        "workflow": "browser.crm.sync",
        "run_id": "r0",
        "resolved": False,
        "key": None,
    }
    assert server["retried_by"] == []
    send(shop.http, shop.key, payloads.span(3, run_of("r0")))
    target = shop.runs(origin="browser", run_id="r0")[0]
    assert shop.runs(run_id="r1")[0]["retry_of"]["key"] == target["key"]
    assert [each["run_id"] for each in target["retried_by"]] == ["r1"]


def test_digests_are_those_of_the_sender(shop: Shop) -> None:
    """Contract, section 2: qualification comes after the digest; attributes stay as sent."""
    given = payloads.span(1, attempt("batch-42", 1))
    send(shop.http, shop.key, given)
    [item] = decode_traces(payloads.as_json(payloads.request([given])), "json").marked
    folded = [each for each in fold_span(item.record) if isinstance(each, Envelope)]  # type: ignore[arg-type]
    events = shop.api.get(f"/runs/{shop.runs()[0]['key']}/events")["items"]
    assert [each["digest"] for each in events] == [digest(each).hex() for each in folded]
    assert {each["attributes"][names.WORKFLOW_NAME] for each in events} == {"crm.sync"}
    assert {each["origin"] for each in events} == {"browser"}


def test_the_prefix_does_not_count(shop: Shop) -> None:
    """Contract, section 4: a workflow of 200 characters is one from a page too."""
    longest = "w" * 200
    answer = send(shop.http, shop.key, payloads.span(1, run_of("r0", workflow=longest)))
    assert answer.json()["stored"] == "2"
    assert shop.runs()[0]["workflow"] == f"browser.{longest}"
    assert shop.runs(workflow=f"browser.{longest}") != []


def test_a_browser_key_only_writes(shop: Shop) -> None:
    """A20, row 22: every reading route, status and capabilities are closed to it, over both."""
    own = {"authorization": f"Bearer {shop.key}", "origin": PAGE, "content-type": payloads.JSON}
    document = requests.get(
        f"http://{shop.http}/api/v1/openapi.json",
        headers={"authorization": shop.api.running.read},
        timeout=WAIT,
    ).json()
    asked = [
        (method, f"/api/v1{path}" if not path.startswith("/api/v1") else path)
        for path, methods in document["paths"].items()
        for method in methods
        if not path.endswith(("/login", "/logout"))
    ]
    assert len(asked) > 4
    asked += [("get", "/v1/flowmark/capabilities"), ("post", "/v1/flowmark/status")]
    for method, path in asked:
        address = f"http://{shop.http}{path.replace('{key}', '0' * 32)}"
        answer = requests.request(method, address, headers=own, data=b"{}", timeout=WAIT)
        assert answer.status_code == HTTPStatus.FORBIDDEN, (method, path, answer.text)
    metadata = (("authorization", f"Bearer {shop.key}"), ("origin", PAGE))
    with grpc.insecure_channel(shop.api.running.grpc) as channel:
        for service, method in (
            *((TRACES, "Export"), (LOGS, "Export")),
            *((ACCEPTANCE, "Capabilities"), (ACCEPTANCE, "Status")),
        ):
            call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                f"/{service}/{method}"
            )
            with pytest.raises(grpc.RpcError) as refused:
                call(b"", metadata=metadata, timeout=WAIT)
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("origin", [None, OTHER, "null", f"{PAGE}:444", PAGE.upper()])
def test_only_pages_of_its_origins_send(shop: Shop, origin: str | None) -> None:
    """A20: exact origins; a request from anywhere else, or from no page, is refused and no CORS."""
    answer = send(shop.http, shop.key, payloads.span(1, run_of("r0")), origin=origin)
    assert answer.status_code == HTTPStatus.FORBIDDEN
    assert "access-control-allow-origin" not in answer.headers
    assert shop.runs() == []


def test_a_page_reads_what_became_of_it(shop: Shop) -> None:
    """CORS: its pages may read answers of all kinds; no credentials, varied by origin."""
    taken = send(shop.http, shop.key, payloads.span(1, run_of("r0")))
    itself = payloads.span(2, run_of("r0", retry_of=("crm.sync", "r0")))
    invalid = send(shop.http, shop.key, itself)
    strange = send(shop.http, f"fmk_x_{'0' * 64}", payloads.span(1, run_of("r0")))
    answers = (taken, invalid, strange)
    assert [each.status_code for each in answers] == [200, 400, 401]
    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert answer.headers["vary"].lower() == "origin"
        assert "access-control-allow-credentials" not in answer.headers


def preflight(shop: Shop, origin: str, path: str = "/v1/traces") -> requests.Response:
    """What a browser asks before it sends JSON with a key."""
    asked = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    return requests.options(f"http://{shop.http}{path}", headers=asked, timeout=WAIT)


def test_preflights_are_answered_to_its_pages_alone(shop: Shop) -> None:
    """CORS: exact origins; the paths of OTLP only."""
    for path in ("/v1/traces", "/v1/logs"):
        answer = preflight(shop, PAGE, path)
        assert answer.status_code == HTTPStatus.OK
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert answer.headers["access-control-allow-methods"] == "POST"
        assert "authorization" in answer.headers["access-control-allow-headers"]
        assert "origin" in answer.headers["vary"].lower()
    for origin, path in ((OTHER, "/v1/traces"), (PAGE, "/v1/flowmark/status"), (PAGE, "/runs")):
        refused = preflight(shop, origin, path)
        assert refused.status_code >= HTTPStatus.BAD_REQUEST
        assert "access-control-allow-origin" not in refused.headers


def test_cors_is_off_without_browser_keys(tmp_path: Path) -> None:
    """CORS: off by default; a server's key sent from a page gets no header that lets it read."""
    with running(options(tmp_path / "store.db")) as backend:
        found = Shop(Api(backend), "", "")
        refused = preflight(found, PAGE)
        assert refused.status_code == HTTPStatus.METHOD_NOT_ALLOWED
        answer = send(backend.http, backend.ingest_key, payloads.span(1, run_of("r0")))
        assert answer.json()["stored"] == "2"
        assert "access-control-allow-origin" not in answer.headers


def test_more_than_its_quota_is_refused_by_name(shop: Shop) -> None:
    """A20: over the quota is `limit`, item by item, and nothing of it is kept; others go on."""
    key = browser_key(shop.url, events_per_minute=60)
    named = {names.WORKFLOW_NAME: "crm.sync", names.RUN_ID: "r0"}
    reference = {names.RETRY_OF_WORKFLOW_NAME: "crm.sync", names.RETRY_OF_RUN_ID: "r1"}
    begun = payloads.span(
        40, named | reference
    )  # a start alone: one event, so 60 is inside an item
    spans = [payloads.span(number, run_of(f"r{number}")) for number in range(1, 33)]
    answer = send(shop.http, key, begun, *spans[:31])
    found = answer.json()
    assert answer.status_code == HTTPStatus.OK
    assert (found["stored"], found["rejected"], found["received"]) == ("59", "4", "63")
    assert found["partialSuccess"]["rejectedSpans"] == "2"
    assert {each["code"] for each in found["rejections"]} == {"limit"}
    refused = send(shop.http, key, spans[31])
    assert refused.status_code == HTTPStatus.BAD_REQUEST
    [receipt] = refused.json()["details"]
    assert (receipt["received"], receipt["rejected"]) == ("2", "2")
    assert send(shop.http, shop.key, spans[31]).json()["stored"] == "2"
    assert shop.api.get("/runs", problem="rejected")["items"] == []


def test_a_quota_begins_anew_every_minute() -> None:
    """A20: an item goes whole or not at all; a minute after the first event all of it is free."""
    clock = FakeClock()
    quota = Quota(clock)
    assert quota.take("a", 60, [2, 50, 62]) == 50
    assert quota.take("a", 60, [11]) == 0
    assert quota.take("a", 60, [10]) == 10
    assert quota.take("b", 60, [60]) == 60
    clock.advance(59.9)
    assert quota.take("a", 60, [1]) == 0
    clock.advance(0.1)
    assert quota.take("a", 60, [60]) == 60
