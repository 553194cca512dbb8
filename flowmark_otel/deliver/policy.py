"""What to do after a try: judge its answer, wait, give up, or halve the batch.

Pure: time, chance and the limits are arguments. Only what may help is tried again (contract,
section 4; OTLP specification). An answer that came but acknowledges nothing is judged, never a
reason to send again (A22).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple, TypeAlias

from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo

from flowmark_otel import names
from flowmark_otel.deliver.limits import Limits
from flowmark_otel.deliver.transport import Answer, NoAnswer
from flowmark_otel.errors import Unparsable
from flowmark_otel.wire.status import decode_status

RETRY_TRAILER: Final = "google.rpc.retryinfo-bin"
RETRY_HEADER: Final = "retry-after"
_NANO: Final = 1_000_000_000
_MAX_DIGITS: Final = 9

# HTTP
_OK: Final = 200
_TOO_LARGE: Final = 413
_HTTP_JUDGED: Final = frozenset((_OK, 400, 409))
_HTTP_AGAIN: Final = frozenset((429, 502, 503, 504))
_HTTP_KEYS: Final = frozenset((401, 403, 407))
_HTTP_SET_UP: Final = frozenset((404, 405, 415, 421, 426, 501))
_HTTP_BROKEN: Final = range(500, 600)
_OTHER_SUCCESSES: Final = range(201, 300)
_REDIRECTS: Final = range(300, 400)

# gRPC
_CANCELLED: Final = 1
_UNKNOWN: Final = 2
_INVALID_ARGUMENT: Final = 3
_DEADLINE_EXCEEDED: Final = 4
_NOT_FOUND: Final = 5
_ALREADY_EXISTS: Final = 6
_PERMISSION_DENIED: Final = 7
_RESOURCE_EXHAUSTED: Final = 8
_ABORTED: Final = 10
_OUT_OF_RANGE: Final = 11
_UNIMPLEMENTED: Final = 12
_INTERNAL: Final = 13
_UNAVAILABLE: Final = 14
_DATA_LOSS: Final = 15
_UNAUTHENTICATED: Final = 16
_GRPC_JUDGED: Final = frozenset((0, _INVALID_ARGUMENT, _ALREADY_EXISTS))
_GRPC_AGAIN: Final = frozenset(
    (_CANCELLED, _DEADLINE_EXCEEDED, _ABORTED, _OUT_OF_RANGE, _UNAVAILABLE, _DATA_LOSS)
)
_GRPC_KEYS: Final = frozenset((_PERMISSION_DENIED, _UNAUTHENTICATED))
_GRPC_SET_UP: Final = frozenset((_NOT_FOUND, _UNIMPLEMENTED))
_GRPC_BROKEN: Final = frozenset((_UNKNOWN, _INTERNAL))


class Send(NamedTuple):
    """Try now; the try may take ``timeout`` seconds."""

    timeout: float


class Wait(NamedTuple):
    """Try again after ``seconds``.

    ``told``: the server named the time, so nothing shortens it. ``paused``: a fault of set-up or
    of the server, which waiting will hardly mend: nobody has to wait for the next try.
    """

    seconds: float
    reason: str
    detail: str
    told: bool = False
    paused: bool = False


class GiveUp(NamedTuple):
    """These events will not be sent again and were not acknowledged."""

    reason: str
    detail: str


class Halve(NamedTuple):
    """Something in the batch is refused as a whole: send its halves until it is alone."""

    detail: str


class Judge(NamedTuple):
    """The answer speaks of the events: judge it."""

    answer: Answer


Decision: TypeAlias = Wait | GiveUp | Halve | Judge


class Try(NamedTuple):
    """One try of a batch.

    ``number`` counts from 1; ``elapsed`` are the seconds since the first try began; ``events``
    are those in the batch; ``jitter`` is from 0 to 1.
    """

    number: int
    elapsed: float
    events: int
    jitter: float


def begin(elapsed: float, limits: Limits) -> Send:
    """The next try: as long as one may take, and no longer than the budget."""
    if limits.budget is None:
        return Send(limits.timeout)
    return Send(max(min(limits.timeout, limits.budget - elapsed), limits.first_wait))


def decide(outcome: Answer | NoAnswer, tried: Try, limits: Limits, now_ns: int) -> Decision:
    """What to do after this outcome; ``now_ns`` is needed for a ``Retry-After`` that is a date."""
    if isinstance(outcome, NoAnswer):
        return _again(outcome.reason, str(outcome), None, tried, limits)
    detail = _described(outcome)
    if outcome.grpc:
        return _decide_grpc(outcome, detail, tried, limits)
    if outcome.status in _HTTP_AGAIN:
        asked = retry_after(outcome, now_ns)
        return _again(names.REASON_UNAVAILABLE, detail, asked, tried, limits)
    return _decide_http(outcome, detail, tried, limits)


def _decide_http(answer: Answer, detail: str, tried: Try, limits: Limits) -> Decision:
    status = answer.status
    if status in _HTTP_JUDGED:
        return _judge_or_halve(answer, _OK, detail, tried)
    if status == _TOO_LARGE:
        return _too_large(detail, tried)
    if status in _HTTP_KEYS:
        return _pause(names.REASON_UNAUTHORIZED, detail, limits)
    if status in _HTTP_SET_UP or status in _REDIRECTS:
        return _pause(names.REASON_UNAVAILABLE, detail, limits)
    if status in _HTTP_BROKEN:
        return _pause_awhile(detail, tried, limits)
    if status in _OTHER_SUCCESSES:  # OTLP's success is 200 alone
        return GiveUp(names.REASON_UNACKNOWLEDGED, detail)
    return GiveUp(names.REASON_UNAVAILABLE, detail)


def _decide_grpc(answer: Answer, detail: str, tried: Try, limits: Limits) -> Decision:
    code = answer.status
    if code in _GRPC_JUDGED:
        return _judge_or_halve(answer, 0, detail, tried)
    asked = retry_info(answer)
    if code in _GRPC_AGAIN or (code == _RESOURCE_EXHAUSTED and asked is not None):
        late = code == _DEADLINE_EXCEEDED
        reason = names.REASON_TIMEOUT if late else names.REASON_UNAVAILABLE
        return _again(reason, detail, asked, tried, limits)
    if code == _RESOURCE_EXHAUSTED:
        return _too_large(detail, tried)
    if code in _GRPC_KEYS:
        return _pause(names.REASON_UNAUTHORIZED, detail, limits)
    if code in _GRPC_SET_UP:
        return _pause(names.REASON_UNAVAILABLE, detail, limits)
    if code in _GRPC_BROKEN:
        return _pause_awhile(detail, tried, limits)
    return GiveUp(names.REASON_UNAVAILABLE, detail)


def _judge_or_halve(answer: Answer, success: int, detail: str, tried: Try) -> Decision:
    """Where events were judged an error holds a receipt; else one event may spoil the batch."""
    if answer.status == success or carries_receipt(answer):
        return Judge(answer)
    return Halve(detail) if tried.events > 1 else GiveUp(names.REASON_REJECTED, detail)


def _too_large(detail: str, tried: Try) -> Decision:
    return Halve(detail) if tried.events > 1 else GiveUp(names.REASON_TOO_LARGE, detail)


def _again(
    reason: str, detail: str, asked: float | None, tried: Try, limits: Limits
) -> Wait | GiveUp:
    if limits.budget is not None and tried.elapsed >= limits.budget:
        return GiveUp(reason, detail)
    if asked is None:
        seconds = backoff(tried.number, tried.jitter, limits)
    else:
        seconds = min(asked, limits.longest_told)
    return Wait(seconds, reason, detail, told=asked is not None)


def _pause(reason: str, detail: str, limits: Limits) -> Wait:
    """A fault of set-up is no reason to lose data: what is queued stays, while there is room."""
    return Wait(limits.pause, reason, detail, paused=True)


def _pause_awhile(detail: str, tried: Try, limits: Limits) -> Wait | GiveUp:
    """A server that fails may be mended; but what makes it fail must not stand in front for ever.

    OTLP does not call this worth a retry, so it is slow: a few tries, known again by event id.
    """
    if tried.elapsed >= limits.broken:
        return GiveUp(names.REASON_UNAVAILABLE, detail)
    return _pause(names.REASON_UNAVAILABLE, detail, limits)


def backoff(number: int, jitter: float, limits: Limits) -> float:
    """Seconds after try ``number``: doubling, at most the longest; the jitter takes up to half."""
    full = min(limits.first_wait * 2.0 ** min(number - 1, 32), limits.longest_wait)
    return full * (1.0 - jitter / 2.0)


def carries_receipt(answer: Answer) -> bool:
    """Whether an error says what became of the events."""
    try:
        return decode_status(answer.body, encoding_of(answer)).receipt is not None
    except Unparsable:
        return False


def encoding_of(answer: Answer) -> str:
    """How the body of an answer is written, as ``wire`` names it; gRPC is always protobuf."""
    return "json" if answer.content_type == "application/json" else "protobuf"


def retry_after(answer: Answer, now_ns: int) -> float | None:
    """The seconds a ``Retry-After`` asks for, given as a number or as a date; None without one."""
    value = answer.headers.get(RETRY_HEADER)
    if not isinstance(value, str):
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value[:_MAX_DIGITS])
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=timezone.utc)
    now = datetime.fromtimestamp(now_ns / _NANO, timezone.utc)
    return max((date - now).total_seconds(), 0.0)


def retry_info(answer: Answer) -> float | None:
    """The seconds a RetryInfo asks for, in either of its forms; None without one."""
    try:
        asked = decode_status(answer.body, "protobuf").retry_after
    except Unparsable:
        asked = None
    return _trailer(answer.headers) if asked is None else max(asked, 0.0)


def _trailer(headers: Mapping[str, str | bytes]) -> float | None:
    value = headers.get(RETRY_TRAILER)
    if not isinstance(value, bytes):
        return None
    info = RetryInfo()
    try:
        info.ParseFromString(value)
    except DecodeError:
        return None
    return max(info.retry_delay.seconds + info.retry_delay.nanos / _NANO, 0.0)


def _described(answer: Answer) -> str:
    """An answer in words, for people."""
    kind = "gRPC code" if answer.grpc else "HTTP"
    says = answer.message
    if not says:
        try:
            says = decode_status(answer.body, encoding_of(answer)).message
        except Unparsable:
            says = ""
    return f"{kind} {answer.status}: {says}" if says else f"{kind} {answer.status}"
