"""What a sender makes of an answer: acknowledged, or why not (contract, section 3; A21, A22).

Pure. Answers are read as delivery reads them; here a request is judged as a whole, for it may
hold spans. The sender folds what it sends, so it knows how many events a receipt must speak of.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.deliver import judge as judges, transport
from flowmark_otel.errors import Unparsable
from flowmark_otel.fold.items import events_of
from flowmark_otel.model import Receipt, Refused, Rejection
from flowmark_otel.signals import NO_SIGNALS
from flowmark_otel.wire.decode import Request
from flowmark_otel.wire.status import decode_status

_OK: Final = 200
_JUDGED: Final = (_OK, 400, 409)
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
        folded, _ = events_of(item.record, NO_SIGNALS)
        events += len(folded)
        if folded and not isinstance(item.record, Refused):
            opts_in = opts_in or judges.opts_in(item.record.attributes)
    return Expected(events, opts_in)


def judge(answer: Answer, expected: Expected) -> Judgement:
    """Accept an answer or say why not."""
    if answer.status not in _JUDGED:
        reason = _BY_STATUS.get(answer.status, names.REASON_UNAVAILABLE)
        return failed(reason, expected, f"HTTP {answer.status}{_says(answer)}")
    if not expected.events and answer.status == _OK:
        return Judgement()
    headers = {"content-type": answer.content_type}
    came = transport.Answer(answer.status, answer.body, headers)
    reading = judges.read(came, answer.encoding, expected.events)
    if reading.receipt is not None:
        return _judge_receipt(reading.receipt)
    if reading.success and not expected.opts_in:  # A21
        return Judgement(Counter({names.ACCEPTED: expected.events}))
    detail = reading.detail
    if answer.status != _OK:
        detail = f"refused as a whole, HTTP {answer.status}{_says(answer)}"
    return failed(reading.reason, expected, detail)


def _judge_receipt(receipt: Receipt) -> Judgement:
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


def _says(answer: Answer) -> str:
    try:
        message = decode_status(answer.body, answer.encoding).message
    except Unparsable:
        return ""
    return f": {message}" if message else ""


def failed(reason: str, expected: Expected, detail: str) -> Judgement:
    """A request none of whose events was acknowledged."""
    return Judgement(+Counter({names.REASON_UNACKNOWLEDGED: expected.events}), reason, detail)
