"""Observed attempts that the backend's own mappings make: what a sender is told (section 3)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import requests
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from flowmark_otel import names
from flowmark_otel.fold import fold_signals
from flowmark_otel.model import Envelope
from flowmark_otel.signals import ANY
from flowmark_otel.wire.encode import encode_logs
from tests.support.capturing import capturing
from tests.support.payloads import JSON, PROTOBUF, Json, as_json, as_protobuf, request, span
from tests.support.server import Running, options, running
from tests.support.serving import Asking
from tests.support.signals import attempts_in, sample, spans_in

OWN: Final = {"flowmark.attempt.group_id": "mine", "flowmark.attempt.number": 1}


class Backend(Asking):
    """A backend that reads the safe signals."""

    def __init__(self, served: Running) -> None:
        super().__init__(served.http)
        self.grpc = served.grpc

    def traces(self, body: bytes, content_type: str = JSON) -> Json:
        """The receipt of a request that has to be a success."""
        answer = self.post("traces", body, content_type)
        assert answer.status_code == requests.codes.ok, answer.text
        found: Json = answer.json()
        return found

    def attempts(self) -> list[tuple[str, int, str, str]]:
        """Operation, number, status and kind of each attempt, runs and their order aside."""
        return sorted(
            (group["operation"], attempt["number"], attempt["status"], attempt["kind"])
            for run in self.get("/runs")["items"]
            for group in self.get(f"/runs/{run['key']}/attempts")["items"]
            for attempt in group["attempts"]
        )

    def counted(self) -> dict[str, int]:
        """The events that were judged, by state, or by reason where there is one."""
        found: dict[str, int] = {}
        for row in self.get("/ingest")["events"]:
            what = row["reason"] or row["state"]
            found[what] = found.get(what, 0) + row["count"]
        return found


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    """A backend with the default settings and no keys."""
    with running(options(tmp_path / "s.db", insecure_no_auth=True)) as served:
        yield Backend(served)


def task(number: int, **changes: object) -> Json:
    """The span of one try of a task, each of a span id of its own."""
    given: dict[str, object] = {
        "celery.action": "run",
        "celery.task_name": "t.fetch",
        "celery.state": "RETRY",
        "messaging.message.id": "task-1",
        **changes,
    }
    return span(number, given, traceId="0af7651916cd43dd8448eb211c80319c")


def counts(receipt: Json) -> tuple[str, str, str, str]:
    """What a receipt counts: stored, duplicate, rejected and all."""
    stored, duplicate, rejected, received = (
        str(receipt.get(key, 0)) for key in ("stored", "duplicate", "rejected", "received")
    )
    return stored, duplicate, rejected, received


NOTHING: Final = ("0", "0", "0", "0")


@pytest.mark.parametrize("suffix", [".json", ".pb"])
def test_tries_are_kept_and_not_counted(backend: Backend, suffix: str) -> None:
    """Contract 3: what our own mappings make is stored, shown and not in the receipt."""
    if suffix == ".json":
        assert counts(backend.traces(sample("celery_retry", suffix))) == NOTHING
    else:
        answer = backend.post("traces", sample("celery_retry", suffix), PROTOBUF)
        assert answer.status_code == requests.codes.ok
    assert backend.attempts() == [
        ("t.x", 1, "failed", "observed"),
        ("t.x", 2, "failed", "observed"),
        ("t.x", 3, "completed", "observed"),
        ("t.y", 1, "failed", "observed"),
        ("t.y", 2, "failed", "observed"),
    ]
    assert backend.counted()[names.STORED] == 10


def test_sent_again_they_are_no_other_tries(backend: Backend) -> None:
    """A8: a second delivery, in the other encoding, adds nothing and is not counted either."""
    backend.traces(sample("celery_retry"))
    before = backend.attempts()
    answer = backend.post("traces", sample("celery_retry", ".pb"), PROTOBUF)
    assert answer.status_code == requests.codes.ok
    assert backend.attempts() == before
    assert backend.counted()[names.DUPLICATE] == 10


@pytest.mark.parametrize("encode", [as_json, as_protobuf])
def test_mixed_batches_count_the_annotated_alone(backend: Backend, encode: Any) -> None:
    """Contract 3: received, sums and rejections are of annotated spans; the others are stored."""
    bad = {"flowmark.attempt.group_id": "mine", "flowmark.attempt.number": "2"}
    document = request([task(1), span(2, OWN), task(3, **{"celery.retries": 1}), span(4, bad)])
    if encode is as_json:
        receipt = backend.traces(as_json(document))
        assert counts(receipt) == ("2", "0", "2", "4")
        assert receipt["partialSuccess"]["rejectedSpans"] == "1"
    else:
        assert backend.post("traces", as_protobuf(document), PROTOBUF).ok
    assert [(number, kind) for _, number, _, kind in backend.attempts()] == [
        (1, "reported"),
        (1, "observed"),
        (2, "observed"),
    ]


def test_a_mapped_span_is_no_annotated_one(backend: Backend) -> None:
    """Contract 4: beside a span of no annotation, a batch of which all else is refused is 200."""
    bad = {"flowmark.attempt.group_id": "mine", "flowmark.attempt.number": "2"}
    assert backend.post("traces", as_json(request([span(1, bad)])), JSON).status_code == 400
    receipt = backend.traces(as_json(request([task(2), span(3, bad)])))
    assert counts(receipt) == ("0", "0", "2", "2")


def test_tries_that_contradict_each_other_stay_a_success(backend: Backend) -> None:
    """A6, contract 3: two spans of one number conflict, which is shown, and told to nobody."""
    document = request([task(1), task(2)])
    assert counts(backend.traces(as_json(document))) == NOTHING
    receipt = backend.traces(as_json(request([task(3)])))
    assert counts(receipt) == NOTHING
    assert not receipt.get("partialSuccess")
    assert len(backend.attempts()) == 1
    conflicts = backend.get("/evidence", kind="conflict")["items"]
    assert conflicts
    assert backend.counted()[names.CONFLICT] == 4


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_stock_exporter_sees_a_success(backend: Backend, protocol: str) -> None:
    """D2: the stock exporters of both protocols are told that all was well."""
    spans = exported(2)
    exporter: OTLPSpanExporter | GrpcExporter
    if protocol == "http":
        exporter = OTLPSpanExporter(f"{backend.endpoint}/v1/traces")
    else:
        exporter = GrpcExporter(backend.grpc, insecure=True)
    assert exporter.export(spans) is SpanExportResult.SUCCESS
    exporter.shutdown()
    assert [number for _, number, _, _ in backend.attempts()] == [1, 2]


def exported(tries: int) -> list[ReadableSpan]:
    """Spans of a task as an SDK without ours has them."""
    captured = capturing(signals=("none",))
    with captured.tracer.start_as_current_span("all"):
        for number in range(tries):
            given: dict[str, str | int] = {
                "celery.action": "run",
                "celery.state": "RETRY",
                "celery.retries": number,
                "messaging.message.id": "task-1",
            }
            captured.tracer.start_span("run/t", attributes=given).end()
    return list(captured.exporter.get_finished_spans())


def test_the_sdk_and_the_backend_make_the_same_try(backend: Backend) -> None:
    """A8: an SDK that maps, and the backend behind a stock exporter: one try, never a conflict."""
    spans = spans_in("celery_retry", ANY)
    events = [each for one in spans for each in fold_signals(one, ANY)]
    envelopes = [each for each in events if isinstance(each, Envelope)]
    body = encode_logs(envelopes, {"service.name": "t"})
    sent = backend.post("logs", body, PROTOBUF)
    assert sent.status_code == requests.codes.ok
    assert counts(backend.traces(sample("celery_retry"))) == NOTHING
    assert backend.counted() == {names.STORED: 10, names.DUPLICATE: 10}
    assert len(backend.attempts()) == len(attempts_in(envelopes)) == 5


def test_the_other_way_round_the_envelopes_are_duplicates(backend: Backend) -> None:
    """A8, contract 3: the events that an SDK sends are counted, whoever was first."""
    backend.traces(sample("celery_retry"))
    events = [each for one in spans_in("celery_retry", ANY) for each in fold_signals(one, ANY)]
    envelopes = [each for each in events if isinstance(each, Envelope)]
    backend.post("logs", encode_logs(envelopes, {"service.name": "t"}), PROTOBUF)
    assert backend.counted() == {names.STORED: 10, names.DUPLICATE: 10}


def test_what_is_of_a_wrong_shape_is_none_of_ours(backend: Backend) -> None:
    """D2, row 21: a foreign span that cannot be read is ignored, as before there were signals."""
    broken = {**task(1), "startTimeUnixNano": "yesterday"}
    receipt = backend.traces(as_json(request([broken, task(2)])))
    assert counts(receipt) == NOTHING
    assert len(backend.attempts()) == 1
    ids = {**task(3), "spanId": ""}
    assert counts(backend.traces(as_json(request([ids])))) == NOTHING


def test_nothing_is_mapped_where_nothing_is_read(tmp_path: Path) -> None:
    """Section 8: with none, tries of others are spans like any other."""
    with running(options(tmp_path / "s.db", insecure_no_auth=True, signals=("none",))) as served:
        backend = Backend(served)
        backend.traces(sample("celery_retry"))
        assert backend.attempts() == []


def test_projects_that_hold_all_they_may_tell_nobody_of_it(tmp_path: Path) -> None:
    """Contract 3, 4: what is over a quota and nobody annotated is refused without a word."""
    served = options(tmp_path / "s.db", insecure_no_auth=True, max_events=2)
    with running(served) as found:
        backend = Backend(found)
        for number in (1, 2):
            document = request([task(number, **{"celery.retries": number - 1})])
            assert counts(backend.traces(as_json(document))) == NOTHING
        assert len(backend.attempts()) == 1
        assert backend.counted()[names.LIMIT] == 2


def test_escaped_keys_are_read_too(backend: Backend) -> None:
    """D4: JSON may write any letter of a key as an escape."""
    body = as_json(request([task(1)])).replace(b"celery.action", b"\\u0063elery.action")
    assert b"celery.action" not in body
    assert counts(backend.traces(body)) == NOTHING
    assert [number for _, number, _, _ in backend.attempts()] == [1]


def test_bytes_that_are_no_span_are_none_of_ours(backend: Backend) -> None:
    """D2, row 18: a foreign span that protobuf cannot read is ignored; with our key it is told."""
    for key, rejected in ((b"celery.action", 0), (b"flowmark.run.id", 1)):
        pair = b"\x0a" + bytes([len(key)]) + key
        broken = b"\x4a" + bytes([len(pair)]) + pair + b"\x0a\x7f"  # a trace id cut off
        body = broken
        for tag in (b"\x12", b"\x12", b"\x0a"):  # span, scope group, resource group
            body = tag + bytes([len(body)]) + body
        answer = backend.post("traces", body, PROTOBUF)
        assert answer.status_code == (requests.codes.bad if rejected else requests.codes.ok)
