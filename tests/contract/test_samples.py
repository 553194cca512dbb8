"""Real captured telemetry of instrumentations, as it is and with attempt keys added.

Without signals (section 8): those that say which try a span is are in ``test_signals.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.payloads import JSON, PROTOBUF, Json, any_value, as_json, as_protobuf
from tests.support.server import options, running
from tests.support.serving import Asking, Serving, run_cli
from tests.support.signals import SAMPLES

TENACITY: Final = "real_httpx_under_tenacity_no_parent.json"
CELERY: Final = "real_celery_retry.json"
CONTENT_TYPES: Final = {".json": JSON, ".pb": PROTOBUF}
Encode = Callable[[Json], bytes]
ENCODINGS: Final[list[tuple[str, Encode]]] = [(JSON, as_json), (PROTOBUF, as_protobuf)]

both_encodings = pytest.mark.parametrize(("content_type", "encode"), ENCODINGS, ids=["json", "pb"])


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A backend that is given the samples as they are, and reads no signals."""
    folder = tmp_path_factory.mktemp("samples")
    with Serving(folder / "s.db", "--insecure-no-auth", "--signals", "none") as serving:
        yield serving


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Asking]:
    """A backend of its own."""
    with running(options(tmp_path / "s.db", insecure_no_auth=True, signals=("none",))) as found:
        yield Asking(found.http)


def test_there_are_samples_in_both_encodings() -> None:
    """D4: the samples are twenty-one captures, each as JSON and as protobuf."""
    assert len([path for path in SAMPLES if path.suffix == ".json"]) == 21
    assert {path.stem for path in SAMPLES if path.suffix == ".json"} == {
        path.stem for path in SAMPLES if path.suffix == ".pb"
    }


def test_check_finds_nothing_in_them() -> None:
    """E5: captures without our keys are clean, and none of their spans is annotated."""
    answer = run_cli("check", "--json", *map(str, SAMPLES), env={"FLOWMARK_SIGNALS": "none"})
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert found["requests"] == len(SAMPLES)
    assert found["annotated"] == found["events"] == 0
    assert found["items"] == 2 * sum(
        len(scope["spans"])
        for path in SAMPLES
        if path.suffix == ".json"
        for group in json.loads(path.read_bytes())["resourceSpans"]
        for scope in group["scopeSpans"]
    )


def test_send_takes_them_and_nothing_is_recorded(untouched: Serving) -> None:
    """D4: sent whole, captures without our keys are accepted and create no run and no attempt."""
    answer = run_cli("send", "--json", "--endpoint", untouched.endpoint, *map(str, SAMPLES))
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert json.loads(answer.stdout)["events"] == {}
    assert untouched.get("/runs")["items"] == []


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_traces_endpoint_takes_each(untouched: Serving, sample: Path) -> None:
    """A10: no attempt is invented from a capture without our keys, whatever retries it shows."""
    answer = untouched.post("traces", sample.read_bytes(), CONTENT_TYPES[sample.suffix])
    assert answer.status_code == 200
    assert answer.headers["content-type"] == CONTENT_TYPES[sample.suffix]
    assert untouched.get("/runs")["items"] == []


def load(name: str) -> Json:
    """A capture as JSON."""
    path = next(path for path in SAMPLES if path.name == name)
    document: Json = json.loads(path.read_bytes())
    return document


def spans_of(document: Json) -> list[Json]:
    """All its spans, in order."""
    return [
        span
        for group in document["resourceSpans"]
        for scope in group["scopeSpans"]
        for span in scope["spans"]
    ]


def annotate(span: Json, **given: object) -> None:
    """Add flowmark keys to a span; underlines stand for dots."""
    for key, value in given.items():
        name = {"group": "attempt.group_id", "number": "attempt.number"}.get(
            key, key.replace("_", ".")
        )
        span["attributes"].append({"key": f"flowmark.{name}", "value": any_value(value)})


def only_group(backend: Asking) -> dict[str, Any]:
    """The one group of the one run."""
    [run] = backend.get("/runs")["items"]
    [group] = backend.get(f"/runs/{run['key']}/attempts")["items"]
    found: dict[str, Any] = group
    return found


@both_encodings
def test_separate_root_traces_are_one_group(
    backend: Asking, content_type: str, encode: Encode
) -> None:
    """A3: tries that are separate root traces are one group where run and workflow say so."""
    document = load(TENACITY)
    for number, span in enumerate(spans_of(document), 1):
        annotate(span, group="page-1", number=number, run_id="run-1", workflow_name="crawl")
    answer = backend.post("traces", encode(document), content_type)
    assert answer.status_code == 200, answer.text
    group = only_group(backend)
    statuses = [(attempt["number"], attempt["status"]) for attempt in group["attempts"]]
    assert statuses == [(1, "failed"), (2, "failed"), (3, "completed")]
    assert group["verdict"] == "after_retry"
    assert len({attempt["evidence"]["trace_id"] for attempt in group["attempts"]}) == 3


@both_encodings
def test_separate_root_traces_without_identity_are_never_merged(
    backend: Asking, content_type: str, encode: Encode
) -> None:
    """A3: without run ids three root traces are three runs that name each other as elsewhere."""
    document = load(TENACITY)
    for number, span in enumerate(spans_of(document), 1):
        annotate(span, group="page-1", number=number)
    assert backend.post("traces", encode(document), content_type).status_code == 200
    runs = backend.get("/runs")["items"]
    assert len(runs) == 3
    assert {run["status"] for run in runs} == {"unknown"}
    keys = {run["key"] for run in runs}
    for run in runs:
        [group] = backend.get(f"/runs/{run['key']}/attempts")["items"]
        assert set(group["elsewhere"]) == keys - {run["key"]}


@both_encodings
def test_missing_parents_change_nothing(backend: Asking, content_type: str, encode: Encode) -> None:
    """A10: spans whose parents were never sent fold as any other."""
    document = load(CELERY)
    scope = document["resourceSpans"][0]["scopeSpans"][0]
    scope["spans"] = [span for span in scope["spans"] if span.get("parentSpanId")]
    ids = {span["spanId"] for span in scope["spans"]}
    orphans = [span for span in scope["spans"] if span["parentSpanId"] not in ids]
    assert orphans
    document["resourceSpans"] = [{**document["resourceSpans"][0], "scopeSpans": [scope]}]
    for number, span in enumerate(orphans, 1):
        annotate(span, group="task", number=number, run_id="tasks", operation_name="task")
    assert backend.post("traces", encode(document), content_type).status_code == 200
    numbers = [attempt["number"] for attempt in only_group(backend)["attempts"]]
    assert numbers == list(range(1, len(orphans) + 1))


@both_encodings
def test_zero_and_reversed_times_are_kept_as_sent(
    backend: Asking, content_type: str, encode: Encode
) -> None:
    """A9: times are kept as sent: zero reads unknown, a reversed pair has no duration."""
    document = load(TENACITY)
    zero, reverse, usual = spans_of(document)
    zero["startTimeUnixNano"] = zero["endTimeUnixNano"] = "0"
    reverse["startTimeUnixNano"], reverse["endTimeUnixNano"] = (
        reverse["endTimeUnixNano"],
        reverse["startTimeUnixNano"],
    )
    for number, span in enumerate((zero, reverse, usual), 1):
        annotate(span, group="page-1", number=number, run_id="run-1")
    assert backend.post("traces", encode(document), content_type).status_code == 200
    first, second, third = only_group(backend)["attempts"]
    assert (first["started_at"], first["ended_at"], first["duration_ns"]) == (None, None, None)
    assert first["status"] == "failed"
    assert second["started_at"] > second["ended_at"]
    assert second["duration_ns"] is None
    expected = int(usual["endTimeUnixNano"]) - int(usual["startTimeUnixNano"])
    assert third["duration_ns"] == expected


@both_encodings
def test_duplicate_spans_count_once(backend: Asking, content_type: str, encode: Encode) -> None:
    """A8: the same span twice in a request, and the request twice, is one attempt."""
    document = load(TENACITY)
    scope = document["resourceSpans"][0]["scopeSpans"][0]
    for number, span in enumerate(scope["spans"], 1):
        annotate(span, group="page-1", number=number, run_id="run-1")
    scope["spans"] += scope["spans"]
    for _delivery in range(2):
        assert backend.post("traces", encode(document), content_type).status_code == 200
    assert [attempt["number"] for attempt in only_group(backend)["attempts"]] == [1, 2, 3]
    [run] = backend.get("/runs")["items"]
    assert run["counts"]["occurrences"] == 3
    assert len(backend.get(f"/runs/{run['key']}/events")["items"]) == 6


def test_captured_protobuf_with_keys_added_reads_as_its_json(backend: Asking) -> None:
    """D4: the captured bytes themselves, with attempt keys added, fold as their JSON form does."""
    path = next(path for path in SAMPLES if path.name == TENACITY.replace(".json", ".pb"))
    message = ExportTraceServiceRequest.FromString(path.read_bytes())
    spans = [
        span
        for group in message.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]
    document = load(TENACITY)
    for number, (raw, span) in enumerate(zip(spans, spans_of(document), strict=True), 1):
        annotate(span, group="page-1", number=number)
        raw.attributes.add(key="flowmark.attempt.group_id").value.string_value = "page-1"
        raw.attributes.add(key="flowmark.attempt.number").value.int_value = number
    assert backend.post("traces", message.SerializeToString(), PROTOBUF).status_code == 200
    answer = backend.post("traces", as_json(document), JSON)
    assert answer.json()["duplicate"] == "6"
    assert answer.json()["stored"] == "0"
