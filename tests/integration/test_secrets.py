"""A corpus of secrets goes through every door and is found in no byte that is kept or shown."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import grpc
import psycopg
import pytest
import requests

from flowmark_otel import names
from flowmark_otel.wire.transcode import to_protobuf
from tests.support import secrets
from tests.support.answers import Reply, answering, free_port, stock
from tests.support.collecting import capable, configuration, process
from tests.support.fleet import Fleet, until
from tests.support.payloads import JSON, PROTOBUF, as_json, attributes
from tests.support.programs import environment, run
from tests.support.serving import Asking, run_cli

MOST_OF_A_PAGE: Final = 2
"""How many ways of asking for one page are followed."""
_EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_LINK: Final = re.compile(r'(?:href|hx-get|data-news)="([^"#]+)')

PROGRAM: Final = """
import logging
import sys

import flowmark_otel as flowmark
from tests.support import secrets

logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
flow = flowmark.workflow("crm.sync")
for number, text in enumerate(secrets.TEXTS.values(), 1):
    pair = flowmark.Attempt("g", number)
    operation = flow.operation("push", attempt=pair, idempotency_key="raw-idempotency-key")
    operation.fail(code=text, retryable=True)
    flow.operation("push", attempt=text).complete()  # no pair: a diagnostic
    try:
        with flow.operation("push-again", attempt=flowmark.Attempt("h", number)):
            raise RuntimeError(text)
    except RuntimeError:
        pass
prefix = "flowmark.run.result."
given = {key.removeprefix(prefix): value for key, value in secrets.results().items()}
flow.done(outcome="complete", result=given)
try:
    flowmark.flush(timeout=2)
except flowmark.DeliveryError as error:
    print(error, repr(error), error.failures if hasattr(error, "failures") else "")
try:
    flowmark.shutdown(timeout=1)
except flowmark.DeliveryError as error:
    print(error)
"""


REFUSAL: Final = Reply(
    503, json.dumps({"message": " ".join(secrets.TEXTS.values())}).encode(), JSON
)
"""A backend that quotes secrets where it says why it takes nothing."""


def envelopes() -> bytes:
    """What a sender that redacts nothing would send: log records with all of it as it was."""
    record = {
        "timeUnixNano": "5",
        "eventName": names.RUN_COMPLETED,
        "traceId": f"{9:032x}",
        "spanId": f"{9:016x}",
        "attributes": attributes(
            {**secrets.OWN, names.RUN_ID: "run-9", **secrets.results(), **secrets.beside()}
        ),
    }
    group = {
        "resource": {"attributes": attributes({"service.name": "crm", **secrets.beside()})},
        "scopeLogs": [{"logRecords": [record]}],
    }
    return json.dumps({"resourceLogs": [group]}).encode()


def exported(address: str, body: bytes) -> str:
    """The answer to an export over gRPC, whatever it is."""
    with grpc.insecure_channel(address) as channel:
        call: Any = channel.unary_unary(_EXPORT)
        try:
            return repr(call(body, timeout=30))
        except grpc.RpcError as error:
            return f"{error} {error.trailing_metadata()}"


def crawled(http: str) -> Iterator[tuple[str, str]]:
    """Each page that links lead to from the first, with its CSV and JSON: address and text."""
    waiting, seen = [f"http://{http}/"], Counter[str]()
    with requests.Session() as browser:
        while waiting:
            url = waiting.pop(0)
            answer = browser.get(url, timeout=30)
            yield url, answer.text
            if "html" not in answer.headers.get("content-type", ""):
                continue
            for link in _LINK.findall(answer.text):
                there = urljoin(answer.url, link.replace("&amp;", "&"))
                host, path = urlsplit(there)[1:3]
                path = "/trace" if path.startswith("/trace/") else path
                if host == http and there not in waiting and seen[path] < MOST_OF_A_PAGE:
                    seen[path] += 1
                    waiting.append(there)


def asked(backend: Asking) -> Iterator[str]:
    """What the API says of all that there is."""
    runs = backend.get("/runs")["items"]
    for run_found in runs:
        for part in ("", "/operations", "/attempts", "/events"):
            yield json.dumps(backend.get(f"/runs/{run_found['key']}{part}"))
    for kind in ("gap", "open", "unresolved", "conflict", "rejected"):
        yield json.dumps(backend.get("/evidence", kind=kind))
    for path in ("/operations", "/overview", "/ingest"):
        yield json.dumps(backend.get(path))
    yield json.dumps(runs)


def stored(url: str) -> bytes:
    """Every byte of a store: its files, or all rows of all its tables."""
    if not url.startswith("postgresql"):
        path = Path(url.removeprefix("sqlite:///"))
        return b"".join(each.read_bytes() for each in path.parent.glob(f"{path.name}*"))
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        ).fetchall()
        content = b""
        for (table,) in tables:
            with connection.cursor().copy(f'COPY "{table}" TO STDOUT') as rows:
                content += b"".join(bytes(row) for row in rows)
        return content


@pytest.mark.timeout(120)
def test_a_backend_keeps_and_shows_no_secret(store_url: str, tmp_path: Path) -> None:
    """Security, "secrets": in by every protocol; store, API, pages, CSV, metrics, log, export."""
    log = tmp_path / "serve.log"
    document = secrets.request()
    body = as_json(document)
    with Fleet(store_url, "--insecure-no-auth", errors=log) as backend:
        answers = [
            backend.post("traces", body, JSON).text,
            backend.post("traces", to_protobuf(body, "traces").body, PROTOBUF).text,
            exported(backend.grpc, to_protobuf(body, "traces").body),
            backend.post("logs", envelopes(), JSON).text,
            backend.post("logs", to_protobuf(envelopes(), "logs").body, PROTOBUF).text,
            backend.post("traces", body + b"}", JSON).text,
            requests.get(
                f"{backend.endpoint}/api/v1/runs?access_token=tok-of-a-url&password=pw-in-a-dsn",
                headers={"authorization": "Bearer b3arer-of-an-error", "cookie": "a=c00kie"},
                timeout=30,
            ).text,
        ]
        assert {secrets.leaks(answer) == [] for answer in answers} == {True}, answers
        said = list(asked(backend))
        assert len(said) > 10
        assert not [text for text in said if secrets.leaks(text)]
        pages = dict(crawled(backend.http))
        assert {".csv", ".json"} <= {Path(urlsplit(url).path).suffix for url in pages}
        assert {url: found for url, page in pages.items() if (found := secrets.leaks(page))} == {}
        assert not secrets.leaks(backend.page())
        assert b"[redacted]" in stored(store_url)
        assert not secrets.leaks(stored(store_url))
        for form in ("jsonl", "csv"):
            done = run_cli("export", "--db", store_url, "--format", form)
            assert done.returncode == 0, done.stderr
            assert "[redacted]" in done.stdout
            assert not secrets.leaks(done.stdout + done.stderr)
        printed = "\n".join(backend.lines)
    assert not secrets.leaks(printed + log.read_text())
    assert not secrets.leaks(stored(store_url))


@pytest.mark.parametrize("answer", ["none", "no receipt"])
def test_an_application_keeps_and_says_no_secret(answer: str, tmp_path: Path) -> None:
    """Security, "secrets": bytes of its spool and quarantine, its log, its errors, its requests."""
    spool = tmp_path / "spool"
    resource = "process.command_line=crm --password=pw-in-a-dsn,app.api_key=t0ld-by-its-name"
    with answering(stock) as server:
        where = server.endpoint if answer == "no receipt" else "http://127.0.0.1:9"
        env = environment(
            tmp_path,
            None,
            FLOWMARK_ENDPOINT=where,
            FLOWMARK_SPOOL_DIR=str(spool),
            FLOWMARK_API_KEY=f"fmk_0123456789abcdef_{'5e' * 32}",
            OTEL_RESOURCE_ATTRIBUTES=resource,
        )
        done = run(tmp_path, PROGRAM, env)
        sent = [each.body for each in server.exports]
    assert (answer == "no receipt") == bool(sent)
    kept = b"".join(each.read_bytes() for each in spool.rglob("*") if each.is_file())
    assert b"[redacted]" in kept
    assert secrets.leaks_in(spool) == {}
    assert not [body for body in sent if secrets.leaks(body)]
    assert "invalid" in done.stderr
    assert not secrets.leaks(done.stdout + done.stderr)


@pytest.mark.timeout(120)
def test_a_collector_keeps_and_says_no_secret(tmp_path: Path) -> None:
    """Security, "secrets": its spool, its dead letters, its log, its metrics, what it sends on."""
    kept = tmp_path / "kept"
    kept.mkdir()
    letters = kept / "letters.jsonl"
    body = as_json(secrets.request())
    with answering(capable(REFUSAL)) as server:
        file = configuration(server.endpoint, spool=kept / "spool", letters=letters)
        telemetry = f"127.0.0.1:{free_port()}"
        file["service"]["telemetry"] = {"metrics": {"address": telemetry}}
        with process(file, tmp_path) as found:
            asking = Asking(found.http)
            answers = [
                asking.post("traces", body, JSON),
                asking.post("traces", to_protobuf(body, "traces").body, PROTOBUF),
                asking.post("logs", envelopes(), JSON),
            ]
            assert [each.status_code for each in answers] == [200, 200, 200], answers[1].text
            assert not [each for each in answers if secrets.leaks(each.text)]
            until(lambda: letters.exists() and letters.stat().st_size)
            until(lambda: server.exports)
            for path in ("/metrics", "/status"):
                page = requests.get(f"http://{telemetry}{path}", timeout=30)
                assert page.status_code == 200
                assert not secrets.leaks(page.text)
            found.stop()
        sent = [each.body for each in server.exports]
    assert not [each for each in sent if secrets.leaks(each)]
    assert secrets.leaks_in(kept) == {}
    assert b"[redacted]" in letters.read_bytes()
    assert any(b"[redacted]" in each.read_bytes() for each in (kept / "spool").rglob("*.*"))
    assert not secrets.leaks((tmp_path / "collector.log").read_bytes())
