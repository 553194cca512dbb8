"""What looks like a secret does not stay one, wherever a text is kept or shown."""

from __future__ import annotations

import io
import json
import logging

import pytest

from flowmark_otel import names
from flowmark_otel.collector.exporters.forms import letter_line
from flowmark_otel.collector.payload import Letter, Telemetry
from flowmark_otel.fold import digest, fold_span
from flowmark_otel.listen.logs import JsonLines
from flowmark_otel.model import Envelope, Span
from flowmark_otel.validate.secrets import redact_resource, redact_text
from flowmark_otel.wire.decode import decode_traces
from flowmark_otel.wire.transcode import to_protobuf
from tests.support import secrets
from tests.support.payloads import as_json

INNOCENT = (
    "max_tokens=4096 is too many",
    "CRM_UNAVAILABLE",
    "invalid token: unexpected end of input at 12:30:45",
    "see https://docs.example:8443/password-reset",
    "password authentication failed for user crm",
    "requests.exceptions.ConnectionError: [Errno 111]",
    "a secret: nobody knows",
    "who@example.com",
)


def folded(body: bytes) -> list[tuple[str, bytes]]:
    """Ids and digests of all events that are made of a request."""
    return [
        (event.event_id, digest(event))
        for item in decode_traces(body, "json").marked
        if isinstance(item.record, Span)
        for event in fold_span(item.record)
        if isinstance(event, Envelope)
    ]


def letter(source: Telemetry, message: str = "refused") -> bytes:
    """The line of a letter."""
    return letter_line(Letter(1, "InvalidEnvelope", message, "flowmark/fold", 1, source))


@pytest.mark.parametrize("text", secrets.TEXTS.values(), ids=secrets.TEXTS)
def test_a_secret_in_a_text_is_replaced(text: str) -> None:
    """Security, "secrets": value detectors and ``name=value`` find each of the corpus."""
    assert secrets.leaks(text)
    assert not secrets.leaks(redact_text(text))
    assert not secrets.leaks(redact_text(f"{text!r} ({text})"))


@pytest.mark.parametrize("text", INNOCENT)
def test_what_is_no_secret_stays(text: str) -> None:
    """Contract, section 2: an error that names no value is as it was given."""
    assert redact_text(text) == text


def test_what_stands_beside_a_secret_stays() -> None:
    """Contract, section 2: the secret is replaced and not the text around it."""
    text = "host=db password=pw-in-a-dsn user=crm at postgresql://crm:pw-of-an-address@db/x"
    want = "host=db password=[redacted] user=crm at postgresql://crm:[redacted]@db/x"
    assert redact_text(text) == want
    assert redact_text("pwd=ab&x=1") == "pwd=**&x=1"


def test_a_resource_is_without_secrets_and_keeps_its_names() -> None:
    """Security, "secrets": attributes of a resource are redacted; the service's own never are."""
    given = {"service.name": "password=kept", "app.numbers": (1, True), **secrets.beside()}
    found = redact_resource(given)
    assert found["service.name"] == "password=kept"
    assert not secrets.leaks(repr(found))
    innocent = {"service.name": "crm", "host": ("a", "b"), "token_count": 3}
    assert redact_resource(innocent) is innocent


@pytest.mark.parametrize("encoding", ["json", "protobuf"])
def test_a_letter_has_no_secrets_and_is_replayed_as_it_was(encoding: str) -> None:
    """Security, "secrets"; C6, C7: its input is redacted, the ids and digests it gives stay."""
    body = as_json(secrets.request())
    assert secrets.leaks(body)
    held = body if encoding == "json" else to_protobuf(body, "traces").body
    line = letter(Telemetry("traces", encoding, held), message=" ".join(secrets.TEXTS.values()))
    assert not secrets.leaks(line)
    again = json.dumps(json.loads(line)["input"]).encode()
    assert folded(again) == folded(body)
    assert len(folded(body)) > len(secrets.TEXTS)


def test_an_unreadable_input_of_a_letter_has_no_secrets() -> None:
    """Security, "secrets": bytes that nobody can read are searched like a text."""
    raw = b"\xff{" + b" ".join(text.encode() for text in secrets.TEXTS.values())
    line = letter(Telemetry("logs", "protobuf", raw))
    assert list(json.loads(line)["input"]) == [names.UNREAD]
    assert not secrets.leaks(line)


def test_a_deeply_nested_letter_is_written() -> None:
    """Rows 17 and 21: a letter's input may nest as deeply as a request may."""
    deep = b'{"resourceSpans": ' + b"[" * 400 + b'"password=pw-in-a-dsn"' + b"]" * 400 + b"}"
    assert not secrets.leaks(letter(Telemetry("traces", "json", deep)))


def test_the_log_has_no_secrets() -> None:
    """Security, "secrets": nothing in a line of the server's log looks like one."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    for text in secrets.TEXTS.values():
        handler.emit(logging.makeLogRecord({"msg": "failed: %s", "args": (text,), "name": "x"}))
    assert len(stream.getvalue().splitlines()) == len(secrets.TEXTS)
    assert not secrets.leaks(stream.getvalue())
