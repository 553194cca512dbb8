"""What a sender makes of an answer: acknowledged, or why not (contract, section 3; A21, A22).

Pure. The sender folds what it sends, so it knows how many events a receipt must speak of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.commands.lint import fold_item
from flowmark_otel.errors import Unparsable
from flowmark_otel.model import Receipt, Refused, Rejection
from flowmark_otel.validate import ATTEMPT_PAIR, RETRY_OF_PAIR
from flowmark_otel.wire import receipt as receipts
from flowmark_otel.wire.decode import Request
from flowmark_otel.wire.status import decode_status

_OK: Final = 200
_JUDGED: Final = (400, 409)
_BY_STATUS: Final = {
    401: names.REASON_UNAUTHORIZED,
    403: names.REASON_UNAUTHORIZED,
    413: names.REASON_TOO_LARGE,
}


class Expected(NamedTuple):
    """What a request holds: events in all, and whether attempt or retry metadata is among them."""

    events: int
    opts_in: bool


class Answer(NamedTuple):
    """An HTTP answer as far as it is judged; ``encoding`` is the request's."""

    status: int
    content_type: str
    body: bytes
    encoding: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became of one request: events by state, and a reason where it was not acknowledged.

    ``reason`` is empty for a request whose every event was taken.
    """

    states: Counter[str] = field(default_factory=Counter)
    reason: str = ""
    detail: str = ""
    rejections: tuple[Rejection, ...] = ()


def expected_of(request: Request) -> Expected:
    """Fold a request as its receiver will."""
    events = 0
    opts_in = False
    for item in request.marked:
        folded = fold_item(item)
        events += len(folded)
        if folded and not isinstance(item.record, Refused):
            opts_in = opts_in or _opts_in(item.record.attributes)
    return Expected(events, opts_in)


def _opts_in(attributes: Mapping[str, object]) -> bool:
    pairs = (ATTEMPT_PAIR, RETRY_OF_PAIR)
    return any(all(attributes.get(key) is not None for key in pair) for pair in pairs)


def judge(answer: Answer, expected: Expected) -> Judgement:
    """Accept an answer or say why not."""
    if answer.status in _JUDGED:
        return _judge_error(answer, expected)
    if answer.status != _OK:
        reason = _BY_STATUS.get(answer.status, names.REASON_UNAVAILABLE)
        return failed(reason, expected, f"HTTP {answer.status}{_says(answer)}")
    wanted = "application/json" if answer.encoding == receipts.JSON else "application/x-protobuf"
    found = answer.content_type.partition(";")[0].strip().lower()
    if not expected.events:
        return Judgement()
    if found != wanted:
        detail = f"the answer is {found or 'of no type'}, not {wanted}"
        return _unreceipted(names.REASON_MALFORMED_RECEIPT, expected, detail)
    try:
        receipt = receipts.decode(answer.body, answer.encoding)
    except Unparsable as error:
        return _unreceipted(names.REASON_MALFORMED_RECEIPT, expected, str(error))
    return _judge_receipt(receipt, expected)


def _judge_receipt(receipt: Receipt, expected: Expected) -> Judgement:
    fault = receipts.fault(receipt, expected.events)
    if fault == names.REASON_UNACKNOWLEDGED:
        detail = f"the answer does not acknowledge {names.CAPABILITY}"
        return _unreceipted(fault, expected, detail)
    if fault is not None:
        detail = f"{expected.events} events sent, the receipt speaks of {receipt.received}"
        return failed(fault, expected, detail)
    states = Counter(
        {
            names.STORED: receipt.stored,
            names.DUPLICATE: receipt.duplicate,
            names.CUSTODY: receipt.custody,
            names.REASON_REJECTED: receipt.rejected,
        }
    )
    if not receipt.rejected:
        return Judgement(+states)
    return Judgement(+states, names.REASON_REJECTED, rejections=receipt.rejections)


def _judge_error(answer: Answer, expected: Expected) -> Judgement:
    """400 and 409 carry a receipt where events were judged."""
    try:
        status = decode_status(answer.body, answer.encoding)
    except Unparsable:
        return failed(names.REASON_UNAVAILABLE, expected, f"HTTP {answer.status}")
    if status.receipt is None:
        detail = f"HTTP {answer.status}: {status.message}"
        return failed(names.REASON_UNACKNOWLEDGED, expected, detail)
    return _judge_receipt(status.receipt, expected)


def _says(answer: Answer) -> str:
    try:
        message = decode_status(answer.body, answer.encoding).message
    except Unparsable:
        return ""
    return f": {message}" if message else ""


def _unreceipted(reason: str, expected: Expected, detail: str) -> Judgement:
    """A success without a receipt: fine unless attempt or retry metadata was sent (A21)."""
    if expected.opts_in:
        return failed(reason, expected, detail)
    return Judgement(Counter({names.ACCEPTED: expected.events}))


def failed(reason: str, expected: Expected, detail: str) -> Judgement:
    """A request none of whose events was acknowledged."""
    return Judgement(Counter({names.REASON_UNACKNOWLEDGED: expected.events}), reason, detail)
