"""What flows between nodes, as an OTLP request or as lines of a file (section 9, C6). Pure."""

from __future__ import annotations

import base64
from datetime import datetime, timezone
from itertools import groupby
from typing import Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber

from flowmark_otel import names
from flowmark_otel.collector.exporters.inputs import without_secrets
from flowmark_otel.collector.payload import Events, Letter, Letters, Payload, Telemetry
from flowmark_otel.errors import RequestError
from flowmark_otel.validate.secrets import redact_text
from flowmark_otel.wire.decode_json import load_object
from flowmark_otel.wire.encode import encode_logs
from flowmark_otel.wire.transcode import dumps, to_json

_NANO: Final = 1_000_000_000
_LOGS: Final = "logs"
_JSON: Final = "json"
_PROTOBUF: Final = "protobuf"
_SERVICE: Final = "flowmark-otel"


def request_of(payload: Payload) -> Telemetry:
    """A payload as an OTLP request: telemetry as it came, events and letters as log records."""
    if isinstance(payload, Telemetry):
        return payload
    body = _logs_of(payload) if isinstance(payload, Letters) else _envelopes_of(payload)
    return Telemetry(_LOGS, _PROTOBUF, body)


def lines_of(payload: Payload) -> bytes:
    """A payload as JSON lines, each with its end: a request in OTLP/JSON, or a letter."""
    if isinstance(payload, Letters):
        return b"".join(letter_line(letter) + b"\n" for letter in payload.letters)
    return _as_json(request_of(payload)) + b"\n"


def letter_line(letter: Letter) -> bytes:
    """A dead letter as one line of JSON in ASCII, without its end.

    ``input`` is the OTLP/JSON request of what failed, untouched but for secrets.
    """
    head = dumps(
        {
            names.LETTER_TIME: _moment(letter.time_unix_nano),
            names.FAILURE_ATTEMPTS: letter.attempts,
            names.FAILURE_EXCEPTION: letter.exception,
            names.FAILURE_MESSAGE: redact_text(letter.message),
            names.FAILURE_NODE: letter.node,
        }
    )
    held = dumps(without_secrets(load_object(_as_json(letter.input))))
    return b'%b,"%b":%b}' % (head[:-1], names.LETTER_INPUT.encode(), held)


def _as_json(request: Telemetry) -> bytes:
    """A request as OTLP/JSON on one line; a body that is none at all as its bytes."""
    try:
        if request.encoding == _JSON:
            return dumps(load_object(request.body))
        return to_json(request.body, request.signal).body
    except RequestError:
        return dumps({names.UNREAD: base64.b64encode(request.body).decode()})


def _envelopes_of(events: Events) -> bytes:
    """Requests laid end to end are one request, as protobuf merges them."""
    return b"".join(
        encode_logs([event.envelope for event in group], resource)
        for resource, group in (
            (found[0].resource, found)
            for found in (
                list(group) for _, group in groupby(events.events, lambda event: id(event.resource))
            )
        )
    )


def _logs_of(letters: Letters) -> bytes:
    request = ExportLogsServiceRequest()
    group = request.resource_logs.add()
    group.resource.attributes.add(key="service.name").value.string_value = _SERVICE
    scope = group.scope_logs.add()
    scope.scope.name = names.SCOPE
    for letter in letters.letters:
        _fill(scope.log_records.add(), letter)
    return request.SerializeToString()


def _fill(record: LogRecord, letter: Letter) -> None:
    record.time_unix_nano = letter.time_unix_nano
    record.severity_number = SeverityNumber.SEVERITY_NUMBER_ERROR
    record.body.string_value = letter_line(letter).decode()
    record.attributes.add(key=names.FAILURE_ATTEMPTS).value.int_value = letter.attempts
    for key, text in (
        (names.FAILURE_EXCEPTION, letter.exception),
        (names.FAILURE_MESSAGE, redact_text(letter.message)),
        (names.FAILURE_NODE, letter.node),
    ):
        record.attributes.add(key=key).value.string_value = text


def _moment(time_unix_nano: int) -> str:
    """RFC 3339 in UTC with nanoseconds."""
    seconds, rest = divmod(time_unix_nano, _NANO)
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
