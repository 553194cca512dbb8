"""Bad attributes through a real server: each costs its own events and no neighbour."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from flowmark_otel.model import Receipt
from flowmark_otel.wire import receipt
from tests.support.payloads import (
    JSON,
    PROTOBUF,
    Json,
    as_json,
    as_protobuf,
    attributes,
    request,
    span,
)
from tests.support.server import options, running
from tests.support.serving import Asking

GROUP: Final = "flowmark.attempt.group_id"
NUMBER: Final = "flowmark.attempt.number"
LIMIT: Final = "flowmark.attempt.limit"
RUN: Final = "flowmark.run.id"
WORKFLOW: Final = "flowmark.workflow.name"
OF_RUN: Final = "flowmark.retry_of.run.id"
OF_WORKFLOW: Final = "flowmark.retry_of.workflow.name"
OUTCOME: Final = "flowmark.run.outcome"
TYPE: Final = "flowmark.record.type"
PAIR: Final = {GROUP: "g", NUMBER: 1}
RETRY: Final = {OF_WORKFLOW: "crm.sync", OF_RUN: "earlier"}

ENCODING_OF: Final = {JSON: "json", PROTOBUF: "protobuf"}
_numbers = itertools.count(1)


class Bad(NamedTuple):
    """Attributes of one span, the key that is to be named and the rule; ``events`` refused."""

    name: str
    given: Mapping[str, object]
    key: str
    rule: str
    events: int = 2


BOTH: Final = [
    Bad("blank", {GROUP: "", NUMBER: 1}, GROUP, "is blank"),
    Bad("white space", {GROUP: " \t\u2003", NUMBER: 1}, GROUP, "is blank"),
    Bad("too long", {GROUP: "g" * 129, NUMBER: 1}, GROUP, "has 129 characters; set at most 128"),
    Bad("group of type int", {GROUP: 7, NUMBER: 1}, GROUP, "is the integer 7; set a string"),
    Bad("group of type bool", {GROUP: True, NUMBER: 1}, GROUP, "is the bool true; set a string"),
    Bad("group is a list", {GROUP: ["g"], NUMBER: 1}, GROUP, "set a string"),
    Bad("group is a map", {GROUP: {"g": 1}, NUMBER: 1}, GROUP, "set a string"),
    Bad("true", {GROUP: "g", NUMBER: True}, NUMBER, "is the bool true; set an integer"),
    Bad("text 2", {GROUP: "g", NUMBER: "2"}, NUMBER, "is the string '2'; set an integer"),
    Bad("2.5", {GROUP: "g", NUMBER: 2.5}, NUMBER, "is the double 2.5; set an integer"),
    Bad("zero", {GROUP: "g", NUMBER: 0}, NUMBER, "set an integer from 1 to 2^53-1"),
    Bad("minus one", {GROUP: "g", NUMBER: -1}, NUMBER, "set an integer from 1 to 2^53-1"),
    Bad("2^53", {GROUP: "g", NUMBER: 2**53}, NUMBER, "set an integer from 1 to 2^53-1"),
    Bad("2^63 as double", {GROUP: "g", NUMBER: 2.0**63}, NUMBER, "set an integer from 1"),
    Bad("NaN", {GROUP: "g", NUMBER: float("nan")}, NUMBER, "set an integer"),
    Bad("infinity", {GROUP: "g", NUMBER: float("inf")}, NUMBER, "set an integer"),
    Bad("limit", {**PAIR, LIMIT: "three"}, LIMIT, "is the string 'three'; set an integer"),
    Bad("group alone", {GROUP: "g"}, GROUP, f"needs {NUMBER}"),
    Bad("number alone", {NUMBER: 1}, NUMBER, f"needs {GROUP}"),
    Bad("retry run alone", {OF_RUN: "earlier"}, OF_RUN, f"needs {OF_WORKFLOW}", 1),
    Bad("retry workflow alone", {OF_WORKFLOW: "w"}, OF_WORKFLOW, f"needs {OF_RUN}", 1),
    Bad("self", {**RETRY, WORKFLOW: "crm.sync", RUN: "earlier"}, OF_RUN, "names this run", 1),
    Bad(
        "self by default",
        {**RETRY, OF_WORKFLOW: "crm-sync", RUN: "earlier", OUTCOME: "o"},
        OF_RUN,
        "names this",
    ),
    Bad("run id", {**PAIR, RUN: "r" * 201}, RUN, "has 201 characters; set at most 200"),
    Bad("NUL", {**PAIR, GROUP: "a\0b"}, GROUP, "NUL"),
    Bad("NUL in run id", {**PAIR, RUN: "a\0b"}, RUN, "NUL"),
    Bad("an end's key", {OUTCOME: " "}, OUTCOME, "is blank", 1),
    Bad("error code", {**PAIR, "flowmark.error.code": 503}, "flowmark.error.code", "a string", 1),
    Bad("result", {"flowmark.run.result.n": float("nan")}, "flowmark.run.result.n", "finite", 1),
    Bad("result key", {"flowmark.run.result.N": 1}, "flowmark.run.result.N", "no result key", 1),
    Bad("record type", {**PAIR, TYPE: "attempt"}, TYPE, "set 'run' or 'operation'", 1),
]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    """One backend for all cases; each has a run of its own."""
    folder: Path = tmp_path_factory.mktemp("bad")
    with running(options(folder / "s.db", insecure_no_auth=True)) as found:
        yield Asking(found.http)


class Sent(NamedTuple):
    """A bad span between two good neighbours, and what was answered."""

    run: str
    answer: Receipt


def neighbours(bad: Json) -> tuple[str, Json]:
    """A request whose second span is the bad one; the run of its neighbours."""
    first, last = next(_numbers), next(_numbers)
    run = f"run-{first}"
    good = [span(number, {**PAIR, RUN: run, NUMBER: number}) for number in (first, last)]
    return run, request([good[0], bad, good[1]])


def send(serving: Asking, run: str, body: bytes, content_type: str) -> Sent:
    """Post it; the answer is a success, for the neighbours are in it."""
    answer = serving.post("traces", body, content_type)
    assert answer.status_code == 200, answer.text
    return Sent(run, receipt.decode(answer.content, ENCODING_OF[content_type]))


def assert_neighbours_stored(serving: Asking, run: str) -> None:
    """Both neighbours read back as completed attempts."""
    [found] = serving.get("/runs", run_id=run)["items"]
    [group] = serving.get(f"/runs/{found['key']}/attempts")["items"]
    assert [attempt["status"] for attempt in group["attempts"]] == ["completed", "completed"]


def assert_refused(serving: Asking, sent: Sent, bad: Bad) -> None:
    """The neighbours' four events are stored, the bad ones refused by key and rule."""
    answer = sent.answer
    assert (answer.stored, answer.rejected) == (answer.received - bad.events, bad.events)
    assert answer.stored >= 4
    assert answer.rejected_items == 1
    for rejection in answer.rejections:
        assert rejection.code == "invalid"
        assert bad.key in rejection.message
        assert bad.rule in rejection.message
    assert_neighbours_stored(serving, sent.run)


def bad_span(given: Mapping[str, object], **fields: object) -> Json:
    """A span with ids of its own."""
    return span(next(_numbers), given, **fields)


@pytest.mark.parametrize("content_type", [JSON, PROTOBUF], ids=["json", "pb"])
@pytest.mark.parametrize("bad", BOTH, ids=lambda bad: bad.name)
def test_a_broken_rule_costs_its_own_events(serving: Asking, bad: Bad, content_type: str) -> None:
    """A5: a broken rule is named by key, type and rule, and the neighbours are stored."""
    run, document = neighbours(bad_span(bad.given))
    encode = as_json if content_type == JSON else as_protobuf
    assert_refused(serving, send(serving, run, encode(document), content_type), bad)


@pytest.mark.parametrize("content_type", [JSON, PROTOBUF], ids=["json", "pb"])
def test_an_integral_double_is_that_integer(serving: Asking, content_type: str) -> None:
    """A5: 2.0, as some SDKs send it, is 2."""
    number = next(_numbers)
    run = f"run-{number}"
    document = request([span(number, {GROUP: "g", NUMBER: 2.0, RUN: run})])
    encode = as_json if content_type == JSON else as_protobuf
    sent = send(serving, run, encode(document), content_type)
    assert (sent.answer.stored, sent.answer.rejected) == (2, 0)
    [found] = serving.get("/runs", run_id=run)["items"]
    [group] = serving.get(f"/runs/{found['key']}/attempts")["items"]
    assert [attempt["number"] for attempt in group["attempts"]] == [2]


@pytest.mark.parametrize("content_type", [JSON, PROTOBUF], ids=["json", "pb"])
def test_an_unknown_key_makes_no_record(serving: Asking, content_type: str) -> None:
    """A4: a flowmark. key that is in no table makes no record, and beside a pair is left out."""
    run, document = neighbours(bad_span({"flowmark.atempt.number": 2}))
    encode = as_json if content_type == JSON else as_protobuf
    sent = send(serving, run, encode(document), content_type)
    assert (sent.answer.received, sent.answer.stored) == (4, 4)
    run = f"run-{next(_numbers)}"
    document = request([bad_span({**PAIR, RUN: run, "flowmark.atempt.limit": 2})])
    send(serving, run, encode(document), content_type)
    [found] = serving.get("/runs", run_id=run)["items"]
    events = serving.get(f"/runs/{found['key']}/events")["items"]
    assert len(events) == 2
    assert not any("flowmark.atempt.limit" in event["attributes"] for event in events)


def test_an_integer_beyond_64_bits(serving: Asking) -> None:
    """A5: 2^63 is refused in JSON, as text and as a number, and not cut to another number."""
    for written in (str(2**63), 2**63, "9" * 30):
        bad = bad_span(PAIR)
        bad["attributes"][1]["value"] = {"intValue": written}
        run, document = neighbours(bad)
        case = Bad("2^63", {}, NUMBER, "set an integer from 1 to 2^53-1")
        assert_refused(serving, send(serving, run, as_json(document), JSON), case)


@pytest.mark.parametrize("key", [GROUP, RUN])
def test_a_lone_surrogate_in_json(serving: Asking, key: str) -> None:
    """A5: an escaped lone surrogate in a flowmark. value refuses that span's events alone."""
    run, document = neighbours(bad_span({**PAIR, key: "a\ud800b"}))
    case = Bad("surrogate", {}, key, "lone surrogate or invalid UTF-8")
    assert_refused(serving, send(serving, run, as_json(document), JSON), case)


@pytest.mark.parametrize("content_type", [JSON, PROTOBUF], ids=["json", "pb"])
@pytest.mark.parametrize("key", [GROUP, RUN])
def test_invalid_utf8(serving: Asking, key: str, content_type: str) -> None:
    """A5: bytes that are no UTF-8 in a flowmark. value refuse that span's events alone."""
    run, document = neighbours(bad_span({**PAIR, key: "@@@@"}))
    encode = as_json if content_type == JSON else as_protobuf
    body = encode(document).replace(b"@@@@", b"a\xff\xfeb")
    case = Bad("bytes", {}, key, "lone surrogate or invalid UTF-8")
    assert_refused(serving, send(serving, run, body, content_type), case)


@pytest.mark.parametrize("content_type", [JSON, PROTOBUF], ids=["json", "pb"])
def test_bad_characters_elsewhere_are_replaced(serving: Asking, content_type: str) -> None:
    """A10: bad characters outside flowmark. values cost nothing; a name is replaced and flagged."""
    number = next(_numbers)
    run = f"run-{number}"
    given = {**PAIR, RUN: run, "http.url": "@@@@"}
    document = request([span(number, given, name="push @@@@")])
    encode = as_json if content_type == JSON else as_protobuf
    body = encode(document).replace(b"@@@@", b"a\xff\xfeb")
    sent = send(serving, run, body, content_type)
    assert (sent.answer.stored, sent.answer.rejected) == (2, 0)
    [found] = serving.get("/runs", run_id=run)["items"]
    [group] = serving.get(f"/runs/{found['key']}/attempts")["items"]
    assert "\ufffd" in group["operation"]
    assert "characters_replaced" in group["attempts"][0]["flags"]


@pytest.mark.parametrize("content_type", [JSON, PROTOBUF], ids=["json", "pb"])
def test_a_hundred_thousand_attributes(serving: Asking, content_type: str) -> None:
    """A5: 10^5 attributes of others cost nothing; 10^5 results are more than the 64 allowed."""
    encode = as_json if content_type == JSON else as_protobuf
    crowd = {f"app.key.{number}": number for number in range(100_000)}
    run, document = neighbours(bad_span({**crowd, **PAIR}))
    sent = send(serving, run, encode(document), content_type)
    assert (sent.answer.stored, sent.answer.rejected) == (6, 0)

    results = {f"flowmark.run.result.n{number}": 1 for number in range(100_000)}
    run, document = neighbours(bad_span(results))
    case = Bad("results", {}, "flowmark.run.result.", "at most 64", 1)
    assert_refused(serving, send(serving, run, encode(document), content_type), case)


def assert_named_by_position(serving: Asking, sent: Sent, rule: str) -> None:
    """The bad span counts as one event, named by its position."""
    assert (sent.answer.stored, sent.answer.rejected) == (4, 1)
    [rejection] = sent.answer.rejections
    assert (rejection.event_id, rejection.code, rejection.item) == ("", "invalid", 1)
    assert rule in rejection.message
    assert_neighbours_stored(serving, sent.run)


@pytest.mark.parametrize("content_type", [JSON, PROTOBUF], ids=["json", "pb"])
@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("traceId", "ab" * 15, "trace id has 15 bytes; set 16"),
        ("traceId", "ab" * 17, "trace id has 17 bytes; set 16"),
        ("traceId", "", "trace id has 0 bytes; set 16"),
        ("traceId", "00" * 16, "trace id is all zero"),
        ("spanId", "ab" * 9, "span id has 9 bytes; set 8"),
        ("spanId", "", "span id has 0 bytes; set 8"),
        ("spanId", "00" * 8, "span id is all zero"),
    ],
)
def test_ids_of_a_wrong_length(
    serving: Asking, field: str, value: str, rule: str, content_type: str
) -> None:
    """A9: ids that can name no event make the span one refused event, named by its position."""
    fields: dict[str, Any] = {field: value}
    run, document = neighbours(bad_span(PAIR, **fields))
    encode = as_json if content_type == JSON else as_protobuf
    sent = send(serving, run, encode(document), content_type)
    assert_named_by_position(serving, sent, rule)


def test_base64_ids_in_json(serving: Asking) -> None:
    """D1: OTLP/JSON ids are hex; base64 ones are refused and never read as other ids."""
    bad = bad_span(PAIR, traceId="CvdlGRbNQ92ESOshHIAxnA==", spanId="APBnqguqkCt=")
    run, document = neighbours(bad)
    sent = send(serving, run, as_json(document), JSON)
    assert_named_by_position(serving, sent, "trace id has 24 bytes; set 16")


def test_enum_names_in_json(serving: Asking) -> None:
    """D1: names of enum values, which some encoders write in JSON, are read as their numbers."""
    number = next(_numbers)
    run = f"run-{number}"
    document = request(
        [
            span(
                number,
                {**PAIR, RUN: run},
                kind="SPAN_KIND_CLIENT",
                status={"code": "STATUS_CODE_ERROR"},
            )
        ]
    )
    sent = send(serving, run, as_json(document), JSON)
    assert (sent.answer.stored, sent.answer.rejected) == (2, 0)
    [found] = serving.get("/runs", run_id=run)["items"]
    [group] = serving.get(f"/runs/{found['key']}/attempts")["items"]
    assert [attempt["status"] for attempt in group["attempts"]] == ["failed"]


def test_an_unknown_status_costs_its_span(serving: Asking) -> None:
    """A10: a status that cannot be read is no outcome; that span is refused, not guessed."""
    run, document = neighbours(bad_span(PAIR, status={"code": "STATUS_CODE_BROKEN"}))
    sent = send(serving, run, as_json(document), JSON)
    assert_named_by_position(serving, sent, "status.code")


@pytest.mark.parametrize(
    "value",
    [{"stringValue": 5}, {"intValue": "two"}, {"intValue": 2.5}, "2", 2, ["2"], {"boolValue": 1}],
    ids=str,
)
def test_values_of_a_wrong_shape_in_json(serving: Asking, value: object) -> None:
    """A5: a value that is no AnyValue breaks the rule of its key, and nothing else."""
    bad = bad_span({GROUP: "g"})
    bad["attributes"].append({"key": NUMBER, "value": value})
    run, document = neighbours(bad)
    case = Bad("shape", {}, NUMBER, "set an integer")
    assert_refused(serving, send(serving, run, as_json(document), JSON), case)


def test_an_empty_value_counts_as_absent(serving: Asking) -> None:
    """A5: an empty value is no value, so its pair is half a pair."""
    bad = bad_span({GROUP: "g"})
    bad["attributes"] += [*attributes({NUMBER: None})]
    run, document = neighbours(bad)
    case = Bad("empty", {}, GROUP, f"needs {NUMBER}")
    assert_refused(serving, send(serving, run, as_json(document), JSON), case)


def test_all_refused_is_an_error_with_a_receipt(serving: Asking) -> None:
    """A23: where every event is invalid the answer is 400, and its details hold the receipt."""
    document = request([bad_span({GROUP: "g", NUMBER: "2"})])
    answer = serving.post("traces", as_json(document), JSON)
    assert answer.status_code == 400
    [detail] = answer.json()["details"]
    assert detail["rejected"] == "2"
    assert NUMBER in detail["rejections"][0]["message"]
