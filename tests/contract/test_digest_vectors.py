"""The digest vectors that any language can use (contract, section 2)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from flowmark_otel.fold import digest, fold_log
from flowmark_otel.model import Envelope, LogRecord
from flowmark_otel.wire.decode import decode_logs

VECTORS: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("digest_vectors.json").read_text(encoding="utf-8")
)["vectors"]
BY_NAME = {vector["name"]: vector for vector in VECTORS}
LEAST = 60


def request_of(vector: dict[str, Any]) -> bytes:
    """The vector's record as an OTLP/JSON request."""
    group = {"scopeLogs": [{"logRecords": [vector["logRecord"]]}]}
    return json.dumps({"resourceLogs": [group]}).encode()


def protobuf_of(vector: dict[str, Any]) -> bytes:
    """The same request in protobuf, built by protobuf's own reader of JSON."""
    document = json.loads(request_of(vector))
    record = document["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]
    ids = bytes.fromhex(record.pop("traceId")), bytes.fromhex(record.pop("spanId"))
    request = json_format.ParseDict(document, ExportLogsServiceRequest())
    parsed = request.resource_logs[0].scope_logs[0].log_records[0]
    parsed.trace_id, parsed.span_id = ids
    return request.SerializeToString()


def folded(body: bytes, encoding: str) -> Envelope:
    """The one envelope of a request."""
    (item,) = decode_logs(body, encoding).marked
    assert isinstance(item.record, LogRecord)
    envelope = fold_log(item.record)
    assert isinstance(envelope, Envelope), envelope
    return envelope


def test_there_are_enough_vectors_and_each_is_itself() -> None:
    """The file has at least 60 vectors whose digest is the SHA-256 of their canonical row."""
    assert len(VECTORS) >= LEAST
    for vector in VECTORS:
        row = bytes.fromhex(vector["canonical"])
        assert hashlib.sha256(row).hexdigest() == vector["digest"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_vector(vector: dict[str, Any]) -> None:
    """A8: id and digest computed from the LogRecord alone are the vector's, in both encodings."""
    for body, encoding in ((request_of(vector), "json"), (protobuf_of(vector), "protobuf")):
        envelope = folded(body, encoding)
        assert envelope.event_id == vector["eventId"]
        assert digest(envelope).hex() == vector["digest"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("integral double of an integer key", "integer 2 for comparison"),
        ("raw idempotency key", "served idempotency key"),
        ("all identity defaulted", "other defaults, the same digest"),
        ("result zero double", "result negative zero"),
        ("attempt started", "event name in the attribute alone"),
        ("attempt started", "upper-case ids in JSON"),
    ],
)
def test_same_payload_in_other_clothes(one: str, other: str) -> None:
    """A8: what hops and SDKs change without changing what was said leaves the digest alone."""
    assert BY_NAME[one]["digest"] == BY_NAME[other]["digest"]
