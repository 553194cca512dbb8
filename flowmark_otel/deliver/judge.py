"""What an answer says of every event that was sent (contract, section 3; A21, A22, A23).

Pure, and closed where it fails: only what an answer clearly acknowledges counts as delivered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from flowmark_otel import names
from flowmark_otel.deliver.transport import Answer, EventStatus
from flowmark_otel.errors import Unparsable
from flowmark_otel.fold.digest import digest
from flowmark_otel.model import Envelope, Receipt, Rejection
from flowmark_otel.validate import ATTEMPT_PAIR, RETRY_OF_PAIR
from flowmark_otel.wire import receipt as receipts
from flowmark_otel.wire.status import decode_status

CONTENT_TYPES: Final = {
    receipts.PROTOBUF: "application/x-protobuf",
    receipts.JSON: "application/json",
}

_HTTP_OK: Final = 200
_PAIRS: Final = (ATTEMPT_PAIR, RETRY_OF_PAIR)
_REJECTION_CODES: Final = frozenset(
    (names.CONFLICT, names.INVALID, names.LIMIT, names.DEAD_LETTERED, names.DROPPED)
)


class Reading(NamedTuple):
    """An answer as far as it can be believed.

    ``receipt`` is set where it is well-formed and speaks of the events sent; else ``reason`` and
    ``detail`` say why not. ``success``: OTLP's plain success, which ordinary events need only.
    """

    receipt: Receipt | None = None
    success: bool = False
    reason: str = ""
    detail: str = ""


class Failed(NamedTuple):
    """One event that was not acknowledged, by its position in the request."""

    position: int
    state: str
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became of the events of one request; each is in exactly one of three places.

    ``states`` counts those acknowledged, ``failures`` are those that were not, ``unnamed`` the
    positions of which the receipt does not say whether they are among the rejected: ``resolve``
    settles them; ``doubtful`` are the rejections, by event id, of which it is not sure which event
    of that id they mean. ``reason`` is set where the answer as a whole could not be accepted.
    """

    states: Counter[str] = field(default_factory=Counter)
    failures: tuple[Failed, ...] = ()
    unnamed: tuple[int, ...] = ()
    doubtful: Mapping[str, Rejection] = field(default_factory=dict)
    receipt: Receipt | None = None
    reason: str = ""
    detail: str = ""


def opts_in(attributes: Mapping[str, object]) -> bool:
    """Whether there is attempt or retry metadata: the attempt pair or the retry_of pair."""
    return any(all(attributes.get(key) is not None for key in pair) for pair in _PAIRS)


def read(answer: Answer, encoding: str, expected: int) -> Reading:
    """Read the answer to a request that held ``expected`` events, in the request's encoding.

    An error is read for its receipt, which it has only where events were judged.
    """
    if not answer.grpc and answer.content_type != CONTENT_TYPES[encoding]:
        found = answer.content_type or "of no type"
        detail = f"the answer is {found}, not {CONTENT_TYPES[encoding]}"
        return Reading(reason=names.REASON_MALFORMED_RECEIPT, detail=detail)
    success = answer.status == (0 if answer.grpc else _HTTP_OK)
    try:
        receipt = _receipt(answer, encoding, success=success)
    except Unparsable as error:
        return Reading(reason=names.REASON_MALFORMED_RECEIPT, detail=str(error))
    if receipt is None:
        return Reading(reason=names.REASON_REJECTED, detail="refused as a whole, without a receipt")
    reason = _fault(receipt, expected)
    if not reason:
        return Reading(receipt, success)
    if reason != names.REASON_UNACKNOWLEDGED:
        detail = f"{expected} events sent, the receipt does not add up to them"
        return Reading(reason=reason, detail=detail)
    if receipt.rejected_items:
        detail = f"{receipt.rejected_items} rejected, not said which: {receipt.error_message}"
        return Reading(reason=names.REASON_REJECTED, detail=detail)
    detail = f"the answer does not acknowledge {names.CAPABILITY}"
    return Reading(success=success, reason=reason, detail=detail)


def judge(answer: Answer, encoding: str, events: Sequence[Envelope]) -> Judgement:
    """The state of every event of a request, by an answer that ``policy`` found worth judging."""
    reading = read(answer, encoding, len(events))
    if reading.receipt is not None:
        return _judge_receipt(reading.receipt, events)
    # A mixed batch without receipt: only what opted in failed (A21).
    accepted = [reading.success and not opts_in(each.attributes) for each in events]
    failures = tuple(
        Failed(position, names.UNACKNOWLEDGED, reading.reason, reading.detail)
        for position, taken in enumerate(accepted)
        if not taken
    )
    states = Counter({names.ACCEPTED: sum(accepted)})
    return Judgement(+states, failures, reason=reading.reason, detail=reading.detail)


def resolve(
    judgement: Judgement, events: Sequence[Envelope], statuses: Iterable[EventStatus]
) -> Judgement:
    """Settle the unnamed by what the backend says of their ids; ``statuses`` may lack some."""
    told = {status.event_id: status for status in statuses}
    states: Counter[str] = Counter()
    failures = list(judgement.failures)
    for position in judgement.unnamed:
        state, reason, message = _resolved(events[position], told, judgement.doubtful)
        if state in names.DELIVERED:
            states[state] += 1
        else:
            failures.append(Failed(position, state, reason, message))
    receipt = judgement.receipt
    if receipt is not None and states.total() == _taken(receipt).total():
        states = _taken(receipt)  # it tells stored and duplicate apart, the status does not
    failures.sort()
    return Judgement(states, tuple(failures), receipt=receipt)


def _receipt(answer: Answer, encoding: str, *, success: bool) -> Receipt | None:
    if success:
        return receipts.decode(answer.body, encoding)
    return decode_status(answer.body, encoding).receipt


def _fault(receipt: Receipt, expected: int) -> str:
    """Why a receipt is not accepted; empty if it is."""
    fault = receipts.fault(receipt, expected)
    if fault is None and len(receipt.rejections) > receipt.rejected:
        return names.REASON_MALFORMED_RECEIPT
    return fault or ""


def _taken(receipt: Receipt) -> Counter[str]:
    return +Counter(
        {
            names.STORED: receipt.stored,
            names.DUPLICATE: receipt.duplicate,
            names.CUSTODY: receipt.custody,
        }
    )


def _judge_receipt(receipt: Receipt, events: Sequence[Envelope]) -> Judgement:
    named, doubtful = _named(receipt.rejections, events)
    failures = tuple(_rejected(position, named[position]) for position in sorted(named))
    if len(named) == receipt.rejected:
        return Judgement(_taken(receipt), failures, receipt=receipt)
    unnamed = tuple(position for position in range(len(events)) if position not in named)
    return Judgement(failures=failures, unnamed=unnamed, doubtful=doubtful, receipt=receipt)


def _named(
    rejections: Sequence[Rejection], events: Sequence[Envelope]
) -> tuple[dict[int, Rejection], dict[str, Rejection]]:
    """Rejections by position; by id those of which nobody can say which event of it they mean."""
    named: dict[int, Rejection] = {}
    doubtful: dict[str, Rejection] = {}
    if not rejections:
        return named, doubtful  # nearly always: no event is looked at
    places: dict[str, list[int]] = {}
    for position, event in enumerate(events):
        places.setdefault(event.event_id, []).append(position)
    times = Counter(rejection.event_id for rejection in rejections)
    alike = {event_id: len(found) for event_id, found in places.items()}
    for rejection in rejections:
        event_id = rejection.event_id
        left = places.get(event_id)
        if event_id and left:
            if times[event_id] < alike[event_id]:
                doubtful[event_id] = rejection
            else:
                named[left.pop()] = rejection
        elif not event_id and 0 <= rejection.item < len(events):
            named.setdefault(rejection.item, rejection)
    return named, doubtful


def _rejected(position: int, rejection: Rejection) -> Failed:
    state, reason = _state_of_code(rejection.code)
    return Failed(position, state, reason, rejection.message)


def _state_of_code(code: str) -> tuple[str, str]:
    state = code if code in _REJECTION_CODES else names.UNACKNOWLEDGED
    return state, names.REASON_REJECTED


def _resolved(
    event: Envelope, told: Mapping[str, EventStatus], doubtful: Mapping[str, Rejection]
) -> tuple[str, str, str]:
    """State, reason and message of an event by the status of its id."""
    status = told.get(event.event_id)
    if status is None or status.state == names.STATE_UNKNOWN:
        return names.UNACKNOWLEDGED, names.REASON_UNACKNOWLEDGED, "the backend does not know it"
    if status.state == names.STATE_REJECTED:
        return (*_state_of_code(status.code), "rejected; the receipt had no room to say why")
    if status.state not in (names.STORED, names.CUSTODY) or not status.digest:
        return names.UNACKNOWLEDGED, names.REASON_UNACKNOWLEDGED, "the backend does not say"
    if status.digest != digest(event).hex():
        given = doubtful.get(event.event_id)
        if given is not None:
            return (*_state_of_code(given.code), given.message)
        message = "the id is stored with another payload"
        return names.CONFLICT, names.REASON_REJECTED, message
    return status.state, "", ""
