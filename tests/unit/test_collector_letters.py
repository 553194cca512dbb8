"""Letters and telemetry as lines, and as log records (section 9, C6)."""

from __future__ import annotations

import json

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from flowmark_otel import names
from flowmark_otel.collector.events import Event, Row
from flowmark_otel.collector.exporters.forms import letter_line, lines_of, request_of
from flowmark_otel.collector.payload import Events, Letter, Letters, Telemetry
from flowmark_otel.model import LogRecord, Span
from flowmark_otel.wire.decode import decode_logs, decode_traces
from tests.support.envelopes import completed, started
from tests.support.otlp import traces_protobuf

SPAN = Span(
    b"\1" * 16, b"\2" * 8, "é", 1, 2, attributes={names.ATTEMPT_GROUP_ID: "g"}, failed=False
)
TRACES = Telemetry("traces", "protobuf", traces_protobuf([SPAN]))
NOW = 1_796_045_879_123_456_789


def letter(source: Telemetry = TRACES, message: str = "refused") -> Letter:
    """A letter of this input."""
    return Letter(3, "InvalidEnvelope", message, "flowmark/fold", NOW, source)


def test_a_letter_is_one_line_with_its_input() -> None:
    """C6: attempts, exception, message, node, time, and the untouched input as OTLP/JSON."""
    line = letter_line(letter())
    assert b"\n" not in line
    found = json.loads(line)
    document = found.pop("input")
    assert found == {
        "time": "2026-11-30T13:37:59.123456789Z",
        "failure.attempts": 3,
        "failure.exception": "InvalidEnvelope",
        "failure.message": "refused",
        "failure.node": "flowmark/fold",
    }
    [item] = decode_traces(json.dumps(document).encode(), "json").marked
    assert isinstance(item.record, Span)
    assert item.record._replace(events=()) == SPAN


def test_a_message_has_no_secrets_and_moves_no_terminal() -> None:
    """Reliability, secrets and log injection: redacted, and every control character escaped."""
    line = letter_line(letter(message="Bearer abcdefghijkl\n\x1b[2J\u009b\u202e"))
    assert b"abcdefghijkl" not in line
    assert line.isascii()
    assert not any(byte < 32 or byte == 127 for byte in line)


def test_an_input_in_json_stays_as_it_was() -> None:
    """C6: an input that came in JSON keeps every field, on one line."""
    document = {"resourceSpans": [], "unknown": {"a": [1, 2**70, None, "\ud800"]}}
    source = Telemetry("traces", "json", json.dumps(document, indent=1).encode())
    line = letter_line(letter(source))
    assert b"\n" not in line
    assert json.loads(line)["input"] == document


def test_an_input_that_is_no_request_is_kept_as_its_bytes() -> None:
    """C6: nothing that failed is thrown away because it cannot be read."""
    for encoding in ("protobuf", "json"):
        line = letter_line(letter(Telemetry("logs", encoding, b"\xff{")))
        assert json.loads(line)["input"] == {names.UNREAD: "/3s="}


def test_letters_are_log_records_for_an_otlp_exporter() -> None:
    """C6: the line is the body, what failed is in attributes."""
    request = request_of(Letters((letter(), letter(message="Bearer abcdefghijkl"))))
    assert (request.signal, request.encoding) == ("logs", "protobuf")
    [group] = ExportLogsServiceRequest.FromString(request.body).resource_logs
    first, second = group.scope_logs[0].log_records
    assert first.body.string_value.encode() == letter_line(letter())
    assert first.time_unix_nano == NOW
    found = {one.key: one.value for one in first.attributes}
    assert found["failure.attempts"].int_value == 3
    assert found["failure.node"].string_value == "flowmark/fold"
    assert b"abcdefghijkl" not in second.SerializeToString()


def test_envelopes_are_log_records_under_their_resources() -> None:
    """Section 9: envelopes can go to any exporter, one resource group for each resource."""
    one, other = {"service.name": "one"}, {"service.name": "other"}
    events = Events(
        TRACES,
        Row(
            [
                *(Event(0, one, started(1)), Event(0, one, completed(1))),
                Event(1, other, started(2)),
            ]
        ),
    )
    items = decode_logs(request_of(events).body, "protobuf").marked
    assert [item.resource.service_name for item in items] == ["one", "one", "other"]
    records = [item.record for item in items]
    assert [one.event_name for one in records if isinstance(one, LogRecord)] == [
        *(names.OPERATION_STARTED, names.OPERATION_COMPLETED, names.OPERATION_STARTED)
    ]
    assert len(json.loads(lines_of(events))["resourceLogs"]) == 2
