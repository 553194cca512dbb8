"""Receipts: what a success of an OTLP export answers (contract, section 3; A22, A23).

``encoding`` is ``protobuf`` or ``json``; ``signal`` is ``traces`` or ``logs``. An encoded receipt
never passes ``MAX_BYTES``: the list of rejections is cut, the counts are not. Reading is as strict
as a sender needs it: a field of a wrong type counts as missing, so an answer that is no receipt
reads as a receipt without capabilities; a count of a wrong type is none that could add up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeGuard

from google.protobuf.message import DecodeError

from flowmark_otel import names
from flowmark_otel.errors import Unparsable
from flowmark_otel.model import Receipt, Rejection
from flowmark_otel.wire.pb import receipt_pb2

PROTOBUF: Final = "protobuf"
JSON: Final = "json"

MAX_BYTES: Final = 3 * 1024
MAX_REJECTIONS: Final = 16
MAX_MESSAGE: Final = 128

_REJECTED_ITEMS: Final = {"traces": "rejectedSpans", "logs": "rejectedLogRecords"}
_COUNTS: Final = ("stored", "duplicate", "custody", "received", "rejected")
_INT64: Final = range(-(2**63), 2**63)
_MAX_DIGITS: Final = 20


def encode(receipt: Receipt, encoding: str, signal: str) -> bytes:
    """The body of a success, at most ``MAX_BYTES`` bytes (contract, section 3)."""
    if encoding == JSON:
        return fit(receipt, lambda cut: dumps(_partial_json(cut, signal) | to_json(cut)))
    return fit(receipt, lambda cut: _with_partial(cut).SerializeToString())


def decode(body: bytes, encoding: str) -> Receipt:
    """The receipt in the body of a success; raises Unparsable if it is no message, no object."""
    if encoding == JSON:
        return from_json(load_object(body))
    message = receipt_pb2.Receipt()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        msg = "the answer is no protobuf message"
        raise Unparsable(msg) from error
    return from_message(message)


def fault(receipt: Receipt, expected: int | None = None) -> str | None:
    """Why a sender of attempt or retry metadata may not accept this receipt; None if it may.

    ``expected`` is the number of events sent, None where the sender does not fold. Rejected
    events are no fault of the receipt: each is judged by its own code (contract, section 3; A22).
    """
    if names.CAPABILITY not in receipt.capabilities:
        return names.REASON_UNACKNOWLEDGED
    parts = (receipt.stored, receipt.duplicate, receipt.custody, receipt.rejected)
    if min(parts) < 0 or receipt.received != sum(parts):
        return names.REASON_COUNT_MISMATCH
    if expected is not None and receipt.received != expected:
        return names.REASON_COUNT_MISMATCH
    return None


def fit(receipt: Receipt, write: Callable[[Receipt], bytes]) -> bytes:
    """What ``write`` makes of the receipt with as many rejections as ``MAX_BYTES`` has room for."""
    kept = tuple(_tidy(rejection) for rejection in receipt.rejections[:MAX_REJECTIONS])
    while True:
        body = write(replace(receipt, rejections=kept))
        if len(body) <= MAX_BYTES or not kept:
            return body
        kept = kept[:-1]


def to_message(receipt: Receipt) -> receipt_pb2.Receipt:
    """The message without ``partial_success``, as details of a status carry it."""
    message = receipt_pb2.Receipt(
        capabilities=receipt.capabilities,
        backend_id=receipt.backend_id,
        stored=receipt.stored,
        duplicate=receipt.duplicate,
        custody=receipt.custody,
        received=receipt.received,
        rejected=receipt.rejected,
    )
    for rejection in receipt.rejections:
        message.rejections.add(
            event_id=rejection.event_id,
            code=rejection.code,
            message=rejection.message,
            item=0 if rejection.event_id else max(rejection.item, 0),
        )
    return message


def from_message(message: receipt_pb2.Receipt) -> Receipt:
    """The record of a message; rejections that name no position have ``item`` -1."""
    return Receipt(
        capabilities=tuple(message.capabilities),
        backend_id=message.backend_id,
        stored=message.stored,
        duplicate=message.duplicate,
        custody=message.custody,
        received=message.received,
        rejected=message.rejected,
        rejections=tuple(
            Rejection(each.event_id, each.code, each.message, -1 if each.event_id else each.item)
            for each in message.rejections
        ),
        rejected_items=message.partial_success.rejected,
        error_message=message.partial_success.error_message,
    )


def to_json(receipt: Receipt) -> dict[str, object]:
    """The object without ``partialSuccess``; 64-bit integers are strings."""
    found: dict[str, object] = {
        "capabilities": list(receipt.capabilities),
        "backendId": receipt.backend_id,
        "stored": str(receipt.stored),
        "duplicate": str(receipt.duplicate),
        "custody": str(receipt.custody),
        "received": str(receipt.received),
        "rejected": str(receipt.rejected),
    }
    if receipt.rejections:
        found["rejections"] = [_rejection_json(each) for each in receipt.rejections]
    return found


def from_json(found: Mapping[str, object]) -> Receipt:
    """The record of an object; what has a wrong type counts as missing, a count as -1."""
    partial = found.get("partialSuccess")
    partial = partial if isinstance(partial, dict) else {}
    items = next((partial[key] for key in _REJECTED_ITEMS.values() if key in partial), 0)
    capabilities = found.get("capabilities")
    rejections = found.get("rejections")
    counts = {name: _count(found, name) for name in _COUNTS}
    return Receipt(
        capabilities=tuple(capabilities) if _is_texts(capabilities) else (),
        backend_id=_text(found.get("backendId")),
        stored=counts["stored"],
        duplicate=counts["duplicate"],
        custody=counts["custody"],
        received=counts["received"],
        rejected=counts["rejected"],
        rejections=tuple(
            _rejection(each)
            for each in (rejections if isinstance(rejections, list) else ())
            if isinstance(each, dict)
        ),
        rejected_items=integer(items),
        error_message=_text(partial.get("errorMessage")),
    )


def load_object(body: bytes) -> dict[str, object]:
    """The JSON object in ``body``; raises Unparsable for anything else, however deep or long."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        msg = "the body is no JSON"
        raise Unparsable(msg) from error
    if not isinstance(found, dict):
        msg = f"the body is no JSON object but {type(found).__name__}"
        raise Unparsable(msg)
    return found


def dumps(found: Mapping[str, object]) -> bytes:
    """An object as compact JSON in UTF-8."""
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()


def integer(value: object) -> int:
    """A 64-bit integer, written as a number or as a string; anything else is missing, hence 0."""
    return _integer(value) or 0


def _integer(value: object) -> int | None:
    if isinstance(value, str) and len(value) <= _MAX_DIGITS and value.isascii():
        digits = value.removeprefix("-")
        value = int(value) if digits.isdigit() else None
    if isinstance(value, int) and not isinstance(value, bool) and value in _INT64:
        return value
    return None


def clean(text: str, limit: int) -> str:
    """At most ``limit`` bytes of UTF-8; what is no character becomes a question mark."""
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def _with_partial(receipt: Receipt) -> receipt_pb2.Receipt:
    message = to_message(receipt)
    if receipt.rejected_items:
        message.partial_success.rejected = receipt.rejected_items
        message.partial_success.error_message = _error_message(receipt)
    return message


def _partial_json(receipt: Receipt, signal: str) -> dict[str, object]:
    if not receipt.rejected_items:
        return {}
    partial = {
        _REJECTED_ITEMS[signal]: str(receipt.rejected_items),
        "errorMessage": _error_message(receipt),
    }
    return {"partialSuccess": partial}


def _error_message(receipt: Receipt) -> str:
    text = receipt.error_message or f"{receipt.rejected} of {receipt.received} events rejected"
    return clean(text, MAX_MESSAGE)


def _tidy(rejection: Rejection) -> Rejection:
    return Rejection(
        clean(rejection.event_id, MAX_BYTES),
        rejection.code,
        clean(rejection.message, MAX_MESSAGE),
        rejection.item,
    )


def _rejection_json(rejection: Rejection) -> dict[str, str]:
    found = {"eventId": rejection.event_id, "code": rejection.code, "message": rejection.message}
    if not rejection.event_id:
        found["item"] = str(max(rejection.item, 0))
    return found


def _count(found: Mapping[str, object], name: str) -> int:
    """A count, 0 where it is missing; -1, which no sum takes, where it cannot be read."""
    value = found.get(name)
    count = 0 if value is None else _integer(value)
    return -1 if count is None else count


def _rejection(found: Mapping[str, object]) -> Rejection:
    event_id = _text(found.get("eventId"))
    return Rejection(
        event_id,
        _text(found.get("code")),
        _text(found.get("message")),
        -1 if event_id else integer(found.get("item")),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _is_texts(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
