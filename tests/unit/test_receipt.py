"""Receipts and error statuses, written and read in both encodings (contract, sections 3 and 4)."""

from __future__ import annotations

import json

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status as StatusMessage
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from flowmark_otel import names
from flowmark_otel.errors import Unparsable
from flowmark_otel.model import Receipt, Rejection
from flowmark_otel.wire import receipt as receipts
from flowmark_otel.wire.pb import receipt_pb2
from flowmark_otel.wire.status import RECEIPT_TYPE, decode_status, encode_status, retry_info

ENCODINGS = ("protobuf", "json")
BOTH = pytest.mark.parametrize("encoding", ENCODINGS)

EVENT = "op-" + "ab" * 16 + "-" + "cd" * 8 + "-end"
MIXED = Receipt(
    backend_id="b-1",
    stored=5,
    duplicate=2,
    custody=1,
    received=11,
    rejected=3,
    rejections=(
        Rejection(EVENT, names.CONFLICT, "another digest is known"),
        Rejection("", names.INVALID, "flowmark.attempt.number is the string '2'", 7),
    ),
    rejected_items=2,
    error_message="3 of 11 events rejected",
)
BIG = 2**63 - 1


@BOTH
@pytest.mark.parametrize("signal", ["traces", "logs"])
def test_a_receipt_survives_the_wire(encoding: str, signal: str) -> None:
    """A23: what was stored, known, and rejected by name reads back as it was written."""
    body = receipts.encode(MIXED, encoding, signal)
    assert receipts.decode(body, encoding) == MIXED


@BOTH
def test_counts_are_64_bits_wide(encoding: str) -> None:
    """Contract, section 3: counts are 64-bit integers in both encodings."""
    wide = Receipt(stored=BIG, received=BIG)
    assert receipts.decode(receipts.encode(wide, encoding, "logs"), encoding) == wide


def test_json_writes_the_contract_s_names() -> None:
    """Contract, section 3: camel case, 64-bit integers as strings, the signal's partial success."""
    found = json.loads(receipts.encode(MIXED, "json", "logs"))
    assert found == {
        "partialSuccess": {"rejectedLogRecords": "2", "errorMessage": "3 of 11 events rejected"},
        "capabilities": ["attempts-v1"],
        "backendId": "b-1",
        "stored": "5",
        "duplicate": "2",
        "custody": "1",
        "received": "11",
        "rejected": "3",
        "rejections": [
            {"eventId": EVENT, "code": "conflict", "message": "another digest is known"},
            {
                "eventId": "",
                "code": "invalid",
                "message": "flowmark.attempt.number is the string '2'",
                "item": "7",
            },
        ],
    }
    traces = json.loads(receipts.encode(MIXED, "json", "traces"))
    assert traces["partialSuccess"]["rejectedSpans"] == "2"


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (ExportTraceServiceResponse, "rejected_spans"),
        (ExportLogsServiceResponse, "rejected_log_records"),
    ],
)
def test_stock_messages_read_it(
    kind: type[ExportTraceServiceResponse | ExportLogsServiceResponse], field: str
) -> None:
    """Contract, section 3: a wire-level superset; stock clients see OTLP's partial success."""
    stock = kind.FromString(receipts.encode(MIXED, "protobuf", "traces"))
    assert getattr(stock.partial_success, field) == 2
    assert stock.partial_success.error_message == "3 of 11 events rejected"
    unknown = UnknownFieldSet(stock)
    numbers = {unknown[index].field_number for index in range(len(unknown))}
    assert numbers >= {51001, 51002, 51009}


def test_full_success_leaves_partial_success_unset() -> None:
    """Contract, section 3: ``partial_success`` is unset on full success."""
    full = Receipt(stored=2, received=2)
    message = receipt_pb2.Receipt.FromString(receipts.encode(full, "protobuf", "logs"))
    assert not message.HasField("partial_success")
    assert "partialSuccess" not in json.loads(receipts.encode(full, "json", "logs"))


@BOTH
@pytest.mark.parametrize("text", ["x" * 5000, "\N{SNOWMAN}" * 5000, '"\\\x01' * 2000, "\ud800"])
def test_a_receipt_never_passes_3_kib(encoding: str, text: str) -> None:
    """Contract, section 3: rejections are cut to 16, 128 bytes each, 3 KiB in all; no count is."""
    many = Receipt(
        received=500,
        rejected=500,
        rejected_items=500,
        rejections=tuple(Rejection(EVENT + str(each), names.CONFLICT, text) for each in range(500)),
        error_message=text,
    )
    body = receipts.encode(many, encoding, "traces")
    assert len(body) <= 3072
    read = receipts.decode(body, encoding)
    assert 1 <= len(read.rejections) <= 16
    assert all(len(each.message.encode()) <= 128 for each in read.rejections)
    assert (read.received, read.rejected, read.rejected_items) == (500, 500, 500)
    status = encode_status(6, "conflict", encoding, many)
    found = decode_status(status, encoding).receipt
    assert found is not None
    assert found.rejected == 500
    assert len(status) <= 3072


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("capabilities", "attempts-v1"),
        ("capabilities", ["attempts-v1", 1]),
        ("capabilities", {"attempts-v1": True}),
        ("capabilities", None),
    ],
)
def test_json_capabilities_of_another_type_are_missing(field: str, value: object) -> None:
    """A22: only a list of strings that holds ``attempts-v1`` acknowledges attempts."""
    body = json.dumps({field: value}).encode()
    assert receipts.fault(receipts.decode(body, "json")) == names.REASON_UNACKNOWLEDGED


@pytest.mark.parametrize("value", [True, 1.0, "1.5", "", "one", "٣", [], 2**63, "9" * 30])
@pytest.mark.parametrize("field", ["received", "custody"])
def test_json_counts_of_another_type_never_add_up(field: str, value: object) -> None:
    """A22: a count is a 64-bit integer or its decimal string; anything else may be any number."""
    whole = {"capabilities": ["attempts-v1"], "stored": 1, "received": 1}
    assert receipts.fault(receipts.decode(json.dumps(whole).encode(), "json")) is None
    found = receipts.decode(json.dumps({**whole, field: value}).encode(), "json")
    assert receipts.fault(found) == names.REASON_COUNT_MISMATCH


def test_a_json_count_that_is_null_is_missing() -> None:
    """A22: null is what JSON has for a field that is not there."""
    body = json.dumps({"capabilities": ["attempts-v1"], "stored": 1, "received": None}).encode()
    assert receipts.decode(body, "json").received == 0


def test_a_wrong_wire_type_is_missing() -> None:
    """A22: field 51001 as a number is no list of capabilities."""
    body = bytes([*_varint(51001 << 3), 1])
    found = receipts.decode(body, "protobuf")
    assert found.capabilities == ()


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"\xff", "protobuf"),
        (b"\x0a\x05abc", "protobuf"),
        (b"<html></html>", "json"),
        (b"[]", "json"),
        (b"", "json"),
        (b"\xff{}", "json"),
        (b"[" * 100_000, "json"),
        (b'{"a":' * 100_000, "json"),
        (b'{"stored":' + b"9" * 100_000 + b"}", "json"),
    ],
)
def test_what_is_no_receipt_is_unparsable(body: bytes, encoding: str) -> None:
    """A22: an answer that does not parse raises Unparsable, however deep or long it is."""
    with pytest.raises(Unparsable):
        receipts.decode(body, encoding)
    with pytest.raises(Unparsable):
        decode_status(body, encoding)


@pytest.mark.parametrize(
    ("receipt", "expected", "fault"),
    [
        (Receipt(stored=2, duplicate=1, custody=1, rejected=1, received=5), 5, None),
        (Receipt(stored=2, received=2), None, None),
        (Receipt(), 0, None),
        (Receipt(stored=2, received=2), 3, names.REASON_COUNT_MISMATCH),
        (Receipt(stored=2, received=3), None, names.REASON_COUNT_MISMATCH),
        (Receipt(stored=-1, duplicate=1), 0, names.REASON_COUNT_MISMATCH),
        (Receipt(capabilities=(), stored=2, received=2), 2, names.REASON_UNACKNOWLEDGED),
        (Receipt(capabilities=("attempts-v2",)), 0, names.REASON_UNACKNOWLEDGED),
    ],
)
def test_what_a_sender_accepts(receipt: Receipt, expected: int | None, fault: str | None) -> None:
    """A22: capability, sum, and the number sent decide whether a receipt acknowledges."""
    assert receipts.fault(receipt, expected) == fault


@BOTH
def test_a_status_carries_the_receipt_without_partial_success(encoding: str) -> None:
    """Contract, section 4: details hold one receipt with the table's fields but the first."""
    body = encode_status(6, "conflict", encoding, MIXED)
    found = decode_status(body, encoding)
    assert (found.code, found.message, found.retry_after) == (6, "conflict", None)
    assert found.receipt is not None
    assert found.receipt.rejections == MIXED.rejections
    assert found.receipt.rejected_items == 0


def test_the_json_status_has_the_contract_s_form() -> None:
    """Contract, section 4: in JSON the detail is the receipt's fields beside ``@type``."""
    found = json.loads(encode_status(3, "all invalid", "json", MIXED))
    assert (found["code"], found["message"]) == (3, "all invalid")
    (detail,) = found["details"]
    assert detail["@type"] == RECEIPT_TYPE
    assert "partialSuccess" not in detail
    assert detail["received"] == "11"


@BOTH
@pytest.mark.parametrize("seconds", [0.25, 1.0, 10.0, 3600.0])
def test_a_status_carries_retry_info(encoding: str, seconds: float) -> None:
    """Contract, section 4: UNAVAILABLE says after how many seconds to try again."""
    found = decode_status(encode_status(14, "busy", encoding, None, seconds), encoding)
    assert found.retry_after == seconds
    info = RetryInfo.FromString(retry_info(seconds))
    assert info.retry_delay.ToTimedelta().total_seconds() == seconds


def test_the_protobuf_status_is_google_s() -> None:
    """Contract, section 4: an error body is a plain ``google.rpc.Status``."""
    status = StatusMessage.FromString(encode_status(14, "busy", "protobuf", MIXED, 2))
    assert (status.code, status.message) == (14, "busy")
    assert [each.TypeName() for each in status.details] == [
        "flowmark.v1.Receipt",
        "google.rpc.RetryInfo",
    ]


def test_messages_are_printable_ascii_and_short() -> None:
    """Reliability: what goes into a header or trailer is printable ASCII of bounded length."""
    found = decode_status(encode_status(3, "é\r\nSet-Cookie: x" + "y" * 9999, "json"), "json")
    assert found.message.startswith("???Set-Cookie: x")
    assert len(found.message) == 256
    assert found.message.isascii()
    assert found.message.isprintable()


@pytest.mark.parametrize("value", ["1", "nans", "-1s", "infs", 1, None])
def test_a_malformed_retry_delay_is_missing(value: object) -> None:
    """A22: a sender never sleeps on a value that is no duration."""
    detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": value}
    body = json.dumps({"code": 14, "details": [1, detail]}).encode()
    assert decode_status(body, "json").retry_after is None


def _varint(number: int) -> list[int]:
    found = []
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return [*found, number]
