"""``send``: captured telemetry into a backend, and what its answers are worth (A21–A23)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import Result

from flowmark_otel.commands.receipts import Answer, Expected, judge
from flowmark_otel.model import Receipt
from flowmark_otel.wire import receipt
from tests.support.commands import invoke
from tests.support.payloads import as_json, as_protobuf, request, span
from tests.support.server import Running, options, running

TRY = {
    "flowmark.attempt.group_id": "g",
    "flowmark.attempt.number": 1,
    "flowmark.run.id": "run-1",
}
ORDINARY = {"flowmark.operation.name": "read", "flowmark.run.id": "run-1"}


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Running]:
    """A backend with keys."""
    with running(options(tmp_path / "s.db")) as found:
        yield found


def send(endpoint: str, *files: Path, key: str = "") -> Result:
    """Run the command in this process, its answer as JSON."""
    where = ["--endpoint", endpoint, *(["--api-key", key] if key else [])]
    return invoke("send", "--json", *where, *map(str, files))


def write(folder: Path, name: str, content: bytes) -> Path:
    """A file of that content."""
    path = folder / name
    path.write_bytes(content)
    return path


def test_everything_acknowledged_is_0_and_again_is_duplicate(
    backend: Running, tmp_path: Path
) -> None:
    """A8: a file is acknowledged event by event; sent again, all of it is a duplicate."""
    lines = [as_json(request([span(n, {**TRY, "flowmark.attempt.number": n})])) for n in (1, 2)]
    files = [
        write(tmp_path, "lines.jsonl", b"\n".join([*lines, b'{"resourceMetrics": []}'])),
        write(tmp_path, "plain.pb", as_protobuf(request([span(3, ORDINARY), span(4, {})]))),
    ]
    first = send(f"http://{backend.http}", *files, key=backend.ingest_key)
    assert first.exit_code == 0, first.output
    found = json.loads(first.stdout)
    assert (found["acknowledged"], found["requests"]) == (True, 4)
    assert found["events"] == {"stored": 6}
    again = send(f"http://{backend.http}", *files, key=backend.ingest_key)
    assert json.loads(again.stdout)["events"] == {"duplicate": 6}


def test_a_rejected_event_is_1_and_named(backend: Running, tmp_path: Path) -> None:
    """A23: events are accepted and rejected each by itself, the rejected ones by name."""
    mixed = write(
        tmp_path,
        "mixed.json",
        as_json(request([span(1, TRY), span(2, {**TRY, "flowmark.attempt.number": True})])),
    )
    conflict = write(tmp_path, "conflict.json", as_json(request([span(3, TRY)])))
    answer = send(f"http://{backend.http}", mixed, conflict, key=backend.ingest_key)
    assert answer.exit_code == 1
    found = json.loads(answer.stdout)
    assert found["events"] == {"rejected": 4, "stored": 2}
    first, second = found["failed"]
    assert (first["place"], first["reason"]) == (str(mixed), "rejected")
    assert {each["code"] for each in first["rejections"]} == {"invalid"}
    assert {each["code"] for each in second["rejections"]} == {"conflict"}
    assert second["rejections"][0]["event_id"] == f"op-{3:032x}-{3:016x}-start"


def test_a_request_refused_as_a_whole_counts_no_events(backend: Running, tmp_path: Path) -> None:
    """A22: what nobody can read is refused as a whole, with the backend's reason and no count."""
    path = write(tmp_path, "shape.json", b'{"resourceSpans": {}}')
    where = ("--endpoint", f"http://{backend.http}", "--api-key", backend.ingest_key)
    answer = invoke("send", *where, str(path))
    assert answer.exit_code == 1
    first, last = answer.stdout.splitlines()
    assert first.startswith(f"{path}: not acknowledged, rejected: refused as a whole, HTTP 400: ")
    assert "resourceSpans" in first
    assert last == (
        f"1 request to http://{backend.http}: no events found in 1 request not acknowledged"
    )
    found = json.loads(send(f"http://{backend.http}", path, key=backend.ingest_key).stdout)
    assert found["events"] == {}


def test_a_rejection_without_position_has_none(backend: Running, tmp_path: Path) -> None:
    """A23: where a rejected event has an id it is named by that, and its position is null."""
    path = write(tmp_path, "1.json", as_json(request([span(1, TRY), span(2, TRY)])))
    found = json.loads(send(f"http://{backend.http}", path, key=backend.ingest_key).stdout)
    [failed] = found["failed"]
    assert {each["item"] for each in failed["rejections"]} == {None}
    assert all(each["event_id"] for each in failed["rejections"])


def test_a_wrong_key_stops(backend: Running, tmp_path: Path) -> None:
    """A22: without a key that may send nothing is acknowledged, and the rest is not tried."""
    files = [write(tmp_path, f"{n}.json", as_json(request([span(n, TRY)]))) for n in (1, 2)]
    for key in ("", backend.read_key):
        answer = send(f"http://{backend.http}", *files, key=key)
        assert answer.exit_code == 1
        found = json.loads(answer.stdout)
        assert found["requests"] == 1
        assert found["failed"][0]["reason"] == "unauthorized"


def test_nobody_there(tmp_path: Path) -> None:
    """A22: a backend that cannot be reached acknowledges nothing."""
    path = write(tmp_path, "1.json", as_json(request([span(1, TRY)])))
    answer = send("http://127.0.0.1:9", path)
    assert answer.exit_code == 1
    found = json.loads(answer.stdout)
    assert found["events"] == {"unacknowledged": 2}
    assert found["failed"][0]["reason"] == "unavailable"


class Canned(NamedTuple):
    """An answer that is always given."""

    status: int
    content_type: str
    body: bytes


@contextmanager
def answering(canned: Canned) -> Iterator[str]:
    """A server that takes every request and gives one answer; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Read the request and answer."""
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(canned.status)
            self.send_header("content-type", canned.content_type)
            self.send_header("content-length", str(len(canned.body)))
            self.send_header("location", "/elsewhere")
            self.end_headers()
            self.wfile.write(canned.body)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


STOCK = Canned(200, "application/json", b"{}")


@pytest.mark.parametrize(
    ("canned", "reason"),
    [
        (STOCK, "unacknowledged"),
        (Canned(200, "text/html", b"<html>welcome</html>"), "malformed_receipt"),
        (Canned(200, "application/json", b"[]"), "malformed_receipt"),
        (Canned(302, "text/html", b""), "unavailable"),
        (Canned(503, "application/json", b"{}"), "unavailable"),
        (Canned(413, "application/json", b"{}"), "too_large"),
        (Canned(404, "text/html", b"no"), "unavailable"),
        (Canned(400, "application/json", b'{"code": 3, "message": "no"}'), "rejected"),
        (Canned(409, "text/html", b"<html>"), "malformed_receipt"),
    ],
)
def test_an_answer_without_receipt_acknowledges_no_attempt(
    tmp_path: Path, canned: Canned, reason: str
) -> None:
    """A22: attempt metadata answered without a well-formed receipt is a failed delivery."""
    path = write(tmp_path, "1.json", as_json(request([span(1, TRY)])))
    with answering(canned) as endpoint:
        answer = send(endpoint, path)
    assert answer.exit_code == 1
    found = json.loads(answer.stdout)
    assert found["failed"][0]["reason"] == reason
    assert found["events"] == {"unacknowledged": 2}


def test_ordinary_records_need_no_receipt(tmp_path: Path) -> None:
    """A21: without attempt or retry metadata a stock OTLP server's success is enough."""
    path = write(tmp_path, "1.json", as_json(request([span(1, ORDINARY)])))
    with answering(STOCK) as endpoint:
        answer = send(endpoint, path)
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["events"] == {"accepted": 2}


def judged(expected: int, **counts: int) -> tuple[dict[str, int], str]:
    """States and reason of a receipt with these counts, in both encodings."""
    made = replace(Receipt(backend_id="b"), **counts)  # type: ignore[arg-type]
    found = [
        judge(
            Answer(200, content_type, receipt.encode(made, encoding, "traces"), encoding),
            Expected(expected, opts_in=True),
        )
        for encoding, content_type in (
            ("json", "application/json; charset=utf-8"),
            ("protobuf", "application/x-protobuf"),
        )
    ]
    assert found[0] == found[1]
    return dict(found[0].states), found[0].reason


def test_the_sum_has_to_hold() -> None:
    """A22: a receipt whose counts do not add up to what was sent is no acknowledgement."""
    assert judged(2, stored=1, duplicate=1, received=2) == ({"stored": 1, "duplicate": 1}, "")
    assert judged(2, custody=2, received=2) == ({"custody": 2}, "")
    lost = ({"unacknowledged": 2}, "count_mismatch")
    assert judged(2, stored=1, received=1) == lost
    assert judged(2, stored=1, received=2) == lost
    assert judged(2, stored=3, rejected=-1, received=2) == lost
    assert judged(2, stored=1, rejected=1, received=2) == (
        {"stored": 1, "rejected": 1},
        "rejected",
    )
