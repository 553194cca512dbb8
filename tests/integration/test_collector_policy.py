"""What nodes do about failures, seen by senders: on_error, letters, budgets, triggers (C1-C6)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import requests

from flowmark_otel import names
from flowmark_otel.collector.meter import NodeState
from tests.support.answers import Received, Reply, acknowledging, answering
from tests.support.collecting import Collecting, capable, collecting, configuration, node
from tests.support.delivering import attempts, delivering, reasons
from tests.support.fleet import until
from tests.support.payloads import JSON, PROTOBUF, as_json, as_protobuf, request, span
from tests.support.server import options, running
from tests.support.serving import Asking

OWN: Final[dict[str, Any]] = {names.ATTEMPT_GROUP_ID: "g", names.ATTEMPT_NUMBER: 1}
BAD: Final[dict[str, Any]] = {names.ATTEMPT_GROUP_ID: "g", names.ATTEMPT_NUMBER: True}
PLAIN: Final[dict[str, Any]] = {"http.method": "GET"}


def post(found: Collecting, *spans: Any, content_type: str = JSON) -> requests.Response:
    """The answer to spans."""
    made = as_json if content_type == JSON else as_protobuf
    return Asking(found.http).post("traces", made(request(spans)), content_type)


def letters_in(path: Path) -> list[dict[str, Any]]:
    """The dead letters of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@contextmanager
def branched(trigger: str, *, tracing: Any, backend: Any) -> Iterator[Collecting]:
    """A collector that gives traces to a tracing backend, which answers so, and to ours."""
    with answering(tracing) as traced, answering(capable(backend)) as kept:
        file = configuration(kept.endpoint)
        file["exporters"]["otlp_http/tracing"] = {"endpoint": traced.endpoint}
        file["service"]["pipelines"]["traces"] = {
            "receivers": ["otlp"],
            "exporters": ["otlp_http/tracing", "flowmark/fold"],
            "trigger": trigger,
        }
        with collecting(file) as found:
            yield found


def test_fail_refuses_the_request_and_the_node_goes_on() -> None:
    """C1: ``fail`` answers 400 for an event that breaks a rule, neighbours included."""
    with (
        answering(capable(acknowledging())) as server,
        collecting(configuration(server.endpoint)) as found,
    ):
        answer = post(found, span(1, OWN), span(2, BAD))
        assert answer.status_code == 400
        assert "flowmark.attempt.number" in answer.json()["message"]
        assert "details" not in answer.json()
        assert not server.exports
        assert post(found, span(1, OWN)).json()["stored"] == "2"


def test_fail_names_the_events_where_all_are_bad() -> None:
    """C1: where every event of a request breaks a rule the answer is the backend's own."""
    with (
        answering(capable(acknowledging())) as server,
        collecting(configuration(server.endpoint)) as found,
    ):
        answer = post(found, span(2, BAD))
        assert answer.status_code == 400
        (receipt,) = answer.json()["details"]
        assert {each["code"] for each in receipt["rejections"]} == {names.INVALID}
        assert receipt["received"] == "2"


@pytest.mark.parametrize("content_type", [JSON, PROTOBUF])
def test_route_writes_the_failed_spans_and_nothing_else(content_type: str, tmp_path: Path) -> None:
    """C1, C6: a bad span goes to the letters untouched, its neighbours on, the sender is told."""
    letters = tmp_path / "letters.jsonl"
    with (
        answering(capable(acknowledging())) as server,
        collecting(configuration(server.endpoint, letters=letters)) as found,
    ):
        bad = span(2, {**BAD, "app.key": "kept"})
        answer = post(found, span(1, OWN), bad, span(3, PLAIN), content_type=content_type)
        assert answer.status_code == 200
        (letter,) = letters_in(letters)
        assert node(found, "flowmark/fold").letters == 2
    assert letter["failure.attempts"] == 1
    assert letter["failure.exception"] == "InvalidEnvelope"
    assert letter["failure.node"] == "flowmark/fold"
    assert "flowmark.attempt.number" in letter["failure.message"]
    (group,) = letter["input"]["resourceSpans"]
    (only,) = group["scopeSpans"][0]["spans"]
    assert only["attributes"] == bad["attributes"]
    assert group["resource"]["attributes"][0]["value"] == {"stringValue": "crm-sync"}


def test_what_the_backend_refused_keeps_its_code_and_has_a_letter(tmp_path: Path) -> None:
    """C6: a conflict is told as a conflict, and written to the letters as well."""
    letters = tmp_path / "letters.jsonl"
    twin = span(1, {**OWN, names.ATTEMPT_NUMBER: 2})
    with collecting_before_backend(tmp_path, letters) as found:
        assert post(found, span(1, OWN)).json()["stored"] == "2"
        answer = post(found, twin, span(2, PLAIN)).json()
        assert {each["code"] for each in answer["rejections"]} == {names.CONFLICT}
        (letter,) = letters_in(letters)
    assert letter["failure.exception"] == "Rejected"
    assert letter["failure.message"].startswith("conflict: ")
    assert len(letter["input"]["resourceSpans"][0]["scopeSpans"][0]["spans"]) == 1


@contextmanager
def collecting_before_backend(tmp_path: Path, letters: Path) -> Iterator[Collecting]:
    """A collector that routes, before a real backend."""
    with (
        running(options(tmp_path / "s.db", insecure_no_auth=True)) as backend,
        collecting(configuration(f"http://{backend.http}", letters=letters)) as found,
    ):
        yield found


def test_letters_that_cannot_be_written_lose_nothing() -> None:
    """C1: where the error port fails the sender is told to come again, and nothing goes on."""
    with answering(capable(acknowledging())) as server:
        file = configuration(server.endpoint, letters=Path("/dev/full"))
        with collecting(file) as found:
            answer = post(found, span(2, BAD), span(1, OWN))
            assert answer.status_code == 503
            assert not server.exports


def test_continue_drops_and_says_so() -> None:
    """C1: ``continue`` drops the bad event alone, counts it, and the sender is told ``dropped``."""
    with answering(capable(acknowledging())) as server:
        file = configuration(server.endpoint, fold={"on_error": "continue"})
        with collecting(file) as found, delivering(f"http://{found.http}") as delivery:
            answer = post(found, span(1, OWN), span(2, BAD)).json()
            assert answer["stored"] == "2"
            assert {each["code"] for each in answer["rejections"]} == {names.DROPPED}
            assert node(found, "flowmark/fold").dropped == 2
            delivery.record(*attempts(5, 5))
            delivery.flush(20)


def test_a_spent_budget_refuses_and_a_probe_ends_it(tmp_path: Path) -> None:
    """C3: more failures than allowed and the node refuses all; one good probe ends that.

    ``/readyz`` says no meanwhile, for unannotated spans too the answer is 503.
    """
    letters = tmp_path / "letters.jsonl"
    budget = {"max_failures": 2, "window_ms": 700}
    with answering(capable(acknowledging())) as server:
        file = configuration(server.endpoint, letters=letters, fold={"failure_budget": budget})
        with collecting(file) as found:
            answers = [post(found, span(n, BAD)).status_code for n in range(1, 6)]
            assert answers == [200, 200, 200, 503, 503]
            assert node(found, "flowmark/fold").state is NodeState.REFUSING
            assert requests.get(f"http://{found.http}/readyz", timeout=20).status_code == 503
            refused = post(found, span(9, OWN))
            assert refused.status_code == 503
            assert "budget" in refused.json()["message"]
            assert until(lambda: post(found, span(9, OWN)).status_code == 200)
            assert node(found, "flowmark/fold").state is NodeState.OK
            assert len(letters_in(letters)) == 3


GOOD: Final = Reply(200, b"")
DOWN: Final = Reply(503, b"")


@pytest.mark.parametrize(
    ("trigger", "tracing", "backend", "status", "acknowledged"),
    [
        ("all_success", GOOD, acknowledging(), 200, True),
        ("all_success", DOWN, acknowledging(), 503, False),
        ("all_success", GOOD, DOWN, 503, False),
        ("all_done", DOWN, acknowledging(), 200, True),
        ("all_done", GOOD, DOWN, 200, False),
        ("all_done", DOWN, DOWN, 503, False),
        ("one_success", DOWN, acknowledging(), 200, True),
        ("one_success", GOOD, DOWN, 200, False),
        ("one_success", DOWN, DOWN, 503, False),
    ],
)
def test_a_trigger_joins_the_answers_of_branches(
    trigger: str,
    tracing: Any,
    backend: Any,
    status: int,
    acknowledged: bool,  # noqa: FBT001
) -> None:
    """C4, A24: what a failed branch means; only the branch to the backend acknowledges attempts."""
    with branched(trigger, tracing=tracing, backend=backend) as found:
        answer = post(found, span(1, OWN))
        assert answer.status_code == status
        told = answer.json().get("capabilities", [])
        assert (names.CAPABILITY in told) is acknowledged


def test_the_first_success_answers_and_the_rest_goes_on() -> None:
    """C4: ``one_success`` does not wait for a slow branch, which still ends by itself."""
    slow = threading.Event()
    with branched("one_success", tracing=GOOD, backend=after(slow)) as found:
        answer = post(found, span(1, OWN))
        assert answer.status_code == 200
        assert answer.json() == {}
        assert not node(found, "flowmark").forwarded
        slow.set()
        assert until(lambda: node(found, "flowmark").forwarded) == 2


def after(event: threading.Event) -> Any:
    """A backend that waits before it stores."""

    def answer(asked: Any) -> Reply:
        event.wait(20)
        return acknowledging()(asked)

    return answer


def test_a_branch_that_may_fail_does_not_fail_the_request() -> None:
    """C1, C6: with ``continue`` a dead tracing backend shows in its node, not in the answer."""
    with answering(DOWN) as traced, answering(capable(acknowledging())) as kept:
        file = configuration(kept.endpoint)
        file["exporters"]["otlp_http/tracing"] = {
            "endpoint": traced.endpoint,
            "on_error": "continue",
        }
        file["service"]["pipelines"]["traces"]["exporters"].append("otlp_http/tracing")
        with collecting(file) as found:
            assert post(found, span(1, OWN)).json()["stored"] == "2"
            reading = node(found, "otlp_http/tracing")
            assert (reading.dropped, reading.state) == (1, NodeState.FAILING)
            (pipeline,) = (
                each for each in found.collector.meter.pipelines() if each.id == "traces"
            )
            assert (pipeline.completed, pipeline.failed) == (1, 0)


def test_traces_go_on_untouched() -> None:
    """Pass-through: what the tracing backend gets is the request as it came, to the byte."""
    with answering(stock_traces) as traced, answering(capable(acknowledging())) as kept:
        file = configuration(kept.endpoint)
        file["exporters"]["otlp_http/tracing"] = {"endpoint": traced.endpoint}
        file["service"]["pipelines"]["traces/on"] = {
            "receivers": ["flowmark/fold"],
            "exporters": ["otlp_http/tracing"],
        }
        with collecting(file) as found:
            body = as_protobuf(request([span(1, OWN), span(2, PLAIN)])) + b"\xfa\x07\x03abc"
            answer = Asking(found.http).post("traces", body, PROTOBUF)
            assert answer.status_code == 200
        assert [each.body for each in traced.received] == [body]


def stock_traces(_: Any) -> Reply:
    """A stock OTLP success."""
    return Reply(200, b"")


def test_bad_input_is_tried_again_only_where_it_is_listed(tmp_path: Path) -> None:
    """C2: an event that breaks a rule has one try, more only if ``InvalidEnvelope`` is listed."""
    letters = tmp_path / "letters.jsonl"
    with answering(capable(acknowledging())) as server:
        for retry, tries in (({}, 1), ({"retry_on": ["InvalidEnvelope"]}, 3)):
            letters.unlink(missing_ok=True)
            fold = {"retry": {"backoff_ms": 1, **retry}}
            with collecting(configuration(server.endpoint, letters=letters, fold=fold)) as found:
                assert post(found, span(1, BAD)).status_code == 200
                (letter,) = letters_in(letters)
                assert letter["failure.attempts"] == tries


def test_what_is_no_request_is_no_failure_of_a_node() -> None:
    """Row 18: a body that is none is answered 400, whatever nodes do about failures."""
    with answering(capable(acknowledging())) as server:
        file = configuration(server.endpoint, fold={"on_error": "continue"})
        with collecting(file) as found:
            assert Asking(found.http).post("traces", b"\xff\xff", PROTOBUF).status_code == 400
            assert Asking(found.http).post("traces", b"[1]", JSON).status_code == 400
            assert not node(found, "flowmark/fold").failed_messages


def test_a_signal_that_no_pipeline_takes_is_not_served() -> None:
    """A collector without a pipeline for logs says so, as a Collector does: 404."""
    with answering(capable(acknowledging())) as server:
        file = configuration(server.endpoint)
        del file["service"]["pipelines"]["logs/sdk"]
        with collecting(file) as found:
            answer = Asking(found.http).post("logs", b"{}", JSON)
            assert answer.status_code == 404
            with delivering(f"http://{found.http}") as delivery:
                delivery.record(*attempts(1, 1))
                assert reasons(delivery.lost()) == {(names.QUEUED, names.REASON_UNAVAILABLE)}


def test_two_backends_are_one_receipt() -> None:
    """C4, A24: with two branches to backends the worse of two fates is told of each event."""

    def known(asked: Received) -> Reply:
        number = len(asked.event_ids)
        return acknowledging(stored=0, duplicate=number)(asked)

    with answering(capable(acknowledging())) as one, answering(capable(known)) as other:
        file = configuration(one.endpoint)
        file["exporters"]["flowmark/second"] = {"endpoint": other.endpoint}
        file["service"]["pipelines"]["logs/envelopes"]["exporters"].append("flowmark/second")
        with collecting(file) as found:
            told = post(found, span(1, OWN)).json()
            assert (told["stored"], told["duplicate"], told["received"]) == ("2", "0", "2")
            other.script(lambda asked: Reply(200, b"") if "logs" in asked.path else DOWN)
            told = post(found, span(1, OWN)).json()
            assert told["capabilities"] == []


def test_a_page_of_another_site_cannot_send() -> None:
    """DNS rebinding: without a token a browser is answered under the names of loopback alone."""
    with (
        answering(capable(acknowledging())) as server,
        collecting(configuration(server.endpoint)) as found,
    ):
        for origin, host, status in (
            ("http://evil.example", "evil.example", 403),
            (None, "collector.internal", 200),
        ):
            headers = {"content-type": JSON, "host": host}
            if origin is not None:
                headers["origin"] = origin
            body = as_json(request([span(1, PLAIN)]))
            where = f"http://{found.http}/v1/traces"
            answer = requests.post(where, data=body, headers=headers, timeout=20)
            assert answer.status_code == status
