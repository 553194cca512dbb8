"""The JSON API from outside: a real backend on loopback, evidence sent over OTLP/HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flowmark_otel.backend.api.endpoints import ENDPOINTS, PREFIX
from tests.conftest import STORES
from tests.support.api import Api, told
from tests.support.json_schema import faults


@pytest.fixture(scope="module", params=STORES)
def api(request: pytest.FixtureRequest, new_store: Callable[[str], str]) -> Iterator[Api]:
    """The backend that all tests of this file read."""
    with told(new_store(request.param)) as found:
        yield found


@pytest.fixture(scope="module")
def keys(api: Api) -> dict[str, str]:
    """The keys of the story's runs, by run id."""
    return {run["run_id"]: run["key"] for run in api.get("/runs")["items"]}


def test_the_list_of_runs(api: Api) -> None:
    """D5: runs come newest first arrival first; those of one request in reverse order."""
    listed = api.get("/runs")
    assert [run["run_id"] for run in listed["items"]] == ["r2", "r1", "r0"]
    assert listed["next"] is None


def test_a_run(api: Api, keys: dict[str, str]) -> None:
    """A15: a run shows its own status, outcome and result, and what it refers to."""
    run = api.get(f"/runs/{keys['r1']}")
    assert (run["status"], run["outcome"], run["result"]) == (
        "completed",
        "complete",
        {"imported": 3},
    )
    assert run["started_at"] == "2026-11-30T13:37:59.000000000Z"
    assert run["duration_ns"] == 250_000_000
    link = {"workflow": "crm.sync", "run_id": "r0", "key": keys["r0"]}
    assert run["retry_of"] == {
        "workflow": "crm.sync",
        "run_id": "r0",
        "resolved": True,
        "key": keys["r0"],
    }
    assert run["parents"] == [link]
    assert [end["status"] for end in run["ends"]] == ["completed"]


def test_counts_stand_apart(api: Api, keys: dict[str, str]) -> None:
    """A16: occurrences, attempts, groups and operations are counted each on its own."""
    assert api.get(f"/runs/{keys['r1']}")["counts"] == {
        "occurrences": 3,
        "attempts": 2,
        "groups": 1,
        "operations": 2,
        "failed_attempts": 1,
    }


def test_a_failed_predecessor_stays_failed(api: Api, keys: dict[str, str]) -> None:
    """A15, A17: it shows the run that retries it and keeps its own status."""
    run = api.get(f"/runs/{keys['r0']}")
    assert (run["status"], run["outcome"]) == ("failed", "partial")
    assert [other["run_id"] for other in run["retried_by"]] == ["r1"]


def test_a_run_nobody_recorded_reads_unknown(api: Api, keys: dict[str, str]) -> None:
    """A11: known through its operations alone a run is neither open nor failed."""
    run = api.get(f"/runs/{keys['r2']}")
    assert (run["status"], run["started_at"], run["ends"]) == ("unknown", None, [])


def test_the_groups_of_a_run(api: Api, keys: dict[str, str]) -> None:
    """A9, A10: attempts by number, the gap as unknown, the conflict marked, both records shown."""
    (group,) = api.get(f"/runs/{keys['r1']}/attempts")["items"]
    assert [(one["number"], one["status"]) for one in group["attempts"]] == [
        (1, "failed"),
        (3, "completed"),
    ]
    assert group["gaps"] == [[2, 2]]
    assert group["verdict"] == "undetermined"
    assert group["conflicts"] == [3]
    assert [one["conflict"] for one in group["attempts"]] == [False, True]
    assert {one["operation_id"] for one in group["rejected"]} == {f"{4:016x}"}
    assert group["elsewhere"] == [keys["r2"]]


def test_an_attempt_names_its_evidence(api: Api, keys: dict[str, str]) -> None:
    """A9: recorded duration, error as reported, and the events, trace and span behind it."""
    (group,) = api.get(f"/runs/{keys['r1']}/attempts")["items"]
    first = group["attempts"][0]
    assert first["duration_ns"] == 250_000_000
    assert first["limit"] == 5
    assert first["error"] == {"code": "CRM_UNAVAILABLE", "type": None, "retryable": True}
    assert first["evidence"] == {
        "start_event_id": f"op-{2:032x}-{2:016x}-start",
        "end_event_id": f"op-{2:032x}-{2:016x}-end",
        "trace_id": f"{2:032x}",
        "span_id": f"{2:016x}",
    }


def test_a_reported_try_is_shown_inside(api: Api, keys: dict[str, str]) -> None:
    """B8: an observed try stands in its operation and enters no count."""
    (group,) = api.get(f"/runs/{keys['r1']}/attempts")["items"]
    (observed,) = group["attempts"][0]["observed"]
    assert (observed["number"], observed["outcome"], observed["system"]) == (1, "failed", "crm")
    assert observed["error"] == {"code": None, "type": "Timeout", "retryable": None}


def test_the_occurrences_of_a_run(api: Api, keys: dict[str, str]) -> None:
    """A4: an ordinary occurrence has no attempt and a verdict of its own."""
    listed = api.get(f"/runs/{keys['r1']}/operations")["items"]
    assert [(one["operation"], one["number"], one["verdict"]) for one in listed] == [
        ("push-to-crm", 1, None),
        ("push-to-crm", 3, None),
        ("load", None, "first_try"),
    ]
    assert listed[2]["attempt"] is None
    assert listed[0]["attempt"]["group_id"] == "batch-42"


def test_a_zero_time_is_null(api: Api, keys: dict[str, str]) -> None:
    """A10: a start at zero is unknown, and so is the duration."""
    (one,) = api.get(f"/runs/{keys['r2']}/operations")["items"]
    assert (one["started_at"], one["duration_ns"]) == (None, None)
    assert one["ended_at"] is not None


def test_the_evidence_of_a_run(api: Api, keys: dict[str, str]) -> None:
    """A9: every event with arrival, digest, attributes and sender, the rejected ones among them."""
    listed = api.get(f"/runs/{keys['r1']}/events")["items"]
    assert [event["state"] for event in listed].count("rejected") == 2
    assert len(listed) == 11
    rejected = next(event for event in listed if event["state"] == "rejected")
    assert rejected["code"] == "conflict"
    assert "another operation id" in rejected["message"]
    first = next(event for event in listed if event["event_id"].startswith(f"op-{2:032x}"))
    assert len(first["digest"]) == 64
    assert first["attributes"]["flowmark.attempt.group_id"] == "batch-42"
    assert first["sender"]["service_name"] == "crm-sync"
    assert first["sender"]["user_agent"].startswith("python-requests")


def test_statistics_per_operation_name(api: Api) -> None:
    """E4: both error rates, amplification with "at least", and the time lost."""
    listed = api.get("/operations")["items"]
    assert [row["operation"] for row in listed] == ["push-to-crm", "load"]
    row = listed[0]
    assert (row["workflow"], row["attempts"], row["groups"]) == ("crm.sync", 3, 2)
    assert row["attempt_errors"] == {"numerator": 1, "denominator": 3, "undecided": 0}
    assert row["operation_errors"] == {"numerator": 0, "denominator": 1, "undecided": 1}
    assert row["amplification"] == {
        "numerator": 3,
        "denominator": 2,
        "undecided": 1,
        "at_least": True,
    }
    assert row["time_lost_ns"] == 250_000_000


def test_the_runs_of_a_trace(api: Api) -> None:
    """D5: a trace id leads to the runs it holds evidence of; an unknown one to none."""
    assert [run["run_id"] for run in api.get(f"/trace/{3:032x}")["items"]] == ["r1"]
    assert api.get(f"/trace/{99:032x}") == {"items": [], "next": None}


def _paths(key: str) -> list[tuple[str, str]]:
    values = {"{key}": key, "{trace_id}": f"{2:032x}"}
    found = []
    for endpoint in ENDPOINTS:
        path = endpoint.path
        for name, value in values.items():
            path = path.replace(name, value)
        found.append((endpoint.path, path))
    return found


def test_every_answer_is_what_the_document_says(api: Api, keys: dict[str, str]) -> None:
    """D5: each answer fits the schema that the OpenAPI document gives for it, field by field."""
    document = api.get("/openapi.json")
    for template, path in _paths(keys["r1"]):
        answers = document["paths"][f"{PREFIX}{template}"]["get"]["responses"]
        schema = answers["200"]["content"]["application/json"]["schema"]
        answer: Any = api.get(path)
        assert answer.get("items", [answer]), path
        assert faults(answer, schema, document) == []


def test_every_refusal_is_what_the_document_says(api: Api, keys: dict[str, str]) -> None:
    """D5: errors have one body, on every path, and the document has it."""
    document = api.get("/openapi.json")
    for template, path in _paths(keys["r1"]):
        answers = document["paths"][f"{PREFIX}{template}"]["get"]["responses"]
        for authorization, query in ((None, None), ("", {"nonsense": 1})):
            answer = api.answer(path, authorization, query=query)
            schema = answers[str(answer.status_code)]["content"]["application/json"]["schema"]
            assert faults(answer.json(), schema, document) == []


def test_the_document_names_every_parameter(api: Api) -> None:
    """D5: what a request takes, its bounds and its closed sets stand in the document."""
    document = api.get("/openapi.json")
    listed = document["paths"][f"{PREFIX}/runs"]["get"]["parameters"]
    found = {one["name"]: one["schema"] for one in listed}
    assert found["limit"] == {"type": "integer", "minimum": 1, "maximum": 500, "default": 50}
    assert found["verdict"]["enum"] == [
        "first_try",
        "after_retry",
        "failed",
        "open",
        "undetermined",
    ]
    assert set(found) == {
        *("workflow", "run_id", "status", "verdict", "operation", "group_id", "trace_id"),
        *("error_code", "problem", "has_retries", "min_attempts", "origin", "since", "until"),
        *("q", "limit", "cursor"),
    }
