"""``check``: captured telemetry of every shape, and what is said about it (E5)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from flowmark_otel.commands.root import root
from flowmark_otel.fold import fold_span
from flowmark_otel.model import Envelope
from flowmark_otel.wire import budget
from flowmark_otel.wire.decode import decode_traces
from flowmark_otel.wire.encode import encode_logs
from tests.support import bombs
from tests.support.payloads import Json, as_json, as_protobuf, attributes, request, span

TRY: Mapping[str, object] = {
    "flowmark.attempt.group_id": "customer-batch-42",
    "flowmark.attempt.number": 1,
    "flowmark.workflow.name": "crm.sync",
    "flowmark.run.id": "run-1",
}
WRONG: Mapping[str, object] = {**TRY, "flowmark.attempt.number": "2"}


def check(*arguments: str | Path) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(root, ["check", *map(str, arguments)])


def document(*arguments: str | Path) -> Any:
    """The JSON it prints, whatever its answer."""
    return json.loads(check("--json", *arguments).stdout)


def write(folder: Path, name: str, content: bytes) -> Path:
    """A file of that content."""
    path = folder / name
    path.write_bytes(content)
    return path


def logs_of(given: Json) -> bytes:
    """The envelopes of a request of traces, as a request of logs in protobuf."""
    envelopes = [
        event
        for item in decode_traces(as_json(given), "json").marked
        for event in fold_span(item.record)  # type: ignore[arg-type]
        if isinstance(event, Envelope)
    ]
    return encode_logs(envelopes, {"service.name": "crm-sync"})


def test_formats_and_signals_are_found_by_content(tmp_path: Path) -> None:
    """E5: JSON, indented JSON, JSON lines and protobuf, traces and logs, whatever the name."""
    good = request([span(1, TRY), span(2, {})])
    line = as_json(request([span(3, {**TRY, "flowmark.attempt.number": 2})]))
    files = [
        write(tmp_path, "compact", as_json(good)),
        write(tmp_path, "indented", json.dumps(good, indent=2).encode()),
        write(tmp_path, "blank-lines-first", b"\n\n" + json.dumps(good, indent=2).encode()),
        write(tmp_path, "lines", as_json(good) + b"\n" + line + b"\n"),
        write(tmp_path, "traces.pb", as_protobuf(good)),
        write(tmp_path, "logs.pb", logs_of(good)),
        write(tmp_path, "empty", b""),
    ]
    expected = [(2, 1, 2), (2, 1, 2), (2, 1, 2), (3, 2, 4), (2, 1, 2), (2, 2, 2), (0, 0, 0)]
    for path, (items, annotated, events) in zip(files, expected, strict=True):
        found = document(path)
        assert found["clean"] is True, found
        assert (found["items"], found["annotated"], found["events"]) == (items, annotated, events)


def test_one_line_for_each_refused_span(tmp_path: Path) -> None:
    """E5: a refused span is one line: place, key, what was found, rule, mend, what it would be."""
    path = write(tmp_path, "c.json", as_json(request([span(1, TRY), span(2, WRONG)])))
    answer = check(path)
    assert answer.exit_code == 1
    [line] = [line for line in answer.stdout.splitlines() if line.startswith("refused:")]
    assert f"{path} item 1 'push-to-crm'" in line
    assert "flowmark.attempt.number is the string '2'; set an integer from 1 to 2^53-1." in line
    assert (
        "Would be: attempt ? of group 'customer-batch-42' of operation 'push-to-crm'"
        " in run 'run-1' of workflow 'crm.sync'" in line
    )


@pytest.mark.parametrize(
    ("given", "would_be"),
    [
        ({**TRY, "flowmark.error.code": 5}, "attempt 1 of group 'customer-batch-42' of operation"),
        ({"flowmark.run.outcome": ""}, f"run '{9:032x}' of workflow 'crm-sync'"),
        ({"flowmark.operation.name": " "}, "operation ? in run"),
        ({**TRY, "flowmark.record.type": "try"}, "a run or an operation in run 'run-1'"),
        (
            {"flowmark.retry_of.run.id": "r0", "flowmark.run.id": "r1"},
            "run 'r1' of workflow 'crm-sync', retry of run 'r0' of workflow ?",
        ),
    ],
)
def test_what_it_would_be(tmp_path: Path, given: Mapping[str, object], would_be: str) -> None:
    """E5: a refused span is described as what it is meant to be, its refused keys as unknown."""
    path = write(tmp_path, "c.json", as_json(request([span(9, given)])))
    [refused] = document(path)["refused"]
    assert refused["would_be"].startswith(would_be)


def test_log_records_are_linted_too(tmp_path: Path) -> None:
    """E5: an envelope with a broken rule is named as the event it would be."""
    record = {
        "eventName": "flowmark.operation.started",
        "traceId": f"{1:032x}",
        "spanId": f"{1:016x}",
        "timeUnixNano": "1",
        "attributes": attributes({**WRONG, "flowmark.operation.name": "push-to-crm"}),
    }
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record, {"body": {}}]}]}]}
    found = document(write(tmp_path, "logs.json", json.dumps(logs).encode()))
    assert (found["items"], found["annotated"]) == (2, 1)
    [refused] = found["refused"]
    assert any("flowmark.operation.id is missing" in says for says in refused["says"])
    assert refused["would_be"].startswith("flowmark.operation.started of attempt ? of group")


def test_conflicts_within_the_files_are_refusals(tmp_path: Path) -> None:
    """A6: two spans that claim one place are found before anything is sent, also across files."""
    first = write(tmp_path, "1.json", as_json(request([span(1, TRY)])))
    second = write(tmp_path, "2.json", as_json(request([span(2, TRY)])))
    assert check(first).exit_code == check(second).exit_code == 0
    found = document(first, second)
    [refused] = found["refused"]
    assert (refused["place"], refused["code"]) == (str(second), "conflict")
    assert "another operation id" in refused["says"][0]
    again = document(first, first)
    assert again["clean"] is True
    assert again["events"] == 4


def test_unknown_keys_are_named_with_the_nearest(tmp_path: Path) -> None:
    """E5: a key that is in no table is named, with the known key it is nearest to."""
    given = {
        **TRY,
        "flowmark.atempt.limit": 3,
        "flowmark.run.results.imported": 3,
        "flowmark.colour": "red",
        "flowmark.attempt.foo": 1,
    }
    path = write(tmp_path, "c.json", as_json(request([span(1, given)])))
    answer = check(path)
    assert answer.exit_code == 0
    assert "flowmark.atempt.limit is not known" in answer.stdout
    assert "did you mean flowmark.attempt.limit?" in answer.stdout
    assert "did you mean flowmark.run.result.imported?" in answer.stdout
    for key in ("flowmark.colour", "flowmark.attempt.foo"):
        [unlike] = [line for line in answer.stdout.splitlines() if key in line]
        assert "did you mean" not in unlike


@pytest.mark.parametrize(
    ("key", "known"),
    [
        ("flowmark.attempt.groupid", "flowmark.attempt.group_id"),
        ("flowmark.attempt.group", "flowmark.attempt.group_id"),
        ("flowmark.attempt_number", "flowmark.attempt.number"),
        ("flowmark.workflow", "flowmark.workflow.name"),
        ("flowmark.run_id", "flowmark.run.id"),
        ("flowmark.retry.run.id", "flowmark.retry_of.run.id"),
        ("flowmark.run.imported", "flowmark.run.result.imported"),
    ],
)
def test_a_slip_is_mended(tmp_path: Path, key: str, known: str) -> None:
    """E5: a key that is written a little wrong leads to the one that was meant."""
    path = write(tmp_path, "c.json", as_json(request([span(1, {**TRY, key: "x"})])))
    assert f"{key} is not known and not carried; did you mean {known}?" in check(path).stdout


def test_the_last_line_counts_each_thing_on_its_own(tmp_path: Path) -> None:
    """E5, A16: requests, spans and events are counted apart, and those refused beside their own."""
    lines = [as_json(request([span(1, TRY), span(2, WRONG), span(3, {})])), b"{"]
    path = write(tmp_path, "c.jsonl", b"\n".join(lines))
    assert check(path).stdout.splitlines()[-1] == (
        "2 requests (1 unreadable): 3 spans and records, 2 annotated, 1 of them refused;"
        " 4 events, 2 would be taken, 2 refused; 0 notes"
    )
    assert document(path)["events_refused"] == 2


def test_a_group_torn_apart_by_defaults_is_named(tmp_path: Path) -> None:
    """A3: a group that occurs in several runs of defaulted identity gets the mend suggested."""
    group = {"flowmark.attempt.group_id": "g"}
    spans = [span(n, {**group, "flowmark.attempt.number": n}) for n in (1, 2)]
    found = document(write(tmp_path, "c.json", as_json(request(spans))))
    [note] = found["notes"]
    assert "occurs in 2 runs" in note["says"]
    assert "set flowmark.workflow.name and flowmark.run.id" in note["says"]
    whole = [span(n, {**TRY, "flowmark.attempt.number": n}) for n in (1, 2)]
    assert document(write(tmp_path, "d.json", as_json(request(whole))))["notes"] == []


def test_dropped_attributes_are_named(tmp_path: Path) -> None:
    """A10: an annotated span that lost attributes to a limit may lack some of ours."""
    lossy = span(1, TRY, droppedAttributesCount=7)
    found = document(write(tmp_path, "c.json", as_json(request([lossy]))))
    assert "lost 7 attributes" in found["notes"][0]["says"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"not telemetry", "is neither JSON nor an OTLP protobuf request"),
        (b"\x0a\xff\xff", "is neither JSON nor an OTLP protobuf request"),
        (b'{"resourceSpans": [', "is no JSON"),
        (b"[1]", "is JSON but no object"),
        (b'{"spans": []}', "has neither resourceSpans nor resourceLogs, but spans"),
        (b'{"resourceSpans": {}}', "no list"),
        (b'{"a":' * 100_000, "is no JSON"),
    ],
)
def test_what_is_no_telemetry_is_a_no(tmp_path: Path, content: bytes, says: str) -> None:
    """E5: a file that is no OTLP is refused by name and reason, never with a traceback."""
    answer = check(write(tmp_path, "bad", content))
    assert answer.exit_code == 1
    assert says in answer.stdout
    assert answer.exception is None or isinstance(answer.exception, SystemExit)


def test_one_bad_line_costs_that_line(tmp_path: Path) -> None:
    """E5: in JSON lines a broken line is named by number, and the others are linted."""
    good = as_json(request([span(1, TRY)]))
    metrics = b'{"resourceMetrics": []}'
    for lines in ([good, b'{"resource', metrics], [b'{"resource', good, metrics]):
        path = write(tmp_path, "lines", b"\n".join(lines))
        found = document(path)
        number = 1 + next(index for index, line in enumerate(lines) if line == b'{"resource')
        assert [fault["place"] for fault in found["faults"]] == [f"{path}:{number}"]
        assert (found["requests"], found["events"]) == (3, 2)


def test_control_characters_are_escaped(tmp_path: Path) -> None:
    """D5: what telemetry holds cannot move the cursor or colour a terminal."""
    hostile = span(1, WRONG, name="a\x1b[31m\u202eb\n")
    path = write(tmp_path, "c.json", as_json(request([hostile])))
    line = check(path).stdout.splitlines()[0]
    assert "\x1b" not in line
    assert "\u202e" not in line
    assert "\\x1b[31m\\u202eb\\n" in line


@pytest.mark.parametrize("count", [budget.MAX_ANNOTATED, budget.MAX_ANNOTATED + 1])
def test_what_a_backend_finds_too_large_is_said(tmp_path: Path, count: int) -> None:
    """E5: a request over a budget of the backend is a fault that the linter names, no crash."""
    path = write(tmp_path, "large.pb", bombs.request(bombs.TINY_SPAN * count))
    done = check(path)
    assert done.exit_code == 1
    said = f"more than {budget.MAX_ANNOTATED} annotated"
    assert (said in " ".join(done.stdout.split())) == (count > budget.MAX_ANNOTATED)
