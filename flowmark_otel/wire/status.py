"""Error bodies: ``google.rpc.Status`` in both encodings (contract, section 4).

Where events were judged its details hold one receipt, without ``partial_success``; where another
try may help they hold a RetryInfo. ``code`` is a gRPC status code.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status as _Message

from flowmark_otel.errors import Unparsable
from flowmark_otel.model import Receipt
from flowmark_otel.wire import receipt as receipts
from flowmark_otel.wire.pb import receipt_pb2

RECEIPT_TYPE: Final = "type.googleapis.com/flowmark.v1.Receipt"
RETRY_TYPE: Final = "type.googleapis.com/google.rpc.RetryInfo"

MAX_MESSAGE: Final = 256
_NANO: Final = 1_000_000_000


class Status(NamedTuple):
    """A decoded error body; ``retry_after`` is in seconds, None where the sender gave none."""

    code: int
    message: str
    receipt: Receipt | None = None
    retry_after: float | None = None


def encode_status(
    code: int,
    message: str,
    encoding: str,
    receipt: Receipt | None = None,
    retry_after: float | None = None,
) -> bytes:
    """The body of an error; ``retry_after`` in seconds. The message is cut to printable ASCII."""
    text = printable(message)

    def write(cut: Receipt | None) -> bytes:
        if encoding == receipts.JSON:
            return _json(code, text, cut, retry_after)
        return _protobuf(code, text, cut, retry_after)

    return write(None) if receipt is None else receipts.fit(receipt, write)


def decode_status(body: bytes, encoding: str) -> Status:
    """An error body as a sender reads it; raises Unparsable if it is no status at all."""
    if encoding == receipts.JSON:
        return _from_json(receipts.load_object(body))
    message = _Message()
    try:
        message.ParseFromString(body)
        return _from_message(message)
    except DecodeError as error:
        msg = "the answer is no google.rpc.Status"
        raise Unparsable(msg) from error


def retry_info(retry_after: float) -> bytes:
    """An encoded ``google.rpc.RetryInfo``, as the trailer ``google.rpc.retryinfo-bin`` wants it."""
    encoded: bytes = RetryInfo(retry_delay=_duration(retry_after)).SerializeToString()
    return encoded


def printable(message: str) -> str:
    """The text in printable ASCII, at most ``MAX_MESSAGE`` long: fit for a header or trailer."""
    shown = "".join(each if " " <= each <= "~" else "?" for each in message[: MAX_MESSAGE + 1])
    return shown if len(shown) <= MAX_MESSAGE else shown[: MAX_MESSAGE - 3] + "..."


def _protobuf(code: int, text: str, receipt: Receipt | None, retry_after: float | None) -> bytes:
    message = _Message(code=code, message=text)
    if receipt is not None:
        message.details.add().Pack(receipts.to_message(receipt))
    if retry_after is not None:
        message.details.add().Pack(RetryInfo(retry_delay=_duration(retry_after)))
    encoded: bytes = message.SerializeToString()
    return encoded


def _json(code: int, text: str, receipt: Receipt | None, retry_after: float | None) -> bytes:
    details: list[dict[str, object]] = []
    if receipt is not None:
        details.append({"@type": RECEIPT_TYPE} | receipts.to_json(receipt))
    if retry_after is not None:
        details.append({"@type": RETRY_TYPE, "retryDelay": f"{retry_after:.3f}s"})
    found: dict[str, object] = {"code": code, "message": text}
    if details:
        found["details"] = details
    return receipts.dumps(found)


def _from_message(message: _Message) -> Status:
    receipt = None
    retry_after = None
    for detail in message.details:
        if detail.TypeName() == _name(RECEIPT_TYPE):
            found = receipt_pb2.Receipt()
            found.ParseFromString(detail.value)
            receipt = receipts.from_message(found)
        elif detail.TypeName() == _name(RETRY_TYPE):
            info = RetryInfo()
            info.ParseFromString(detail.value)
            retry_after = info.retry_delay.seconds + info.retry_delay.nanos / _NANO
    return Status(message.code, message.message, receipt, retry_after)


def _from_json(found: dict[str, object]) -> Status:
    receipt = None
    retry_after = None
    details = found.get("details")
    for detail in details if isinstance(details, list) else ():
        if not isinstance(detail, dict):
            continue
        if detail.get("@type") == RECEIPT_TYPE:
            receipt = receipts.from_json(detail)
        elif detail.get("@type") == RETRY_TYPE:
            retry_after = _seconds(detail.get("retryDelay"))
    message = found.get("message")
    return Status(
        receipts.integer(found.get("code")),
        message if isinstance(message, str) else "",
        receipt,
        retry_after,
    )


def _name(type_url: str) -> str:
    return type_url.rpartition("/")[2]


def _duration(seconds: float) -> Duration:
    whole = int(seconds)
    return Duration(seconds=whole, nanos=round((seconds - whole) * _NANO))


def _seconds(text: object) -> float | None:
    if not isinstance(text, str) or not text.endswith("s"):
        return None
    try:
        seconds = float(text[:-1])
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
